/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's own layers of transformers, with the initial values of its constructors; see
 * transformer.h. */
#include "transformer.h"

#include <math.h>

int torch_linear(struct builder *b, const char *name, int x, int out, enum pp_activation act)
{
    int in = pp_shape_channels(shape_of(b, x));
    x = linear(b, name, x, out, act);
    for (int i = 0; i < 2 && b->rc == 0; i++) {
        struct pp_param *p = last_param(b, i);
        p->init = PP_INIT_UNIFORM;
        p->b = (float)(1 / sqrt(in));
        p->a = -p->b;
    }
    return x;
}

int torch_norm(struct builder *b, const char *name, int x)
{
    return layer_norm(b, name, x, (float)b->cfg->model.norm_eps, true);
}

int torch_attention(struct builder *b, const char *name, const char *out_proj, int query,
                    int memory, const char *drop)
{
    int C = b->cfg->model.n_embd;
    struct heads heads = heads_of(b, false);
    heads.batch_first = b->cfg->model.batch_first;
    int y = query == memory
                ? linear_pieces(b, name, query, 1,
                                &(struct linear_piece){"in_proj_weight", "in_proj_bias", 3 * C},
                                PP_ACT_NONE)
                : cross_linear(b, name, query, memory, C);
    struct pp_param *w = last_param(b, 0), *bias = last_param(b, 1);
    if (w && bias) {
        w->init = PP_INIT_UNIFORM; /* Xavier's, for [3 C][C] */
        w->b = (float)sqrt(6.0 / (4.0 * C));
        w->a = -w->b;
        bias->init = PP_INIT_CONSTANT;
        bias->a = 0;
    }
    y = torch_linear(b, out_proj, attention(b, name, y, -1, &heads), C, PP_ACT_NONE);
    bias = last_param(b, 1);
    if (bias) {
        bias->init = PP_INIT_CONSTANT;
        bias->a = 0;
    }
    return dropout(b, drop, y, (float)b->cfg->model.dropout);
}

int torch_feed_forward(struct builder *b, int x, const char *drop)
{
    float p = (float)b->cfg->model.dropout;
    int y = torch_linear(b, "linear1", x, ffn_width(b), ffn_activation(b, PP_ACT_RELU));
    y = torch_linear(b, "linear2", dropout(b, "dropout", y, p), b->cfg->model.n_embd, PP_ACT_NONE);
    return dropout(b, drop, y, p);
}

int torch_stack(struct builder *b, int x, const char *positions,
                int (*one)(struct builder *b, int x))
{
    layer(b, "tok_embeddings");
    prefix(b, "%s", "");
    x = embedding(b, "", x, vocabulary_of(b), b->cfg->model.n_embd, "tok_embeddings", positions);
    init_normal(b, 1);
    for (int i = 0; i < b->cfg->model.n_layer; i++) {
        layer(b, "layers.%d", i);
        x = one(b, x);
    }
    return x;
}
