/* SPDX-License-Identifier: Apache-2.0 */
/* The executor's state, shared by its files. */
#ifndef PPCLI_PIPE_EXEC_INTERNAL_H
#define PPCLI_PIPE_EXEC_INTERNAL_H

#include "ppcli/exec.h"

/* One virtual stage on this rank. */
struct exec_stage {
    int s; /* virtual stage */
    bool is_first, is_last;
    struct pp_chunk *chunk;
    float **input;  /* [state_slots] x of the first stage, else NULL; array owned */
    float **output; /* [state_slots] logits, then their gradient, of the last stage, else NULL */
    int *held_f;    /* [state_slots] message that brought x, -1: none; owned */
    int *held_b;    /* [max(grad_slots,1)] message that brought dy, -1: none; owned */
    /* [max(grad_slots,1)] state and gradient slots of the W at hand; owned */
    int *w_slots, *w_gslots;
    struct pp_exec_times times;
};

/* One channel this rank is an end of. */
struct exec_channel {
    int id;       /* of the plan; -1: not ours */
    int spec;     /* index into the transport's channels; -1: local hand-over */
    char *memory; /* slots this rank provides, NULL on the sending side of shared slots */
};

/* Of a plan: the receives to post before the first action, and the last input gradient. */
struct exec_first {
    int *messages; /* owned */
    int n;
    const struct pp_action *last_i; /* I or B; NULL in plans of an evaluation */
};

struct exec_device; /* exec_device.h */

struct pp_exec {
    const struct pp_layout *layout;
    int rank, pipeline_rank, replica;
    struct pp_backend *be;
    struct pp_transport *tp;
    const struct pp_dataset *data[2]; /* enum pp_split */
    struct pp_loader *loader[2];

    struct exec_device *device; /* owned; NULL: memory of the host */
    struct pp_arena arena;
    struct pp_exec_bytes bytes;
    struct exec_stage *stages; /* [n_stages], ascending virtual stage; owned */
    int n_stages;
    struct exec_channel *channels; /* [layout->n_channels], by plan channel id; owned */
    struct exec_first *first;      /* [layout->n_plans]; owned */
    uint8_t *labels;               /* [max_rows] device memory, last stage */
    struct pp_loss_sums *sums[2];  /* device memory, last stage; by enum pp_split */
    float *scratch;                /* largest chunk, replicas only */

    int n_params;      /* of the whole model */
    double *squares;   /* memory of the device: [parameters of the largest chunk] */
    double *norms;     /* [n_params + 1] owned: squares of each gradient, then the loss */
    double *all_norms; /* [ranks][n_params + 1] owned */
    struct exec_finding *findings; /* [ranks] owned */
    struct pp_loss_sums good_sums; /* sums of the epoch before the step at hand */
    int bad_mb; /* first micro-batch of the step whose activations are not finite; -1: none */
    int *group; /* [replicas] transport ranks that hold the same stages; owned */
    struct pp_exec_counters counters;
    struct pp_loss_sums epoch_seen; /* last stage: sums of the epoch when last asked for */
    struct pp_exec_time update;
    struct pp_ring *ring; /* not owned */
    uint64_t now;         /* when the last recorded action ended */
};

/* An action outside the walk, of optimizer step t; ends what exec_event_begin() began. */
void exec_event_begin(struct pp_exec *x, enum pp_event_kind kind, int64_t t);
/* The action begun last is over; returns the nanoseconds since the one before ended. */
uint64_t exec_event_end(struct pp_exec *x);

/* The same for any action; e: what it is, begun at x->now. */
void exec_record_begin(struct pp_exec *x, struct pp_event *e);

/* What the optimizer gets in step `number` (1, 2, ...) of those that change weights. */
void exec_optimizer_args(const struct pp_exec *x, double lr, int64_t number, float grad_scale,
                         struct pp_optimizer_args *out);
/* A replica whose share of the last batch is empty still takes part in the sum. */
int exec_no_gradients(struct pp_exec *x);
int exec_reduce_gradients(struct pp_exec *x); /* Collective over the replicas */

/* exec_memory.c: everything the rank holds; be == NULL: the dry pass. */
int exec_memory(struct pp_exec *x, const struct pp_exec_spec *spec);
void exec_memory_free(struct pp_exec *x);

/* exec_finite.c: is the step's every number finite? begin() and forward(), after the F of a
 * micro-batch, are local. vote(), after this rank's last input gradient of a batch of `rows` over
 * all replicas, and verdict(), after the gradients are summed, are collective: PP_EDIVERGED on all
 * ranks, with the sums as they were before the step and a text that says what is not finite; or
 * *out_scale, what clipping multiplies the gradients by. */
int exec_finite_create(struct pp_exec *x);
void exec_finite_destroy(struct pp_exec *x);
void exec_finite_begin(struct pp_exec *x, enum pp_split split);
void exec_finite_forward(struct pp_exec *x, const struct exec_stage *st, int mb);
int exec_finite_vote(struct pp_exec *x, int rows);
int exec_finite_verdict(struct pp_exec *x, int64_t t, float *out_scale);
/* Sums of the epoch so far; zero where this rank has none. Waits for the device. */
int exec_finite_sums(struct pp_exec *x, struct pp_loss_sums *out);
/* Model-wide number of the chunk's first parameter. */
int exec_first_param(const struct pp_exec *x, const struct pp_chunk *c);

/* exec_walk.c: run one batch of one split through its plan; t: its name in the record. */
int exec_walk(struct pp_exec *x, enum pp_split split, int step, int64_t t, float grad_scale);

#endif
