/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Residual networks: He et al., "Deep residual learning for image recognition" (2015), with the
 * names and, by default, the numbers of torchvision. Layers: conv1, bn1 (with its relu), maxpool,
 * layer1.0 ... layer4.2, avgpool, fc.
 */
#include "nn.h"

enum {
    GROUPS = 32 /* of group norm */
};
#define EPS 1e-5f

static int resnet_conv(struct builder *b, const char *name, int x, int channels, int kernel,
                       int stride)
{
    bool same = b->cfg->model.padding == PP_PAD_SAME;
    const struct window w = {
        .kernel = kernel, .stride = stride, .pad = same ? PAD_SAME : kernel / 2, .groups = 1};
    return conv2d(b, name, x, channels, &w, false, false);
}

static int resnet_norm(struct builder *b, const char *name, int x, int residual, bool relu)
{
    if (b->cfg->model.norm == PP_NORM_GROUP)
        return group_norm(b, name, x, residual, GROUPS, EPS, relu);
    return batch_norm(b, name, x, residual, EPS, (float)b->cfg->model.norm_momentum, relu);
}

/* Returns the value that the block adds to its result: its input, or a projection of its input if
 * the shapes differ. */
static int resnet_shortcut(struct builder *b, int x, int channels, int stride)
{
    if (stride == 1 && pp_shape_channels(shape_of(b, x)) == channels)
        return x;
    return resnet_norm(b, "downsample.1", resnet_conv(b, "downsample.0", x, channels, 1, stride),
                       -1, false);
}

/* Adds a block of two 3x3 convolutions. */
static int basic_block(struct builder *b, int x, int width, int stride)
{
    int to = resnet_shortcut(b, x, width, stride);
    int y = resnet_norm(b, "bn1", resnet_conv(b, "conv1", x, width, 3, stride), -1, true);
    return resnet_norm(b, "bn2", resnet_conv(b, "conv2", y, width, 3, 1), to, true);
}

/* Adds a block of a 1x1, a 3x3 and a 1x1 convolution, of which the last has four times the
 * width. */
static int bottleneck_block(struct builder *b, int x, int width, int stride)
{
    bool first = b->cfg->model.stride == PP_STRIDE_1X1;
    int to = resnet_shortcut(b, x, 4 * width, stride);
    int y =
        resnet_norm(b, "bn1", resnet_conv(b, "conv1", x, width, 1, first ? stride : 1), -1, true);
    y = resnet_norm(b, "bn2", resnet_conv(b, "conv2", y, width, 3, first ? 1 : stride), -1, true);
    return resnet_norm(b, "bn3", resnet_conv(b, "conv3", y, 4 * width, 1, 1), to, true);
}

static int build(struct builder *b, int x)
{
    static const struct {
        int depth, blocks[4];
    } nets[] = {{18, {2, 2, 2, 2}}, {34, {3, 4, 6, 3}}, {50, {3, 4, 6, 3}}, {101, {3, 4, 23, 3}}};
    const int *blocks = nets[0].blocks;
    bool small = b->cfg->model.stem == PP_STEM_CIFAR, same = b->cfg->model.padding == PP_PAD_SAME;
    for (size_t i = 0; i < sizeof(nets) / sizeof(nets[0]); i++)
        if (nets[i].depth == b->cfg->model.depth)
            blocks = nets[i].blocks;
    layer(b, "conv1");
    x = resnet_conv(b, "", x, 64, small ? 3 : 7, small ? 1 : 2);
    layer(b, "bn1");
    x = resnet_norm(b, "", x, -1, true);
    if (!small) {
        layer(b, "maxpool");
        x = max_pool(b, "", x, &(struct window){3, 2, same ? PAD_SAME : 1, 1, false});
    }
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < blocks[k]; i++) {
            int width = 64 << k, stride = k > 0 && i == 0 ? 2 : 1;
            layer(b, "layer%d.%d", k + 1, i);
            x = b->cfg->model.depth < 50 ? basic_block(b, x, width, stride)
                                         : bottleneck_block(b, x, width, stride);
        }
    }
    layer(b, "avgpool");
    x = global_avg_pool(b, "", x);
    layer(b, "fc");
    return linear(b, "", x, b->classes > 0 ? b->classes : 10, PP_ACT_NONE);
}

const struct model_builder model_resnet = {.name = "resnet", .build = build};
