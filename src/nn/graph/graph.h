/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of PyTorch on its way to a model: nodes on numbered values, each with its memory, before
 * layers are chosen and before nodes are fused. Node i computes value i.
 *
 *     archive.c  reads the program                fold*.c    computes what no sample changes
 *     lower*.c   makes the graph: an operator's handler checks that samples stay apart, looks at its
 *                inputs as views (view.h), and adds nodes
 *     layers.c   chooses the layers               fuse*.c    fuses nodes of a layer
 *     emit.c     calls the builder (nn.h)         initial.c  gives the parameters their values
 *     look.c     describes a program and its problems, for `explain`
 *
 * src/nn/graph.c goes the whole way; it is the model of model.type = graph.
 */
#ifndef PPCLI_SRC_NN_GRAPH_GRAPH_H
#define PPCLI_SRC_NN_GRAPH_GRAPH_H

#include "archive.h"
#include "../expr.h"
#include "fold.h"
#include "ppcli/dev/kernels.h"
#include "ppcli/nn/model.h"
#include "view.h"

/* ---- nodes */

enum graph_kind {
    GRAPH_INPUT,    /* the data; value 0 */
    GRAPH_CONSTANT, /* `table` */
    GRAPH_WEIGHT,   /* weights[0] as an operand; memory is in the file's order */
    GRAPH_EXPR,     /* `pieces` */
    GRAPH_SOFTMAX,
    GRAPH_LINEAR, /* weight, bias or -1 */
    GRAPH_PIECES, /* several linears of one input as one product: weights, then biases */
    GRAPH_CONV,
    GRAPH_BATCH_NORM,
    GRAPH_GROUP_NORM,
    GRAPH_LAYER_NORM,
    GRAPH_RMS_NORM,
    GRAPH_EMBEDDING, /* weight; then weight of positions or -1 */
    GRAPH_ATTENTION,
    GRAPH_ROTARY,
    GRAPH_GATED,
    GRAPH_MAX_POOL,
    GRAPH_AVG_POOL,
    GRAPH_DROPOUT,
    GRAPH_ACTIVATE,
    GRAPH_ADD /* two values of the same memory, then relu if `activation` is that */
};

/* Places of an input of attention, in floats within a sample. */
struct graph_heads {
    int64_t offset, position, head, query; /* query: of a mask only */
};

struct graph_window {
    struct pp_shape image; /* that it reads */
    int kernel, stride, pad, groups;
    bool ceil;               /* a last window that is partly outside counts */
    bool count_padding, all; /* all: the mean of the whole image */
};

struct graph_attention {
    int queries, keys, heads, kv_heads, width;
    struct graph_heads q, k, v, mask; /* inputs 0, 1, 2 and, if n_in is 4, 3 */
    bool causal;
    bool of_samples; /* attends over the samples, at each position */
    float scale, dropout;
};

struct graph_node {
    enum graph_kind kind;
    int n_in;
    int *in;               /* [n_in] values, owned */
    struct pp_shape shape; /* of a sample of its value, in memory */
    bool rows;             /* its value differs from sample to sample */
    bool dead;             /* nobody reads it */
    int readers;           /* nodes that read its value, counted by graph_count_readers() */
    int layer;  /* -1: not chosen; of nodes that no sample changes: that of their reader */
    int source; /* node of the program, for names and messages */
    int n_weights;
    int weights[8]; /* of the program, in the order of the op's parameters; -1: it has none */
    /* settings */
    const float *table; /* [floats of shape], owned by the graph */
    int n_pieces;
    struct expr_piece *pieces; /* owned */
    float fill;                /* EXPR: where no piece writes */
    int channels;              /* LINEAR, CONV, EMBEDDING: of the result */
    bool transposed;           /* LINEAR: the weight is [in][out] in the file */
    int first, all;            /* LINEAR: rows first .. of the weight's `all` are used */
    int padding;               /* EMBEDDING: row that learns nothing; -1: none */
    int positions;             /* rows of channels of a sample, of what works on rows */
    struct pp_shape columns;   /* LINEAR: as in struct pp_param; n 0: in order */
    int piece[8];              /* PIECES: channels of each; n_weights / 2 or n_weights of them */
    bool bias;
    enum pp_activation activation;
    float eps, momentum, p;
    int groups, outer, n, inner; /* SOFTMAX: outer, n, inner */
    bool log;
    struct graph_window window;
    struct graph_attention attention;
    struct {
        int heads, width;
        float base;
    } rotary;
};

struct graph_layer {
    char name[PP_LAYER_NAME_MAX];
    int first; /* node */
};

/* What the archive has and ppcli does not take. */
struct graph_problem {
    int source; /* first node of the program */
    int count;  /* nodes with the same problem */
    char text[320];
};

struct graph {
    const struct pt_program *program; /* not owned */
    struct graph_node *nodes;
    int n_nodes;
    int32_t **tables; /* owned, as are the lists below */
    int *table_sizes;
    int n_tables;
    struct graph_layer *layers;
    int n_layers;
    int output; /* value */
    struct graph_problem *problems;
    int n_problems;
    /* nodes of the program, by what became of them; those with a problem are in none */
    int n_views, n_folded, n_fast, n_general;
};

static inline int64_t graph_floats(const struct graph *g, int value)
{
    return (int64_t)pp_shape_floats(&g->nodes[value].shape);
}

/* Adds a node with its inputs; rows: one of them has rows. Returns a pointer that is valid until the
 * next one is added. Errors: NULL, no memory. */
struct graph_node *graph_add(struct graph *g, enum graph_kind kind, int source, int n_in,
                             const int *in, struct pp_shape shape);

/* Adds a table of indices; returns its number, or -1. */
int graph_add_table(struct graph *g, int n, const int32_t *indices);

/* Marks nodes that the output does not need as dead, and counts the readers of the others. */
void graph_count_readers(struct graph *g);

void graph_destroy(struct graph *g); /* accepts NULL */

/* Frees the pieces of a node. */
void graph_drop_pieces(struct graph_node *n);

/* Merges the neighbouring axes of a piece that are one in all arrays. */
void graph_piece_merge(struct expr_piece *p);

/* ---- the way */

/* lower.c: makes the graph of a program for samples of shape `data`. What is not taken becomes a
 * problem; PP_ECONFIG if the input or the output cannot be, PP_ERESOURCE. */
int graph_lower(const struct pt_program *p, const struct pp_data_input *data, struct graph **out);

/* layers.c: chooses the layers: a layer begins at a module before which one value crosses. */
int graph_choose_layers(struct graph *g);

/* What crosses before the first node of a module: `crossing` values of `floats` floats a sample.
 * node -1: no node runs in a module of this path. Errors: PP_ERESOURCE. */
struct graph_crossing {
    int node, crossing;
    int64_t floats;
};
int graph_find_crossing(const struct graph *g, const char *path, struct graph_crossing *out);

/* fuse.c: replaces nodes of a layer by faster ones that compute the same. */
int graph_fuse(struct graph *g);

/* Initial values of a weight of the archive. */
struct graph_initial {
    struct pp_given given;
    const struct pt_weight *weight;
};

/* initial.c: makes the initial values of all weights of a program, which must outlive *out. Memory
 * of pp_alloc(). Errors: PP_ERESOURCE. */
int graph_initial_create(const struct pt_program *p, struct graph_initial **out);

/* emit.c: calls the builder for each node; returns the value of the output. The model reads g and
 * initial[weights of the program] as long as it exists. Errors: those of the builder. */
struct builder;
int graph_emit(const struct graph *g, const struct graph_initial *initial, struct builder *b);

#endif
