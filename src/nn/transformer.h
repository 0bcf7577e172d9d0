/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the transformers. */
#ifndef PPCLI_NN_TRANSFORMER_H
#define PPCLI_NN_TRANSFORMER_H

#include "nn.h"

/* The input of all transformers: block_size tokens. */
struct pp_shape tokens_input(const struct pp_config *cfg);

/* Returns the heads of [model]; refuses numbers that do not divide. */
struct heads heads_of(struct builder *b, bool causal);

/* Returns the number of different tokens; refuses if it is unknown. */
int vocabulary_of(struct builder *b);

/* Return the activation and the width of the feed-forward part. */
enum pp_activation ffn_activation(const struct builder *b, enum pp_activation usual);
int ffn_width(const struct builder *b);

/* From now on names of parameters begin with this prefix instead of the layer's name. */
void prefix(struct builder *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Returns parameter i of the last node; NULL: something failed. */
struct pp_param *last_param(struct builder *b, int i);

/* Gives all weights of the last node normal initial values, and its biases 0. */
void init_normal(struct builder *b, double deviation);

/* Adds the last layer's product, named lm_head, without a bias. tied: name of the weight of the
 * first layer that it shares; NULL: its own. */
int lm_head(struct builder *b, int x, const char *tied);

/* ---- PyTorch's own layers, with its names, shapes and initial values */

/* torch.nn.Linear, then an activation. */
int torch_linear(struct builder *b, const char *name, int x, int out, enum pp_activation act);

/* torch.nn.LayerNorm */
int torch_norm(struct builder *b, const char *name, int x);

/* torch.nn.MultiheadAttention(query, memory, memory) without a mask, its out_proj, then the dropout
 * named drop. */
int torch_attention(struct builder *b, const char *name, const char *out_proj, int query,
                    int memory, const char *drop);

/* linear1, the activation, dropout, linear2, then the dropout named drop. */
int torch_feed_forward(struct builder *b, int x, const char *drop);

/* torch.nn.Embedding, plus one of positions unless that is NULL, then n_layer layers made by
 * `one`. */
int torch_stack(struct builder *b, int x, const char *positions,
                int (*one)(struct builder *b, int x));

#endif
