/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the transformers. */
#ifndef PPCLI_NN_TRANSFORMER_H
#define PPCLI_NN_TRANSFORMER_H

#include "nn.h"

/* Returns the shape of the input of all transformers: block_size tokens. */
struct pp_shape tokens_input(const struct pp_config *cfg);

/* Returns the heads of [model]; refuses numbers of heads and channels that do not divide. */
struct heads heads_of(struct builder *b, bool causal);

/* Returns the number of different tokens; refuses if it is unknown. */
int vocabulary_of(struct builder *b);

/* Return the activation and the width of the feed-forward part. */
enum pp_activation ffn_activation(const struct builder *b, enum pp_activation usual);
int ffn_width(const struct builder *b);

/* Sets the prefix with which names of parameters begin from now on, instead of the layer's name. */
void prefix(struct builder *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Returns parameter i of the last node; NULL if something failed. */
struct pp_param *last_param(struct builder *b, int i);

/* Gives all weights of the last node normal initial values, and its biases 0. */
void init_normal(struct builder *b, double deviation);

/* Adds the product of the last layer, named lm_head, without a bias. `tied` is the name of the
 * weight of the first layer that it shares; NULL if it has a weight of its own. */
int lm_head(struct builder *b, int x, const char *tied);

/* ---- PyTorch's own layers, with its names, shapes and initial values */

/* Adds torch.nn.Linear, then an activation. */
int torch_linear(struct builder *b, const char *name, int x, int out, enum pp_activation act);

/* Adds torch.nn.LayerNorm. */
int torch_norm(struct builder *b, const char *name, int x);

/* Adds torch.nn.MultiheadAttention(query, memory, memory) without a mask, its out_proj, then the
 * dropout named `drop`. */
int torch_attention(struct builder *b, const char *name, const char *out_proj, int query,
                    int memory, const char *drop);

/* Adds linear1, the activation, a dropout, linear2, then the dropout named `drop`. */
int torch_feed_forward(struct builder *b, int x, const char *drop);

/* Adds torch.nn.Embedding, plus an embedding of positions unless `positions` is NULL, then n_layer
 * layers, which `one` makes. */
int torch_stack(struct builder *b, int x, const char *positions,
                int (*one)(struct builder *b, int x));

#endif
