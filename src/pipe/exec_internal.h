/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor's state, shared by its files.
 *
 *   exec.c          creates and destroys it: channels, loaders, initial weights
 *   exec_memory.c   all memory that a rank holds
 *   exec_input.c    the samples of a step
 *   exec_step.c     enqueues steps and reads their results
 *   exec_walk.c     interprets the plan
 *   exec_finite.c   checks that every number of a step is finite
 *   exec_graph.c    captures steps as graphs and replays them
 *   exec_time.c     records when each action ran
 *   exec_zero.c     train.zero: sends gradients to their owners and gets parameters back
 *   exec_tensors.c  copies weights and optimizer state for saving and restoring
 *
 * The host is a device like the others. If its backend's ops are complete when they return, a mark
 * is reached as soon as it is set.
 */
#ifndef PPCLI_PIPE_EXEC_INTERNAL_H
#define PPCLI_PIPE_EXEC_INTERNAL_H

#include "ppcli/data/dataset.h"
#include "ppcli/nn/chunk.h"
#include "ppcli/pipe/exec.h"

#define PP_EXEC_WHAT 320    /* bytes of a message that says which value was not finite */
#define EXEC_AHEAD 4        /* most steps that the host may enqueue before it reads a result */
#define EXEC_GRAPHS 4       /* full and last batches, in training and in evaluation */
#define EXEC_TIME_EVERY 256 /* of a device's steps, every 256th is timed */
#define EXEC_ALIGN_TRIES 4

/* A virtual stage on this rank. */
struct exec_stage {
    int s; /* virtual stage */
    bool is_first, is_last;
    struct pp_chunk *chunk;
    float **input; /* [state_slots] input of the first stage, else NULL; the array is owned */
    /* [state_slots] logits, then their gradient; NULL unless this is the last stage, and NULL if
     * logits come in pieces; the array is owned */
    float **output;
    int *held_f; /* [state_slots] message that brought the input, -1: no message; owned */
    int *held_b; /* [max(grad_slots,1)] message that brought the output's gradient, -1: no message;
                    owned */
    int *w_slots, *w_gslots; /* [grad_slots] slots of the W being computed; one block, owned */
    struct pp_exec_times times;
};

/* A channel with this rank at one end. */
struct exec_channel {
    int id;       /* channel of the plan; -1: this rank is at neither end */
    int spec;     /* index into the transport's channels; -1: the message stays on this rank */
    char *memory; /* slots this rank provides, NULL on the sending side of shared slots */
};

/* The messages that replicas send each other with train.zero, in this order. */
enum exec_shard_kind {
    SHARD_GRADS,  /* gradients, to the replica that sums them */
    SHARD_SUMS,   /* summed gradients, to all replicas, if exec->shares_sums */
    SHARD_PARAMS, /* updated parameters, to all replicas */
    SHARD_KINDS
};

/* A replica's piece of a bucket. in and out are channels of the transport from and to that replica;
 * -1: no channel. */
struct exec_shard {
    size_t from, n; /* range within the chunk's floats */
    int out[SHARD_KINDS], in[SHARD_KINDS];
    float *sums; /* [own->n] that replica's gradients of this rank's piece; in the arena */
};

/* Floats of one stage that are sent together: a few layers, 256 KiB or more if the stage has as
 * much. The bucket begins at the first multiple of PP_ALIGN bytes in layer `first`. */
struct exec_bucket {
    int number; /* number of the bucket in the model */
    int stage;
    int first, last; /* layers; the buckets of a stage cover all its layers */
    bool after_ties; /* holds a tied tensor, so it is complete only after the last T */
    struct pp_chunk *chunk;
    struct exec_shard *shards, *own; /* [replicas], and this rank's own shard among them */
    size_t state;                    /* offset of this rank's shard in the optimizer state */
};

/* Per plan: the receives to post before the first action, and the last input gradient. */
struct exec_first {
    int *messages; /* owned */
    int n;
    const struct pp_action *last_i; /* an I or a B; NULL in plans of an evaluation */
};

/* The results of a step; memory of the device. */
struct exec_results {
    struct pp_step_verdict verdict;
    struct pp_loss_sums sums[2]; /* enum pp_split */
};

/* A step in flight, and the host memory that the device reads and writes for it. */
struct exec_flight {
    void *block;                  /* laid out as the device's block: optimizer arguments, sample
                                     numbers; owned */
    struct exec_results *results; /* owned */
    void *done;                   /* mark; owned */
    bool busy;                    /* enqueued, and its results are not read yet */
    const uint8_t *made;          /* the step's pictures if pp_ahead makes them */
    enum pp_split split;
    int step;  /* batch of the epoch */
    int64_t t; /* optimizer step */
    bool timed;
};

struct exec_graph {
    enum pp_split split;
    int rows; /* rows of the whole batch; split and rows determine the plan and the rows of each
                 micro-batch */
    int runs; /* times it was enqueued op by op; the first time warms up */
    void *graph;
};

struct exec_graphs {
    bool on;
    char why[160]; /* why graphs are off */
    struct exec_graph entry[EXEC_GRAPHS];
    int n;
};

/* An action, and how many full-size micro-batches it computes. n = 0: none of full size; n = -1:
 * the same as the action before. */
struct exec_record {
    struct pp_event event;
    int n;
};

struct exec_timer {
    bool live;               /* actions are complete when their calls return, so the clock times
                                them */
    struct exec_record open; /* the action in progress */
    uint64_t now;            /* if live: when the previous action ended */
    /* If not live: marks, read when the step is complete. */
    struct exec_time_set {
        void **marks;                /* [capacity + 1]; record i lies between marks i and i + 1 */
        struct exec_record *records; /* [capacity] */
        int n;
    } sets[EXEC_AHEAD]; /* one per step in flight, with the same index */
    int capacity;
    int current;                   /* the set being filled; -1: this step is not timed */
    bool every;                    /* time every step */
    uint64_t steps;                /* training steps so far */
    void *tries[EXEC_ALIGN_TRIES]; /* marks; owned */
    void *base;                    /* the mark that links the clocks of host and device */
    uint64_t base_ns;              /* the host's clock at that mark */
    uint64_t busy_ns;              /* busy time of the last timed step; 0: no step yet */
    uint64_t taken_ns;             /* when the counters were read last */
    uint64_t unknown;              /* steps counted before the first timed step was read */
};

/* exec_input.c: the samples of a step, if this rank reads them. */
struct exec_input {
    const void *images[2], *targets[2]; /* [enum pp_split] whole splits; NULL: not on this rank */
    const void *lengths[2];             /* lengths as u32; with model.mask_padding, on all ranks */
    float *weights;                     /* [classes] device memory: train.class_weights; or NULL */
    float *weighs;                      /* the same in host memory; owned */
    size_t block_bytes; /* bytes of a step's block: struct pp_optimizer_args, then the arrays
                                  below */
    uint32_t *index;    /* samples of this replica's share of the batch */
    /* [rows][T + 1] tokens of texts, if the file is mapped or the device has its own memory */
    const uint32_t *windows;
    const uint32_t
        *moves;        /* where the pixels of pictures that the device moves come from; or NULL */
    size_t window;     /* tokens per sample that a step uploads */
    bool device_moves; /* pp_ahead_moves() of training, on the rank of the first stage */

    struct pp_ahead *ahead; /* makes pictures ahead; NULL: samples are gathered unchanged, or on
                               another rank */
    uint8_t *made[EXEC_AHEAD + 1]; /* the buffers of `ahead`; in the arena, or host_alloc()ed for
                                      the device */
    size_t made_bytes;             /* bytes of one buffer */
    uint8_t *made_there;           /* the step's pictures on the device, in the arena; or NULL */
    const uint8_t *made_now;       /* the pictures of the current step, in device memory */
};

/* exec_finite.c: checks that every number of a step is finite. */
struct exec_check {
    double *own, *all; /* [n + 1]; [ranks][n + 1] */
    int n;             /* values per rank: one per parameter if the norm is needed, else one per
                          stage */
    bool looks;        /* pp_chunk's `looks`: the step runs again to find the bad value */
    bool measures;     /* values are measured as soon as they are computed */
    bool proves;       /* ranks agree from these measures that all gradients will be finite, before
                          any is read */
    int bad_mb; /* first micro-batch of the step with activations that are not finite; -1: none */
    struct exec_finding *found; /* [ranks] owned */
    bool check_next;            /* the last step was bad, so read the next result at once */
    bool vetoes;                /* this rank must make the step fail */
};

/* exec_zero.c: which replica owns which floats, with train.zero. */
struct exec_zero {
    struct exec_bucket *buckets; /* [n] by stage, the last layers of a stage first; owned */
    struct exec_shard *shards;   /* the shards of all buckets; owned */
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
    float *kept;                      /* see pp_exec_keep_logits(); owned by the caller */
    struct pp_loader *loader[2];
    struct exec_stage *stages; /* [n_stages] in ascending order of virtual stages; owned */
    int n_stages;
    struct exec_channel *channels; /* [layout->n_channels] indexed by the plan's channel; owned */
    struct exec_first *first;      /* [layout->n_plans]; owned */
    int *group;                    /* [replicas] transport ranks with the same stages; owned */

    /* Device memory, in the arena. */
    struct pp_arena arena;
    struct pp_chunk_loan loan; /* memory that the chunks share; its arrays are one block, owned */
    struct pp_exec_bytes bytes;
    struct pp_optimizer_args *args; /* arguments of the step; the samples follow: input.index */
    void *targets; /* on the last stage, targets of the current micro-batch: int32_t
                      [max_rows][positions], or numbers as float [max_rows][outputs] */
    struct exec_results *results;
    struct pp_loss_sums *sums[2]; /* point into results; NULL: the last stage is elsewhere */
    double *losses;               /* pp_exec_keep_losses(); not owned */
    struct pp_loss_sums *unread;  /* sums of an R of the last stage, ignored because F counted them;
                                     NULL: no R */
    struct pp_loss_sums *before;  /* initial value of a step's sums: zeros, or NaN after a veto */
    float *scratch;               /* as large as the largest chunk; only for replicas without
                                     train.zero */
    float *merge; /* [2][n_merge] with replicas: their statistics for comparison, then scratch */
    size_t n_merge;

    struct exec_input input;
    struct exec_check check;
    struct pp_error refusal; /* an error in data that this rank read; code 0: no error */
    struct exec_zero zero;
    uint64_t epoch;

    struct exec_flight flights[EXEC_AHEAD];
    int next;      /* the next step in flight to use, which is the oldest */
    void *drained; /* mark; owned */
    int64_t asked; /* t of the last training step that was asked for */
    int lag;       /* steps from the last failed step to `asked` */
    uint64_t timeout_ns;
    struct exec_graphs graphs;
    struct exec_timer timer;

    struct pp_exec_counters counters;
    struct pp_loss_sums epoch_sums; /* last stage: sums of the epoch so far */
    struct pp_norm_sums epoch_norms;
    struct pp_exec_time update;
    struct pp_ring *ring; /* not owned */
};

/* Takes all memory that the rank holds (exec_memory.c). If `be` is NULL it only computes the sizes:
 * the dry pass. */
int exec_memory_take(struct pp_exec *x, const struct pp_exec_spec *spec);
void exec_memory_free(struct pp_exec *x);

/*
 * exec_input.c. Local.
 *   place          takes memory for whole splits and pictures, in both passes
 *   place_step     takes memory for the block of a step
 *   open           starts the thread that makes pictures
 *   free_host      frees the buffers of that thread
 *   take_pictures  waits for the pictures of the step
 *   upload         copies what the step reads to the device
 */
int exec_input_place(struct pp_exec *x, struct pp_arena *a, bool copies, bool first, bool last);
void exec_input_place_step(struct pp_exec *x, struct pp_arena *a);
int exec_input_open(struct pp_exec *x);
void exec_input_free_host(struct pp_exec *x);
void exec_input_take_pictures(struct pp_exec *x, struct exec_flight *flight);
int exec_input_upload(struct pp_exec *x, struct exec_flight *flight);
/* Gathers the inputs of a micro-batch into to[rows][inputs], and its targets into x->targets. */
int exec_input_gather(const struct pp_exec *x, enum pp_split split, int step, int mb, float *to);
int exec_input_targets(const struct pp_exec *x, enum pp_split split, int step, int mb);

/* exec_step.c. Local, except exec_enqueue(), which is collective in effect. */
int exec_flights_create(struct pp_exec *x);
/* Destroys the steps in flight. Returns false if the device hangs; its memory then cannot be
 * freed. */
bool exec_flights_destroy(struct pp_exec *x);
/* Waits until the device has no more work. */
int exec_drain(struct pp_exec *x);
/* Enqueues the work of one step without involving the host. The same arguments give the same work,
 * so that a step can be captured. */
int exec_enqueue(struct pp_exec *x, enum pp_split split, int step, int64_t t);

/* Divide the floats among the replicas, take memory for the pieces that arrive, and add the
 * channels of this rank, *n more (exec_zero.c). Local. */
int exec_zero_create(struct pp_exec *x);
void exec_zero_memory(struct pp_exec *x, struct pp_arena *a);
void exec_zero_channels(struct pp_exec *x, struct pp_channel_spec *specs, void **memory, int *n);
/* Returns how many floats of stage s, counted over all chunks, have their optimizer state on this
 * rank. Local. */
size_t exec_zero_floats(const struct pp_exec *x, int s);
/* Exchange gradients and parameters between replicas in a training step, in this order: begin()
 * before the plan, post() when a bucket's gradients are complete, then reduce() and update().
 * Pairwise within x->group; only the last two wait for the same step of other replicas. */
int exec_zero_begin(struct pp_exec *x);
int exec_zero_post(struct pp_exec *x, const struct exec_bucket *b, int64_t t);
int exec_zero_reduce(struct pp_exec *x, int64_t t);
int exec_zero_update(struct pp_exec *x, int64_t t);

/* Runs one batch of one split through its plan (exec_walk.c). `t` is the step's number in the
 * events. */
int exec_walk(struct pp_exec *x, enum pp_split split, int step, int64_t t);

/*
 * Check that all numbers of a step are finite (exec_finite.c).
 *   begin     starts a step. Local.
 *   forward   notes the first bad micro-batch; call after each F. Local.
 *   vote      votes after this rank's last input gradient; rows: the batch's, over all replicas.
 *             Collective.
 *   veto      makes the step fail on all ranks. Local.
 *   decide    call when the gradients are summed; sets args and verdict of every rank. Collective.
 *   tell      fails with PP_EDIVERGED and the same text on all ranks, which names the bad value of
 *             the step with this verdict. The gradients must still be in memory. Collective.
 */
int exec_finite_create(struct pp_exec *x);
void exec_finite_begin(struct pp_exec *x, enum pp_split split);
void exec_finite_note_forward(struct pp_exec *x, const struct exec_stage *st, int mb);
int exec_finite_vote(struct pp_exec *x, int rows);
int exec_finite_veto(struct pp_exec *x);
int exec_finite_decide(struct pp_exec *x, int64_t t);
int exec_finite_tell(struct pp_exec *x, const struct pp_step_verdict *verdict);
/* Describes the first value that is not finite, after a test step with check.looks; "" if all are
 * finite. Collective. */
int exec_finite_describe_test(struct pp_exec *x, char *out, size_t bytes);

/* Returns the entry for batches of this size, and makes it if there is none (exec_graph.c).
 * Local. */
struct exec_graph *exec_graph_of(struct exec_graphs *g, enum pp_split split, int rows);
int exec_graphs_create(struct pp_exec *x);
void exec_graphs_destroy(struct pp_exec *x);
/* Returns the graph to capture or replay for this step; NULL if the step is enqueued op by op.
 * Local. */
struct exec_graph *exec_graph_next(struct pp_exec *x, enum pp_split split, int step);
/* Captures or replays the graph. Collective in effect. */
int exec_graph_run(struct pp_exec *x, struct exec_graph *g, int step, int64_t t);

/* exec_time.c. All Local. */
int exec_time_create(struct pp_exec *x);
void exec_time_destroy(struct pp_exec *x);
/* Time the steps. A step calls launch_begin() when the host begins it, start() before it is
 * enqueued, stop() when it is enqueued (work that follows, such as a repeated bad step, is not
 * timed), and launch_end() at the end. */
void exec_launch_begin(struct pp_exec *x, enum pp_split split, int64_t t);
int exec_time_start(struct pp_exec *x, struct exec_flight *flight);
void exec_time_stop(struct pp_exec *x);
void exec_launch_end(struct pp_exec *x);
/* Begin and end an action. `n` is as in struct exec_record. */
void exec_action_begin(struct pp_exec *x, const struct pp_event *e, int n);
void exec_action_end(struct pp_exec *x);
/* Begins an action of step t that the plan does not list, such as the optimizer's. */
void exec_event_begin(struct pp_exec *x, enum pp_event_kind kind, int64_t t);
/* Reads the times of a complete step into the ring and the counters. */
int exec_time_read(struct pp_exec *x, const struct exec_flight *flight);
/* Corrects the counters before they are read, while the device is idle. */
int exec_time_correct(struct pp_exec *x);

#endif
