/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a model is written down: a page of calls, each of which adds nodes and returns the number of
 * the value they give. The first failure stays in the builder; calls after it do nothing.
 *
 *     layer(b, "fc%d", i);
 *     x = linear(b, "", x, 10, PP_ACT_RELU);
 *
 * A layer begins where the one before ends, reads that one's last value, and ends with its own last
 * value. Parameters are named LAYER.NODE.weight, or LAYER.weight where the node has no name.
 */
#ifndef PPCLI_NN_NN_H
#define PPCLI_NN_NN_H

#include "ppcli/conf/config.h"
#include "ppcli/nn/model.h"

struct builder {
    struct pp_model *m; /* half built */
    const struct pp_config *cfg;
    int classes, vocabulary;        /* that the data or the config want; 0: not known */
    int cached;                     /* positions that attention keeps, to generate; else 0 */
    int rc;                         /* of the first failure */
    char prefix[PP_LAYER_NAME_MAX]; /* of names: the layer's, unless a model sets another */
    char name[PP_PARAM_NAME_MAX];   /* of the node that was added last */
};

/* How to make one kind of model from [model]: x is the input. */
struct model_builder {
    const char *name;
    struct pp_shape (*input)(const struct pp_config *cfg);
    int (*build)(struct builder *b, int x); /* the value with a number for each class */
};

#define PP_MODEL(x) extern const struct model_builder model_##x;
#include "models.def"
#undef PP_MODEL

void layer(struct builder *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

const struct pp_shape *shape_of(const struct builder *b, int value);

/* PP_ECONFIG with this text, unless something failed before. Returns 0, a value that is there. */
int refuse(struct builder *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Before the first call, and after the last: y is the model's output. */
int build_begin(struct builder *b, struct pp_shape input);
int build_finish(struct builder *b, int y);

/* ---- one function for each op; they return the new value */

/* Floats of x (of an image all of them; else its channels) to `out` channels. */
int linear(struct builder *b, const char *name, int x, int out, enum pp_activation act);

/* Several linears of the same x as one product, their outputs after each other in y's channels. Of
 * a piece: suffixes of its parameters' names (bias NULL: none, then in no piece) and channels out.
 * Parameters: the weights in order, then the biases. n >= 1. */
struct linear_piece {
    const char *weight, *bias;
    int out;
};
int linear_pieces(struct builder *b, const char *name, int x, int n,
                  const struct linear_piece *pieces, enum pp_activation act);

/* A square window that slides over an image. */
struct window {
    int kernel, stride;
    int pad; /* zeros around the image, or PAD_SAME: as many as give ceil(pixels / stride) */
    int groups;
};
#define PAD_SAME (-1)

/* torch.nn.Conv2d: parameters weight [channels][kernel][kernel][in / groups], bias. */
int conv2d(struct builder *b, const char *name, int x, int channels, const struct window *w,
           bool bias, bool relu);

/* torch.nn.BatchNorm2d: weight, bias; buffers running_mean, running_var, num_batches_tracked [1].
 * residual: a value added after it, -1: none; relu: then. Of a text or a flat value each channel
 * is over all rows. */
int batch_norm(struct builder *b, const char *name, int x, int residual, float eps, float momentum,
               bool relu);
int group_norm(struct builder *b, const char *name, int x, int residual, int groups, float eps,
               bool relu);

/* torch.nn.LayerNorm and torch.nn.RMSNorm over the channels: parameters weight, bias. */
int layer_norm(struct builder *b, const char *name, int x, float eps, bool bias);
int rms_norm(struct builder *b, const char *name, int x, float eps);

/* Of T tokens: rows of a table, parameter TOKENS.weight [vocabulary][channels], plus, unless
 * positions is NULL, those of POSITIONS.weight [T][channels]. */
int embedding(struct builder *b, const char *name, int x, int vocabulary, int channels,
              const char *tokens, const char *positions);

/* Turns the first `heads` heads of `width` channels of each position, as Hugging Face's Llama. */
int rotary(struct builder *b, const char *name, int x, int heads, int width, float base,
           const struct pp_rope_scaling *scaling);

/* x has the gate's channels, then as many that it lets through: silu(gate) * those. */
int gated(struct builder *b, const char *name, int x);

struct heads {
    int q, kv, width; /* query heads, key and value heads, floats of each; kv divides q */
    bool causal;
    bool batch_first; /* else over the samples of a micro-batch, at each position, as PyTorch's
                         MultiheadAttention does with batch_first = False when it gets them first */
    float dropout;    /* of probabilities */
};

/* Scaled dot-product attention, T x q * width. kv: a value with keys, then values at each position.
 * -1: x has queries, keys and values, after each other at each position or as cross_linear(). */
int attention(struct builder *b, const char *name, int x, int kv, const struct heads *h);

/* The projections of torch.nn.MultiheadAttention whose keys and values are of another text:
 * parameters in_proj_weight [3 * channels][in], in_proj_bias. A sample is q[T][channels], then
 * kv[T][2 * channels] = k, v. */
int cross_linear(struct builder *b, const char *name, int q_from, int kv_from, int channels);

int max_pool(struct builder *b, const char *name, int x, const struct window *w);
int avg_pool(struct builder *b, const char *name, int x, const struct window *w);
int global_avg_pool(struct builder *b, const char *name, int x); /* C, flat */
/* Of a text: the mean of its positions, or the first. */
int pool_positions(struct builder *b, const char *name, int x, bool mean);

int activate(struct builder *b, const char *name, int x, enum pp_activation act);
int add(struct builder *b, const char *name, int x, int other, bool relu);
int dropout(struct builder *b, const char *name, int x, float p);

/* ---- for ops */

/* The bound of products of `rows` rows, for struct pp_node_op. */
double linear_bound(const struct pp_node *n, int rows, float x, float dz);

/* The window over value x, for `what` in messages; channels 0: as many as x has. False: refused. */
bool window_over(struct builder *b, const char *what, const struct window *w, int x, int channels,
                 struct pp_conv *out);

/* A new node with its op, name, inputs (x1 < 0: one), output shape; NULL: something failed. What it
 * points at moves with the next node. */
struct pp_node *add_node(struct builder *b, const struct pp_node_op *op, const char *name, int x0,
                         int x1, struct pp_shape out);

/* A parameter of the node that was added last, named after it. NULL: something failed. */
struct pp_param *add_param(struct builder *b, const char *suffix, enum pp_param_kind kind,
                           int n_dims, const int *dims);

/* The weight of a product that sums fan_in terms for an output: its initial values follow from
 * model.init and the activation after it. */
void init_weight(const struct builder *b, struct pp_param *w, int fan_in, enum pp_activation act);

/* The bias of such a product. */
void init_bias(const struct builder *b, struct pp_param *bias, int fan_in);

/* cut.c: the ranges or first layers of the config, as pp_partition(). */
int cut_as_written(const struct pp_model *m, const struct pp_config *cfg, int n, int *first,
                   int *last);

#endif
