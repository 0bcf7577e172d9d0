/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of two values, then relu if asked for; norms add a residual themselves. */
#include "../nn.h"

static size_t floats_of_pass(const struct pp_node *n, const struct pp_at *at)
{
    return (size_t)at->pass->rows * pp_shape_floats(&n->out);
}

static int forward(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    return pp_backend_sum(be, &(struct pp_sum){floats_of_pass(n, at), at->x[0], at->x[1],
                                               n->activation == PP_ACT_RELU, at->y, false});
}

static int backward_input(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    for (int j = 0; j < 2; j++) {
        struct pp_activate_backward each = {
            floats_of_pass(n, at), n->activation, at->y, at->dy, at->add[j], at->dx[j]};
        bool there =
            at->dx[j] == at->dy && n->activation == PP_ACT_NONE; /* shared, see chunk_memory.c */
        if (at->dx[j] && !there)
            PP_TRY(pp_backend_activate_backward(be, &each));
    }
    return 0;
}

const struct pp_node_op op_add = {
    .name = "add",
    .kernels = PP_USES(sum) | PP_USES(activate_backward),
    .forward = forward,
    .backward_input = backward_input,
    .dx_over_dy = true,
};

int add(struct builder *b, const char *name, int x, int other, bool relu)
{
    struct pp_shape one = *shape_of(b, x), two = *shape_of(b, other);
    struct pp_node *n = add_node(b, &op_add, name, x, other, one);
    char a[48], c[48];
    if (!n)
        return 0;
    n->activation = relu ? PP_ACT_RELU : PP_ACT_NONE;
    n->reads = relu ? PP_READS_Y_IN_I : 0;
    int y = n->y;
    pp_shape_text(&one, a, sizeof(a));
    pp_shape_text(&two, c, sizeof(c));
    if (one.n != two.n || pp_shape_floats(&one) != pp_shape_floats(&two) ||
        pp_shape_channels(&one) != pp_shape_channels(&two))
        return refuse(b, "%s: cannot add values of shapes %s and %s", b->name, a, c);
    return y;
}
