/* SPDX-License-Identifier: Apache-2.0 */
/*
 * train --trace: the actions of all ranks over a range of steps, as trace events in one file. Every
 * rank records anyway; at sync points, in that range, rank 0 collects what is new and appends it,
 * so a run that is killed leaves what it did until shortly before.
 */
#ifndef PPCLI_TRAIN_TRACER_H
#define PPCLI_TRAIN_TRACER_H

#include "ppcli/exec.h"
#include "ppcli/train.h"

struct tracer;

struct tracer_spec { /* nothing is owned */
    const struct pp_layout *layout;
    const struct pp_train_options *options;
    struct pp_transport *tp;
    const struct pp_ring *ring; /* this rank's */
    int64_t done, total_steps;  /* of the run: before this process, at its end */
    int test_steps;             /* of one evaluation */
};

/* Whole steps that the ring should hold, when nothing speaks against it. */
int64_t tracer_ring_steps(const struct pp_train_options *options);

/* Collective. *out stays NULL when no trace is wanted; all the functions below accept that. Errors:
 * PP_EUSAGE (the run has no such steps), PP_EIO, PP_EPERM, PP_ENOINPUT, PP_ERESOURCE. */
int tracer_open(const struct tracer_spec *spec, struct tracer **out);

/* Step t begins. Local. */
void tracer_step(struct tracer *tc, int64_t t);

/* Is the run in the traced range? Local. */
bool tracer_is_on(const struct tracer *tc);

/* Must the ranks meet after step t, so that nothing is overwritten? The same on every rank. */
bool tracer_wants_sync(const struct tracer *tc, int64_t t);

/* Collective: after step t at a sync point, and after an evaluation. */
int tracer_drain(struct tracer *tc, int64_t t);

/* Collective: after a batch of an evaluation that follows step t. */
int tracer_test_step(struct tracer *tc, int64_t t);

/* Collective: the end of a run of t steps. Says what there is. Errors: PP_EIO. */
int tracer_finish(struct tracer *tc, int64_t t);

/* Local; what is in the file stays, and is valid. */
void tracer_destroy(struct tracer **tc);

#endif
