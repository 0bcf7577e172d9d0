/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run does before the watchdog has eyes for its ranks, and after: each of these phases has a
 * limit too, and a process that is over it ends with one line that names its rank and the phase. It
 * knows only of itself: one that is seen to wait for other ranks lets them speak first.
 *
 *   the start and the end of MPI    2 times run.hang_timeout and 10 s: how others do cannot be seen
 *   before the data is read         10 times and 10 s: an open schedule is chosen by measuring
 *   reading the data (threads)      2 times
 *
 * Time in which the process had no core does not count.
 */
#ifndef PPCLI_TRAIN_DEADLINE_H
#define PPCLI_TRAIN_DEADLINE_H

#include "ppcli/run.h"

enum deadline_phase {
    DEADLINE_NONE,
    DEADLINE_MPI_START,
    DEADLINE_PREPARE,
    DEADLINE_DATA,
    DEADLINE_MPI_END,
    DEADLINE_PHASES
};

struct deadline;

/* Looks after the calling thread. Does nothing, with *out NULL, when run.hang_timeout is 0 or
 * nobody takes the bad news (options->lost). Local. The caller owns *out. Errors: PP_ERESOURCE. */
int deadline_start(const struct pp_config *cfg, const struct pp_train_options *options,
                   struct deadline **out);
void deadline_stop(struct deadline **d); /* accepts NULL in *d */

/* The phase that begins now. d may be NULL, here and below. Local. */
void deadline_enter(struct deadline *d, enum deadline_phase phase);

/* From now until somebody else asks for it, what tp waits for is seen here. Local. */
void deadline_watch_waits(struct deadline *d, struct pp_transport *tp);

#endif
