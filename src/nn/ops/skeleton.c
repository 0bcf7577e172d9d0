/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A template for an op: y = x + x, from an existing kernel. Copy this file to NAME.c, name its
 * table op_NAME, add PP_OP(NAME) to ppcli/nn/ops.def and the function at the end to nn.h, and call
 * it where a model is built. The template itself is in no table, but is compiled and tested. For an
 * op with parameters see row_norm.c, the smallest of those. struct pp_node_op says of each hook
 * when it is called.
 *
 *   hook             called                                            required
 *   forward          in F, and in R unless nothing of it is needed     yes
 *   backward_input   in I                                              if a gradient may pass
 *                    through
 *   backward_weight  in W                                              with parameters
 *   complete         when the model is complete                        no
 *   workspace        at set-up                                         if it keeps or needs memory
 *   cost             at set-up, for partitions                         no: counts as 0
 *   bound            after the last I of a step                        no: the gradients are read
 *   pack, prepare    after each update; before a new size              no
 *   merge, commit    after gradients are summed; after the update      with buffers
 *
 * Hooks are called by the rank's own thread, in order.
 */
#include "../nn.h"

static int run_sum(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at,
                   const float *a, const float *b, float *y)
{
    size_t floats = (size_t)at->pass->rows * pp_shape_floats(&n->out);
    return pp_backend_sum(be, &(struct pp_sum){.n = floats, .a = a, .b = b, .y = y});
}

/* Computes the forward pass (F): at->y from at->x[0], for pass->rows samples of one micro-batch.
 * The order of its sums must not depend on the number of samples, or else the weights would depend
 * on the number of micro-batches. */
static int forward(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    return run_sum(n, be, at, at->x[0], at->x[0], at->y);
}

/* Computes the input gradient (I): at->dx[0] from at->dy and from what `reads` keeps of F. dx is
 * NULL if no earlier node has parameters. If `add`, another reader of the same value has already
 * written dx, so the gradient is added to it. */
static int backward_input(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    if (!at->dx[0])
        return 0;
    if (at->add[0])
        PP_TRY(run_sum(n, be, at, at->dx[0], at->dy, at->dx[0]));
    return run_sum(n, be, at, at->add[0] ? at->dx[0] : at->dy, at->dy, at->dx[0]);
}

extern const struct pp_node_op op_skeleton; /* PP_OP declares the others */
const struct pp_node_op op_skeleton = {
    .name = "skeleton",      /* as explain and bench --ops print it */
    .kernels = PP_USES(sum), /* a backend without host memory that lacks one refuses the model */
    .forward = forward,
    .backward_input = backward_input,
};

/* Adds a node with this op to a model, whose page calls it, and returns the value of the node.
 * Check x here; refuse() reports what is wrong. */
int skeleton(struct builder *b, const char *name, int x);
int skeleton(struct builder *b, const char *name, int x)
{
    struct pp_node *n = add_node(b, &op_skeleton, name, x, -1, *shape_of(b, x));
    if (!n)
        return 0;
    n->reads = 0; /* after F neither x nor y is read, so neither is kept; else PP_READS_... */
    return n->y;
}
