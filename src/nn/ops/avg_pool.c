/* SPDX-License-Identifier: Apache-2.0 */
/* The mean of each window, with padding counted as zeros (not counted with pad = same), or of the
 * whole image. */
#include "../nn.h"

static int forward(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    return pp_backend_avg_pool_forward(
        be, &(struct pp_avg_pool){.g = &n->window.conv,
                                  .B = at->pass->rows,
                                  .count_padding = n->window.count_padding,
                                  .lengths = at->pass->lengths,
                                  .index = at->pass->index,
                                  .x = at->x[0],
                                  .y = at->y});
}

static int backward_input(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    if (!at->dx[0])
        return 0;
    return pp_backend_avg_pool_backward(
        be, &(struct pp_avg_pool){.g = &n->window.conv,
                                  .B = at->pass->rows,
                                  .count_padding = n->window.count_padding,
                                  .lengths = at->pass->lengths,
                                  .index = at->pass->index,
                                  .x = at->dy,
                                  .add = at->add[0],
                                  .y = at->dx[0]});
}

const struct pp_node_op op_avg_pool = {
    .name = "average pool",
    .kernels = PP_USES(avg_pool_forward) | PP_USES(avg_pool_backward),
    .forward = forward,
    .backward_input = backward_input,
};

static int add_pool(struct builder *b, const char *name, int x, const struct pp_conv *over,
                    struct pp_shape out, bool count_padding)
{
    struct pp_node *n = add_node(b, &op_avg_pool, name, x, -1, out);
    if (!n)
        return 0;
    n->window.conv = *over;
    n->window.conv.groups = over->C;
    n->window.count_padding = count_padding;
    return n->y;
}

int avg_pool(struct builder *b, const char *name, int x, const struct window *w)
{
    struct window one = *w;
    struct pp_conv over;
    one.groups = 1;
    if (b->rc < 0 || !window_over(b, "an average pool", &one, x, 0, &over))
        return 0;
    return add_pool(b, name, x, &over, pp_shape_image(over.OH, over.OW, over.O),
                    w->pad != PAD_SAME);
}

int global_avg_pool(struct builder *b, const char *name, int x)
{
    struct window one = {.kernel = 1, .stride = 1, .groups = 1};
    struct pp_conv over;
    if (b->rc < 0 || !window_over(b, "an average pool", &one, x, 0, &over))
        return 0;
    over.kh = over.H;
    over.kw = over.W;
    over.OH = over.OW = 1;
    return add_pool(b, name, x, &over, pp_shape_flat(over.C), true);
}

int pool_positions(struct builder *b, const char *name, int x, bool mean)
{
    const struct pp_shape s = *shape_of(b, x);
    pp_assert(b->rc < 0 || s.n == 2);
    /* a column of pixels: all of them, or the first */
    struct pp_conv over = {.H = s.dims[0],
                           .W = 1,
                           .C = s.dims[1],
                           .OH = 1,
                           .OW = 1,
                           .O = s.dims[1],
                           .kh = mean ? s.dims[0] : 1,
                           .kw = 1,
                           .stride = s.dims[0]};
    return add_pool(b, name, x, &over, pp_shape_flat(s.dims[1]), false);
}
