/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model is a list of layers; a chunk is the contiguous piece of it that one virtual stage holds.
 * A layer is the unit of partition: one tensor in, one tensor out. Layers know no ranks.
 *
 * Parameters are named as PyTorch names them (layers.0.weight [out,in], layers.0.bias [out]) and
 * ordered canonically: layer by layer, weight before bias. A layer's parameters and the gradients
 * lie in one flat buffer of its chunk in that order, without padding.
 */
#ifndef PPCLI_MODEL_H
#define PPCLI_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ppcli/backend.h"
#include "ppcli/config.h"
#include "ppcli/mem.h"

#define PP_LAYER_PARAMS_MAX 2
#define PP_PARAM_NAME_MAX 64

struct pp_layer;

struct pp_param {
    char name[PP_PARAM_NAME_MAX]; /* "layers.3.weight" */
    int rows, cols;               /* [rows][cols]; a bias is [1][cols] */
    int n_dims;                   /* 2; of a bias 1: for those who know shapes by name */
    float init_lo, init_hi;       /* uniform in [lo, hi); equal: that constant */
};

/* Cost of one sample through one layer, for partition and explain. Matrix products only; flops_i is
 * 0 for the first layer of the model, whose input gradient nobody asks for. */
struct pp_layer_cost {
    double flops_f, flops_i, flops_w; /* multiply and add count as 2 */
};

struct pp_layer_ops {
    const char *name;
    /* Floats per row kept from F to W besides input and output (gelu: out; else 0). */
    int (*saved)(const struct pp_layer *l);
    void (*cost)(const struct pp_layer *l, struct pp_layer_cost *out);
    /* Floats of the copy of its weights that the backend's forward wants; 0: none. */
    size_t (*packed)(const struct pp_layer *l, const struct pp_backend_choice *choice);
    int (*pack)(const struct pp_layer *l, struct pp_backend *be, const float *params,
                float *packed);
    /* pp_chunk_prepare() of this layer. grads NULL: forward only. */
    int (*prepare)(const struct pp_layer *l, struct pp_backend *be, int rows, const float *params,
                   const float *packed, float *grads);
    /* params/grads: this layer's part of the chunk's flat buffers; packed: of these params, or
     * NULL, with the same bits. */
    int (*forward)(const struct pp_layer *l, struct pp_backend *be, int rows, const float *params,
                   const float *packed, const float *x, float *saved, float *y);
    /* dy becomes the gradient before the activation, in place, and must stay for backward_weight;
     * dx NULL on the first layer of the model. */
    int (*backward_input)(const struct pp_layer *l, struct pp_backend *be, int rows,
                          const float *params, const float *packed, const float *saved,
                          const float *y, float *dy, float *dx);
    /* parts: rows, x and (what backward_input left in) dy of n >= 1 micro-batches. */
    int (*backward_weight)(const struct pp_layer *l, struct pp_backend *be, int n,
                           const struct pp_weight_part *parts, float beta, float *grads);
    /* What no |weight gradient| of `rows` rows in all is larger than, roundings included, when no
     * |input| is larger than x and no |gradient that backward_input left in dy| larger than dz.
     * NULL: no promise; the gradients are read. */
    double (*bound)(const struct pp_layer *l, int rows, float x, float dz);
};

struct pp_layer {
    const struct pp_layer_ops *ops;
    int index; /* in the model */
    int in, out;
    enum pp_activation activation;
    struct pp_param params[PP_LAYER_PARAMS_MAX];
    int n_params;
    size_t n_floats; /* of all params */
};

struct pp_model {
    struct pp_layer *layers;
    int n_layers;
    int inputs, classes;
    size_t n_floats;
};

const char *const *pp_model_names(void);

/* From [model]. Errors: PP_ECONFIG, PP_ERESOURCE. Caller owns *out. */
int pp_model_create(const struct pp_config *cfg, struct pp_model **out);
void pp_model_destroy(struct pp_model **m);

/* dst[n_floats of the layer] = its initial values: param p element e is uniform word e of stream
 * ("init:" + name, 0) under seed. Host memory. */
void pp_layer_init(const struct pp_layer *l, uint64_t seed, float *dst);

/* Flops of one sample: F + I + W. */
double pp_layer_flops(const struct pp_layer *l);

/*
 * Cut the model into n contiguous non-empty pieces: first[s]..last[s] for s = 0..n-1.
 *   flops   least largest flops (F + I + W) per piece, exact; ties to the fewest values over the
 *           cuts, then to larger earlier pieces
 *   auto    flops
 *   equal   as many layers each as possible, earlier pieces get the extra ones
 *   params  least largest parameter count (exact), same ties
 *   explicit  the ranges of the config
 *   time    pp_partition_costs() with what was measured: PP_ECONFIG here
 * Errors: PP_ECONFIG (more stages than layers; ranges that do not cover 0..n_layers-1 in order).
 */
int pp_partition(const struct pp_model *m, const struct pp_config *cfg, int n, int *first,
                 int *last);

/* The same for given costs[n_layers], finite and >= 0, in any unit: the least largest cost per
 * piece, exact to 2^-52 of the whole, same ties. 1 <= n <= n_layers. Errors: PP_ERESOURCE. */
int pp_partition_costs(const struct pp_model *m, const double *costs, int n, int *first, int *last);

/* What bounds the weight gradients of a chunk's micro-batches. Sizes as of pp_backend_largest():
 * finite only when all values are. */
struct pp_chunk_range {
    float x;       /* largest |input of a layer| */
    float dz;      /* largest |gradient before a layer's activation| */
    int bad_input; /* first layer whose input was not finite, -1: none */
    float bad;     /* size of that input */
};

/* Sizes of micro-batch that are remembered: few runs have more than two. */
#define PP_CHUNK_PREPARED 4

/*
 * One virtual stage's layers, parameters, gradients, optimizer state and saved activations.
 * All big memory comes from the arena given at layout.
 */
struct pp_chunk {
    const struct pp_model *model; /* not owned */
    int first, last;              /* layers, inclusive */
    int max_rows;
    int state_slots, grad_slots;
    enum pp_optimizer_kind optimizer;
    size_t n_floats;                    /* parameters of the chunk */
    float *params, *grads;              /* [n_floats] each, in the arena */
    float *opt_m, *opt_v;               /* [n_floats] or NULL */
    float *packed;                      /* what the backend made of the weights, or NULL */
    struct pp_chunk_place *places;      /* [last-first+1], owned */
    struct pp_chunk_state *states;      /* [state_slots], host memory, owned */
    float **grad_base;                  /* [grad_slots], owned array, arena memory */
    struct pp_weight_part *parts;       /* [grad_slots], owned: of the W being computed */
    int prepared[2][PP_CHUNK_PREPARED]; /* rows, of evaluation and training; 0: none yet */
    bool measure;                /* F and I keep account of range, at once in the cache; ... */
    struct pp_chunk_range range; /* ... since pp_chunk_measure() */
};

struct pp_chunk_spec {
    int first, last;
    int max_rows;    /* of one micro-batch */
    int state_slots; /* F-to-W slots, over all plans */
    int grad_slots;  /* I-to-W slots; 0: forward only, no gradients and no optimizer state */
    enum pp_optimizer_kind optimizer;
    /* The backend that will compute; it may want a copy of the weights. NULL: it gets none. */
    const struct pp_backend_choice *backend;
};

/* Of these layers, the bytes of what the backend makes of the weights. */
size_t pp_chunk_packed_bytes(const struct pp_model *m, const struct pp_chunk_spec *spec);

/* Collects `spec`'s memory in `arena` (dry or real) and, with a real one, makes the chunk usable.
 * With a dry arena *out stays NULL. Errors: PP_ERESOURCE. */
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

/* Forget the range; from now on keep account of it, or (also before the first call) do not. Only
 * where the backend's ops are done when they return. */
void pp_chunk_measure(struct pp_chunk *c, bool on);

/* Whether the range measured proves all weight gradients of a batch of `rows` rows finite, as soon
 * as the last I is done. */
bool pp_chunk_is_bounded(const struct pp_chunk *c, int rows);

/* Make the backend ready for micro-batches of `rows` rows, a step's (training) or an evaluation's,
 * so that they take neither memory nor time for it. Next to nothing when it was done before. `be`
 * is the same in all calls. Local. Errors: PP_ERESOURCE. */
int pp_chunk_prepare(struct pp_chunk *c, struct pp_backend *be, int rows, bool training);
/*
 * F: x[rows][in] of the first layer -> y[rows][out] of the last, 0 <= rows <= max_rows. x and y are
 * the caller's and must stay valid and unchanged, x until the W of the same slot, y until its I.
 * The model's last layer has no activation and does not read its y again: the loss may write its
 * gradient over the logits. Local, as all of these.
 */
int pp_chunk_forward(struct pp_chunk *c, struct pp_backend *be, int slot, int rows, const float *x,
                     float *y);
/* I: dy[rows][out] (overwritten, must stay until W) -> dx[rows][in]; dx NULL when nobody needs it.
 */
int pp_chunk_backward_input(struct pp_chunk *c, struct pp_backend *be, int slot, int gslot,
                            float *dy, float *dx);
/*
 * W of the n micro-batches in slots[0..n-1], in this order, 1 <= n <= grad_slots: adds to grads, or
 * overwrites them when `first`. One is what every schedule gives the same bits for; the bits of
 * several at once depend on how many there are. Frees nothing: slots belong to the plan.
 */
int pp_chunk_backward_weight(struct pp_chunk *c, struct pp_backend *be, int n, const int *slots,
                             const int *gslots, bool first);

/* Number of parameters of the chunk, and the flat place of each (canonical order). */
int pp_chunk_param_count(const struct pp_chunk *c);
const struct pp_param *pp_chunk_param(const struct pp_chunk *c, int i, size_t *offset,
                                      size_t *n_floats);

/* What the optimizer gets in step `number` (1, 2, ...) of those that change weights. */
struct pp_optimizer_args pp_optimizer_args_of(const struct pp_config *cfg, double lr,
                                              int64_t number);

/* Learning rate of step t = 1..total (train.lr_steps where set, total_steps else): warm-up
 * lr*t/warmup for t <= warmup, then constant, linear or cosine towards 0 over the remaining total -
 * warmup steps: the first of them has the full lr, and 0 would be reached by the step after the
 * last (as PyTorch's CosineAnnealingLR with T_max = total). multistep: lr * gamma^(milestones < t),
 * as PyTorch's MultiStepLR. With train.lr_by = epoch t and total count epochs of epoch_steps steps,
 * and warm-up is lr*t/(warmup + 1). A function of the step alone: a resumed run has the same. */
double pp_lr_at(const struct pp_config *cfg, int64_t step, int64_t total_steps,
                int64_t epoch_steps);

#endif
