/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm and RMS norm, over the channels of each position or pixel. */
#include <float.h>
#include <math.h>

#include "../nn.h"

static int channels_of(const struct pp_node *n)
{
    return pp_shape_channels(&n->out);
}

static bool is_centred(const struct pp_node *n)
{
    return n->op == &op_row_norm;
}

static void find_workspace(const struct pp_node *n, const struct pp_backend_choice *choice,
                           int rows, struct pp_workspace *w)
{
    w->keep = 2 * (size_t)rows * (size_t)n->positions;
}

static int forward(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    return pp_backend_row_norm_forward(
        be, &(struct pp_row_norm_forward){.B = at->pass->rows * n->positions,
                                          .C = channels_of(n),
                                          .centred = is_centred(n),
                                          .eps = n->norm.eps,
                                          .x = at->x[0],
                                          .gamma = at->params,
                                          .beta = n->bias ? at->params + channels_of(n) : NULL,
                                          .keep = at->keep,
                                          .y = at->y});
}

static int backward_input(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    if (!at->dx[0])
        return 0;
    return pp_backend_row_norm_backward_input(
        be, &(struct pp_row_norm_backward_input){.B = at->pass->rows * n->positions,
                                                 .C = channels_of(n),
                                                 .centred = is_centred(n),
                                                 .x = at->x[0],
                                                 .gamma = at->params,
                                                 .keep = at->keep,
                                                 .dy = at->dy,
                                                 .add = at->add[0],
                                                 .dx = at->dx[0]});
}

static int backward_weight(const struct pp_node *n, struct pp_backend *be, int n_parts,
                           const struct pp_weight_part *parts, float beta, float *scratch,
                           float *grads)
{
    for (int i = 0; i < n_parts; i++) {
        PP_TRY(pp_backend_row_norm_backward_weight(
            be, &(struct pp_row_norm_backward_weight){.B = parts[i].B,
                                                      .C = channels_of(n),
                                                      .x = parts[i].x,
                                                      .keep = parts[i].keep,
                                                      .dy = parts[i].dz,
                                                      .beta = i > 0 ? 1 : beta,
                                                      .dgamma = grads,
                                                      .dbeta = n->bias ? grads + channels_of(n)
                                                                       : NULL}));
    }
    return 0;
}

/* Returns a bound of the gradients. They are sums over rows of dz and of dz * xhat, and |xhat| is
 * at most 2 |x| / sqrt(eps) for every x; the bound is doubled to allow for rounding. */
static double bound(const struct pp_node *n, int rows, float x, float dz)
{
    double xhat = fmax(1, 2 * (double)x / sqrt((double)n->norm.eps));
    return xhat < (double)FLT_MAX ? 2.0 * rows * n->positions * xhat * (double)dz : INFINITY;
}

#define ROW_NORM(word)                                                                             \
    {                                                                                              \
        .name = word,                                                                              \
        .kernels = PP_USES(row_norm_forward) | PP_USES(row_norm_backward_input) |                  \
                   PP_USES(row_norm_backward_weight),                                              \
        .workspace = find_workspace, .bound = bound, .forward = forward,                           \
        .backward_input = backward_input, .backward_weight = backward_weight,                      \
    }

const struct pp_node_op op_row_norm = ROW_NORM("layer norm");
static const struct pp_node_op rms_norm_op = ROW_NORM("RMS norm");

static int add_row_norm(struct builder *b, const struct pp_node_op *op, const char *name, int x,
                        float eps, bool bias)
{
    struct pp_node *n = add_node(b, op, name, x, -1, *shape_of(b, x));
    if (!n)
        return 0;
    int y = n->y, C = channels_of(n);
    n->norm.eps = eps;
    n->bias = bias;
    n->positions = (int)pp_shape_floats(&n->out) / C;
    n->reads = PP_READS_X_IN_I | PP_READS_X_IN_W | PP_READS_DY_IN_W;
    struct pp_param *weight = add_param(b, "weight", PP_PARAM_PLAIN, 1, &C);
    if (weight)
        weight->a = 1;
    if (bias)
        add_param(b, "bias", PP_PARAM_PLAIN, 1, &C);
    return y;
}

int layer_norm(struct builder *b, const char *name, int x, float eps, bool bias)
{
    return add_row_norm(b, &op_row_norm, name, x, eps, bias);
}

int rms_norm(struct builder *b, const char *name, int x, float eps)
{
    return add_row_norm(b, &rms_norm_op, name, x, eps, false);
}
