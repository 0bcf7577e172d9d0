/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The projections before an attention between two texts, sample by sample: q[T][C] = x0 * W[0..C)^T
 * + b, then kv[T][2C] = x1 * W[C..3C)^T + b. They are one op because PyTorch has the three weights
 * as one parameter, and blocks because attention reads them in place.
 */
#include <math.h>
#include <string.h>

#include "../nn.h"

/* One of the two products: `out` columns, from row `from` of W on. */
struct half {
    int in, out, positions;
    size_t W, b, packed;          /* offsets */
    size_t x_sample, y, y_sample; /* y: within the sample's output */
};

static struct half find_half(const struct pp_node *n, const struct pp_backend_choice *choice, int j)
{
    int in = n->in.dims[1], C = n->out.dims[1] / 3, from = j * C;
    size_t T = (size_t)n->positions;
    return (struct half){.in = in,
                         .out = (j + 1) * C,
                         .positions = n->positions,
                         .W = (size_t)from * (size_t)in,
                         .b = 3 * (size_t)C * (size_t)in + (size_t)from,
                         .packed = j && choice ? pp_backend_packed_floats(choice, C, in) : 0,
                         .x_sample = T * (size_t)in,
                         .y = (size_t)from * T,
                         .y_sample = T * 3 * (size_t)C};
}

static void find_workspace(const struct pp_node *n, const struct pp_backend_choice *choice,
                           int rows, struct pp_workspace *w)
{
    struct half kv = find_half(n, choice, 1);
    w->packed = kv.packed;
    if (choice)
        w->packed += pp_backend_packed_floats(choice, kv.out, kv.in);
    if (n->shared[0] || n->shared[1])
        w->scratch = pp_value_floats(choice, kv.x_sample);
}

static void cost(const struct pp_node *n, struct pp_layer_cost *c)
{
    size_t channels = n->out.dims[1] / 3;
    double product = 2.0 * n->positions * n->in.dims[1] * channels;
    c->flops_f = 3 * product;
    c->flops_i = (n->wants_dx[0] ? product : 0) + (n->wants_dx[1] ? 2 * product : 0);
    c->flops_w = 3 * product;
}

static int pack(const struct pp_node *n, struct pp_backend *be, const float *params, float *packed)
{
    for (int j = 0; j < 2; j++) {
        struct half h = find_half(n, &be->choice, j);
        PP_TRY(pp_backend_pack_weights(be, h.out, h.in, params + h.W, params + h.b,
                                       packed + h.packed));
    }
    return 0;
}

static int prepare(const struct pp_node *n, struct pp_backend *be, int rows, const float *params,
                   const float *packed, float *grads)
{
    for (int j = 0; j < 2; j++) {
        struct half h = find_half(n, &be->choice, j);
        struct pp_linear_use use = {.B = h.positions,
                                    .I = h.in,
                                    .O = h.out,
                                    .dx = grads && n->wants_dx[j],
                                    .W = params + h.W,
                                    .packed = packed ? packed + h.packed : NULL,
                                    .b = params + h.b,
                                    .dW = grads ? grads + h.W : NULL,
                                    .db = grads ? grads + h.b : NULL};
        PP_TRY(pp_backend_prepare_linear(be, &use));
    }
    return 0;
}

static int forward(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    for (int j = 0; j < 2; j++) {
        struct half h = find_half(n, &be->choice, j);
        const float *packed = at->packed ? at->packed + h.packed : NULL;
        for (size_t r = 0; r < (size_t)at->pass->rows; r++) {
            PP_TRY(pp_backend_linear_forward(
                be, &(struct pp_linear_forward){
                        h.positions, h.in, h.out, pp_value_at(be, at->x[j], r * h.x_sample),
                        at->params + h.W, packed, at->params + h.b, PP_ACT_NONE, NULL,
                        pp_value_at(be, at->y, r * h.y_sample + h.y), 0}));
        }
    }
    return 0;
}

static int backward_input(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    for (int j = 0; j < 2; j++) {
        struct half h = find_half(n, &be->choice, j);
        const float *packed = at->packed ? at->packed + h.packed : NULL;
        for (size_t r = 0; at->dx[j] && r < (size_t)at->pass->rows; r++) {
            float *dx = pp_value_at(be, at->dx[j], r * h.x_sample);
            float *to = at->add[j] ? at->scratch : dx;
            const float *dy = pp_value_at(be, at->dy, r * h.y_sample + h.y);
            PP_TRY(pp_backend_linear_backward_input(
                be, &(struct pp_linear_backward_input){h.positions, h.in, h.out, dy,
                                                       at->params + h.W, packed, to, 0}));
            if (at->add[j])
                PP_TRY(pp_backend_sum(be, &(struct pp_sum){h.x_sample, dx, to, .y = dx}));
        }
    }
    return 0;
}

/* Computes the weight gradient with one product for each sample, so that no cut between samples
 * changes the order of the sums. */
static int backward_weight(const struct pp_node *n, struct pp_backend *be, int n_parts,
                           const struct pp_weight_part *parts, float beta, float *scratch,
                           float *grads)
{
    for (int j = 0; j < 2; j++) {
        struct half h = find_half(n, &be->choice, j);
        float add = beta;
        for (const struct pp_weight_part *p = parts; p < parts + n_parts; p++) {
            size_t samples = (size_t)(p->B / h.positions);
            for (size_t r = 0; r < samples || (r == 0 && add == 0); r++) {
                struct pp_weight_part one = {.B = r < samples ? h.positions : 0,
                                             .dz = pp_value_at(be, p->dz, r * h.y_sample + h.y),
                                             .x =
                                                 pp_value_at(be, j ? p->x1 : p->x, r * h.x_sample)};
                PP_TRY(pp_backend_linear_backward_weight(
                    be, &(struct pp_linear_backward_weight){1, &one, h.in, h.out, add, grads + h.W,
                                                            grads + h.b, 0}));
                add = 1;
            }
        }
    }
    return 0;
}

const struct pp_node_op op_cross_linear = {
    .name = "cross linear",
    .workspace = find_workspace,
    .cost = cost,
    .bound = linear_bound,
    .pack = pack,
    .prepare = prepare,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
};

int cross_linear(struct builder *b, const char *name, int q_from, int kv_from, int channels)
{
    const struct pp_shape q = *shape_of(b, q_from), kv = *shape_of(b, kv_from);
    char text[48], of_kv[48];
    pp_shape_text(&q, text, sizeof(text));
    pp_shape_text(&kv, of_kv, sizeof(of_kv));
    if (q.n != 2 || kv.n != 2 || memcmp(&q, &kv, sizeof(q)) != 0)
        return refuse(b, "%s: cross projections need two texts of one shape, not %s and %s", name,
                      text, of_kv);
    struct pp_node *n = add_node(b, &op_cross_linear, name, q_from, kv_from,
                                 (struct pp_shape){2, {q.dims[0], 3 * channels, 1}});
    if (!n)
        return 0;
    n->positions = q.dims[0];
    n->reads = PP_READS_X_IN_W | PP_READS_X1_IN_W | PP_READS_DY_IN_W;
    int y = n->y, shape[2] = {3 * channels, q.dims[1]};
    struct pp_param *w = add_param(b, "in_proj_weight", PP_PARAM_DECAYED, 2, shape);
    if (w) { /* PyTorch's: Xavier for the three as one weight, biases 0 */
        w->init = PP_INIT_UNIFORM;
        w->b = (float)sqrt(6.0 / (shape[0] + shape[1]));
        w->a = -w->b;
    }
    add_param(b, "in_proj_bias", PP_PARAM_PLAIN, 1, shape);
    return y;
}
