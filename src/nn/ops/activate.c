/* SPDX-License-Identifier: Apache-2.0 */
/* An activation that no linear, convolution or norm includes. */
#include "../nn.h"

static size_t floats_of_pass(const struct pp_node *n, const struct pp_at *at)
{
    return (size_t)at->pass->rows * pp_shape_floats(&n->out);
}

static int forward(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    return pp_backend_activate_forward(
        be, &(struct pp_activate){floats_of_pass(n, at), n->activation, at->x[0], at->y});
}

static int backward_input(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    if (!at->dx[0])
        return 0;
    const float *saved = n->reads & PP_READS_X_IN_I ? at->x[0] : at->y;
    return pp_backend_activate_backward(
        be, &(struct pp_activate_backward){floats_of_pass(n, at), n->activation, saved, at->dy,
                                           at->add[0], at->dx[0]});
}

const struct pp_node_op op_activate = {
    .name = "activation",
    .kernels = PP_USES(activate_forward) | PP_USES(activate_backward),
    .forward = forward,
    .backward_input = backward_input,
};

int activate(struct builder *b, const char *name, int x, enum pp_activation act)
{
    struct pp_node *n = add_node(b, &op_activate, name, x, -1, *shape_of(b, x));
    if (!n)
        return 0;
    n->activation = act;
    n->reads = pp_activation_facts(act)->saves_z ? PP_READS_X_IN_I : PP_READS_Y_IN_I;
    return n->y;
}
