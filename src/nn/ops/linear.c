/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The linear op with its activation: y[rows][out] = act(x[rows][in] * W[out][in]^T + b[out]), b
 * optional. One op, because every fast library offers both as one call. W and b may be those of
 * several layers of the same x, one after the other; or some rows of larger ones.
 */
#include <math.h>

#include "../nn.h"

static int width_of(const struct pp_shape *s)
{
    return s->n == 2 ? s->dims[1] : (int)pp_shape_floats(s);
}

static int inputs_of(const struct pp_node *n)
{
    return width_of(&n->in);
}

static int outputs_of(const struct pp_node *n)
{
    return width_of(&n->out);
}

/* Returns the rows of the node's weight, of which the product may use some. */
static size_t rows_of_weight(const struct pp_node *n)
{
    return (size_t)(n->rows.all > 0 ? n->rows.all : outputs_of(n));
}

/* Returns the first row that is used, within the node's parameters or gradients. */
static const float *weight_at(const struct pp_node *n, const float *params)
{
    return params ? params + (size_t)n->rows.first * (size_t)inputs_of(n) : NULL;
}

/* Returns the bias within the node's parameters or gradients, where it follows the weight; NULL if
 * there is none. */
static const float *bias_at(const struct pp_node *n, const float *params)
{
    return n->bias ? params + rows_of_weight(n) * (size_t)inputs_of(n) + n->rows.first : NULL;
}

/* Returns the number of elements from one row of y to the next; rows of logits may be padded. */
static int row_of_outputs(const struct pp_node *n, const struct pp_backend_choice *choice)
{
    return n->logits ? pp_backend_logits_row(choice, outputs_of(n)) : outputs_of(n);
}

static bool saves_z(const struct pp_node *n)
{
    return pp_activation_facts(n->activation)->saves_z;
}

static void find_workspace(const struct pp_node *n, const struct pp_backend_choice *choice,
                           int rows, struct pp_workspace *w)
{
    size_t all = (size_t)rows * (size_t)n->positions;
    w->keep = saves_z(n) ? pp_value_floats(choice, all * (size_t)outputs_of(n)) : 0;
    w->scratch = n->shared[0] ? pp_value_floats(choice, all * (size_t)inputs_of(n)) : 0;
    w->packed = choice ? pp_backend_packed_floats(choice, outputs_of(n), inputs_of(n)) : 0;
}

/* Counts the flops of the products only, because other work is a few percent. */
static void cost(const struct pp_node *n, struct pp_layer_cost *c)
{
    double product = 2.0 * n->positions * inputs_of(n) * outputs_of(n);
    c->flops_f = product;
    c->flops_i = n->wants_dx[0] ? product : 0;
    c->flops_w = product;
}

static int pack(const struct pp_node *n, struct pp_backend *be, const float *params, float *packed)
{
    return pp_backend_pack_weights(be, outputs_of(n), inputs_of(n), weight_at(n, params),
                                   bias_at(n, params), packed);
}

static int prepare(const struct pp_node *n, struct pp_backend *be, int rows, const float *params,
                   const float *packed, float *grads)
{
    struct pp_linear_use use = {.B = rows * n->positions,
                                .I = inputs_of(n),
                                .O = outputs_of(n),
                                .act = n->activation,
                                .keeps_z = saves_z(n),
                                .dx = grads && n->wants_dx[0],
                                .W = weight_at(n, params),
                                .packed = packed,
                                .b = bias_at(n, params),
                                .dW = (float *)weight_at(n, grads),
                                .db = grads ? (float *)bias_at(n, grads) : NULL,
                                .row = row_of_outputs(n, &be->choice)};
    return pp_backend_prepare_linear(be, &use);
}

static int forward(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    return pp_backend_linear_forward(
        be, &(struct pp_linear_forward){at->pass->rows * n->positions, inputs_of(n), outputs_of(n),
                                        at->x[0], weight_at(n, at->params), at->packed,
                                        bias_at(n, at->params), n->activation, at->keep, at->y,
                                        row_of_outputs(n, &be->choice)});
}

static int backward_input(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    int rows = at->pass->rows * n->positions;
    if (n->activation != PP_ACT_NONE) {
        PP_TRY(pp_backend_activate_backward(
            be, &(struct pp_activate_backward){.n = (size_t)rows * (size_t)outputs_of(n),
                                               .act = n->activation,
                                               .saved = saves_z(n) ? at->keep : at->y,
                                               .dy = at->dy,
                                               .dx = at->dy}));
    }
    if (!at->dx[0])
        return 0;
    float *dx = at->add[0] ? at->scratch : at->dx[0];
    PP_TRY(pp_backend_linear_backward_input(
        be, &(struct pp_linear_backward_input){rows, inputs_of(n), outputs_of(n), at->dy,
                                               weight_at(n, at->params), at->packed, dx,
                                               row_of_outputs(n, &be->choice)}));
    const struct pp_sum both = {(size_t)rows * (size_t)inputs_of(n), at->dx[0], dx, .y = at->dx[0]};
    return at->add[0] ? pp_backend_sum(be, &both) : 0;
}

static int backward_weight(const struct pp_node *n, struct pp_backend *be, int n_parts,
                           const struct pp_weight_part *parts, float beta, float *scratch,
                           float *grads)
{
    bool some = rows_of_weight(n) > (size_t)outputs_of(n);
    if (some && beta == 0) /* the rows that are not used */
        PP_TRY(pp_backend_zero(be, grads, n->n_floats * sizeof(*grads)));
    return pp_backend_linear_backward_weight(
        be, &(struct pp_linear_backward_weight){
                n_parts, parts, inputs_of(n), outputs_of(n), beta, (float *)weight_at(n, grads),
                (float *)bias_at(n, grads), row_of_outputs(n, &be->choice)});
}

/* Returns a bound of the gradients. A weight gradient is a sum of x * dz over rows, and a bias
 * gradient a sum of dz; the bound is doubled to allow for at most one rounding per row. */
double linear_bound(const struct pp_node *n, int rows, float x, float dz)
{
    return 2.0 * rows * n->positions * fmax((double)x, 1.0) * (double)dz;
}

const struct pp_node_op op_linear = {
    .name = "linear",
    .workspace = find_workspace,
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
    int columns = width_of(&from), all = 0;
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

int linear_rows(struct builder *b, const char *name, int x, int first, int out_width, int all,
                bool bias, enum pp_activation act)
{
    const struct linear_piece whole = {"weight", bias ? "bias" : NULL, all};
    int y = linear_pieces(b, name, x, 1, &whole, act);
    if (b->rc < 0)
        return 0;
    struct pp_node *n = &b->m->nodes[b->m->n_nodes - 1];
    struct pp_shape *to = &b->m->values[y];
    to->dims[to->n - 1] = out_width;
    n->out = *to;
    n->rows.first = first;
    n->rows.all = all;
    n->setup_hash = pp_rng_stream("rows", (uint64_t)first << 32 | (uint64_t)all);
    return y;
}

int linear(struct builder *b, const char *name, int x, int out_width, enum pp_activation act)
{
    return linear_pieces(b, name, x, 1, &(struct linear_piece){"weight", "bias", out_width}, act);
}
