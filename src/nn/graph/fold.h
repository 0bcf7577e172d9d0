/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Constants of a graph: the values that depend on no input and on no parameter, such as masks,
 * positions and rotary tables. They are computed once, on the host, as PyTorch's CPU computes them:
 * tensors with strides, views that share memory, operators that write in place.
 *
 * The batch has no fixed size, so a node whose sizes depend on it is computed for 2 and for 3
 * samples. What leaves the folder as a constant must be the same for every sample and for both.
 *
 *     for each node in order: fold_node();
 *         not known: the caller handles the node, and reads its known arguments by fold_read()
 */
#ifndef PPCLI_SRC_NN_GRAPH_FOLD_H
#define PPCLI_SRC_NN_GRAPH_FOLD_H

#include "archive.h"

struct folder;

/*
 * Makes a folder for a program, which must outlive it. Known from the beginning are the constants,
 * and the buffers that no node writes; a parameter is not, even if it is frozen. The caller owns
 * *out. Errors: PP_ERESOURCE. Local, as all functions here.
 */
int folder_create(const struct pt_program *p, struct folder **out);
void folder_destroy(struct folder **f); /* accepts NULL in *f */

/* Returns the name of operator i that is computed, "arange" or "max.other"; NULL after the last. */
const char *fold_operator(int i);

/*
 * Computes the outputs of p->nodes[node] if everything that it reads is known, and its operator is.
 * Nodes are given in order, each once. *out_known: the outputs are known, so that the node is done;
 * an operator that only looks at the type of an input (zeros_like) needs no known input. A node that
 * is not known and writes in place makes what it writes, and all views of it, unknown for the nodes
 * after it. Errors: PP_ERESOURCE.
 */
int fold_node(struct folder *f, int node, bool *out_known);

/* Returns whether a value is known to the node that fold_node() was given last. It is then readable
 * until the next call of fold_node(), or longer if a later node or the program's output reads it. */
bool fold_knows(const struct folder *f, int value);

/*
 * A copy of a known value. Exactly one of the two arrays is set: floats for a floating-point dtype
 * (float64 is rounded), ints for integers and bool (0 and 1).
 */
struct fold_constant {
    enum pt_dtype dtype;
    int n_dims;
    int64_t dims[PT_DIMS];    /* of one sample: dims[batch_dim] is its share of that dimension */
    int64_t strides[PT_DIMS]; /* elements of the array; 0: the dimension is broadcast */
    int batch_dim;            /* the dimension that holds the samples, all alike; -1: none */
    int64_t n;                /* elements of the array */
    float *floats;
    int64_t *ints;
};

/*
 * Reads a known value. The caller owns *out. Errors: PP_ECONFIG if the value is not the same for
 * every sample, or depends on their number: one line with the file, the module and the source line;
 * PP_ERESOURCE.
 */
int fold_read(struct folder *f, int value, struct fold_constant *out);
void fold_constant_free(struct fold_constant *c); /* accepts a zeroed one */

#endif
