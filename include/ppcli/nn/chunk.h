/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a model that one rank computes, and its optimizer. */
#ifndef PPCLI_NN_CHUNK_H
#define PPCLI_NN_CHUNK_H

#include <stdbool.h>
#include <stdint.h>

#include "ppcli/conf/config.h"
#include "ppcli/nn/model.h"

/* ---- lr */

/* The learning rate of each step, and what a person should know about those of a run. */

/* Learning rate of step t = 1..total (train.lr_steps where set, total_steps else): warm-up
 * lr*t/warmup for t <= warmup, then constant, linear or cosine towards 0 over the remaining total -
 * warmup steps: the first of them has the full lr, and 0 would be reached by the step after the
 * last (as PyTorch's CosineAnnealingLR with T_max = total). multistep: lr * gamma^(milestones < t),
 * as PyTorch's MultiStepLR. With train.lr_by = epoch t and total count epochs of epoch_steps steps,
 * and warm-up is lr*t/(warmup + 1). A function of the step alone: a resumed run has the same. */
double pp_lr_at(const struct pp_config *cfg, int64_t step, int64_t total_steps,
                int64_t epoch_steps);

/* The steps of a run that a person asks about: those after `done`, up to `total`. */
struct pp_lr_span {
    int64_t done, total;
    int64_t all_steps; /* of train.epochs, whatever train.max_steps says */
    int64_t epoch_steps;
};

#define PP_LR_REMARKS_MAX 8
#define PP_LR_REMARK_BYTES 400

struct pp_lr_remarks {
    char rates
        [PP_LR_REMARK_BYTES]; /* those of the first, middle and last step; "": no step is left */
    int n;                    /* keys without effect, steps with a rate of 0 */
    char text[PP_LR_REMARKS_MAX][PP_LR_REMARK_BYTES];
};

void pp_lr_remark(const struct pp_config *cfg, const struct pp_lr_span *span,
                  struct pp_lr_remarks *out);

/* Whether a key asks for more than one learning rate. */
bool pp_lr_changes(const struct pp_config *cfg);

/* ---- chunk */

/*
 * A chunk: the contiguous layers of a model (ppcli/nn/model.h) that one virtual stage holds, with their
 * parameters, gradients and optimizer state. It computes F, I and W of a micro-batch.
 */

/* What bounds the weight gradients of a chunk's micro-batches. Sizes as of pp_backend_largest():
 * finite only when all values are. */
struct pp_chunk_range {
    float x;       /* largest |input of a node with parameters| */
    float dz;      /* largest |gradient before a node's activation| */
    int bad_input; /* 1 + the first layer that gave a value that was not finite, 0: the data; -1: none */
    float bad; /* size of that value */
};

/* Sizes of micro-batch that are remembered: few runs have more than two. */
#define PP_CHUNK_PREPARED 4

/* How many floats each kind of slot, packed and scratch need: 4 bytes each, whatever is in them. */
struct pp_chunk_sizes {
    size_t state, grad, packed, scratch;
};

/*
 * One virtual stage's layers, parameters, gradients, optimizer state and saved activations.
 * All big memory comes from the arena given at layout.
 */
struct pp_chunk {
    const struct pp_model *model; /* not owned */
    int first, last;              /* layers, inclusive */
    int first_node, n_nodes;      /* of the model */
    int max_rows;
    int state_slots, grad_slots;
    int optimizer;      /* enum pp_optimizer_kind */
    bool decay_weights; /* and PP_PARAM_PLAIN is left alone */
    float rate;         /* as in spec */
    bool sharded;
    int loss_rows;    /* as in spec */
    size_t n_floats;  /* of the chunk's layers */
    size_t elsewhere; /* of spec */
    struct pp_chunk_sizes sizes;
    float *params, *grads;              /* [n_floats] each, in the arena */
    float *opt_m, *opt_v;               /* [n_floats - spec.elsewhere] or NULL */
    float *packed;                      /* what the backend made of the weights, or NULL */
    float *scratch;                     /* of the pass at hand, or NULL */
    size_t unread;                      /* in scratch: where a pass with `recompute` leaves y */
    struct pp_chunk_place *places;      /* [n_nodes], owned */
    struct pp_chunk_state *states;      /* [state_slots], host memory, owned */
    float **grad_base;                  /* [grad_slots], owned array, arena memory */
    struct pp_weight_part *parts;       /* [grad_slots], owned: of the W being computed */
    int prepared[2][PP_CHUNK_PREPARED]; /* rows, of evaluation and training; 0: none yet */
    bool measure;                /* F and I keep account of range, at once in the cache; ... */
    struct pp_chunk_range range; /* ... since pp_chunk_measure() */
    bool looks; /* F reads every value back until it finds range.bad_input: slow, for messages */
};

struct pp_chunk_spec {
    int first, last;
    int max_rows;       /* of one micro-batch */
    int state_slots;    /* F-to-W slots, over all plans */
    int grad_slots;     /* I-to-W slots; 0: forward only, no gradients and no optimizer state */
    int optimizer;      /* enum pp_optimizer_kind */
    bool decay_weights; /* weight decay is for PP_PARAM_DECAYED only, else for all parameters */
    float rate;         /* muon: train.muon_lr in units of train.lr; 0: not set */
    bool recompute;     /* passes with `recompute` will come */
    bool sharded;       /* pp_chunk_update_shard() updates parameters, ... */
    size_t elsewhere;   /* ... others keep the optimizer's state of so many */
    int loss_rows; /* of the last node, a linear: it is pp_chunk_loss() that computes it, this many of
                      its rows (positions) at a time; 0: it is one like the others */
    /* The backend that will compute; it may want a copy of the weights. NULL: it gets none. */
    const struct pp_backend_choice *backend;
};

/* Memory that the chunks of a rank share, whose passes never overlap; of the caller. */
struct pp_chunk_loan {
    float *scratch;          /* the most that one of them wants */
    float **states, **grads; /* [n_states], [n_grads] slots of the chunks that share theirs */
    int n_states, n_grads;
};

/* A chunk that knows what it wants, c->sizes, and has none of it yet. Errors: PP_ERESOURCE; PP_ECONFIG
 * where the backend lacks a kernel of some op. */
int pp_chunk_make(const struct pp_model *m, const struct pp_chunk_spec *spec,
                  struct pp_chunk **out);
/* Its memory from `arena` (dry or real; with a real one the chunk is then usable), its scratch from
 * `loan`, and with `slots` its slots too. loan NULL: all from the arena. */
void pp_chunk_take(struct pp_chunk *c, struct pp_arena *arena, const struct pp_chunk_loan *loan,
                   bool slots);
/* Both. With a dry arena *out stays NULL. */
int pp_chunk_create(const struct pp_model *m, const struct pp_chunk_spec *spec,
                    struct pp_arena *arena, struct pp_chunk **out);
void pp_chunk_destroy(struct pp_chunk **c);

/* Initial parameter values, through the backend. */
int pp_chunk_init(struct pp_chunk *c, struct pp_backend *be, uint64_t seed);

/* Due after every change of params that no function of this header made. */
int pp_chunk_weights_changed(struct pp_chunk *c, struct pp_backend *be);

/* The optimizer over all parameters, and what follows from their change. */
int pp_chunk_optimizer_step(struct pp_chunk *c, struct pp_backend *be,
                            const struct pp_optimizer_args *a);

/* The optimizer over floats from..to-1, whose state begins at float `state` of opt_m and opt_v. When all
 * shards are there pp_chunk_optimizer_step() does the rest. */
int pp_chunk_update_shard(struct pp_chunk *c, struct pp_backend *be,
                          const struct pp_optimizer_args *a, size_t from, size_t to, size_t state);

/* enum pp_merging of all nodes, with own[pp_chunk_merge_floats()]: memory of the device. */
size_t pp_chunk_merge_floats(const struct pp_chunk *c);
int pp_chunk_merge(struct pp_chunk *c, struct pp_backend *be, enum pp_merging what, float *own);

/* Forget the range; from now on keep account of it, or (also before the first call) do not. Only
 * where the backend's ops are done when they return. */
void pp_chunk_measure(struct pp_chunk *c, bool on);

/* *io = the largest of it and all |parameters|, where a NaN is larger than Inf. Waits for the device. */
int pp_chunk_largest_weight(const struct pp_chunk *c, struct pp_backend *be, float *io);

/* Whether the range measured proves all weight gradients of a batch of `rows` rows below `most`, as
 * soon as the last I is done; with tied tensors in the model also the sums of two of them. */
bool pp_chunk_is_bounded(const struct pp_chunk *c, int rows, double most);

/* Make the backend ready for micro-batches of `rows` rows, a step's (training) or an evaluation's,
 * so that they take neither memory nor time for it. Next to nothing when it was done before. `be`
 * is the same in all calls. Local. Errors: PP_ERESOURCE. */
int pp_chunk_prepare(struct pp_chunk *c, struct pp_backend *be, int rows, bool training);
/*
 * F: x[rows][in] of the first layer -> y[rows][out] of the last. x and y are the caller's and must
 * stay valid and unchanged, x until the W of the same slot, y until its I. The model's last layer does
 * not read its y again: the loss may write its gradient over the logits, whose rows, and those of dy,
 * are pp_model_logits_row() apart. With spec.loss_rows it ends before the last node, and y is NULL.
 * Local, as all of these.
 */
int pp_chunk_forward(struct pp_chunk *c, struct pp_backend *be, int slot,
                     const struct pp_pass *pass, const pp_value *x, pp_value *y);
/* I: dy[rows][out] (overwritten, must stay until W) -> dx[rows][in]; dx NULL when it is not needed.
 */
int pp_chunk_backward_input(struct pp_chunk *c, struct pp_backend *be, int slot, int gslot,
                            pp_value *dy, pp_value *dx);
/*
 * With spec.loss_rows, right before the I of the slot: the last node, its loss, its I and its W, piece by
 * piece. call() gets the logits of rows first..first+n-1, counted over all positions, and leaves their
 * gradients there. dx: as of that I, whose dy is NULL. starts: grads of the node are overwritten, else
 * added to; slots come in the order of W. gslot -1: no gradients, right after F.
 */
struct pp_chunk_loss {
    int (*call)(const void *ctx, int first, int n, pp_value *logits);
    const void *ctx;
};
int pp_chunk_loss(struct pp_chunk *c, struct pp_backend *be, int slot, int gslot, bool starts,
                  pp_value *dx, const struct pp_chunk_loss *loss);
/*
 * W of the n micro-batches in slots[0..n-1], in this order, 1 <= n <= grad_slots: adds to grads, or
 * overwrites them when `first`. One is what every schedule gives the same bits for; the bits of
 * several at once depend on how many there are. Frees nothing: slots belong to the plan.
 */
int pp_chunk_backward_weight(struct pp_chunk *c, struct pp_backend *be, int n, const int *slots,
                             const int *gslots, bool first);
/* The same of layers from..to only. */
int pp_chunk_backward_layers(struct pp_chunk *c, struct pp_backend *be, int n, const int *slots,
                             const int *gslots, bool first, int from, int to);

/* Number of parameters of the chunk, and the flat place of each (canonical order). */
int pp_chunk_param_count(const struct pp_chunk *c);
size_t pp_chunk_offset(const struct pp_chunk *c, const struct pp_param *p);
const struct pp_param *pp_chunk_param(const struct pp_chunk *c, int i, size_t *offset,
                                      size_t *n_floats);

/* What the gradient of each of a micro-batch's `mb` losses is multiplied by, in a step with `batch`
 * of them over all replicas. */
float pp_loss_grad_scale(const struct pp_config *cfg, int64_t batch, int64_t mb);

/* What the optimizer gets in step `number` (1, 2, ...) of those that change weights. */
struct pp_optimizer_args pp_optimizer_args_of(const struct pp_config *cfg, double lr,
                                              int64_t number);

/*
 * A token by its logits: with temperature 0 the largest, of equal ones the first; else one of the
 * top_k largest (0: of all), with probability softmax(logits / temperature), chosen by u in [0, 1).
 * heap[top_k]: memory for it.
 */
int pp_sample(const float *logits, int n, double temperature, int top_k, double u, int *heap);

#endif
