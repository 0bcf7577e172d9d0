/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the passes that fuse nodes of a graph. Each keeps to the nodes of a layer, and
 * finds readers counted. */
#ifndef PPCLI_SRC_NN_GRAPH_FUSE_H
#define PPCLI_SRC_NN_GRAPH_FUSE_H

#include "graph.h"

/* Removes steps that change nothing from the programs of a graph. */
int fuse_tidy(struct graph *g);

/* Computes elementwise nodes where they are read. */
int fuse_exprs(struct graph *g);

/* Makes a GRAPH_ADD or GRAPH_ACTIVATE a GRAPH_EXPR. Errors: PP_ERESOURCE. */
int fuse_make_expr(struct graph *g, int node);

/* Joins activations and sums with the product or norm before them, and tables of tokens and of
 * positions. */
int fuse_neighbours(struct graph *g);

/* Finds gelu, RMS norm and rotary positions that are written out. */
int fuse_forms(struct graph *g);

/* Joins linears of one input: gate and up, or queries, keys and values. */
int fuse_products(struct graph *g);

#endif
