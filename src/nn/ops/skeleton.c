/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An op to begin with: y = x + x, from a kernel that is there. Copy this file to NAME.c, call its table
 * op_NAME, add PP_OP(NAME) to ppcli/nn/ops.def and the function at the end to nn.h, and call it where a model is
 * built. Until then it is in no table: a test compiles it. For an op with parameters see row_norm.c,
 * the smallest of those.
 */
#include "../nn.h"

static int add_up(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at,
                  const float *a, const float *b, float *y)
{
    size_t floats = (size_t)at->pass->rows * pp_shape_floats(&n->out);
    return pp_backend_sum(be, &(struct pp_sum){.n = floats, .a = a, .b = b, .y = y});
}

/* F: at->y from at->x[0], of pass->rows samples, which are one micro-batch. The order of its sums must not
 * depend on how many samples that are, or the weights depend on the number of micro-batches. */
static int forward(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    return add_up(n, be, at, at->x[0], at->x[0], at->y);
}

/* I: at->dx[0] from at->dy and what `reads` keeps of F. dx NULL: nothing before this node learns. add:
 * another reader of the same value has written there, so the gradient is added. */
static int backward_input(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    if (!at->dx[0])
        return 0;
    if (at->add[0])
        PP_TRY(add_up(n, be, at, at->dx[0], at->dy, at->dx[0]));
    return add_up(n, be, at, at->add[0] ? at->dx[0] : at->dy, at->dy, at->dx[0]);
}

extern const struct pp_node_op op_skeleton; /* PP_OP declares it */
const struct pp_node_op op_skeleton = {
    .name = "skeleton",      /* as explain and bench --ops print it */
    .kernels = PP_USES(sum), /* a backend that lacks one refuses the model */
    .forward = forward,
    .backward_input = backward_input,
    /* words: floats to keep from F to W, and scratch. cost: work, where it is not a product. With
     * parameters: backward_weight, and pack, prepare, bound if they pay. */
};

/* What a model calls: the new node's value. x is checked here, and refuse() says what is wrong. */
int skeleton(struct builder *b, const char *name, int x);
int skeleton(struct builder *b, const char *name, int x)
{
    struct pp_node *n = add_node(b, &op_skeleton, name, x, -1, *shape_of(b, x));
    if (!n)
        return 0;
    n->reads = 0; /* neither x nor y is read after F, so neither is kept: else PP_READS_... */
    return n->y;
}
