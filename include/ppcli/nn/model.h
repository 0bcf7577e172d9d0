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

/* The ops by name, op_linear and so on: to compare with a node's, for whoever writes a model down in
 * another form. */

#define PP_OP(x) extern const struct pp_node_op op_##x;
#include "ppcli/nn/ops.def"
#undef PP_OP

/* ---- model */

/*
 * Four words. A *value* is an array with a shape for each sample. An *op* is a table of functions;
 * a *node* is an op applied to values, giving one. A *layer* is a named run of nodes with one value
 * in and one value out: the unit of partition. A *chunk* (ppcli/nn/chunk.h) is the contiguous run of
 * layers that one virtual stage holds. None of them knows ranks.
 *
 * Nodes are in the order of computing. F walks a chunk's nodes upwards, I downwards, W in any
 * order. An op declares what it reads again after F; from that alone follows what is kept, and for
 * how long. Where a value has two readers its gradient is added up, the last reader first.
 *
 * Parameters are named as PyTorch names them and ordered canonically: node by node, weight before
 * bias. A node's parameters and their gradients lie in one flat buffer of its chunk in that order,
 * without padding; a node's first begins at a multiple of PP_NODE_FLOATS.
 */

#define PP_PARAM_NAME_MAX 96
#define PP_LAYER_NAME_MAX 48
#define PP_NODE_INPUTS 2

struct pp_node;

enum pp_param_kind {
    PP_PARAM_DECAYED, /* weights of products: weight decay is for them */
    PP_PARAM_PLAIN,   /* biases, and what scales and shifts in norms */
    PP_PARAM_BUFFER   /* running statistics: no optimizer; their place in the gradients has what the
                         step's micro-batches add up to */
};

enum pp_init {
    PP_INIT_CONSTANT, /* a */
    PP_INIT_UNIFORM,  /* in [a, b) */
    PP_INIT_NORMAL    /* mean a, deviation b */
};

struct pp_param {
    char name[PP_PARAM_NAME_MAX]; /* "layer1.0.conv1.weight" */
    int n_dims, dims[4];          /* in memory: [out][in]; of a convolution [out][kh][kw][in] */
    enum pp_param_kind kind;
    int tied_to; /* number + 1 of the parameter in the model whose copy this is; 0: of none */
    enum pp_init init;
    float a, b;
    /* A linear after an image: its columns are (row, column, channel) in memory and (channel, row,
     * column) in files. n 0: as they are. */
    struct pp_shape columns;
    bool matrix;     /* of a product that is not the last: Muon is for it */
    bool transposed; /* [out][in] in memory, [in][out] in files: GPT-2's Conv1D */
    size_t at;       /* floats from the model's first parameter to this one */
};

size_t pp_param_floats(const struct pp_param *p);
/* As pp_optimizer_moments(), of this one. */
int pp_param_moments(const struct pp_param *p, int optimizer);

/* Files have parameters as PyTorch does: a convolution is [out][in][kh][kw], the columns of a linear
 * after an image are (channel, row, column). out_dims: the shape there. Returns the floats of a
 * row, one of dims[0] or, transposed, all, whose order differs from memory's; 0: nothing differs. */
size_t pp_param_in_file(const struct pp_param *p, int64_t out_dims[4]);

/* A batch norm's num_batches_tracked: [1] here, a scalar of type i64 in files. */
bool pp_param_is_count(const struct pp_param *p);

/* One such row from memory's order to a file's, or back; dst is another row. */
void pp_param_row(const struct pp_param *p, bool to_file, const float *src, float *dst);

/* Cost of one sample, for partition and explain. Matrix products only; flops_i is 0 where nobody
 * asks for the gradient of the input. */
struct pp_layer_cost {
    double flops_f, flops_i, flops_w; /* multiply and add count as 2 */
};

/* One micro-batch. */
struct pp_pass {
    int rows;           /* samples, 0 <= rows <= the chunk's max_rows */
    uint32_t first_row; /* number of the first of them in the step's whole batch */
    bool training;
    bool
        recompute; /* F of these rows has been before, and y has what it gave: now the slot gets what I
                   and W read, and y stays as it is. For a chunk with spec.recompute. */
    uint64_t seed;
    const int64_t *step; /* memory of the device: number of the step. NULL: nothing random is run */
    int position;        /* number of the first position of a text; 0 but when one is generated */
    const uint32_t *lengths; /* memory of the device: positions of sample r before its padding are
                                lengths[index[r]]; NULL: there is none */
    const uint32_t *index;
};

/* Floats (of what are values: pp_value_floats()) that a node needs beside its values; of one micro-batch
 * of `rows`, but packed. */
struct pp_words {
    size_t keep;      /* F to W */
    size_t grad_keep; /* I to W */
    size_t scratch;   /* during one call */
    size_t packed;    /* copy of the weights that the backend wants */
};

/* Values that a node reads in its backward pass; x is its first input, x1 its second. */
enum pp_reads {
    PP_READS_X_IN_I = 1,
    PP_READS_X_IN_W = 2,
    PP_READS_Y_IN_I = 4,
    PP_READS_DY_IN_W = 8,
    PP_READS_X1_IN_I = 16,
    PP_READS_X1_IN_W = 32
};
#define PP_READS_INPUT(j) /* those of its input j */                                               \
    ((unsigned)((j) == 0 ? PP_READS_X_IN_I | PP_READS_X_IN_W : PP_READS_X1_IN_I | PP_READS_X1_IN_W))

/* A node's arrays in one pass. */
struct pp_at {
    const struct pp_pass *pass;
    const pp_value *x[PP_NODE_INPUTS];
    pp_value *y;                  /* F writes it; I has it if declared */
    pp_value *dy;                 /* I may change it in place; it stays for W if declared */
    pp_value *dx[PP_NODE_INPUTS]; /* NULL: not wanted */
    bool add[PP_NODE_INPUTS];     /* dx +=: another reader of x has written there */
    float *keep, *grad_keep, *scratch;
    const float *params;
    const float *packed; /* of these params, or NULL */
};

#define PP_USES(kernel) (UINT64_C(1) << PP_KERNEL_##kernel)
_Static_assert(PP_KERNELS <= 64, "a bit for each kernel");

/* What is done with a step's statistics where gradients of replicas are added up: what this replica has
 * is kept, before; compared with what all have, after; and, added up over them, added to the gradients. */
enum pp_merging {
    PP_MERGE_KEEP,
    PP_MERGE_COMPARE,
    PP_MERGE_ADD
};

/* All functions return 0 or what the backend said; NULL: nothing to do. */
struct pp_node_op {
    const char *name;
    uint64_t kernels; /* PP_USES() of those of ppcli/dev/kernels.h that it calls */
    /* NULL: no words. rows: the most of one micro-batch. */
    void (*words)(const struct pp_node *n, const struct pp_backend_choice *choice, int rows,
                  struct pp_words *out);
    void (*cost)(const struct pp_node *n, struct pp_layer_cost *out);
    /* What no |weight gradient| of `rows` rows in all is larger than, roundings included, when no
     * |input| is larger than x and no |gradient that backward_input left in dy| larger than dz.
     * NULL, in an op with parameters: no promise; the gradients are read. */
    double (*bound)(const struct pp_node *n, int rows, float x, float dz);
    int (*pack)(const struct pp_node *n, struct pp_backend *be, const float *params, float *packed);
    /* pp_chunk_prepare() of this node. grads NULL: forward only. */
    int (*prepare)(const struct pp_node *n, struct pp_backend *be, int rows, const float *params,
                   const float *packed, float *grads);
    int (*forward)(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at);
    int (*backward_input)(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at);
    bool dx_over_dy; /* dx[1] may lie where dy lies, in backward_input */
    /* beta*grads + what the n_parts >= 1 micro-batches add, in order. */
    int (*backward_weight)(const struct pp_node *n, struct pp_backend *be, int n_parts,
                           const struct pp_weight_part *parts, float beta, float *scratch,
                           float *grads);
    /* In the order of enum pp_merging; own: the node's merge_floats(). */
    size_t (*merge_floats)(const struct pp_node *n);
    int (*merge)(const struct pp_node *n, struct pp_backend *be, enum pp_merging what, float *grads,
                 float *own);
    /* After the optimizer's step: from what grads has for buffers. args: memory of the device. */
    int (*commit)(const struct pp_node *n, struct pp_backend *be,
                  const struct pp_optimizer_args *args, const float *grads, float *params);
};

/* So that a node's first parameter, mostly a matrix, is at an address that 16-byte access can have. */
#define PP_NODE_FLOATS ((size_t)4)

struct pp_node {
    const struct pp_node_op *op;
    int layer;                     /* that it belongs to */
    int x[PP_NODE_INPUTS], n_x, y; /* values: y is the node's number + 1 */
    struct pp_shape in, out;       /* of x[0] and y */
    bool wants_dx[PP_NODE_INPUTS]; /* something before that input learns */
    bool shared[PP_NODE_INPUTS];   /* that input has other readers */
    unsigned reads;                /* enum pp_reads */
    int first_param, n_params;     /* in the model */
    size_t n_floats; /* of its params, and after them to a multiple of PP_NODE_FLOATS */
    uint64_t key;    /* of its name: what is random here */
    int positions;   /* of a text: each is a row of a product; else 1 */
    int cached; /* rows are positions of one text, from pp_pass.position on, and attention keeps
                      keys and values of as many; 0: none of it */
    /* What ops know about themselves: */
    int activation; /* enum pp_activation, of linear, convolution and norms: after them */
    bool bias;      /* of linear, convolution and layer norm */
    bool logits; /* the model's last node, a linear without activation and bias: rows of its value
                    are pp_model_logits_row() apart */
    struct pp_attention_words {
        int heads, kv_heads, width;
        int keys; /* positions of the value that has keys */
        bool causal, batch_first;
        bool apart; /* its input is a cross_linear's */
        float dropout;
    } attention;
    struct pp_rotary_words {
        int heads, width;
        float base;
        struct pp_rope_scaling scaling;
    } rotary;
    struct pp_norm_words {
        int groups;
        int least_rows; /* of batch norm: that a micro-batch must have in training */
        float eps, momentum;
    } norm;
    struct pp_window_words { /* of convolutions and pools */
        struct pp_conv conv;
        bool count_padding; /* of an average pool */
    } window;
    struct {
        int vocabulary;
    } embedding;
    struct {
        float p;
    } dropout;
};

struct pp_layer {
    char name[PP_LAYER_NAME_MAX]; /* "layer1.0" */
    int index;                    /* in the model */
    int first_node, last_node;    /* inclusive */
    int x, y;                     /* values */
    int in, out;                  /* floats of a sample of x and y */
    int first_param, n_params;    /* in the model */
    size_t n_floats;              /* of all its nodes */
};

struct pp_model {
    struct pp_shape *values; /* value 0 is the input */
    struct pp_node *nodes;
    struct pp_layer *layers;
    struct pp_param *params;
    int n_values, n_nodes, n_layers, n_params;
    int inputs, outputs; /* floats of a sample of the first value, and of the last */
    int classes;      /* of the loss: channels of the last value, which has a target a position */
    size_t n_floats;  /* of all layers */
    size_t n_tied;    /* of those that are copies */
    size_t n_padding; /* of those that belong to no parameter */
    bool tokens;      /* the input is: f32, whatever values are */
};

/* Numbers that are learnt, and buffers: what is saved. */
static inline size_t pp_model_floats(const struct pp_model *m)
{
    return m->n_floats - m->n_tied - m->n_padding;
}

/* Targets of a sample: 1, or of texts one for each position. */
static inline int pp_model_targets(const struct pp_model *m)
{
    return m->outputs / m->classes;
}

/* The same of a text, whose loss has a perplexity; 0: it is none. */
static inline int pp_model_text_targets(const struct pp_model *m)
{
    return m->tokens && m->values[m->n_values - 1].n == 2 ? pp_model_targets(m) : 0;
}

/* Elements from one row of logits, and of their gradients, to the next. */
static inline int pp_model_logits_row(const struct pp_model *m,
                                      const struct pp_backend_choice *choice)
{
    return m->nodes[m->n_nodes - 1].logits ? pp_backend_logits_row(choice, m->classes) : m->classes;
}

/* Elements that a sample takes of the node's value, or of its gradient. */
static inline size_t pp_node_elements(const struct pp_model *m, const struct pp_node *n,
                                      const struct pp_backend_choice *choice)
{
    return n->logits ? (size_t)pp_model_targets(m) * (size_t)pp_model_logits_row(m, choice)
                     : pp_shape_floats(&n->out);
}

const char *const *pp_model_names(void);

/* Whether two models do the same with a sample and parameters, whatever their sizes and what only
 * training does: as many nodes, each the same op of the same values. */
bool pp_model_same_function(const struct pp_model *a, const struct pp_model *b);

/* Whether layers a and b do the same work, so that the time of one is that of the other. */
bool pp_layer_same_work(const struct pp_model *m, int a, int b);

/* From [model] and what the data say; NULL: nothing, which an mlp does not ask. Errors: PP_ECONFIG,
 * PP_ERESOURCE. Caller owns *out. */
int pp_model_create(const struct pp_config *cfg, const struct pp_data_input *data,
                    struct pp_model **out);

/* The same parameters in a model whose rows are tokens of one text, at pp_pass.position and after it,
 * and which keeps keys and values of those before: up to model.block_size. PP_ECONFIG also where no
 * attention is causal. */
int pp_model_create_cached(const struct pp_config *cfg, const struct pp_data_input *data,
                           struct pp_model **out);
void pp_model_destroy(struct pp_model **m);

struct pp_layer_cost pp_layer_cost(const struct pp_model *m, int layer);

/* Bytes of values and gradients, of `element` bytes each, that F, I and W of a node read and write for
 * one sample. */
void pp_node_traffic(const struct pp_model *m, const struct pp_node *n, size_t element,
                     double out_bytes[3]);

/* Flops of one sample: F + I + W. */
double pp_layer_flops(const struct pp_model *m, int layer);
double pp_model_flops(const struct pp_model *m);

/* Floats of a sample that a layer gives values for, its output included. */
size_t pp_layer_values(const struct pp_model *m, int layer);

/*
 * Cut the model into n contiguous non-empty pieces: first[s]..last[s] for s = 0..n-1.
 *   flops   least largest flops (F + I + W) per piece, exact; ties to the fewest values over the
 *           cuts, then to larger earlier pieces
 *   auto    flops
 *   equal   as many layers each as possible, earlier pieces get the extra ones
 *   params  least largest parameter count (exact), same ties
 *   explicit  the ranges or the first layers of the config, by name or number
 *   time    pp_partition_costs() with what was measured: PP_ECONFIG here
 * Errors: PP_ECONFIG (more stages than layers; a layer that the model does not have; ranges that
 * do not cover 0..n_layers-1 in order).
 */
int pp_partition(const struct pp_model *m, const struct pp_config *cfg, int n, int *first,
                 int *last);

/*
 * pipeline.recompute: "" (off), "all", or layers and ranges of layers, "h.0-h.2 h.5". out[s]: the text
 * covers a layer of piece s of n. Errors: PP_ECONFIG.
 */
int pp_recompute_stages(const struct pp_model *m, const char *text, int n, const int *first,
                        const int *last, bool *out);

/* pp_partition() for given costs[n_layers], finite and >= 0, in any unit: the least largest cost per
 * piece, exact to 2^-52 of the whole, same ties. 1 <= n <= n_layers. Errors: PP_ERESOURCE. */
int pp_partition_costs(const struct pp_model *m, const double *costs, int n, int *first, int *last);

/* Whether samples of a micro-batch meet, as in batch norm or in attention over the batch: then
 * micro-batches and replicas change what is computed. */
bool pp_model_mixes_samples(const struct pp_model *m);

/* Whether every op with parameters bounds their gradients: pp_chunk_is_bounded() can be true. */
bool pp_model_bounds(const struct pp_model *m);

/* "0-1 | 2 | 3-5": layers of n pieces as pipeline.assignment is written, cut off where out ends.
 * Names in place of numbers, "conv1-layer1.1 | layer2.0-fc", where names do not say the number. */
char *pp_ranges_text(const struct pp_model *m, const int *first, const int *last, int n, char *out,
                     size_t bytes);

#endif
