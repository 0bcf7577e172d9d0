/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of chunks: chunk_memory.c places the arrays, chunk.c computes. */
#ifndef PPCLI_SRC_NN_CHUNK_H
#define PPCLI_SRC_NN_CHUNK_H

#include "ppcli/nn/chunk.h"

/* A micro-batch between its F and its W. Points to the caller's memory and into the slot. */
struct pp_chunk_state {
    float *base;    /* start of the slot, in the arena */
    const float *x; /* the caller's, as are y and dy */
    float *y, *dy;
    struct pp_pass pass;
};

#define NO_PLACE SIZE_MAX

/* Place of a value or of its gradient: floats from the start of a slot, or of the pass's scratch.
 * Both are NO_PLACE for the chunk's last node, whose arrays are the caller's. */
struct chunk_at {
    size_t slot, scratch; /* NO_PLACE: not there */
};

/* Places of a node's arrays, in floats. */
struct pp_chunk_place {
    size_t params;             /* within params and grads */
    size_t packed;             /* within packed; NO_PLACE: the backend needs no copy */
    struct chunk_at y, dy;     /* y: in the state slot; dy: in the grad slot */
    size_t keep, grad_keep;    /* in the state slot and in the grad slot; NO_PLACE: nothing is
                                   kept */
    size_t work[3];            /* scratch during F, I and W; NO_PLACE: no scratch */
    bool recompute;            /* a pass with `recompute` needs the node */
    bool adds[PP_NODE_INPUTS]; /* the node adds to the gradient of that input, which a later node
                                   of the chunk also reads, or which an earlier input is, too */
};

/* Assigns the places of all nodes and sets c->sizes. Errors: PP_ERESOURCE. */
int chunk_place(struct pp_chunk *c, const struct pp_chunk_spec *spec);

/* Returns the rows of a node's value in a pass of `rows` rows. */
int chunk_rows(const struct pp_node *n, int rows);

/* Finds whether y[rows] of the node is the first value that is not finite, and notes it in
 * c->range; only if c->looks. */
int chunk_look(struct pp_chunk *c, struct pp_backend *be, const struct pp_node *n, int rows,
               const float *y);

/* chunk_update.c: runs the optimizer over n parameters of the model from `first` on, in as few
 * pieces as buffers, matrices, padding and weight decay allow. */
int chunk_update(struct pp_chunk *c, struct pp_backend *be, const struct pp_optimizer_args *a,
                 int first, int n);

/*
 * muon.c.
 *   is_muon  whether the parameter is a matrix that Muon updates
 *   floats   scratch that its update needs
 *   prepare  as pp_chunk_prepare()
 *   step     updates a matrix, and overwrites its gradient
 */
bool chunk_is_muon(const struct pp_chunk *c, const struct pp_param *p);
size_t chunk_muon_floats(const struct pp_param *p);
int chunk_muon_prepare(const struct pp_chunk *c, struct pp_backend *be);
int chunk_muon_step(struct pp_chunk *c, struct pp_backend *be, const struct pp_param *p,
                    const struct pp_optimizer_args *a, float *grads, float *momentum,
                    float *params);

/* Returns node k of the chunk. */
const struct pp_node *chunk_node(const struct pp_chunk *c, int k);

#endif
