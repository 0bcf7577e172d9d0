/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPT-2 (Radford et al., "Language models are unsupervised multitask learners", 2019) with the names,
 * shapes and initial values of Hugging Face's GPT2LMHeadModel: weights of linear layers are [in][out]
 * in files.
 */
#include <math.h>

#include "transformer.h"

/* Adds a linear layer whose weight is stored transposed in files, as in Hugging Face's Conv1D.
 * `deviation` is that of its initial values. */
static int add_conv1d(struct builder *b, const char *name, int x, int out, enum pp_activation act,
                      double deviation)
{
    bool bias = b->cfg->model.bias;
    x = linear_pieces(b, name, x, 1, &(struct linear_piece){"weight", bias ? "bias" : NULL, out},
                      act);
    init_normal(b, deviation);
    struct pp_param *w = last_param(b, 0);
    if (w)
        w->transposed = true;
    return x;
}

static int gpt_norm(struct builder *b, const char *name, int x)
{
    return layer_norm(b, name, x, (float)b->cfg->model.norm_eps, b->cfg->model.bias);
}

static int gpt_block(struct builder *b, int x)
{
    int C = b->cfg->model.n_embd;
    float p = (float)b->cfg->model.dropout;
    const struct heads heads = heads_of(b, true);
    /* for weights that add to the residual path, two in each block */
    double last = 0.02 / sqrt(2.0 * b->cfg->model.n_layer);
    int y = add_conv1d(b, "attn.c_attn", gpt_norm(b, "ln_1", x), 3 * C, PP_ACT_NONE, 0.02);
    y = attention(b, "attn", y, -1, &heads);
    y = dropout(b, "attn.resid_dropout", add_conv1d(b, "attn.c_proj", y, C, PP_ACT_NONE, last), p);
    x = add(b, "attn.add", x, y, false);
    y = add_conv1d(b, "mlp.c_fc", gpt_norm(b, "ln_2", x), ffn_width(b),
                   ffn_activation(b, PP_ACT_GELU_TANH), 0.02);
    y = dropout(b, "mlp.dropout", add_conv1d(b, "mlp.c_proj", y, C, PP_ACT_NONE, last), p);
    return add(b, "mlp.add", x, y, false);
}

static int build(struct builder *b, int x)
{
    const char *wte = "transformer.wte.weight";
    layer(b, "wte");
    prefix(b, "transformer");
    x = embedding(b, "", x, vocabulary_of(b), b->cfg->model.n_embd, "wte", "wpe");
    init_normal(b, 0.02);
    x = dropout(b, "drop", x, (float)b->cfg->model.dropout);
    for (int i = 0; i < b->cfg->model.n_layer; i++) {
        layer(b, "h.%d", i);
        prefix(b, "transformer.h.%d", i);
        x = gpt_block(b, x);
    }
    layer(b, "lm_head");
    prefix(b, "transformer");
    x = lm_head(b, gpt_norm(b, "ln_f", x), b->cfg->model.tie_weights == PP_CHOICE_OFF ? NULL : wte);
    init_normal(b, 0.02);
    return x;
}

const struct model_builder model_gpt = {.name = "gpt", .input = tokens_input, .build = build};
