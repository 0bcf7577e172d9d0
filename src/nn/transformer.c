/* SPDX-License-Identifier: Apache-2.0 */
#include "transformer.h"
#include "model.h"

#include <string.h>

struct pp_shape tokens_input(const struct pp_config *cfg)
{
    return pp_shape_flat(cfg->model.block_size);
}

struct heads heads_of(struct builder *b, bool causal)
{
    int channels = b->cfg->model.n_embd, heads = b->cfg->model.n_head,
        kv = b->cfg->model.n_kv_head > 0 ? b->cfg->model.n_kv_head : heads;
    int width = b->cfg->model.head_dim;
    if (width == 0 && channels % heads) {
        refuse(b, "model.n_head: %d heads do not divide the %d channels of model.n_embd", heads,
               channels);
    } else if (heads % kv) {
        refuse(b, "model.n_kv_head: %d heads of keys and values do not divide %d heads", kv, heads);
    }
    return (struct heads){.q = heads,
                          .kv = kv,
                          .width = width > 0 ? width : channels / heads,
                          .causal = causal,
                          .batch_first = true,
                          .dropout = (float)b->cfg->model.dropout};
}

int vocabulary_of(struct builder *b)
{
    if (b->vocabulary == 0)
        refuse(b, "model.vocab_size: the data do not tell how many different tokens there are; "
                  "set it, such as 50257");
    return b->vocabulary;
}

enum pp_activation ffn_activation(const struct builder *b, enum pp_activation usual)
{
    int chosen = b->cfg->model.ffn_activation;
    return chosen < 0 ? usual : (enum pp_activation)chosen;
}

int ffn_width(const struct builder *b)
{
    int hidden = b->cfg->model.n_hidden;
    return hidden > 0 ? hidden : 4 * b->cfg->model.n_embd;
}

void prefix(struct builder *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(b->prefix, sizeof(b->prefix), format, args);
    va_end(args);
}

struct pp_param *last_param(struct builder *b, int i)
{
    if (b->rc < 0)
        return NULL;
    const struct pp_node *n = &b->m->nodes[b->m->n_nodes - 1];
    pp_assert(i < n->n_params);
    return &b->m->params[n->first_param + i];
}

void init_normal(struct builder *b, double deviation)
{
    int n = b->rc < 0 ? 0 : b->m->nodes[b->m->n_nodes - 1].n_params;
    for (int i = 0; i < n; i++) {
        struct pp_param *p = last_param(b, i);
        bool bias = p->n_dims == 1;
        p->init = bias ? PP_INIT_CONSTANT : PP_INIT_NORMAL;
        p->a = 0;
        p->b = bias ? 0 : (float)deviation;
    }
}

int lm_head(struct builder *b, int x, const char *tied)
{
    prefix(b, "lm_head");
    x = linear_pieces(b, "", x, 1, &(struct linear_piece){"weight", NULL, vocabulary_of(b)},
                      PP_ACT_NONE);
    for (int i = 0; b->rc == 0 && tied && i < b->m->n_params; i++) {
        if (strcmp(b->m->params[i].name, tied) == 0) {
            pp_model_tie(b->m, i, b->m->n_params - 1);
            break;
        }
    }
    return x;
}
