/* SPDX-License-Identifier: Apache-2.0 */
/* Rotates pairs of channels by an angle that depends on the position. No parameters; keeps
 * nothing. */
#include "../nn.h"

static int run_rotary(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at,
                      const float *x, bool back, bool add, float *y)
{
    return pp_backend_rotary(
        be, &(struct pp_rotary){.B = n->cached > 0 ? 1 : at->pass->rows,
                                .T = n->cached > 0 ? at->pass->rows : n->out.dims[0],
                                .C = n->out.dims[1],
                                .first = at->pass->position,
                                .heads = n->rotary.heads,
                                .width = n->rotary.width,
                                .base = n->rotary.base,
                                .scaling = n->rotary.scaling,
                                .back = back,
                                .x = x,
                                .add = add,
                                .y = y});
}

static int forward(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    return run_rotary(n, be, at, at->x[0], false, false, at->y);
}

static int backward_input(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    return at->dx[0] ? run_rotary(n, be, at, at->dy, true, at->add[0], at->dx[0]) : 0;
}

const struct pp_node_op op_rotary = {
    .name = "rotary",
    .kernels = PP_USES(rotary),
    .forward = forward,
    .backward_input = backward_input,
};

int rotary(struct builder *b, const char *name, int x, int heads, int width, float base,
           const struct pp_rope_scaling *scaling)
{
    const struct pp_shape from = *shape_of(b, x);
    pp_assert(b->rc < 0 || (from.n == 2 && heads * width <= from.dims[1]));
    struct pp_node *n = add_node(b, &op_rotary, name, x, -1, from);
    if (!n)
        return 0;
    n->rotary.heads = heads;
    n->rotary.width = width;
    n->rotary.base = base;
    n->rotary.scaling = *scaling;
    if (width % 2)
        return refuse(b,
                      "%s: heads of %d channels (model.head_dim, or n_embd / n_head) cannot be "
                      "turned in pairs; "
                      "their number must be even",
                      b->name, width);
    return n->y;
}
