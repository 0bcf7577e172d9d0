/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolution, then a relu if asked for: torch.nn.Conv2d. Weights are [out][row][column][in] in
 * memory, [out][in][row][column] in files.
 */
#include "../nn.h"

static size_t bias_at(const struct pp_node *n)
{
    const struct pp_conv *g = &n->window.conv;
    return (size_t)g->O * (size_t)g->kh * (size_t)g->kw * (size_t)(g->C / g->groups);
}

static void find_workspace(const struct pp_node *n, const struct pp_backend_choice *choice,
                           int rows, struct pp_workspace *w)
{
    if (choice) {
        w->scratch = pp_backend_conv_scratch_floats(choice, &n->window.conv, rows);
        w->packed = pp_backend_conv_packed_floats(choice, &n->window.conv);
    }
}

/* Counts, along one axis, the pairs of an output and a tap of its window that is inside the
 * image. */
static double pairs_inside(int in, int out, int kernel, int stride, int pad)
{
    double sum = 0;
    for (int o = 0, at = -pad; o < out; o++, at += stride) {
        int first = at < 0 ? -at : 0, end = in - at < kernel ? in - at : kernel;
        sum += end > first ? end - first : 0;
    }
    return sum;
}

/* Counts the flops. Products with padding are not counted, because our own kernels skip them. */
static void cost(const struct pp_node *n, struct pp_layer_cost *c)
{
    const struct pp_conv *g = &n->window.conv;
    double pairs = pairs_inside(g->H, g->OH, g->kh, g->stride, g->pad_top) *
                   pairs_inside(g->W, g->OW, g->kw, g->stride, g->pad_left);
    int channels = g->C / g->groups; /* per output */
    double product = 2 * pairs * g->O * channels;
    c->flops_f = product;
    c->flops_i = n->wants_dx[0] ? product : 0;
    c->flops_w = product;
}

static int pack(const struct pp_node *n, struct pp_backend *be, const float *params, float *packed)
{
    const float *b = n->bias ? params + bias_at(n) : NULL;
    return pp_backend_conv_pack(be, &n->window.conv, params, b, packed);
}

static int prepare(const struct pp_node *n, struct pp_backend *be, int rows, const float *params,
                   const float *packed, float *grads)
{
    const struct pp_conv_use use = {.g = &n->window.conv,
                                    .B = rows,
                                    .relu = n->activation == PP_ACT_RELU,
                                    .dx = grads && n->wants_dx[0],
                                    .adds = n->shared[0],
                                    .W = params,
                                    .packed = packed,
                                    .b = n->bias ? params + bias_at(n) : NULL,
                                    .dW = grads,
                                    .db = n->bias && grads ? grads + bias_at(n) : NULL};
    return pp_backend_prepare_conv(be, &use);
}

static int forward(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    const struct pp_conv_forward a = {.g = &n->window.conv,
                                      .B = at->pass->rows,
                                      .x = at->x[0],
                                      .W = at->params,
                                      .packed = at->packed,
                                      .b = n->bias ? at->params + bias_at(n) : NULL,
                                      .relu = n->activation == PP_ACT_RELU,
                                      .scratch = at->scratch,
                                      .y = at->y};
    return pp_backend_conv_forward(be, &a);
}

static int backward_input(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    if (n->activation != PP_ACT_NONE) {
        PP_TRY(pp_backend_activate_backward(
            be,
            &(struct pp_activate_backward){.n = (size_t)at->pass->rows * pp_shape_floats(&n->out),
                                           .act = n->activation,
                                           .saved = at->y,
                                           .dy = at->dy,
                                           .dx = at->dy}));
    }
    if (!at->dx[0])
        return 0;
    const struct pp_conv_backward_input a = {.g = &n->window.conv,
                                             .B = at->pass->rows,
                                             .dz = at->dy,
                                             .W = at->params,
                                             .packed = at->packed,
                                             .scratch = at->scratch,
                                             .add = at->add[0],
                                             .dx = at->dx[0]};
    return pp_backend_conv_backward_input(be, &a);
}

static int backward_weight(const struct pp_node *n, struct pp_backend *be, int n_parts,
                           const struct pp_weight_part *parts, float beta, float *scratch,
                           float *grads)
{
    const struct pp_conv_backward_weight a = {.g = &n->window.conv,
                                              .n = n_parts,
                                              .parts = parts,
                                              .beta = beta,
                                              .scratch = scratch,
                                              .dW = grads,
                                              .db = n->bias ? grads + bias_at(n) : NULL};
    return pp_backend_conv_backward_weight(be, &a);
}

const struct pp_node_op op_conv2d = {
    .name = "conv2d",
    .kernels = PP_USES(conv_forward) | PP_USES(conv_backward_input) | PP_USES(conv_backward_weight),
    .workspace = find_workspace,
    .cost = cost,
    .pack = pack,
    .prepare = prepare,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
};

int conv2d(struct builder *b, const char *name, int x, int channels, const struct window *w,
           bool bias, bool relu)
{
    struct pp_conv g;
    if (!window_over(b, "a convolution", w, x, channels, &g))
        return 0;
    struct pp_node *n = add_node(b, &op_conv2d, name, x, -1, pp_shape_image(g.OH, g.OW, channels));
    if (!n)
        return 0;
    n->window.conv = g;
    n->bias = bias;
    n->activation = relu ? PP_ACT_RELU : PP_ACT_NONE;
    n->reads = PP_READS_X_IN_W | PP_READS_DY_IN_W | (relu ? PP_READS_Y_IN_I : 0);
    int y = n->y, shape[4] = {channels, g.kh, g.kw, g.C / g.groups};
    struct pp_param *weight = add_param(b, "weight", PP_PARAM_DECAYED, 4, shape);
    int fan_in = shape[1] * shape[2] * shape[3];
    if (weight)
        init_weight(b, weight, fan_in, PP_ACT_RELU);
    struct pp_param *shift = bias ? add_param(b, "bias", PP_PARAM_PLAIN, 1, shape) : NULL;
    if (shift)
        init_bias(b, shift, fan_in);
    return y;
}
