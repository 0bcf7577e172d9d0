/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor of one rank: binds layout, chunks, backend, transport and loader, and walks the
 * plan. No other code moves a batch.
 */
#ifndef PPCLI_PIPE_EXEC_H
#define PPCLI_PIPE_EXEC_H

#include "ppcli/comm/transport.h"
#include "ppcli/data/dataset.h"
#include "ppcli/dev/backend.h"
#include "ppcli/pipe/layout.h"
#include "ppcli/sim/trace.h"

/* The memory of one rank in bytes, by use. */
struct pp_exec_bytes {
    size_t parameters; /* parameter values */
    size_t packed;     /* copy of the parameters in the order that the backend reads fastest */
    size_t gradients;
    size_t optimizer;
    size_t
        activations; /* values and gradients between layers, logits, of micro-batches in flight */
    size_t messages; /* slots of the channels whose memory this rank provides */
    size_t data;     /* the data set, if the backend has its own memory */
    size_t scratch;  /* sums over replicas; arguments and results of a step */
    size_t total;    /* the whole arena, with alignment */
};

/* Norms of the gradients of steps, before clipping; the same on every rank. Steps that changed no
 * weight do not count. */
struct pp_norm_sums {
    int64_t steps, clipped; /* 0 unless the norm is needed: train.clip_norm, run.log_norm */
    double sum, most;
};

/* Counters since the last pp_exec_take_counters(). */
struct pp_exec_counters {
    uint64_t input_ns;                      /* waiting for pictures that a thread makes ahead */
    struct pp_norm_sums norms, epoch_norms; /* epoch_norms: since the epoch began, not reset */
    uint64_t busy_ns;          /* computing: layers, loss, data, reduction sums, optimizer */
    struct pp_loss_sums train; /* on ranks with the last stage */
    struct pp_loss_sums test;
    /* Training sums since the epoch began, not reset; added in the order of the micro-batches. */
    struct pp_loss_sums epoch;
    /* Set if this rank could not read the data of a test step because a file has changed; the data
     * counted as zeros. NULL otherwise. Lives as long as the executor. */
    const struct pp_error *refused;
};

struct pp_exec;

struct pp_exec_spec {
    const struct pp_config *cfg; /* the training's config; the division is the layout's */
    const struct pp_layout *layout;
    int rank;                      /* transport rank: replica * stages + pipeline rank */
    struct pp_transport_caps caps; /* decides who provides slot memory */
    /* this rank's actions are recorded there; the caller's, must outlive the executor; may be NULL
     * only for pp_exec_predict() */
    struct pp_ring *ring;
};

/* Computes the memory that a rank will hold, with the dry pass of pp_exec_create(). Local. */
int pp_exec_predict(const struct pp_exec_spec *spec, struct pp_exec_bytes *out);

/* Takes the memory, opens the channels and sets the initial parameters. Collective. `train` and
 * `test` are the data that this rank needs (images on the rank of the first stage, labels on that
 * of the last; NULL elsewhere); the caller keeps them. `test` may be NULL on all ranks if
 * layout->test_n is 0. */
int pp_exec_create(const struct pp_exec_spec *spec, struct pp_backend *be, struct pp_transport *tp,
                   const struct pp_dataset *train, const struct pp_dataset *test,
                   struct pp_exec **out);
void pp_exec_destroy(struct pp_exec **x);

/* Return the number of training steps of an epoch, and of evaluation steps of the test set. They
 * are the same on every rank. Local. */
int pp_exec_train_steps(const struct pp_exec *x);
int pp_exec_test_steps(const struct pp_exec *x);

/* Begins epoch 0, 1, ... and its order of samples. `so_far` has this rank's sums over the steps of
 * this epoch that are done already; NULL if there are none. Local. */
int pp_exec_start_epoch(struct pp_exec *x, uint64_t epoch, const struct pp_loss_sums *so_far);

/*
 * Runs one optimizer step over batch `step` of the current epoch: the plan, the reduction over
 * replicas, clipping, the optimizer. Collective in effect: all ranks call it with the same values.
 * Allocates nothing (asserted).
 *   lr       learning rate of this step
 *   t        1, 2, ... counted over the run
 *   updates  earlier steps that changed the weights, for the optimizer's bias correction
 * Errors: PP_EDIVERGED on all ranks if the loss or any gradient is not finite; the text says which
 * value was the first, and where. PP_EFORMAT on all ranks if a file of any rank has changed since
 * it was opened. In both cases no rank has changed anything, the batch is not counted in the sums,
 * and the run can continue. Any other error is of this rank alone. If ops return before they are
 * complete, so does this call, and its result may be that of an earlier step: see pp_exec_finish().
 */
int pp_exec_train_step(struct pp_exec *x, int step, double lr, int64_t t, int64_t updates);

/*
 * Waits until all steps are complete. Required before counters are read, weights are read, or an
 * epoch begins; the functions that do so call it too. Returns the error that pp_exec_train_step()
 * would have returned for the first bad step. If either of the two returns PP_EDIVERGED or
 * PP_EFORMAT, pp_exec_lag() returns how many steps before the last training step the bad one was;
 * neither it nor a later one has changed anything, and the run continues after the bad step. Local,
 * but all ranks must call it at the same step.
 */
int pp_exec_finish(struct pp_exec *x);
int pp_exec_lag(const struct pp_exec *x);

/* Returns "on", or the reason why steps are not captured. The text is static or owned by x.
 * Local. */
const char *pp_exec_graphs(const struct pp_exec *x);
/* Destroys the graphs. Call it before the transport is destroyed, because a communicator does not
 * end while a captured step uses it. Nothing may be enqueued after it. Local; x may be NULL. */
void pp_exec_forget_graphs(struct pp_exec *x);

/* Turns the timing of all steps on or off. If it is off and timing costs time on the backend, only
 * some steps are timed. Local. */
void pp_exec_time_all(struct pp_exec *x, bool all);

/* Keeps the mean loss of each micro-batch of the next training steps in losses[micro-batch], on the
 * ranks with the last stage, if the host can read it without waiting for a device; else writes
 * nothing. NULL: keeps none. The memory is the caller's. Local. */
void pp_exec_keep_losses(struct pp_exec *x, double *losses);

/*
 * From now on a test step copies the outputs of the last stage to logits[rows][outputs] in host
 * memory: the rows of this replica's share of the batch, on the rank with the last stage. They are
 * complete after pp_exec_finish(). NULL: stop copying. Local.
 */
void pp_exec_keep_logits(struct pp_exec *x, float *logits);

/* Runs the forward pass over batch `step` of the test set and adds to the test sums. Collective in
 * effect. */
int pp_exec_test_step(struct pp_exec *x, int step);

/* Runs the test a second time and describes why its loss is not finite, in the same words on all
 * ranks. *out_all tells whether every batch had a bad value. Collective. */
int pp_exec_test_tell(struct pp_exec *x, double loss, char *out, size_t bytes, bool *out_all);

/* Reads and resets the counters; waits for the device. Local. */
int pp_exec_take_counters(struct pp_exec *x, struct pp_exec_counters *out);

/* Returns the most events that one training or evaluation step of any rank adds to its ring.
 * Local. */
uint64_t pp_exec_events_per_step(const struct pp_layout *layout);

/* Computing time of the run: the sum over n actions. */
struct pp_exec_time {
    uint64_t ns, n;
};

/* Reads the times of the training actions of virtual stage s on full-size micro-batches. False:
 * another rank holds the stage. Local. */
struct pp_exec_times {
    uint64_t ns[3], n[3]; /* by enum pp_op: F, I, W; B counts as I and as W */
};
bool pp_exec_times(const struct pp_exec *x, int s, struct pp_exec_times *out);

/* Returns the time of the optimizer, which runs once per step, with the copies and sums of tied
 * tensors before it. Local. */
struct pp_exec_time pp_exec_update_time(const struct pp_exec *x);

/* Resets the times of the stages and of the optimizer. Local. */
void pp_exec_forget_times(struct pp_exec *x);

/* Computes how many bytes of stage s, counted over all chunks, one micro-batch keeps from its F to
 * its W: the activations between the layers, the input and, on the last stage, the output. Local.
 * Errors: PP_ERESOURCE. */
int pp_exec_live_bytes(const struct pp_layout *layout, int s, size_t *out);

/* ---- the training state, for saving and restoring */

enum pp_exec_kind {
    PP_EXEC_PARAM,
    PP_EXEC_OPT_M, /* momentum, first moment */
    PP_EXEC_OPT_V, /* second moment */
};

struct pp_exec_tensor {
    const struct pp_param *param; /* the model's parameter: name and shape */
    enum pp_exec_kind kind;
    float *values; /* [n] device memory; NULL: in pieces, with train.zero */
    size_t n;
    int stage; /* index of the stage on this rank */
    size_t at; /* offset in that stage, in floats */
};

/* Enumerate the tensors of this rank, i = 0..n-1: the weights of every parameter that it holds, and
 * the optimizer state of those that are not buffers. Local, as are the functions below unless they
 * say otherwise. */
int pp_exec_tensor_count(const struct pp_exec *x);
void pp_exec_tensor(const struct pp_exec *x, int i, struct pp_exec_tensor *out);

/* Copy n floats, from number `first` on, to and from host memory. After the last put, call
 * pp_exec_tensors_changed(). If a tensor is in pieces, put stores only this rank's pieces, and get,
 * on replica 0, asks the other replicas, which must be in pp_exec_serve(): pairwise. */
int pp_exec_tensor_get(struct pp_exec *x, const struct pp_exec_tensor *t, size_t first, float *host,
                       size_t n);
int pp_exec_tensor_put(struct pp_exec *x, const struct pp_exec_tensor *t, size_t first,
                       const float *host, size_t n);
int pp_exec_tensors_changed(struct pp_exec *x);

/* Answers replica 0's calls of get until replica 0 calls this function too. Returns at once if no
 * tensor is in pieces. Pairwise between the replicas of a stage. */
int pp_exec_serve(struct pp_exec *x);

/* Returns the memory of this rank, which is equal to the result of pp_exec_predict(). Local. */
const struct pp_exec_bytes *pp_exec_bytes(const struct pp_exec *x);

/*
 * Computes the SHA-256 of all parameters but copies, in canonical order (f32, little-endian), of
 * replica 0. Writes it in hex on transport rank 0, "" elsewhere. With replicas it first checks that
 * all hold the same bits, and fails with PP_EINTERNAL if they do not. Collective.
 */
int pp_exec_weights_sha256(struct pp_exec *x, char out[65]);

#endif
