/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax over one axis of a value, or its logarithm. Its gradient follows from its value, of which
 * it keeps a copy where the loss overwrites that. */
#include "../nn.h"

static size_t floats_of_pass(const struct pp_node *n, int rows)
{
    return (size_t)rows * pp_shape_floats(&n->out);
}

static int complete(struct pp_model *m, struct pp_node *n)
{
    n->softmax.keeps = n->y == m->n_nodes && n->learns;
    n->reads = n->softmax.keeps ? 0 : PP_READS_Y_IN_I;
    return 0;
}

static void workspace(const struct pp_node *n, const struct pp_backend_choice *choice, int rows,
                      struct pp_workspace *out)
{
    out->keep = n->softmax.keeps ? pp_value_floats(choice, floats_of_pass(n, rows)) : 0;
}

static int forward(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    int rows = n->one_row ? 1 : at->pass->rows;
    struct pp_softmax_forward a = {.B = rows,
                                   .outer = n->softmax.outer,
                                   .n = n->softmax.n,
                                   .inner = n->softmax.inner,
                                   .log = n->softmax.log,
                                   .x = at->x[0],
                                   .y = at->y};
    PP_TRY(pp_backend_softmax_forward(be, &a));
    size_t bytes = floats_of_pass(n, rows) * pp_backend_value_bytes(&be->choice);
    return n->softmax.keeps ? pp_backend_copy(be, at->keep, at->y, bytes) : 0;
}

/* Computes the gradient for `rows` rows of y, all of them or, where y has one row, one by one. */
static int backward_rows(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at,
                         int first, int rows)
{
    size_t from = (size_t)first * pp_shape_floats(&n->out);
    struct pp_softmax_backward a = {.B = rows,
                                    .outer = n->softmax.outer,
                                    .n = n->softmax.n,
                                    .inner = n->softmax.inner,
                                    .log = n->softmax.log,
                                    .y = n->softmax.keeps ? at->keep : at->y,
                                    .dy = pp_value_at(be, at->dy, from),
                                    .add = at->add[0],
                                    .dx = pp_value_at(be, at->dx[0], from)};
    return pp_backend_softmax_backward(be, &a);
}

static int backward_input(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    int each = n->one_row ? 1 : at->pass->rows;
    for (int r = 0; r < at->pass->rows && at->dx[0]; r += each)
        PP_TRY(backward_rows(n, be, at, r, each));
    return 0;
}

const struct pp_node_op op_softmax = {
    .name = "softmax",
    .kernels = PP_USES(softmax_forward) | PP_USES(softmax_backward),
    .complete = complete,
    .workspace = workspace,
    .forward = forward,
    .backward_input = backward_input,
};

int softmax(struct builder *b, const char *name, int x, int outer, int n, int inner, bool log)
{
    const int settings[] = {outer, n, inner, log};
    const struct pp_shape from = *shape_of(b, x);
    pp_assert(b->rc < 0 || (size_t)outer * (size_t)n * (size_t)inner == pp_shape_floats(&from));
    struct pp_node *node = add_node(b, &op_softmax, name, x, -1, from);
    if (!node)
        return 0;
    node->softmax.outer = outer;
    node->softmax.n = n;
    node->softmax.inner = inner;
    node->softmax.log = log;
    node->one_row = x > 0 && b->m->nodes[x - 1].one_row;
    hash_bytes(&node->setup_hash, settings, sizeof(settings));
    return node->y;
}
