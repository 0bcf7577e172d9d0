/* SPDX-License-Identifier: Apache-2.0 */
/* A classifier of texts: torch.nn.TransformerEncoderLayer, with the norm after each addition. */
#include "transformer.h"

static int encoder_layer(struct builder *b, int x)
{
    int y = torch_attention(b, "self_attn", "self_attn.out_proj", x, x, "dropout1");
    x = torch_norm(b, "norm1", add(b, "add1", x, y, false));
    y = torch_feed_forward(b, x, "dropout2");
    return torch_norm(b, "norm2", add(b, "add2", x, y, false));
}

static int build(struct builder *b, int x)
{
    x = torch_stack(b, x, "pos_embeddings", encoder_layer);
    layer(b, "output");
    x = pool_positions(b, "pool", x, b->cfg->model.pooling == PP_POOLING_MEAN);
    if (b->classes == 0)
        return refuse(b,
                      "model.type = encoder: data.dataset = %s has no classes; use one that has "
                      "classes, such as text-labels",
                      b->cfg->data.dataset);
    return torch_linear(b, "", x, b->classes, PP_ACT_NONE);
}

const struct model_builder model_encoder = {
    .name = "encoder", .input = tokens_input, .build = build};
