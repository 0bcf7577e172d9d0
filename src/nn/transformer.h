/* SPDX-License-Identifier: Apache-2.0 */
/* What the transformers share. */
#ifndef PPCLI_NN_TRANSFORMER_H
#define PPCLI_NN_TRANSFORMER_H

#include "nn.h"

/* The input of them all: the numbers of block_size tokens. */
struct pp_shape tokens_input(const struct pp_config *cfg);

/* Those of [model]; what does not divide is refused. */
struct heads heads_of(struct builder *b, bool causal);

/* Different tokens; 0: not known, which is refused. */
int vocabulary_of(struct builder *b);

/* The function of the feed-forward, and its width. */
enum pp_activation ffn_activation(const struct builder *b, enum pp_activation usual);
int ffn_width(const struct builder *b);

/* Names of parameters begin with this from now on, in place of the layer's. */
void prefix(struct builder *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Parameter i of the node that was added last; NULL: something failed. */
struct pp_param *last_param(struct builder *b, int i);

/* All weights of the last node begin normal, its biases 0. */
void init_normal(struct builder *b, double deviation);

/* The last layer's product, named lm_head, without a bias; tied: its weight is the one of that
 * name, which the first layer has. */
int lm_head(struct builder *b, int x, const char *tied);

/* ---- PyTorch's own layers, with its names, shapes and initial values */

/* torch.nn.Linear with an activation after it. */
int torch_linear(struct builder *b, const char *name, int x, int out, enum pp_activation act);

/* torch.nn.LayerNorm */
int torch_norm(struct builder *b, const char *name, int x);

/* torch.nn.MultiheadAttention(query, memory, memory) without a mask, its out_proj, then the dropout
 * named drop. */
int torch_attention(struct builder *b, const char *name, const char *out_proj, int query,
                    int memory, const char *drop);

/* linear1, the activation, dropout, linear2, then the dropout named drop. */
int torch_feed_forward(struct builder *b, int x, const char *drop);

/* torch.nn.Embedding, with one of positions unless that is NULL, and n_layer layers of `one`. */
int torch_stack(struct builder *b, int x, const char *positions,
                int (*one)(struct builder *b, int x));

#endif
