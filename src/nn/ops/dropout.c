/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout. Keeps nothing: its random numbers follow from seed, name, step and row, and are
 * generated again. */
#include "../nn.h"

static int run_dropout(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at,
                       const float *x, bool add, float *y)
{
    const struct pp_pass *p = at->pass;
    return pp_backend_dropout(be,
                              &(struct pp_dropout){.B = p->rows,
                                                   .F = pp_shape_floats(&n->out),
                                                   .p = n->dropout.p,
                                                   .key = n->key ^ p->seed * 0xD2511F53CD9E8D57u,
                                                   .step = p->step,
                                                   .first_row = p->first_row,
                                                   .x = x,
                                                   .add = add,
                                                   .y = y});
}

static int forward(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    size_t floats = (size_t)at->pass->rows * pp_shape_floats(&n->out);
    if (at->pass->training && at->pass->step)
        return run_dropout(n, be, at, at->x[0], false, at->y);
    return pp_backend_copy(be, at->y, at->x[0], floats * pp_backend_value_bytes(&be->choice));
}

static int backward_input(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    struct pp_activate_backward as_it_is = {(size_t)at->pass->rows * pp_shape_floats(&n->out),
                                            PP_ACT_NONE,
                                            NULL,
                                            at->dy,
                                            at->add[0],
                                            at->dx[0]};
    if (!at->dx[0])
        return 0;
    return at->pass->step ? run_dropout(n, be, at, at->dy, at->add[0], at->dx[0])
                          : pp_backend_activate_backward(be, &as_it_is);
}

const struct pp_node_op op_dropout = {
    .name = "dropout",
    .kernels = PP_USES(dropout) | PP_USES(activate_backward),
    .forward = forward,
    .backward_input = backward_input,
};

int dropout(struct builder *b, const char *name, int x, float p)
{
    if (p == 0)
        return x;
    struct pp_node *n = add_node(b, &op_dropout, name, x, -1, *shape_of(b, x));
    if (!n)
        return 0;
    n->dropout.p = p;
    return n->y;
}
