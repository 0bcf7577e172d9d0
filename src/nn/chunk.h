/* SPDX-License-Identifier: Apache-2.0 */
/* What the two files of chunks share: chunk_memory.c says where things lie, chunk.c computes. */
#ifndef PPCLI_SRC_NN_CHUNK_H
#define PPCLI_SRC_NN_CHUNK_H

#include "ppcli/nn/chunk.h"

/* A micro-batch between its F and its W. Pointers to the caller's memory and into the slot. */
struct pp_chunk_state {
    float *base;    /* in the arena */
    const float *x; /* the caller's, as y and dy */
    float *y, *dy;
    struct pp_pass pass;
};

#define NO_PLACE SIZE_MAX

/* A value, or its gradient: in a slot or in the scratch of the pass, so many floats from its start.
 * Of the chunk's last node: the caller's, neither. */
struct chunk_at {
    size_t slot, scratch; /* NO_PLACE: not there */
};

/* Where a node's things lie, in floats. */
struct pp_chunk_place {
    size_t params;              /* in params and grads */
    size_t packed;              /* in packed; NO_PLACE: the backend wants nothing */
    struct chunk_at y, dy;      /* y: state slot; dy: grad slot */
    size_t keep, grad_keep;     /* in the state slot and the grad slot; NO_PLACE: none */
    size_t work[3];             /* scratch during F, I and W; NO_PLACE: none */
    bool recompute;             /* a pass with `recompute` needs the node */
    bool later[PP_NODE_INPUTS]; /* a later node of the chunk reads that input too */
};

/* Numbers the places of all nodes, and sets c->sizes. */
int chunk_place(struct pp_chunk *c, const struct pp_chunk_spec *spec);

/* Whether anybody asks for the gradient of the node's value. */
bool chunk_learns(const struct pp_node *n);

/* With c->looks: whether y[rows] of the node is the first that is not finite, to c->range. */
int chunk_look(struct pp_chunk *c, struct pp_backend *be, const struct pp_node *n, int rows,
               const float *y);

/* chunk_update.c: the optimizer over n parameters of the model from `first` on: in as
 * few pieces as the buffers, matrices and padding between them, and weight decay, allow. */
int chunk_update(struct pp_chunk *c, struct pp_backend *be, const struct pp_optimizer_args *a,
                 int first, int n);

/* muon.c: whether the parameter is a matrix that Muon moves; scratch that it takes; as pp_chunk_prepare();
 * and the step of one, which leaves something else in its gradient. */
bool chunk_is_muon(const struct pp_chunk *c, const struct pp_param *p);
size_t chunk_muon_floats(const struct pp_param *p);
int chunk_muon_prepare(const struct pp_chunk *c, struct pp_backend *be);
int chunk_muon_step(struct pp_chunk *c, struct pp_backend *be, const struct pp_param *p,
                    const struct pp_optimizer_args *a, float *grads, float *momentum,
                    float *params);

/* Node k of the chunk. */
const struct pp_node *chunk_node(const struct pp_chunk *c, int k);

#endif
