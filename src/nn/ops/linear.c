/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The linear op with its activation: y[rows][out] = act(x[rows][in] * W[out][in]^T + b[out]), with
 * or without b. One op rather than two, because every fast library offers the pair as one. W and b
 * may be those of several layers of the same x, one after the other.
 */
#include <math.h>

#include "../nn.h"

static int width(const struct pp_shape *s)
{
    return s->n == 2 ? s->dims[1] : (int)pp_shape_floats(s);
}

static int in(const struct pp_node *n)
{
    return width(&n->in);
}

static int out(const struct pp_node *n)
{
    return width(&n->out);
}

/* The bias among the node's parameters or their gradients: after the weight. */
static const float *bias_of(const struct pp_node *n, const float *params)
{
    return n->bias ? params + (size_t)out(n) * (size_t)in(n) : NULL;
}

/* Elements from one row of y to the next. */
static int row(const struct pp_node *n, const struct pp_backend_choice *choice)
{
    return n->logits ? pp_backend_logits_row(choice, out(n)) : out(n);
}

static bool saves_z(const struct pp_node *n)
{
    return pp_activation_facts(n->activation)->saves_z;
}

static void words(const struct pp_node *n, const struct pp_backend_choice *choice, int rows,
                  struct pp_words *words)
{
    size_t all = (size_t)rows * (size_t)n->positions;
    words->keep = saves_z(n) ? pp_value_floats(choice, all * (size_t)out(n)) : 0;
    words->scratch = n->shared[0] ? pp_value_floats(choice, all * (size_t)in(n)) : 0;
    words->packed = choice ? pp_backend_packed_floats(choice, out(n), in(n)) : 0;
}

/* Products only: they are all but a few percent. */
static void cost(const struct pp_node *n, struct pp_layer_cost *c)
{
    double product = 2.0 * n->positions * in(n)*out(n);
    c->flops_f = product;
    c->flops_i = n->wants_dx[0] ? product : 0;
    c->flops_w = product;
}

static int pack(const struct pp_node *n, struct pp_backend *be, const float *params, float *packed)
{
    return pp_backend_pack_weights(be, out(n), in(n), params, bias_of(n, params), packed);
}

static int prepare(const struct pp_node *n, struct pp_backend *be, int rows, const float *params,
                   const float *packed, float *grads)
{
    struct pp_linear_use use = {.B = rows * n->positions,
                                .I = in(n),
                                .O = out(n),
                                .act = n->activation,
                                .keeps_z = saves_z(n),
                                .dx = grads && n->wants_dx[0],
                                .W = params,
                                .packed = packed,
                                .b = bias_of(n, params),
                                .dW = grads,
                                .db = grads ? (float *)bias_of(n, grads) : NULL,
                                .row = row(n, &be->choice)};
    return pp_backend_prepare_linear(be, &use);
}

static int forward(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    return pp_backend_linear_forward(
        be, &(struct pp_linear_forward){at->pass->rows * n->positions, in(n), out(n), at->x[0],
                                        at->params, at->packed, bias_of(n, at->params),
                                        n->activation, at->keep, at->y, row(n, &be->choice)});
}

static int backward_input(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    int rows = at->pass->rows * n->positions;
    if (n->activation != PP_ACT_NONE) {
        PP_TRY(pp_backend_activate_backward(
            be, &(struct pp_activate_backward){.n = (size_t)rows * (size_t)out(n),
                                               .act = n->activation,
                                               .saved = saves_z(n) ? at->keep : at->y,
                                               .dy = at->dy,
                                               .dx = at->dy}));
    }
    if (!at->dx[0])
        return 0;
    float *dx = at->add[0] ? at->scratch : at->dx[0];
    PP_TRY(pp_backend_linear_backward_input(
        be, &(struct pp_linear_backward_input){rows, in(n), out(n), at->dy, at->params, at->packed,
                                               dx, row(n, &be->choice)}));
    const struct pp_sum both = {(size_t)rows * (size_t)in(n), at->dx[0], dx, .y = at->dx[0]};
    return at->add[0] ? pp_backend_sum(be, &both) : 0;
}

static int backward_weight(const struct pp_node *n, struct pp_backend *be, int n_parts,
                           const struct pp_weight_part *parts, float beta, float *scratch,
                           float *grads)
{
    return pp_backend_linear_backward_weight(
        be, &(struct pp_linear_backward_weight){n_parts, parts, in(n), out(n), beta, grads,
                                                (float *)bias_of(n, grads), row(n, &be->choice)});
}

/* A gradient is a sum over rows of x * dz, that of a bias one of dz. Twice over, for the roundings
 * on the way, of which there are at most as many as rows. */
double linear_bound(const struct pp_node *n, int rows, float x, float dz)
{
    return 2.0 * rows * n->positions * fmax((double)x, 1.0) * (double)dz;
}

const struct pp_node_op op_linear = {
    .name = "linear",
    .words = words,
    .cost = cost,
    .bound = linear_bound,
    .pack = pack,
    .prepare = prepare,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
};

int linear_pieces(struct builder *b, const char *name, int x, int n_pieces,
                  const struct linear_piece *pieces, enum pp_activation act)
{
    const struct pp_shape from = *shape_of(b, x);
    int columns = width(&from), all = 0;
    for (int i = 0; i < n_pieces; i++)
        all += pieces[i].out;
    struct pp_shape to = pp_shape_flat(all);
    if (from.n == 2)
        to = (struct pp_shape){2, {from.dims[0], all, 1}};
    struct pp_node *n = add_node(b, &op_linear, name, x, -1, to);
    if (!n)
        return 0;
    n->activation = act;
    n->bias = pieces[0].bias;
    n->positions = from.n == 2 ? from.dims[0] : 1;
    n->reads = PP_READS_X_IN_W | PP_READS_DY_IN_W;
    if (act != PP_ACT_NONE && !saves_z(n))
        n->reads |= PP_READS_Y_IN_I;
    int y = n->y;
    for (int i = 0; i < n_pieces; i++) {
        int shape[2] = {pieces[i].out, columns};
        struct pp_param *w = add_param(b, pieces[i].weight, PP_PARAM_DECAYED, 2, shape);
        if (w) {
            init_weight(b, w, columns, act);
            if (from.n == 3 && from.dims[0] * from.dims[1] > 1)
                w->columns = from;
        }
    }
    for (int i = 0; i < n_pieces && pieces[0].bias; i++) {
        struct pp_param *bias = add_param(b, pieces[i].bias, PP_PARAM_PLAIN, 1, &pieces[i].out);
        if (bias)
            init_bias(b, bias, columns);
    }
    return y;
}

int linear(struct builder *b, const char *name, int x, int out_width, enum pp_activation act)
{
    return linear_pieces(b, name, x, 1, &(struct linear_piece){"weight", "bias", out_width}, act);
}
