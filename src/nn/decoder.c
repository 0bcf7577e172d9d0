/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model of PyTorch's pipelining tutorial: torch.nn.TransformerDecoderLayer, with the norm after
 * each addition, called with the same tensor as target and as memory, and without a mask.
 */
#include "transformer.h"

static int decoder_layer(struct builder *b, int memory)
{
    int y = torch_attention(b, "self_attn", "self_attn.out_proj", memory, memory, "dropout1");
    int x = torch_norm(b, "norm1", add(b, "add1", memory, y, false));
    y = torch_attention(b, "multihead_attn", "multihead_attn.out_proj", x, memory, "dropout2");
    x = torch_norm(b, "norm2", add(b, "add2", x, y, false));
    y = torch_feed_forward(b, x, "dropout3");
    return torch_norm(b, "norm3", add(b, "add3", x, y, false));
}

static int build(struct builder *b, int x)
{
    x = torch_stack(b, x, NULL, decoder_layer);
    layer(b, "norm");
    x = torch_norm(b, "", x);
    layer(b, "output");
    return torch_linear(b, "", x, vocabulary_of(b), PP_ACT_NONE);
}

const struct model_builder model_decoder = {
    .name = "decoder", .input = tokens_input, .build = build};
