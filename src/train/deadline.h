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

#include <stdio.h>

#include "ppcli/run.h"

enum deadline_phase {
    DEADLINE_NONE,
    DEADLINE_MPI_START,
    DEADLINE_PREPARE,
    DEADLINE_DATA,
    DEADLINE_MPI_END,
    DEADLINE_PHASES
};

/* Who takes the news that a run hangs: text has several lines; NULL: another process of the run
 * prints it. lost() ends the process, whatever its threads hold; it is called in a thread of the
 * watch. lost NULL: nobody, and nothing is watched. */
struct news {
    void (*lost)(void *ctx, const char *text);
    void *ctx;
    FILE *out; /* of the run: where it is full its reader pauses, which is no hang */
};

struct deadline;

/* Looks after the calling thread. Does nothing, with *out NULL, when run.hang_timeout is 0 or
 * nobody takes the news. Local. The caller owns *out. Errors: PP_ERESOURCE. */
int deadline_start(const struct pp_config *cfg, const struct news *news, struct deadline **out);
void deadline_stop(struct deadline **d); /* accepts NULL in *d */

/* The phase that begins now. d may be NULL, here and below. Local. */
void deadline_enter(struct deadline *d, enum deadline_phase phase);

/* From now until somebody else asks for it, what tp waits for is seen here. Local. */
void deadline_watch_waits(struct deadline *d, struct pp_transport *tp);

#endif
