/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor of one rank: it binds layout, chunks, backend, transport and loader, and walks the
 * plan. The only code that moves a batch.
 */
#ifndef PPCLI_PIPE_EXEC_H
#define PPCLI_PIPE_EXEC_H

#include "ppcli/comm/transport.h"
#include "ppcli/data/dataset.h"
#include "ppcli/dev/backend.h"
#include "ppcli/pipe/layout.h"
#include "ppcli/sim/trace.h"

/* What one rank holds, in bytes: a breakdown of its arena. */
struct pp_exec_bytes {
    size_t parameters; /* values */
    size_t packed;     /* their copy in the order the backend reads fastest */
    size_t gradients;
    size_t optimizer;
    size_t
        activations; /* of micro-batches in flight: values and gradients between layers, logits */
    size_t messages; /* slots of channels whose memory this rank provides */
    size_t data;     /* the data set, where the backend has memory of its own */
    size_t scratch;  /* replica reduction; what a step reads and leaves */
    size_t total;    /* the arena; includes alignment */
};

/* Counted since the last pp_exec_take_counters(). */
struct pp_exec_counters {
    uint64_t busy_ns;          /* computing: layers, loss, data, reduction sums, optimizer */
    struct pp_loss_sums train; /* on last-stage ranks */
    struct pp_loss_sums test;
    /* Of training since the epoch began, not reset: one sum in the order of the micro-batches. */
    struct pp_loss_sums epoch;
    /* Why this rank could not read what a test step asked for, which counts as zeros: a file has
     * changed. NULL: it could. As long as the executor. */
    const struct pp_error *refused;
};

struct pp_exec;

struct pp_exec_spec {
    const struct pp_config *cfg; /* of the training: its division is the layout's */
    const struct pp_layout *layout;
    int rank;                      /* of the transport: replica * stages + pipeline rank */
    struct pp_transport_caps caps; /* decides who provides slot memory */
    struct pp_ring *ring;          /* what this rank does is recorded there; the caller's, outlives
                                      the executor; NULL only for pp_exec_predict() */
};

/* The memory a rank will hold: the dry pass of pp_exec_create(). Local. */
int pp_exec_predict(const struct pp_exec_spec *spec, struct pp_exec_bytes *out);

/*
 * Take the memory, open the channels, write the initial parameters. Collective. train and test are
 * the data this rank needs (images on the first stage's rank, labels on the last's; NULL elsewhere)
 * and stay the caller's. test may be NULL everywhere when layout->test_n is 0.
 */
int pp_exec_create(const struct pp_exec_spec *spec, struct pp_backend *be, struct pp_transport *tp,
                   const struct pp_dataset *train, const struct pp_dataset *test,
                   struct pp_exec **out);
void pp_exec_destroy(struct pp_exec **x);

/* Training steps of an epoch and evaluation steps of the test set; the same on every rank. */
int pp_exec_train_steps(const struct pp_exec *x);
int pp_exec_test_steps(const struct pp_exec *x);

/* Make epoch e (0, 1, ...) the current one: its order of samples. so_far: this rank's sums of its
 * steps that are done already; NULL: none are. Local. */
int pp_exec_start_epoch(struct pp_exec *x, uint64_t epoch, const struct pp_loss_sums *so_far);

/*
 * One optimizer step over batch `step` of the current epoch: the plan, the reduction over
 * replicas, clipping, the optimizer. Collective in effect: all ranks call it with the same values.
 * lr: of this step; t: 1, 2, ... counted over the run; updates: steps that changed the weights
 * before it, for the optimizer's bias correction. Allocates nothing (asserted).
 * Errors: PP_EDIVERGED on all ranks when the loss or any gradient is not finite: no rank has
 * changed anything then, the batch is not counted in the sums, and the run can continue. The text
 * says what was not finite first, and where. PP_EFORMAT on all ranks in the same way: the file of one of
 * them has changed since it was opened. Any other error is of this rank alone.
 * Where ops may return before they are done, so does this call: its result may be about an earlier
 * step, see pp_exec_finish().
 */
int pp_exec_train_step(struct pp_exec *x, int step, double lr, int64_t t, int64_t updates);

/*
 * Wait until all steps are done. Call it before counters are taken, weights read, or an epoch begun;
 * what does these things calls it too. Returns what pp_exec_train_step() of the first bad step would
 * have returned. When one of the two returns PP_EDIVERGED or PP_EFORMAT, pp_exec_late() tells how many steps
 * before the training step asked for last the bad one was: neither it nor any later one has changed anything, and
 * the run continues after the bad step. Local, but all ranks must call it at the same step.
 */
int pp_exec_finish(struct pp_exec *x);
int pp_exec_late(const struct pp_exec *x);

/* "on", or why steps are not captured; static or as long as x. Local. */
const char *pp_exec_graphs(const struct pp_exec *x);
/* Before the transport is destroyed: a communicator does not end while a recorded step uses it. Nothing
 * is enqueued later. Local; x may be NULL. */
void pp_exec_forget_graphs(struct pp_exec *x);

/* Whether the actions of all steps are timed from here on. Else, where timing costs, of some.
 * Local. */
void pp_exec_time_all(struct pp_exec *x, bool all);

/*
 * From here on a test step copies the outputs of the last stage to logits[rows][outputs], memory of the
 * host: those of this replica's share of the batch, on the rank that holds the last stage. They are
 * there after pp_exec_finish(). NULL: no more. Local.
 */
void pp_exec_keep_logits(struct pp_exec *x, float *logits);

/* Forward only over batch `step` of the test set; adds to the test sums. */
int pp_exec_test_step(struct pp_exec *x, int step);

/* What makes the loss of a test not finite, in words, the same on all ranks; and whether in all of its
 * batches. The test is run again. Collective. */
int pp_exec_test_tell(struct pp_exec *x, double loss, char *out, size_t bytes, bool *out_all);

/* Read and reset the counters (waits for the device). Local. */
int pp_exec_take_counters(struct pp_exec *x, struct pp_exec_counters *out);

/* The most records that one training or evaluation step of any rank puts into its ring. Local. */
uint64_t pp_exec_events_per_step(const struct pp_layout *layout);

/* Computing time over the run: sums over n actions. */
struct pp_exec_time {
    uint64_t ns, n;
};

/* Of the training actions of virtual stage s on micro-batches of full size; false when another rank
 * holds it. Local. */
struct pp_exec_times {
    uint64_t ns[3], n[3]; /* by enum pp_op: F, I, W; B counts as I and W */
};
bool pp_exec_times(const struct pp_exec *x, int s, struct pp_exec_times *out);

/* Of the optimizer, once a step, and of the copies and sums of tied tensors before it. Local. */
struct pp_exec_time pp_exec_update_time(const struct pp_exec *x);

/* Both count from zero again. Local. */
void pp_exec_forget_times(struct pp_exec *x);

/* What one micro-batch keeps of virtual stage s from its F to its W: values between the layers, the
 * input, of the last stage the output. Local. Errors: PP_ERESOURCE. */
int pp_exec_live_bytes(const struct pp_layout *layout, int s, size_t *out);

/* ---- what the next step depends on, for whoever saves and restores it */

enum pp_exec_kind {
    PP_EXEC_PARAM,
    PP_EXEC_OPT_M, /* momentum, first moment */
    PP_EXEC_OPT_V, /* second moment */
};

struct pp_exec_tensor {
    const struct pp_param *param; /* of the model: name and shape */
    enum pp_exec_kind kind;
    float *values; /* [n] memory of the device; NULL: in pieces, with train.zero */
    size_t n;
    int stage; /* of this rank's */
    size_t at; /* first float of that stage */
};

/* Those of this rank, i = 0..n-1: of every parameter it holds the values and, of those that are no
 * buffers, the optimizer's state. Local, as all of these. */
int pp_exec_tensor_count(const struct pp_exec *x);
void pp_exec_tensor(const struct pp_exec *x, int i, struct pp_exec_tensor *out);

/* Copy n values, from number `first`, to and from memory of the host. After the last put call
 * pp_exec_tensors_changed(). Of a tensor in pieces put takes this rank's and leaves the others; replica 0
 * gets those of the others from ranks that are in pp_exec_serve(), pairwise. */
int pp_exec_tensor_get(struct pp_exec *x, const struct pp_exec_tensor *t, size_t first, float *host,
                       size_t n);
int pp_exec_tensor_put(struct pp_exec *x, const struct pp_exec_tensor *t, size_t first,
                       const float *host, size_t n);
int pp_exec_tensors_changed(struct pp_exec *x);

/* Pairwise between the replicas of a stage: let replica 0 get tensors until it comes here too. At once
 * where there are none in pieces. */
int pp_exec_serve(struct pp_exec *x);

/* What this rank holds; equals pp_exec_predict(). */
const struct pp_exec_bytes *pp_exec_bytes(const struct pp_exec *x);

/*
 * SHA-256 over all parameters but copies in canonical order (f32 little-endian), of replica 0; hex on
 * transport rank 0, "" elsewhere. With replicas it first checks that all hold the same bits
 * (PP_EINTERNAL when not). Collective.
 */
int pp_exec_weights_sha256(struct pp_exec *x, char out[65]);

#endif
