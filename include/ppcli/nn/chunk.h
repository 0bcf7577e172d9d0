/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a model that one rank computes, and its optimizer. */
#ifndef PPCLI_NN_CHUNK_H
#define PPCLI_NN_CHUNK_H

#include <stdbool.h>
#include <stdint.h>

#include "ppcli/conf/config.h"
#include "ppcli/nn/model.h"

/* ---- learning rates */

/*
 * Returns the learning rate of step t = 1..total (train.lr_steps if set, else total_steps).
 * Warm-up: lr*t/warmup for t <= warmup. Then constant, or linear or cosine towards lr_floor over
 * the remaining total - warmup steps: the first of them has the full lr, and the step after the last
 * would have lr_floor (as PyTorch's CosineAnnealingLR with T_max = total and eta_min = lr_floor).
 * wsd: constant, then towards lr_floor over the last decay_steps steps in the same way. multistep:
 * lr * gamma^(milestones < t), as PyTorch's MultiStepLR. plateau: constant. With train.lr_by = epoch, t and total count
 * epochs of epoch_steps steps, and warm-up is lr*t/(warmup + 1). It depends on the step alone, so a
 * resumed run has the same rates.
 */
double pp_lr_at(const struct pp_config *cfg, int64_t step, int64_t total_steps,
                int64_t epoch_steps);

/* Returns the rate that a rate of lr_schedule = plateau becomes after so many falls: each
 * multiplies it by lr_gamma, but not below lr_floor, as PyTorch's ReduceLROnPlateau. */
double pp_lr_after_falls(const struct pp_config *cfg, double lr, int64_t falls);

/* The steps of a run to describe: those after `done`, up to `total`. */
struct pp_lr_span {
    int64_t done, total;
    int64_t all_steps; /* steps of train.epochs, whatever train.max_steps is */
    int64_t epoch_steps;
};

#define PP_LR_REMARKS_MAX 8
#define PP_LR_REMARK_BYTES 400

struct pp_lr_remarks {
    /* the rates of the first, middle and last step; "": no step is left */
    char rates[PP_LR_REMARK_BYTES];
    int n; /* remarks: keys without effect, steps with a rate of 0 */
    char text[PP_LR_REMARKS_MAX][PP_LR_REMARK_BYTES];
};

void pp_lr_remark(const struct pp_config *cfg, const struct pp_lr_span *span,
                  struct pp_lr_remarks *out);

/* Returns whether the config asks for more than one learning rate. */
bool pp_lr_changes(const struct pp_config *cfg);

/* ---- chunk */

/*
 * A chunk: the contiguous layers of a model (ppcli/nn/model.h) that one virtual stage holds, with
 * their parameters, gradients and optimizer state. It computes F, I and W of a micro-batch.
 */

/* Bounds of the weight gradients of a chunk's micro-batches. Sizes as of pp_backend_find_largest():
 * finite only if all values are. */
struct pp_chunk_range {
    float x;       /* largest |input of a node with parameters| */
    float dz;      /* largest |gradient before a node's activation| */
    int bad_input; /* 1 + first layer that gave a value that is not finite, 0: the data; -1: all
                      finite */
    float bad;     /* size of that value */
};

/* Sizes of micro-batches that are remembered as prepared; few runs have more than two. */
#define PP_CHUNK_PREPARED 4

/* Floats of each kind of slot, of packed and of scratch; 4 bytes each, whatever they hold. */
struct pp_chunk_sizes {
    size_t state, grad, packed, scratch;
};

/*
 * The layers, parameters, gradients, optimizer state and kept activations of one virtual stage. All
 * large memory comes from the arena of pp_chunk_take_memory().
 */
struct pp_chunk {
    const struct pp_model *model; /* not owned */
    int first, last;              /* layers, inclusive */
    int first_node, n_nodes;      /* of the model */
    int max_rows;
    int state_slots, grad_slots;
    int optimizer;      /* enum pp_optimizer_kind */
    bool decay_weights; /* weight decay only for PP_PARAM_DECAYED */
    float rate;         /* see spec */
    bool sharded;
    int loss_rows;    /* see spec */
    size_t n_floats;  /* of the chunk's layers */
    size_t elsewhere; /* see spec */
    struct pp_chunk_sizes sizes;
    float *params, *grads;              /* [n_floats] each, in the arena */
    size_t n_states;                    /* floats of opt_m and of opt_v: n_floats - spec.elsewhere;
                                           0: no parameter learns */
    float *opt_m, *opt_v;               /* [n_states] or NULL */
    float *packed;                      /* the backend's copy of the weights, or NULL */
    float *scratch;                     /* of the pass in progress, or NULL */
    size_t unread;                      /* place in scratch where a pass with `recompute` writes
                                           y */
    struct pp_chunk_place *places;      /* [n_nodes], owned */
    struct pp_chunk_state *states;      /* [state_slots], host memory, owned */
    float **grad_base;                  /* [grad_slots], owned array, arena memory */
    struct pp_weight_part *parts;       /* [grad_slots] of the W being computed; owned */
    int prepared[2][PP_CHUNK_PREPARED]; /* rows, in evaluation and in training; 0: unused */
    bool measure;                       /* F and I update `range` while values are in the cache */
    struct pp_chunk_range range;        /* since pp_chunk_measure() */
    bool looks; /* F reads every value back until it finds range.bad_input: slow, for messages
                   only */
};

struct pp_chunk_spec {
    int first, last;
    int max_rows;       /* of one micro-batch */
    int state_slots;    /* slots from F to W, the most of all plans */
    int grad_slots;     /* slots from I to W; 0: forward only, without gradients and optimizer
                           state */
    int optimizer;      /* enum pp_optimizer_kind */
    bool decay_weights; /* weight decay only for PP_PARAM_DECAYED; false: for all parameters */
    float rate;         /* Muon: train.muon_lr in units of train.lr; 0: not set */
    bool recompute;     /* passes with `recompute` will be run */
    bool sharded;       /* pp_chunk_update_shard() updates the parameters */
    size_t elsewhere;   /* floats whose optimizer state other ranks keep */
    int loss_rows; /* > 0: pp_chunk_loss() computes the last node, a linear, this many of its rows
                      (positions) at a time; 0: it is computed as the others */
    /* The backend that will compute, which may need a copy of the weights. NULL: no copy. */
    const struct pp_backend_choice *backend;
};

/* Memory that the chunks of a rank share, because their passes never overlap; owned by the
 * caller. */
struct pp_chunk_loan {
    float *scratch;          /* as large as the largest need of the chunks */
    float **states, **grads; /* [n_states], [n_grads] slots of the chunks that share them */
    int n_states, n_grads;
};

/* Makes a chunk that knows its sizes (c->sizes) and has no memory yet. Errors: PP_ERESOURCE;
 * PP_ECONFIG: the backend lacks a kernel of an op. */
int pp_chunk_make(const struct pp_model *m, const struct pp_chunk_spec *spec,
                  struct pp_chunk **out);
/* Takes the chunk's memory from `arena` (dry, or real: then the chunk is usable), its scratch from
 * `loan`, and with `slots` its slots too. loan NULL: everything from the arena. */
void pp_chunk_take_memory(struct pp_chunk *c, struct pp_arena *arena,
                          const struct pp_chunk_loan *loan, bool slots);
/* Makes a chunk and takes its memory: pp_chunk_make() and pp_chunk_take_memory(). With a dry arena *out
 * stays NULL. */
int pp_chunk_create(const struct pp_model *m, const struct pp_chunk_spec *spec,
                    struct pp_arena *arena, struct pp_chunk **out);
void pp_chunk_destroy(struct pp_chunk **c);

/* Sets the initial parameter values through the backend. */
int pp_chunk_init(struct pp_chunk *c, struct pp_backend *be, uint64_t seed);

/* Updates the packed weights. Required after a change of params that no function of this header
 * made. */
int pp_chunk_weights_changed(struct pp_chunk *c, struct pp_backend *be);

/* Runs the optimizer over all parameters, then updates what depends on them. */
int pp_chunk_optimizer_step(struct pp_chunk *c, struct pp_backend *be,
                            const struct pp_optimizer_args *a);

/* Runs the optimizer over the floats from .. to - 1, whose state begins at float `state` of opt_m
 * and opt_v. When all shards have arrived, pp_chunk_optimizer_step() does the rest. */
int pp_chunk_update_shard(struct pp_chunk *c, struct pp_backend *be,
                          const struct pp_optimizer_args *a, size_t from, size_t to, size_t state);

/* Applies enum pp_merging to all nodes. own[pp_chunk_merge_floats()]: device memory. */
size_t pp_chunk_merge_floats(const struct pp_chunk *c);
int pp_chunk_merge(struct pp_chunk *c, struct pp_backend *be, enum pp_merging what, float *own);

/* Resets the range, and turns measuring on or off. Call it before the first pass. Only for backends
 * whose ops are complete when they return. */
void pp_chunk_measure(struct pp_chunk *c, bool on);

/* Sets *io to the largest of *io and all |parameters|; a NaN is larger than Inf. Waits for the
 * device. */
int pp_chunk_largest_weight(const struct pp_chunk *c, struct pp_backend *be, float *io);

/* Returns whether the measured range proves that all weight gradients of a batch of `rows` rows are
 * below `most`, as soon as the last I is done; with tied tensors also the sums of two of them. */
bool pp_chunk_is_bounded(const struct pp_chunk *c, int rows, double most);

/* Prepares the backend for micro-batches of `rows` rows of a step (training) or an evaluation, so
 * that these allocate nothing. Nearly free if it was done before. `be` must be the same in all
 * calls. Local. Errors: PP_ERESOURCE. */
int pp_chunk_prepare(struct pp_chunk *c, struct pp_backend *be, int rows, bool training);
/*
 * F: computes y[rows][out] of the last layer from x[rows][in] of the first. x and y are the
 * caller's and must stay valid and unchanged, x until the W of the same slot, y until its I. The
 * model's last layer does not read its y again, so the loss may overwrite the logits with their
 * gradient; rows of logits, and of their dy, are pp_model_logits_row() apart. With spec.loss_rows
 * it stops before the last node, and y is NULL. Local, as are the functions below.
 */
int pp_chunk_forward(struct pp_chunk *c, struct pp_backend *be, int slot,
                     const struct pp_pass *pass, const pp_value *x, pp_value *y);
/* I: computes dx[rows][in] from dy[rows][out], which it overwrites and which must stay until W. dx
 * is NULL if it is not needed. */
int pp_chunk_backward_input(struct pp_chunk *c, struct pp_backend *be, int slot, int gslot,
                            pp_value *dy, pp_value *dx);
/*
 * With spec.loss_rows, right before the I of the slot: computes the last node, its loss, its I and
 * its W, piece by piece. call() gets the logits of rows first..first+n-1, counted over all
 * positions, and replaces them by their gradients. dx: as of that I, whose dy is NULL. starts:
 * overwrites grads of the node, else adds to them; slots come in the order of W. gslot -1: no
 * gradients, right after F.
 */
struct pp_chunk_loss {
    int (*call)(const void *ctx, int first, int n, pp_value *logits);
    const void *ctx;
};
int pp_chunk_loss(struct pp_chunk *c, struct pp_backend *be, int slot, int gslot, bool starts,
                  pp_value *dx, const struct pp_chunk_loss *loss);
/*
 * W: adds the weight gradients of the n micro-batches in slots[0..n-1], in this order, 1 <= n <=
 * grad_slots, to grads, or overwrites grads if `first`. With n = 1 every schedule gives the same
 * bits; with several at once the bits depend on n. Frees nothing: slots belong to the plan.
 */
int pp_chunk_backward_weight(struct pp_chunk *c, struct pp_backend *be, int n, const int *slots,
                             const int *gslots, bool first);
/* W: does what pp_chunk_backward_weight() does, but only for the layers `from` to `to`. */
int pp_chunk_backward_layers(struct pp_chunk *c, struct pp_backend *be, int n, const int *slots,
                             const int *gslots, bool first, int from, int to);

/* Adds the statistics of the batch norms over a micro-batch to the gradients, or overwrites the
 * gradients if `first` is true. A stage without W calls it after each F. No node of the chunk may
 * train. */
int pp_chunk_gather(struct pp_chunk *c, struct pp_backend *be, int slot, bool first);

/* Return the number of parameters of the chunk, and the offset of each (canonical order). */
int pp_chunk_param_count(const struct pp_chunk *c);
size_t pp_chunk_offset(const struct pp_chunk *c, const struct pp_param *p);
const struct pp_param *pp_chunk_param(const struct pp_chunk *c, int i, size_t *offset,
                                      size_t *n_floats);

/* Returns the factor of the gradient of each of a micro-batch's `mb` losses, in a step with `batch`
 * losses over all replicas. */
float pp_loss_grad_scale(const struct pp_config *cfg, int64_t batch, int64_t mb);

/* Returns the optimizer's arguments for update `number` (1, 2, ...) of the weights. */
struct pp_optimizer_args pp_optimizer_args_of(const struct pp_config *cfg, double lr,
                                              int64_t number);

/*
 * Chooses a token by its logits. temperature 0: the largest, of equal ones the first; else one of
 * the top_k largest (0: of all), with probability softmax(logits / temperature), chosen by u in [0,
 * 1). heap[top_k]: scratch.
 */
int pp_sample(const float *logits, int n, double temperature, int top_k, double u, int *heap);

#endif
