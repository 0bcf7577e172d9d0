/* SPDX-License-Identifier: Apache-2.0 */
/* Models: layers of ops on numbered values. */
#ifndef PPCLI_NN_MODEL_H
#define PPCLI_NN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ppcli/base/base.h"
#include "ppcli/conf/config.h"
#include "ppcli/dev/backend.h"

/* ---- ops */

/* The ops by name, op_linear and so on, for code that exports models and compares a node's op. */

#define PP_OP(x) extern const struct pp_node_op op_##x;
#include "ppcli/nn/ops.def"
#undef PP_OP

/* ---- model */

/*
 * Four words. A *value* is an array with a shape for each sample. An *op* is a table of functions;
 * a *node* is an op applied to values, giving one value. A *layer* is a named run of nodes with one
 * value in and one value out: the unit of partition. A *chunk* (ppcli/nn/chunk.h) is the contiguous
 * run of layers that one virtual stage holds. None of them knows ranks.
 *
 * Nodes are numbered in the order of computation. F visits a chunk's nodes upwards, I downwards, W
 * in any order. An op declares what it reads after F; this alone decides what is kept, and for how
 * long. If a value has two readers, its gradient is the sum over both, the last reader first.
 *
 * Parameters are named as in PyTorch and ordered canonically: node by node, weight before bias. The
 * parameters of a node, and their gradients, lie in one flat buffer of its chunk in that order,
 * without padding; a node's first parameter begins at a multiple of PP_NODE_FLOATS.
 */

#define PP_PARAM_NAME_MAX 256
#define PP_LAYER_NAME_MAX 128
#define PP_NODE_INPUTS 30

struct pp_model;
struct pp_node;

enum pp_param_kind {
    PP_PARAM_DECAYED, /* weights of products, which weight decay applies to */
    PP_PARAM_PLAIN,   /* biases, and the scales and shifts of norms */
    /* running statistics: not for the optimizer; their place in the gradients holds the sums of the
     * step's micro-batches */
    PP_PARAM_BUFFER,
    PP_PARAM_FROZEN /* never changed; their place in the gradients is unused */
};

enum pp_init {
    PP_INIT_CONSTANT, /* a */
    PP_INIT_UNIFORM,  /* in [a, b) */
    PP_INIT_NORMAL,   /* mean a, deviation b */
    PP_INIT_GIVEN     /* read from `given` */
};

/* Initial values that the model has from elsewhere; the first member of what its owner keeps of
 * them. */
struct pp_given {
    /* Writes values first..first+n-1, in the order of files, to `out`. Any thread may call it. */
    int (*read)(const struct pp_given *g, size_t first, size_t n, float *out);
};

#define PP_PARAM_DIMS 8 /* in files; as many as PyTorch's archives and ppcli's checkpoints have */

struct pp_param {
    char name[PP_PARAM_NAME_MAX]; /* "layer1.0.conv1.weight" */
    int n_dims, dims[4];          /* in memory: [out][in]; of a convolution [out][kh][kw][in] */
    enum pp_param_kind kind;
    int tied_to; /* number + 1 of the parameter that this one copies; 0: not a copy */
    enum pp_init init;
    float a, b;
    const struct pp_given *given; /* of PP_INIT_GIVEN; the model's */
    /* A linear after an image: its columns are (row, column, channel) in memory and (channel, row,
     * column) in files. n = 0: the same order. */
    struct pp_shape columns;
    bool matrix;     /* weight of a product that is not the last: Muon updates it */
    bool transposed; /* [out][in] in memory, [in][out] in files: GPT-2's Conv1D */
    bool reshaped;   /* in files: the same order, and the shape file_dims[n_file_dims] */
    int n_file_dims, file_dims[PP_PARAM_DIMS];
    size_t at; /* offset from the model's first parameter, in floats */
};

/* A tensor that is saved beside the parameters, so that files have all tensors of a model's origin:
 * another name of a parameter, or values that nothing changes. */
struct pp_extra {
    const char *name;
    int param; /* the parameter that has its values; -1: `given` has them */
    const struct pp_given *given;
    bool whole; /* its values are whole numbers: i64 in files */
    int n_dims;
    int64_t dims[PP_PARAM_DIMS];
};

size_t pp_param_floats(const struct pp_param *p);

/* Returns whether the optimizer changes the parameter. */
static inline bool pp_param_learns(const struct pp_param *p)
{
    return p->kind <= PP_PARAM_PLAIN;
}

/* Returns how many values the optimizer keeps for each float of this parameter (as
 * pp_optimizer_moments() does for the optimizer). */
int pp_param_moments(const struct pp_param *p, int optimizer);

/* Returns the floats of a row whose order differs between memory and files, or 0 if nothing
 * differs; sets out_dims and *out_n to the shape in files. Files have parameters as PyTorch does: a
 * convolution is [out][in][kh][kw], and the columns of a linear layer after an image are (channel,
 * row, column). A row is one of dims[0] or, if transposed, the whole parameter. */
size_t pp_param_in_file(const struct pp_param *p, int *out_n, int64_t out_dims[PP_PARAM_DIMS]);

/* Returns whether the parameter is num_batches_tracked of a batch norm: [1] in memory, a scalar of
 * type i64 in files. */
bool pp_param_is_count(const struct pp_param *p);

/* Converts one such row from memory's order to a file's, or back; dst must not overlap src. */
void pp_param_row(const struct pp_param *p, bool to_file, const float *src, float *dst);

/* Cost of one sample, for partition and explain. Only matrix products; flops_i is 0 if the gradient
 * of the input is not needed. */
struct pp_layer_cost {
    double flops_f, flops_i, flops_w; /* a multiply and an add count as 2 */
};

/* One micro-batch. */
struct pp_pass {
    int rows;           /* samples, 0 <= rows <= the chunk's max_rows */
    uint32_t first_row; /* number of its first sample in the step's whole batch */
    bool training;
    /* F of these rows has run before and y holds its result: the node now only writes what I and W
     * read into the slot, and y stays as it is. Only for a chunk with spec.recompute. */
    bool recompute;
    uint64_t seed;
    const int64_t *step; /* device memory: number of the step. NULL: nothing random is run */
    int position;        /* number of the first position of a text; 0 unless a text is generated */
    const uint32_t *lengths; /* device memory: sample r has lengths[index[r]] positions before its
                                padding; NULL: no padding */
    const uint32_t *index;
};

/* Memory that a node needs in addition to its values, in floats (of values: pp_value_floats()). Per
 * micro-batch of `rows`, except packed. */
struct pp_workspace {
    size_t keep;      /* from F to W */
    size_t grad_keep; /* from I to W */
    size_t scratch;   /* during one call */
    size_t packed;    /* copy of the weights for the backend */
};

/* Values that a node reads in its backward pass, as bits of 64; x is its first input, x1 its
 * second. */
#define PP_READS_Y_IN_I UINT64_C(1)
#define PP_READS_DY_IN_W UINT64_C(2)
#define PP_READS_IN_I(j) (UINT64_C(4) << 2 * (j))
#define PP_READS_IN_W(j) (UINT64_C(8) << 2 * (j))
#define PP_READS_INPUT(j) (PP_READS_IN_I(j) | PP_READS_IN_W(j))
#define PP_READS_X_IN_I PP_READS_IN_I(0)
#define PP_READS_X_IN_W PP_READS_IN_W(0)
#define PP_READS_X1_IN_I PP_READS_IN_I(1)
#define PP_READS_X1_IN_W PP_READS_IN_W(1)
_Static_assert(PP_NODE_INPUTS <= 31, "two bits for each input");

/* The arrays of a node in one pass. */
struct pp_at {
    const struct pp_pass *pass;
    const pp_value *x[PP_NODE_INPUTS];
    pp_value *y;                  /* written by F; available in I if declared */
    pp_value *dy;                 /* I may change it in place; kept for W if declared */
    pp_value *dx[PP_NODE_INPUTS]; /* NULL: not needed */
    bool add[PP_NODE_INPUTS];     /* add to dx: another reader of x, or of an earlier input that is
                                     the same value, has written it */
    float *keep, *grad_keep, *scratch;
    const float *params;
    const float *packed; /* of these params, or NULL */
};

#define PP_USES(kernel) (UINT64_C(1) << PP_KERNEL_##kernel)
_Static_assert(PP_KERNELS <= 64, "a bit for each kernel");

/* What to do with a step's statistics when the gradients of replicas are summed: KEEP, before:
 * copies this replica's; COMPARE, after: compares them with those of all; ADD: after `own` is
 * summed too, adds it to the gradients. */
enum pp_merging {
    PP_MERGE_KEEP,
    PP_MERGE_COMPARE,
    PP_MERGE_ADD
};

/* An op. All functions return 0 or the backend's error; NULL: nothing to do. */
struct pp_node_op {
    const char *name;
    uint64_t kernels; /* PP_USES() of the kernels of ppcli/dev/kernels.h that it calls */
    /* Returns the memory it needs; NULL: none. rows: the most of one micro-batch. */
    void (*workspace)(const struct pp_node *n, const struct pp_backend_choice *choice, int rows,
                      struct pp_workspace *out);
    void (*cost)(const struct pp_node *n, struct pp_layer_cost *out);
    /* Called when the model is complete and n->wants_dx is known: sets what depends on that. */
    int (*complete)(struct pp_model *m, struct pp_node *n);
    /* Returns an upper bound of all |weight gradients| of `rows` rows in all, with rounding, given
     * that no |input| is larger than x and no |gradient that backward_input left in dy| is larger
     * than dz. NULL in an op with parameters: no bound, so the gradients are read. */
    double (*bound)(const struct pp_node *n, int rows, float x, float dz);
    int (*pack)(const struct pp_node *n, struct pp_backend *be, const float *params, float *packed);
    /* As pp_chunk_prepare() for this node. grads NULL: forward only. */
    int (*prepare)(const struct pp_node *n, struct pp_backend *be, int rows, const float *params,
                   const float *packed, float *grads);
    int (*forward)(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at);
    int (*backward_input)(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at);
    bool dx_over_dy; /* backward_input may write dx[1] where dy lies */
    /* Computes beta*grads + the gradients of the n_parts >= 1 micro-batches, in order. */
    int (*backward_weight)(const struct pp_node *n, struct pp_backend *be, int n_parts,
                           const struct pp_weight_part *parts, float beta, float *scratch,
                           float *grads);
    /* Does the part of backward_weight that fills the gradients of buffers, for a node that does not
     * train. */
    int (*gather)(const struct pp_node *n, struct pp_backend *be, int n_parts,
                  const struct pp_weight_part *parts, float beta, float *grads);
    /* Called in the order of enum pp_merging; own[merge_floats()]. */
    size_t (*merge_floats)(const struct pp_node *n);
    int (*merge)(const struct pp_node *n, struct pp_backend *be, enum pp_merging what, float *grads,
                 float *own);
    /* Called after the optimizer's step: updates buffers from grads. args: device memory. */
    int (*commit)(const struct pp_node *n, struct pp_backend *be,
                  const struct pp_optimizer_args *args, const float *grads, float *params);
};

/* The place of heads in a value, for attention: the offset of the first element, and the distances
 * from one position, one head and (in a mask) one key to the next, floats within a sample. The
 * positions of a mask are the queries. A distance of 0: all positions, heads or keys share a
 * number. */
struct pp_heads_at {
    int offset, position, head, key;
};

/* The input of a node that has the heads, and their place in it. */
struct pp_heads_place {
    int input, sample; /* number of the input, and its floats of a sample */
    bool one_row;      /* all samples share its one row */
    struct pp_heads_at at;
};

/* Aligns a node's first parameter, usually a matrix, for 16-byte access. */
#define PP_NODE_FLOATS ((size_t)4)

struct pp_node {
    const struct pp_node_op *op;
    int layer;                     /* layer of the node */
    int x[PP_NODE_INPUTS], n_x, y; /* values, n_x >= 0; y is the node's number + 1 */
    struct pp_shape in, out;       /* shapes of x[0], if there is one, and of y */
    bool wants_dx[PP_NODE_INPUTS]; /* a node before that input trains */
    bool shared[PP_NODE_INPUTS];   /* that input has other readers */
    bool trains;                   /* has parameters that the optimizer changes */
    bool learns;                   /* the gradient of y is needed */
    bool one_row; /* y is the same for every sample, and memory has it once, whatever pass->rows is;
                     all inputs are such values, too. Its gradient has rows as any other. Never the
                     last node of a layer */
    uint64_t reads;            /* PP_READS_... */
    int first_param, n_params; /* in the model */
    size_t n_floats;           /* floats of its params, padded to a multiple of PP_NODE_FLOATS */
    uint64_t key;              /* hash of its name, for random numbers */
    int positions;             /* positions of a text, each a row of a product; else 1 */
    int cached; /* rows are positions of one text, from pp_pass.position on, and attention keeps
                   keys and values of this many; 0: not so */
    /* Settings that do not fit in here: the op's, which the model frees with free_setup. Nodes with
     * the same setup_hash have the same ones. */
    void *setup;
    void (*free_setup)(void *setup);
    uint64_t setup_hash;
    /* Settings of the ops: */
    int activation; /* enum pp_activation after a linear, a convolution or a norm */
    bool bias;      /* of linear, convolution and layer norm */
    struct {
        int first, all; /* of a linear: rows of its weight from first on, of `all`; 0: all rows */
    } rows;
    bool logits; /* the model's last node, a linear without activation and bias: rows of its value
                    are pp_model_logits_row() apart */
    struct pp_attention_settings {
        int heads, kv_heads, width;
        int keys; /* positions of the keys */
        bool causal, batch_first;
        bool padded; /* a sample may have fewer keys: pass->lengths */
        bool masked;
        float dropout, scale; /* scale as in struct pp_attention */
        struct pp_heads_place q, k, v, mask;
        unsigned gaps; /* bit j: the gradient of input j begins with 0, because q, k, v and the
                          mask do not fill it, or overlap */
        bool overlaps; /* two of them share memory */
    } attention;
    struct pp_rotary_settings {
        int heads, width;
        float base;
        struct pp_rope_scaling scaling;
    } rotary;
    struct pp_norm_settings {
        int groups;
        int least_rows; /* of batch norm: rows that a micro-batch must have in training */
        float eps, momentum;
    } norm;
    struct pp_window_settings { /* of convolutions and pools */
        struct pp_conv conv;
        bool count_padding; /* of an average pool */
    } window;
    struct {
        int vocabulary;
        int padding; /* 1 + the token whose row is not learnt (padding_idx); 0: none */
    } embedding;
    struct {
        float p;
    } dropout;
    struct {
        int outer, n, inner;
        bool log;
        bool keeps; /* a copy of its value, which the loss overwrites */
    } softmax;
};

struct pp_layer {
    char name[PP_LAYER_NAME_MAX]; /* "layer1.0" */
    int index;                    /* number in the model */
    int first_node, last_node;    /* inclusive */
    int x, y;                     /* its input and output value */
    int in, out;                  /* floats of a sample of x and y */
    bool wants_dx;                /* the gradient of x is needed */
    int first_param, n_params;    /* in the model */
    size_t n_floats;              /* of all its nodes */
};

struct pp_model {
    struct pp_shape *values; /* value 0 is the input */
    struct pp_node *nodes;
    struct pp_layer *layers;
    struct pp_param *params;
    int n_values, n_nodes, n_layers, n_params;
    int inputs, outputs; /* floats of a sample of the first value, and of the last; if the model is
                            only planned, at most INT_MAX, as in layers */
    int classes;         /* channels of the last value, which has one target per position */
    size_t n_floats;     /* of all layers */
    size_t n_tied;       /* floats that are copies of tied parameters */
    int n_holders;       /* the most of one tied parameter; 0: nothing is tied */
    size_t n_padding;    /* floats of padding */
    bool tokens;         /* the input is tokens: f32, whatever type values have */
    struct pp_extra *extras;
    int n_extras;
    void *owned; /* what initial values and settings are read from; NULL: nothing */
    void (*free_owned)(void *owned); /* called last */
    /* Explains why no stage can begin at `name`, which is not a layer; writes "" if the model has no
     * module of that name. NULL: the model cannot explain it. Errors: PP_ERESOURCE. */
    int (*explain_cut)(const struct pp_model *m, const char *name, char *out, size_t bytes);
};

/* Returns the number of floats that are saved: learnt and frozen ones, and buffers. */
static inline size_t pp_model_floats(const struct pp_model *m)
{
    return m->n_floats - m->n_tied - m->n_padding;
}

/* Returns the targets of a sample: 1, or of a text one for each position. */
static inline int pp_model_targets(const struct pp_model *m)
{
    return m->outputs / m->classes;
}

/* Returns the targets of a sample if it is a text, whose loss has a perplexity; else 0. */
static inline int pp_model_text_targets(const struct pp_model *m)
{
    return m->tokens && m->values[m->n_values - 1].n == 2 ? pp_model_targets(m) : 0;
}

/* Returns the elements from one row of logits, and of their gradients, to the next. */
static inline int pp_model_logits_row(const struct pp_model *m,
                                      const struct pp_backend_choice *choice)
{
    return m->nodes[m->n_nodes - 1].logits ? pp_backend_logits_row(choice, m->classes) : m->classes;
}

/* Returns the elements of a node's value, or of its gradient, per sample. */
static inline size_t pp_node_elements(const struct pp_model *m, const struct pp_node *n,
                                      const struct pp_backend_choice *choice)
{
    return n->logits ? (size_t)pp_model_targets(m) * (size_t)pp_model_logits_row(m, choice)
                     : pp_shape_floats(&n->out);
}

const char *const *pp_model_names(void);

/* Returns whether two models compute the same from a sample and parameters, whatever their sizes
 * and whatever only training does: they have as many nodes, each with the same op on the same
 * values. */
bool pp_model_same_function(const struct pp_model *a, const struct pp_model *b);

/* Returns whether layers a and b do the same work, so that both take the same time. */
bool pp_layer_same_work(const struct pp_model *m, int a, int b);

/* Makes a model from [model] and the data's properties; data NULL: unknown, which is enough for an
 * mlp. Errors: PP_ECONFIG, PP_ERESOURCE. The caller owns *out. */
int pp_model_create(const struct pp_config *cfg, const struct pp_data_input *data,
                    struct pp_model **out);

/* Makes a model with the same parameters whose rows are tokens of one text, from pp_pass.position
 * on, and which keeps keys and values of earlier positions, up to model.block_size. PP_ECONFIG also
 * if it has no causal attention. */
int pp_model_create_cached(const struct pp_config *cfg, const struct pp_data_input *data,
                           struct pp_model **out);
void pp_model_destroy(struct pp_model **m);

struct pp_layer_cost pp_layer_cost(const struct pp_model *m, int layer);

/* Computes the bytes of values and gradients, of `element` bytes each, that F, I and W of a node
 * read and write for one sample. */
void pp_node_traffic(const struct pp_model *m, const struct pp_node *n, size_t element,
                     double out_bytes[3]);

/* Return the flops of one sample: F + I + W. */
double pp_layer_flops(const struct pp_model *m, int layer);
double pp_model_flops(const struct pp_model *m);

/* Returns the floats of all values of a layer for one sample, its output included. */
size_t pp_layer_values(const struct pp_model *m, int layer);

/*
 * Cuts the model into n contiguous non-empty pieces: first[s]..last[s] for s = 0..n-1.
 *   flops     least largest flops (F + I + W) per piece, exact; of equal cuts, the one with the
 *             fewest values over
 *             the cuts, then with larger earlier pieces
 *   auto      flops
 *   equal     the same number of layers each, earlier pieces get the extra ones
 *   params    least largest parameter count (exact), ties as for flops
 *   explicit  the ranges or the first layers of the config, by name or number
 *   time      PP_ECONFIG: needs measured times, see pp_partition_costs()
 * Errors: PP_ECONFIG (more stages than layers; a layer that the model does not have; ranges that do
 * not cover 0..n_layers-1 in order).
 */
int pp_partition(const struct pp_model *m, const struct pp_config *cfg, int n, int *first,
                 int *last);

/*
 * Reads pipeline.recompute: "" (off), "all", or layers and ranges of layers, "h.0-h.2 h.5". out[s]:
 * the text covers a layer of piece s of n. Errors: PP_ECONFIG.
 */
int pp_recompute_stages(const struct pp_model *m, const char *text, int n, const int *first,
                        const int *last, bool *out);

/* Cuts the model as pp_partition() does, for given costs[n_layers] in any unit, finite and >= 0:
 * the largest cost of a piece is as small as possible, exact to 2^-52 of the whole; ties are
 * decided as for flops. 1 <= n <= n_layers. Errors: PP_ERESOURCE. */
int pp_partition_costs(const struct pp_model *m, const double *costs, int n, int *first, int *last);

/* Returns whether samples of a micro-batch influence each other, as in batch norm or in attention
 * over the batch; then micro-batches and replicas change what is computed. */
bool pp_model_mixes_samples(const struct pp_model *m);

/* Returns whether every op with parameters gives a bound of their gradients, so that
 * pp_chunk_is_bounded() can be true. */
bool pp_model_bounds(const struct pp_model *m);

/* Writes the layers of n pieces as pipeline.assignment has them, "0-1 | 2 | 3-5", cut off where out
 * ends. Uses names, "conv1-layer1.1 | layer2.0-fc", unless the names are numbers. */
char *pp_ranges_text(const struct pp_model *m, const int *first, const int *last, int n, char *out,
                     size_t bytes);

#endif
