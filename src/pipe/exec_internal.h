/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor's state, shared by its files.
 *
 *   exec.c          life: channels, loaders, destruction; what others ask
 *   exec_memory.c   everything a rank holds
 *   exec_input.c    the samples of a step
 *   exec_step.c     steps, and what becomes of them
 *   exec_walk.c     the interpreter of the plan
 *   exec_finite.c   is every number of a step finite?
 *   exec_graph.c    captured steps
 *   exec_time.c     when which action ran
 *   exec_zero.c     gradients to their owners, parameters back, with train.zero
 *   exec_tensors.c  weights and optimizer state, for those who save them
 *
 * The host is a device like others. Where its backend's ops are done when they return, marks are
 * reached as soon as they are set.
 */
#ifndef PPCLI_PIPE_EXEC_INTERNAL_H
#define PPCLI_PIPE_EXEC_INTERNAL_H

#include "ppcli/data/dataset.h"
#include "ppcli/nn/chunk.h"
#include "ppcli/pipe/exec.h"

#define PP_EXEC_WHAT 320    /* of a text that says which value was not finite */
#define EXEC_AHEAD 4        /* steps that the host may be ahead of its device */
#define EXEC_GRAPHS 4       /* full and last batch, training and evaluation */
#define EXEC_TIME_EVERY 256 /* steps; of the others a device's actions are not timed */
#define EXEC_ALIGN_TRIES 4

/* One virtual stage on this rank. */
struct exec_stage {
    int s; /* virtual stage */
    bool is_first, is_last;
    struct pp_chunk *chunk;
    float **input; /* [state_slots] x of the first stage, else NULL; array owned */
    float *
        *output; /* [state_slots] logits, then their gradient, of the last stage; NULL: of others,
                       and where logits are in pieces */
    int *held_f; /* [state_slots] message that brought x, -1: none; owned */
    int *held_b; /* [max(grad_slots,1)] message that brought dy, -1: none; owned */
    int *w_slots, *w_gslots; /* [grad_slots] of the W at hand; one block, owned */
    struct pp_exec_times times;
};

/* One channel this rank is an end of. */
struct exec_channel {
    int id;       /* of the plan; -1: not ours */
    int spec;     /* index into the transport's channels; -1: local transfer */
    char *memory; /* slots this rank provides, NULL on the sending side of shared slots */
};

/* What replicas send each other with train.zero, in this order. */
enum exec_shard_kind {
    SHARD_GRADS,  /* to the replica that adds them up */
    SHARD_SUMS,   /* of gradients, to all, where exec->shares_sums */
    SHARD_PARAMS, /* updated, to all */
    SHARD_KINDS
};

/* A replica's piece of a bucket. Channels are the transport's, to and from that replica; -1: none. */
struct exec_shard {
    size_t from, n; /* floats of the chunk */
    int out[SHARD_KINDS], in[SHARD_KINDS];
    float *sums; /* [own->n] its gradients of our piece; in the arena */
};

/* Floats of a stage of this rank that travel together: a few layers, 256 KiB or more where there is as
 * much. They begin at the first multiple of PP_ALIGN bytes in layer `first`. */
struct exec_bucket {
    int number; /* in the model */
    int stage;
    int first, last; /* layers; those of a stage's buckets are all of its layers */
    bool late;       /* a tied tensor is in it: complete after the last T */
    struct pp_chunk *chunk;
    struct exec_shard *shards, *own; /* [replicas], and ours among them */
    size_t state;                    /* where our piece begins in the optimizer's state */
};

/* Of a plan: the receives to post before the first action, and the last input gradient. */
struct exec_first {
    int *messages; /* owned */
    int n;
    const struct pp_action *last_i; /* I or B; NULL in plans of an evaluation */
};

/* What a step leaves; memory of the device. */
struct exec_results {
    struct pp_step_verdict verdict;
    struct pp_loss_sums sums[2]; /* enum pp_split */
};

/* One step on its way, and the memory of the host that the device reads and writes for it. */
struct exec_turn {
    void *block;                  /* as the device's: optimizer args, sample numbers; owned */
    struct exec_results *results; /* owned */
    void *done;                   /* mark; owned */
    bool busy;                    /* enqueued, and not looked at since */
    const uint8_t *made;          /* its pictures, where pp_ahead makes them */
    enum pp_split split;
    int step;  /* batch of the epoch */
    int64_t t; /* optimizer step */
    bool timed;
};

struct exec_graph {
    enum pp_split split;
    int rows; /* of the whole batch: with the split it tells the plan and the rows of each part */
    int runs; /* times it was enqueued one by one: the first one warms up */
    void *graph;
};

struct exec_graphs {
    bool on;
    char why[160]; /* they are off */
    struct exec_graph entry[EXEC_GRAPHS];
    int n;
};

/* An action, and of how many micro-batches of full size; 0: not on such; -1: as much as before. */
struct exec_record {
    struct pp_event event;
    int n;
};

struct exec_timer {
    bool live;               /* actions are done when their calls return: the clock times them */
    struct exec_record open; /* the action begun last */
    uint64_t now;            /* live: when the action before it ended */
    /* Not live: marks, read when the step is done. */
    struct exec_time_set {
        void **marks;                /* [capacity + 1]; record i lies between i and i + 1 */
        struct exec_record *records; /* [capacity] */
        int n;
    } sets[EXEC_AHEAD]; /* of the turn with the same number */
    int capacity;
    int current;                   /* the set being filled; -1: this step is not timed */
    bool every;                    /* all steps are timed */
    uint64_t steps;                /* of training so far */
    void *tries[EXEC_ALIGN_TRIES]; /* marks; owned */
    void *base;                    /* mark */
    uint64_t base_ns;              /* the host's clock when it was reached */
    uint64_t busy_ns;              /* of the last timed step; 0: none yet */
    uint64_t taken_ns;             /* when the counters were taken last */
    uint64_t unknown;              /* steps before the first timed one was looked at */
};

/* exec_input.c: the samples of a step, where this rank reads them. */
struct exec_input {
    const uint8_t *images[2], *labels[2]; /* [enum pp_split] whole splits; NULL: not on this rank */
    const uint8_t *lengths[2]; /* the same as u32, with model.mask_padding on all ranks */
    size_t block_bytes;        /* of a turn's block: struct pp_optimizer_args, then these: */
    uint32_t *index;           /* the samples of this replica's share of the batch */
    const uint32_t *
        windows; /* of texts: [rows][T + 1] tokens, of mapped files and for a device with its own memory */
    const uint32_t
        *moves;        /* or where the device finds the pixels that it moves; NULL: it does not */
    size_t window;     /* tokens of a sample that a step brings along */
    bool device_moves; /* pp_ahead_moves() of training, and this rank is the first stage's */

    struct pp_ahead *ahead; /* NULL: the samples are gathered as they are, or on another rank */
    uint8_t *made[EXEC_AHEAD + 1]; /* its buffers; in the arena, or host_alloc()ed for the device */
    size_t made_bytes;             /* of one */
    uint8_t *made_there;           /* in the arena: the step's pictures on the device, or NULL */
    const uint8_t *made_now;       /* the step's pictures, memory of the device */
};

/* exec_finite.c: is every number of a step finite? */
struct exec_check {
    double *own, *all; /* [n + 1], [ranks][n + 1] */
    int n;             /* a parameter each when gradients are clipped, else a stage */
    bool looks;        /* pp_chunk's: a step is run again to find what was bad */
    bool measures;     /* values are looked at as soon as they are made */
    bool proves;       /* ranks compare what they measured: gradients finite before one reads any */
    int bad_mb; /* first micro-batch of the step whose activations are not finite; -1: none */
    struct exec_finding *found; /* [ranks] owned */
    bool check_next;            /* the step before was bad: look at the next one at once */
    bool vetoes;                /* this rank must not let the step pass */
};

/* exec_zero.c: which replica owns what, with train.zero. */
struct exec_zero {
    struct exec_bucket *buckets; /* [n] by stage, its last layers first; owned */
    struct exec_shard *shards;   /* of all of them; owned */
    int n;                       /* 0: train.zero is off */
    bool shares_sums;            /* pp_layout_shares_sums() */
};

struct pp_exec {
    const struct pp_config *cfg;
    const struct pp_layout *layout;
    int rank, pipeline_rank, replica;
    struct pp_backend *be;
    struct pp_transport *tp;
    const struct pp_dataset *data[2]; /* enum pp_split */
    float *kept;                      /* see pp_exec_keep_logits(); the caller's */
    struct pp_loader *loader[2];
    struct exec_stage *stages; /* [n_stages], ascending virtual stage; owned */
    int n_stages;
    struct exec_channel *channels; /* [layout->n_channels], by plan channel id; owned */
    struct exec_first *first;      /* [layout->n_plans]; owned */
    int *group;                    /* [replicas] transport ranks that hold the same stages; owned */

    /* memory of the device, in the arena */
    struct pp_arena arena;
    struct pp_chunk_loan loan; /* what the chunks share; its arrays: one block, owned */
    struct pp_exec_bytes bytes;
    struct pp_optimizer_args *args; /* of the step; the samples follow: input.index */
    int32_t *targets; /* [max_rows][positions] last stage: of the micro-batch at hand */
    struct exec_results *results;
    struct pp_loss_sums *sums[2]; /* in results; NULL: no last stage here */
    struct pp_loss_sums *unread;  /* of an R of the last stage: F has counted them; NULL: none */
    struct pp_loss_sums *before;  /* what the sums of a step begin with: zeros, but for a veto */
    float *scratch;               /* largest chunk; replicas without train.zero only */
    float *merge; /* [2][n_merge] replicas: what their statistics are compared by, and scratch */
    size_t n_merge;

    struct exec_input input;
    struct exec_check check;
    struct pp_error refusal; /* of data that this rank read; code 0: none */
    struct exec_zero zero;
    uint64_t epoch;

    struct exec_turn turns[EXEC_AHEAD];
    int next;      /* the turn that comes next, the oldest */
    void *settle;  /* mark; owned */
    int64_t asked; /* t of the training step that was asked for last */
    int late;      /* steps that the last failure was before it */
    uint64_t timeout_ns;
    struct exec_graphs graphs;
    struct exec_timer timer;

    struct pp_exec_counters counters;
    struct pp_loss_sums epoch_sums; /* last stage: of the epoch, step by step */
    struct pp_exec_time update;
    struct pp_ring *ring; /* not owned */
};

/* exec_memory.c: everything the rank holds; be == NULL: the dry pass. */
int exec_memory(struct pp_exec *x, const struct pp_exec_spec *spec);
void exec_memory_free(struct pp_exec *x);

/* exec_input.c. Local. place(), of the dry pass and the other: whole splits and pictures; place_step():
 * the block of a step. open() starts the thread that makes pictures; free_host() frees its buffers.
 * take_pictures() waits for those of the turn's step, upload() brings what the step reads. */
int exec_input_place(struct pp_exec *x, struct pp_arena *a, bool copies, bool first, bool last);
void exec_input_place_step(struct pp_exec *x, struct pp_arena *a);
int exec_input_open(struct pp_exec *x);
void exec_input_free_host(struct pp_exec *x);
void exec_input_take_pictures(struct pp_exec *x, struct exec_turn *turn);
int exec_input_upload(struct pp_exec *x, struct exec_turn *turn);
/* Of a micro-batch: its input into to[rows][inputs], its targets into x->targets. */
int exec_input_gather(const struct pp_exec *x, enum pp_split split, int step, int mb, float *to);
int exec_input_targets(const struct pp_exec *x, enum pp_split split, int step, int mb,
                       struct pp_targets *out);

/* exec_step.c. Local, but for enqueue: collective in effect. */
int exec_turns_create(struct pp_exec *x);
/* False: the device hangs, and its memory cannot be given back. */
bool exec_turns_destroy(struct pp_exec *x);
/* Wait until the device has done all there is. */
int exec_settle(struct pp_exec *x);
/* The work of one step, with no host in it: the same with the same arguments, so that it can be
 * captured. */
int exec_enqueue(struct pp_exec *x, enum pp_split split, int step, int64_t t);

/* exec_zero.c. create(), memory() and channels() are local: which pieces there are, where those of the
 * others arrive, what this rank is an end of (*n more). */
int exec_zero_create(struct pp_exec *x);
void exec_zero_memory(struct pp_exec *x, struct pp_arena *a);
void exec_zero_channels(struct pp_exec *x, struct pp_channel_spec *specs, void **memory, int *n);
/* Floats of a virtual stage whose optimizer state this rank keeps. Local. */
size_t exec_zero_floats(const struct pp_exec *x, int s);
/* A training step, in this order; begin() comes before the plan, post() when the bucket's gradients are
 * complete. Pairwise within x->group; only the last two wait for other replicas' same step. */
int exec_zero_begin(struct pp_exec *x);
int exec_zero_post(struct pp_exec *x, const struct exec_bucket *b, int64_t t);
int exec_zero_reduce(struct pp_exec *x, int64_t t);
int exec_zero_update(struct pp_exec *x, int64_t t);

/* exec_walk.c: run one batch of one split through its plan; t: its name in the record. */
int exec_walk(struct pp_exec *x, enum pp_split split, int step, int64_t t);

/* exec_finite.c. begin() and forward(), after the F of a micro-batch, are local. vote(), after this
 * rank's last input gradient of a batch of `rows` over all replicas, and decide(), after the
 * gradients are summed, are collective: every rank's args and verdict then tell what becomes of the
 * step. tell(), collective: what was wrong with a step of that verdict whose gradients are still
 * there, PP_EDIVERGED with the same text on all ranks. */
int exec_finite_create(struct pp_exec *x);
void exec_finite_begin(struct pp_exec *x, enum pp_split split);
void exec_finite_forward(struct pp_exec *x, const struct exec_stage *st, int mb);
int exec_finite_vote(struct pp_exec *x, int rows);
int exec_finite_veto(struct pp_exec *x); /* Local: no rank will use this step */
int exec_finite_decide(struct pp_exec *x, int64_t t);
int exec_finite_tell(struct pp_exec *x, const struct pp_step_verdict *verdict);
/* After a step of a test that was run with x->looks, collective: in words which value is the first that is
 * not finite; empty: none is. */
int exec_finite_of_test(struct pp_exec *x, char *out, size_t bytes);

/* exec_graph.c. The entry of batches like this, made when there is none. Local. */
struct exec_graph *exec_graph_of(struct exec_graphs *g, enum pp_split split, int rows);
int exec_graphs_create(struct pp_exec *x);
void exec_graphs_destroy(struct pp_exec *x);
/* The graph of this step, to be captured or replayed; NULL: its work is enqueued one by one. Local.
 */
struct exec_graph *exec_graph_next(struct pp_exec *x, enum pp_split split, int step);
/* Collective in effect. */
int exec_graph_run(struct pp_exec *x, struct exec_graph *g, int step, int64_t t);

/* exec_time.c. All Local. */
int exec_time_create(struct pp_exec *x);
void exec_time_destroy(struct pp_exec *x);
/* The host turns to a step (launch), enqueues it (start), has enqueued it (stop: what comes next,
 * as a bad step computed again, is not part of it) and turns away (launched). */
void exec_time_launch(struct pp_exec *x, enum pp_split split, int64_t t);
int exec_time_start(struct pp_exec *x, struct exec_turn *turn);
void exec_time_stop(struct pp_exec *x);
void exec_time_launched(struct pp_exec *x);
/* An action begins, and ends. n: as exec_record's. */
void exec_begin(struct pp_exec *x, const struct pp_event *e, int n);
void exec_end(struct pp_exec *x);
/* The same for an action of optimizer step t that is none of the plan's. */
void exec_event_begin(struct pp_exec *x, enum pp_event_kind kind, int64_t t);
/* The turn is done: its times go into the ring and the counters. */
int exec_time_look(struct pp_exec *x, const struct exec_turn *turn);
/* The counters are taken; the device is idle. */
int exec_time_take(struct pp_exec *x);

#endif
