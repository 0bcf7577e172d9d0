/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor on a device whose memory the host must not touch. The host writes what a step needs
 * (sample numbers, learning rate) into pinned memory, enqueues the step and goes on; what became of
 * it is read up to EXEC_AHEAD steps later.
 *
 * exec_device.c: memory and turns; exec_enqueue.c: what a step enqueues; exec_graph.c: captured
 * steps; exec_time.c: the times of actions.
 */
#ifndef PPCLI_PIPE_EXEC_DEVICE_H
#define PPCLI_PIPE_EXEC_DEVICE_H

#include "exec_internal.h"

#define EXEC_AHEAD 4 /* steps whose verdict the host does not know yet */

/* Memory of the device. */
struct exec_results {
    struct pp_step_verdict verdict;
    struct pp_loss_sums sums[2]; /* enum pp_split */
};

/* One step on its way, and the pinned memory it reads and writes. */
struct exec_turn {
    void *block;                  /* as the device's: optimizer args, sample numbers; owned */
    struct exec_results *results; /* owned */
    void *done;                   /* mark; owned */
    bool busy;                    /* enqueued, and not looked at since */
    enum pp_split split;
    int step;  /* batch of the epoch */
    int64_t t; /* optimizer step */
    bool timed;
};

/* --- captured steps (exec_graph.c) -------------------------------------------------------------
 */

#define EXEC_GRAPHS 4 /* full and last batch, training and evaluation */

struct exec_graph {
    enum pp_split split;
    int rows; /* of the whole batch: with the split it says which plan and how many rows each */
    int runs; /* times it was enqueued one by one: the first one warms up */
    void *graph;
};

struct exec_graphs {
    bool on;
    char why[160]; /* they are off */
    struct exec_graph entry[EXEC_GRAPHS];
    int n;
};

/* The entry of batches like this, made when there is none. Local. */
struct exec_graph *exec_graph_of(struct exec_graphs *g, enum pp_split split, int rows);

/* --- times (exec_time.c) -----------------------------------------------------------------------
 */

#define ALIGN_TRIES 4
#define EXEC_TIME_EVERY 256 /* steps; the others are launched as they are */

struct exec_time_record {
    struct pp_event event;
    int op, n; /* of so many micro-batches of full size; op -1: not an action on such */
};

struct exec_timer {
    struct exec_time_set {
        void **marks;                     /* [capacity + 1]; record i lies between i and i + 1 */
        struct exec_time_record *records; /* [capacity] */
        int n;
    } sets[EXEC_AHEAD]; /* of the turn with the same number */
    int capacity;
    int now;                  /* the set being filled; -1: this step is not timed */
    bool every;               /* all steps */
    uint64_t steps;           /* of training so far */
    void *tries[ALIGN_TRIES]; /* marks; owned */
    void *base;               /* mark */
    uint64_t base_ns;         /* the host's clock when it was reached */
    uint64_t busy_ns;         /* of the last timed step; 0: none yet */
    uint64_t taken_ns;        /* when the counters were taken last */
    uint64_t unknown;         /* steps before the first timed one was looked at */
};

/* --- all of it ---------------------------------------------------------------------------------
 */

struct exec_device {
    /* memory of the device, in the arena */
    uint8_t *images[2], *labels[2]; /* whole splits, by enum pp_split; NULL: not on this rank */
    struct pp_optimizer_args *args; /* the block: these, and right behind them ... */
    uint32_t *index;                /* ... the samples of this replica's share of the batch */
    size_t block_bytes;
    struct exec_results *results;
    struct pp_loss_sums *before; /* sums of the epoch before the step */
    double *votes, *all_votes;   /* [n_votes + 1], [ranks][n_votes + 1] */
    int n_votes;                 /* a parameter each when gradients are clipped, else a stage */

    struct exec_turn turns[EXEC_AHEAD];
    int next;     /* the turn that comes next, the oldest */
    void *settle; /* mark; owned */
    bool careful; /* the step before was bad: look at the next one at once */
    bool again;   /* a bad step is computed once more, to tell what is bad */
    int late;     /* steps that the last failure is behind the step asked for */
    uint64_t timeout_ns;
    struct exec_graphs graphs;
    struct exec_timer timer;
};

/* exec_device.c. In the dry pass a->base is NULL. All Local. */
void exec_device_lay_out(struct pp_exec *x, struct pp_arena *a, bool has_first, bool has_last);
int exec_device_create(struct pp_exec *x);
/* False: the device hangs, and its memory cannot be given back. */
bool exec_device_destroy(struct pp_exec *x);
/* Wait until the device has done all there is. */
int exec_device_settle(struct pp_exec *x);
/* The args and sample numbers of a step into pinned memory and up. */
int exec_device_upload(struct pp_exec *x, struct exec_turn *turn, double lr, int64_t updates);
/* Look at all turns; PP_EDIVERGED as pp_exec_finish(). `t`: the step asked for. */
int exec_device_finish(struct pp_exec *x, int64_t t);
int exec_device_train_step(struct pp_exec *x, int step, double lr, int64_t t, int64_t updates);
int exec_device_test_step(struct pp_exec *x, int step);

/* exec_enqueue.c: the work of one step, with no host in it. Collective in effect. */
int exec_enqueue(struct pp_exec *x, enum pp_split split, int step, int64_t t);
int exec_enqueue_gradients(struct pp_exec *x, int step, int64_t t);

/* exec_graph.c */
int exec_graphs_create(struct pp_exec *x);
void exec_graphs_destroy(struct pp_exec *x);
/* Collective in effect: exec_enqueue(), or the same captured or replayed. */
int exec_graph_step(struct pp_exec *x, enum pp_split split, int step, int64_t t);

/* exec_time.c. All Local. */
int exec_time_create(struct pp_exec *x);
void exec_time_destroy(struct pp_exec *x);
/* A step begins; turn->timed is set. */
int exec_time_start(struct pp_exec *x, struct exec_turn *turn);
/* The turn is enqueued: what comes next, as a bad step computed again, is not part of it. */
void exec_time_stop(struct pp_exec *x);
void exec_time_begin(struct pp_exec *x, const struct pp_event *e);
int exec_time_end(struct pp_exec *x);
void exec_time_compute(struct pp_exec *x, int op, int n);
/* The step is done: its times go into the ring and the counters. */
int exec_time_look(struct pp_exec *x, const struct exec_turn *turn);
/* Computing takes no longer than there was time since the counters were taken last. */
void exec_time_limit(struct pp_exec *x);
/* The next step is timed. */
void exec_time_next(struct pp_exec *x);
/* Align the device's clock with the host's; the device is idle. */
int exec_time_align(struct pp_exec *x);

#endif
