/* SPDX-License-Identifier: Apache-2.0 */
/* SwiGLU's product (Shazeer, "GLU variants improve transformer", 2020): x = [gate | up], y =
 * silu(gate) * up. */
#include "../nn.h"

static int count_gated_rows(const struct pp_node *n, const struct pp_at *at)
{
    return at->pass->rows * (int)(pp_shape_floats(&n->out) / (size_t)pp_shape_channels(&n->out));
}

static int forward(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    return pp_backend_gated_forward(
        be,
        &(struct pp_gated){count_gated_rows(n, at), pp_shape_channels(&n->out), at->x[0], at->y});
}

static int backward_input(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    if (!at->dx[0])
        return 0;
    return pp_backend_gated_backward(be,
                                     &(struct pp_gated_backward){.B = count_gated_rows(n, at),
                                                                 .F = pp_shape_channels(&n->out),
                                                                 .x = at->x[0],
                                                                 .dy = at->dy,
                                                                 .add = at->add[0],
                                                                 .dx = at->dx[0]});
}

const struct pp_node_op op_gated = {
    .name = "gated",
    .kernels = PP_USES(gated_forward) | PP_USES(gated_backward),
    .forward = forward,
    .backward_input = backward_input,
};

int gated(struct builder *b, const char *name, int x)
{
    struct pp_shape to = *shape_of(b, x);
    pp_assert(b->rc < 0 || to.dims[to.n - 1] % 2 == 0);
    to.dims[to.n - 1] /= 2;
    struct pp_node *n = add_node(b, &op_gated, name, x, -1, to);
    if (!n)
        return 0;
    n->reads = PP_READS_X_IN_I;
    return n->y;
}
