/* SPDX-License-Identifier: Apache-2.0 */
/* The largest value of each window. Keeps one byte per window for I: which element it was. */
#include "../nn.h"

static void find_workspace(const struct pp_node *n, const struct pp_backend_choice *choice,
                           int rows, struct pp_workspace *w)
{
    w->keep = n->wants_dx[0] ? ((size_t)rows * pp_shape_floats(&n->out) + 3) / 4 : 0;
}

static int forward(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    uint8_t *taken = at->pass->training ? (uint8_t *)at->keep : NULL;
    return pp_backend_max_pool_forward(
        be, &(struct pp_max_pool_forward){&n->window.conv, at->pass->rows, at->x[0], taken, at->y});
}

static int backward_input(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    if (!at->dx[0])
        return 0;
    return pp_backend_max_pool_backward(
        be,
        &(struct pp_max_pool_backward){&n->window.conv, at->pass->rows, (const uint8_t *)at->keep,
                                       at->dy, at->add[0], at->dx[0]});
}

const struct pp_node_op op_max_pool = {
    .name = "max pool",
    .kernels = PP_USES(max_pool_forward) | PP_USES(max_pool_backward),
    .workspace = find_workspace,
    .forward = forward,
    .backward_input = backward_input,
};

int max_pool(struct builder *b, const char *name, int x, const struct window *w)
{
    struct window each = *w;
    struct pp_conv over;
    if (b->rc == 0)
        each.groups = shape_of(b, x)->dims[shape_of(b, x)->n - 1];
    if (b->rc < 0 || !window_over(b, "a max pool", &each, x, 0, &over))
        return 0;
    if (over.kh * over.kw > 256)
        return refuse(b, "a max pool's window is at most 16 x 16, this is %d x %d", over.kh,
                      over.kw);
    struct pp_node *n =
        add_node(b, &op_max_pool, name, x, -1, pp_shape_image(over.OH, over.OW, over.O));
    if (!n)
        return 0;
    n->window.conv = over;
    return n->y;
}
