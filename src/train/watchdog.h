/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread of each process looks at the rings of all ranks it can see and ends the run when none
 * of them gets on any more: the ranks of this process, and those of other processes of this machine
 * through their files in the run folder. It calls no MPI and no rank waits for it.
 *
 * run.hang_timeout is the limit of one action while nobody else gets on either. Longer ones:
 *   set-up                        2 times
 *   a rank's first step           10 times (memory is touched, kernels are made)
 *   saving, reporting, between    10 times
 *   when what the ranks wait for cannot be seen   10 times
 * and never less than 3 times the longest silence that has ended by itself since set-up: a model
 * whose actions take long shows that in its first step.
 *
 * Only time in which the watchdog itself ran counts, so a stopped process, a suspended machine or a
 * debugger is no hang; nor is a standard output whose reader pauses. Nor does the time in which a
 * rank waited for a core. As long as more than one rank does not wait for another one, three times
 * as long: who is only late to say that it waits must not look like who hangs.
 */
#ifndef PPCLI_TRAIN_WATCHDOG_H
#define PPCLI_TRAIN_WATCHDOG_H

#include "deadline.h"

struct watchdog;

/* Does nothing, with *out NULL, when run.hang_timeout is 0 or nobody takes
 * the news. Local. Errors: PP_ERESOURCE. */
int watchdog_start(const struct pp_run *run, const struct news *news, struct watchdog **out);
void watchdog_stop(struct watchdog **w); /* accepts NULL in *w */

/* The calling thread runs rank r: from now on its set-up must end. w may be NULL, here and below.
 */
void watchdog_expect(struct watchdog *w, int r);
/* Rank r records its actions there; dir: the run folder, "" for none. In the thread of the rank. */
void watchdog_enter(struct watchdog *w, int r, const struct pp_ring *ring, const char *dir);
/* Rank r is at its end, and the watchdog lets go of its ring. Any thread. */
void watchdog_leave(struct watchdog *w, int r);

#endif
