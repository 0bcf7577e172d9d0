/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Describes a model as a page of calls: each call adds nodes and returns the number of the value
 * that they give. The builder keeps the first failure; calls after it do nothing.
 *
 *     layer(b, "fc%d", i);
 *     x = linear(b, "", x, 10, PP_ACT_RELU);
 *
 * A layer begins where the previous one ends, reads that layer's last value, and ends with its own
 * last value. Parameters are named LAYER.NODE.weight, or LAYER.weight if the node has no name.
 */
#ifndef PPCLI_NN_NN_H
#define PPCLI_NN_NN_H

#include "ppcli/conf/config.h"
#include "ppcli/nn/model.h"

struct builder {
    struct pp_model *m; /* incomplete */
    const struct pp_config *cfg;
    const struct pp_data_input *data;
    int classes, vocabulary;        /* as the data or the config give them; 0: unknown */
    int cached;                     /* positions that attention keeps to generate text; else 0 */
    int rc;                         /* the first failure */
    char prefix[PP_LAYER_NAME_MAX]; /* of parameter names: the layer's name, unless a model sets
                                       another */
    char name[PP_PARAM_NAME_MAX];   /* name of the last node */
};

/* Builds one type of model from [model]; x is the input. */
struct model_builder {
    const char *name;
    struct pp_shape (*input)(const struct pp_config *cfg);
    int (*build)(struct builder *b, int x); /* returns the value with one number per class */
};

#define PP_MODEL(x) extern const struct model_builder model_##x;
#include "models.def"
#undef PP_MODEL

void layer(struct builder *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Returns the shape of a value. */
const struct pp_shape *shape_of(const struct builder *b, int value);

/* Fails with PP_ECONFIG and this text, unless something failed before. Returns 0, which is a valid
 * value. */
int refuse(struct builder *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Begin and end the building of a model: call them before the first call and after the last one. y
 * is the output of the model. */
int build_begin(struct builder *b, struct pp_shape input);
int build_finish(struct builder *b, int y);

/* Freezes what train.freeze names; build_finish() calls it. Returns b->rc. */
int freeze_params(struct builder *b);

/* ---- one function for each op; each returns the new value */

/* Maps x (all floats of an image; else its channels) to `out` channels. */
int linear(struct builder *b, const char *name, int x, int out, enum pp_activation act);

/* Computes several linears of the same x as one product, with their outputs one after the other in
 * y's channels. A piece has suffixes of its parameters' names (bias NULL: no bias, then in no
 * piece) and its channels. Parameters: the weights in order, then the biases. n >= 1. */
struct linear_piece {
    const char *weight, *bias;
    int out;
};
int linear_pieces(struct builder *b, const char *name, int x, int n,
                  const struct linear_piece *pieces, enum pp_activation act);

/* The same with rows first .. first + out - 1 of a weight with `all` rows, and of its bias. */
int linear_rows(struct builder *b, const char *name, int x, int first, int out, int all, bool bias,
                enum pp_activation act);

/* A square window that slides over an image. */
struct window {
    int kernel, stride;
    int pad; /* zeros around the image; PAD_SAME: as many as give ceil(pixels / stride) outputs */
    int groups;
    bool ceil; /* a last window that is partly after the image counts: of max pools */
};
#define PAD_SAME (-1)

/* Adds torch.nn.Conv2d, with parameters weight [channels][kernel][kernel][in / groups] and bias. */
int conv2d(struct builder *b, const char *name, int x, int channels, const struct window *w,
           bool bias, bool relu);

/* Adds torch.nn.BatchNorm2d, with parameters weight and bias, and buffers running_mean, running_var
 * and num_batches_tracked [1]. residual is a value to add after the norm, or -1; relu is applied
 * last. For a text or a flat value each channel is normalized over all rows. */
int batch_norm(struct builder *b, const char *name, int x, int residual, float eps, float momentum,
               bool relu);
int group_norm(struct builder *b, const char *name, int x, int residual, int groups, float eps,
               bool relu);

/* Add torch.nn.LayerNorm and torch.nn.RMSNorm over the channels, with parameters weight and
 * bias. */
int layer_norm(struct builder *b, const char *name, int x, float eps, bool bias);
int rms_norm(struct builder *b, const char *name, int x, float eps);

/* Embeds T tokens: rows of parameter TOKENS.weight [vocabulary][channels], plus rows of
 * POSITIONS.weight [T][channels] unless positions is NULL. */
int embedding(struct builder *b, const char *name, int x, int vocabulary, int channels,
              const char *tokens, const char *positions);

/* Rotates the first `heads` heads of `width` channels of each position, as in Hugging Face's
 * Llama. */
int rotary(struct builder *b, const char *name, int x, int heads, int width, float base,
           const struct pp_rope_scaling *scaling);

/* Computes silu(gate) * up: x has the gate's channels, then as many of up. */
int gated(struct builder *b, const char *name, int x);

struct heads {
    int q, kv, width; /* query heads, key and value heads, floats per head; kv divides q */
    bool causal;
    /* false: attends over the samples of a micro-batch at each position, as PyTorch's
     * MultiheadAttention with batch_first = False does if it gets the samples first */
    bool batch_first;
    float dropout; /* of the probabilities */
};

/* Adds scaled dot-product attention with output T x q * width. kv is a value with keys, then
 * values, at each position. If it is -1, x has queries, keys and values, one after the other at
 * each position or as cross_linear() gives them. */
int attention(struct builder *b, const char *name, int x, int kv, const struct heads *h);

/* Attention of values as they lie, of `queries` positions to `keys`. If it is over the samples, at
 * each position, there are as many of both. */
struct attention_view {
    struct heads heads;
    int queries, keys;
    float scale; /* of the scores, above 0; 0: 1 / sqrt(width) */
    struct pp_heads_at q, k, v, mask;
};

/* Adds scaled dot-product attention with output queries x heads.q * width. q, k and v are values,
 * which may be the same one, and overlap; but each head of each position has memory of its own.
 * mask is a value that is added to the scores, or -1; -infinity in it hides a key. */
int attention_of(struct builder *b, const char *name, int q, int k, int v, int mask,
                 const struct attention_view *view);

/* Adds the projections of torch.nn.MultiheadAttention with keys and values from another text, with
 * parameters in_proj_weight [3 * channels][in] and in_proj_bias. A sample of the result is
 * q[T][channels], then kv[T][2 * channels] = k, v. */
int cross_linear(struct builder *b, const char *name, int q_from, int kv_from, int channels);

int max_pool(struct builder *b, const char *name, int x, const struct window *w);
int avg_pool(struct builder *b, const char *name, int x, const struct window *w);
int global_avg_pool(struct builder *b, const char *name, int x); /* C channels, flat */
/* Pools a text: the mean of its positions, or the first one. */
int pool_positions(struct builder *b, const char *name, int x, bool mean);

int activate(struct builder *b, const char *name, int x, enum pp_activation act);
int add(struct builder *b, const char *name, int x, int other, bool relu);
int dropout(struct builder *b, const char *name, int x, float p);

/* Adds the softmax, or its logarithm, over the middle axis of a value [outer][n][inner]. */
int softmax(struct builder *b, const char *name, int x, int outer, int n, int inner, bool log);

/* Add a value of one row: a constant, of which a copy is kept, or a parameter NAME.weight, whose
 * shape in files and initial values the caller may change. */
int source_constant(struct builder *b, const char *name, const float *table, struct pp_shape out);
int source_param(struct builder *b, const char *name, enum pp_param_kind kind, struct pp_shape out);

/* expr.h: expr() */

/* ---- for ops */

/* Returns the bound that the `bound` hook of struct pp_node_op asks for, for products of `rows`
 * rows. */
double linear_bound(const struct pp_node *n, int rows, float x, float dz);

/* Computes the window over value x. `what` names the op in messages; with `channels` 0 the result
 * has as many channels as x. Returns false if the window was refused. */
bool window_over(struct builder *b, const char *what, const struct window *w, int x, int channels,
                 struct pp_conv *out);

/* Adds a node with its op, name, inputs (x1 < 0: one input) and output shape. Returns a pointer
 * that is valid until the next node is added; NULL if something failed. */
struct pp_node *add_node(struct builder *b, const struct pp_node_op *op, const char *name, int x0,
                         int x1, struct pp_shape out);

/* Adds a node as add_node() does, with the inputs x[n_x], 0 <= n_x <= PP_NODE_INPUTS. */
struct pp_node *add_node_of(struct builder *b, const struct pp_node_op *op, const char *name,
                            int n_x, const int *x, struct pp_shape out);

/* Adds a parameter to the last node, named after it. Returns NULL if something failed. */
struct pp_param *add_param(struct builder *b, const char *suffix, enum pp_param_kind kind,
                           int n_dims, const int *dims);

/* Sets the initial values of a weight of a product that sums fan_in terms per output; they follow
 * from model.init and the activation after the product. */
void init_weight(const struct builder *b, struct pp_param *w, int fan_in, enum pp_activation act);

/* Sets the initial values of the bias of a product that sums fan_in terms per output. */
void init_bias(const struct builder *b, struct pp_param *bias, int fan_in);

/* Makes *hash, 0 or that of what came before, the hash of that and of these bytes; for
 * node->setup_hash. */
void hash_bytes(uint64_t *hash, const void *data, size_t bytes);

/* cut.c: reads the cut that the config writes as ranges or as first layers; see pp_partition(). */
int cut_as_written(const struct pp_model *m, const struct pp_config *cfg, int n, int *first,
                   int *last);

#endif
