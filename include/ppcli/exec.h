/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor of one rank: it binds layout, chunks, backend, transport and loader, and walks the
 * plan. The only code that moves a batch.
 */
#ifndef PPCLI_EXEC_H
#define PPCLI_EXEC_H

#include "ppcli/backend.h"
#include "ppcli/dataset.h"
#include "ppcli/layout.h"
#include "ppcli/transport.h"

/* What one rank holds, in bytes: a breakdown of its arena. */
struct pp_exec_bytes {
    size_t parameters; /* values */
    size_t gradients;
    size_t optimizer;
    size_t
        activations; /* saved per micro-batch in flight, inputs, logits, gradients between layers */
    size_t messages; /* slots of channels whose memory this rank provides */
    size_t scratch;  /* replica reduction, labels */
    size_t total;    /* the arena; includes alignment */
};

/* Counted since the last pp_exec_take_counters(). */
struct pp_exec_counters {
    uint64_t busy_ns;          /* computing: layers, loss, data, reduction sums, optimizer */
    struct pp_loss_sums train; /* on last-stage ranks */
    struct pp_loss_sums test;
};

struct pp_exec;

struct pp_exec_spec {
    const struct pp_layout *layout;
    int rank;                      /* of the transport: replica * stages + pipeline rank */
    struct pp_transport_caps caps; /* decides who provides slot memory */
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

/* Make epoch e (0, 1, ...) the current one: its order of samples. Local. */
void pp_exec_start_epoch(struct pp_exec *x, uint64_t epoch);

/*
 * One optimizer step over batch `step` of the current epoch: the plan, the reduction over
 * replicas, clipping, the optimizer. Collective in effect: all ranks call it with the same values.
 * lr: of this step; t: 1, 2, ... counted over the run. Allocates nothing (asserted).
 */
int pp_exec_train_step(struct pp_exec *x, int step, double lr, int64_t t);

/* Forward only over batch `step` of the test set; adds to the test sums. */
int pp_exec_test_step(struct pp_exec *x, int step);

/* Read and reset the counters (waits for the device). Local. */
int pp_exec_take_counters(struct pp_exec *x, struct pp_exec_counters *out);

/* What this rank holds; equals pp_exec_predict(). */
const struct pp_exec_bytes *pp_exec_bytes(const struct pp_exec *x);

/*
 * SHA-256 over all parameters in canonical order (f32 little-endian), of replica 0; hex on
 * transport rank 0, "" elsewhere. With replicas it first checks that all hold the same bits
 * (PP_EINTERNAL when not). Collective.
 */
int pp_exec_weights_sha256(struct pp_exec *x, char out[65]);

#endif
