/* SPDX-License-Identifier: Apache-2.0 */
/* The multi-layer perceptron: linear layers, each but the last with an activation. */
#include "nn.h"

static struct pp_shape input(const struct pp_config *cfg)
{
    return pp_shape_flat(cfg->model.sizes[0]);
}

static int build(struct builder *b, int x)
{
    int n = b->cfg->model.n_sizes - 1;
    for (int i = 0; i < n; i++) {
        layer(b, "layers.%d", i);
        x = linear(b, "", x, b->cfg->model.sizes[i + 1],
                   i < n - 1 ? b->cfg->model.activation : PP_ACT_NONE);
    }
    return x;
}

const struct model_builder model_mlp = {.name = "mlp", .input = input, .build = build};
