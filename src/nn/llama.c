/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Llama (Touvron et al., "LLaMA: open and efficient foundation language models", 2023) with the names,
 * shapes and initial values of Hugging Face's LlamaForCausalLM.
 */
#include "transformer.h"

/* Adds a linear layer whose weight consists of n pieces, which have names of their own in files. */
static int llama_linear(struct builder *b, const char *name, int x, int n,
                        const struct linear_piece *pieces)
{
    x = linear_pieces(b, name, x, n, pieces, PP_ACT_NONE);
    init_normal(b, 0.02);
    return x;
}

static int llama_norm(struct builder *b, const char *name, int x)
{
    return rms_norm(b, name, x, (float)b->cfg->model.norm_eps);
}

/* Returns the width of the feed-forward part. The default is 8/3 of the channels, rounded up to a
 * multiple of 256, so that its three weights are as large as two weights of four times the
 * channels. */
static int llama_ffn_width(const struct builder *b)
{
    const int unit = 256;
    int hidden = b->cfg->model.n_hidden, wanted = 8 * b->cfg->model.n_embd / 3;
    return hidden > 0 ? hidden : (wanted + unit - 1) / unit * unit;
}

static struct pp_rope_scaling read_rope_scaling(struct builder *b)
{
    const struct pp_floats *f = &b->cfg->model.rope_scaling;
    if (f->n > 1 && (f->n != 4 || f->at[2] <= f->at[1]))
        refuse(b, "model.rope_scaling: write one number (linear), or four (llama3's factor, "
                  "low_freq_factor, a larger high_freq_factor, original_max_position_embeddings), "
                  "such as 8 1 4 8192");
    struct pp_rope_scaling s = {.factor = f->n > 0 ? (float)f->at[0] : 0};
    if (f->n == 4)
        s = (struct pp_rope_scaling){s.factor, (float)f->at[1], (float)f->at[2], (float)f->at[3]};
    return s;
}

static int llama_block(struct builder *b, int x)
{
    int C = b->cfg->model.n_embd, F = llama_ffn_width(b);
    const struct heads heads = heads_of(b, true);
    const struct pp_rope_scaling scaling = read_rope_scaling(b);
    enum pp_attention_bias biases = b->cfg->model.attention_bias;
    int q = heads.q * heads.width, kv = heads.kv * heads.width;
    bool bias = biases != PP_ATTENTION_BIAS_OFF, out_bias = biases == PP_ATTENTION_BIAS_ALL;
    int y =
        llama_linear(b, "self_attn", llama_norm(b, "input_layernorm", x), 3,
                     (struct linear_piece[]){{"q_proj.weight", bias ? "q_proj.bias" : NULL, q},
                                             {"k_proj.weight", bias ? "k_proj.bias" : NULL, kv},
                                             {"v_proj.weight", bias ? "v_proj.bias" : NULL, kv}});
    y = rotary(b, "self_attn.rotary", y, heads.q + heads.kv, heads.width,
               (float)b->cfg->model.rope_base, &scaling);
    y = attention(b, "self_attn", y, -1, &heads);
    y = llama_linear(b, "self_attn", y, 1,
                     &(struct linear_piece){"o_proj.weight", out_bias ? "o_proj.bias" : NULL, C});
    x = add(b, "self_attn.add", x, y, false);
    y = llama_linear(
        b, "mlp", llama_norm(b, "post_attention_layernorm", x), 2,
        (struct linear_piece[]){{"gate_proj.weight", NULL, F}, {"up_proj.weight", NULL, F}});
    y = gated(b, "mlp.gate", y);
    y = llama_linear(b, "mlp", y, 1, &(struct linear_piece){"down_proj.weight", NULL, C});
    return add(b, "mlp.add", x, y, false);
}

static int build(struct builder *b, int x)
{
    const char *tokens = "model.embed_tokens.weight";
    layer(b, "embed_tokens");
    prefix(b, "model");
    x = embedding(b, "", x, vocabulary_of(b), b->cfg->model.n_embd, "embed_tokens", NULL);
    init_normal(b, 0.02);
    for (int i = 0; i < b->cfg->model.n_layer; i++) {
        layer(b, "layers.%d", i);
        prefix(b, "model.layers.%d", i);
        x = llama_block(b, x);
    }
    layer(b, "lm_head");
    prefix(b, "model");
    x = lm_head(b, llama_norm(b, "norm", x),
                b->cfg->model.tie_weights == PP_CHOICE_ON ? tokens : NULL);
    init_normal(b, 0.02);
    return x;
}

const struct model_builder model_llama = {.name = "llama", .input = tokens_input, .build = build};
