/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that look after a run and end it when it hangs. */
#ifndef PPCLI_WATCH_WATCH_H
#define PPCLI_WATCH_WATCH_H

#include <signal.h>

#include "ppcli/cluster/pulse.h"
#include "ppcli/pipe/layout.h"

/* ---- deadlines of the phases before ranks work */

/*
 * What a run does before the watchdog has eyes for its ranks, and after: each of these phases has a
 * limit too, and a process that is over it ends with one line that names its rank and the phase. It
 * knows only of itself: one that is seen to wait for other ranks lets them speak first.
 *
 *   the start and the end of MPI    2 times run.hang_timeout and 10 s: how others do cannot be seen
 *   before the data is read         10 times and 10 s: an open schedule is chosen by measuring
 *   reading the data (threads)      2 times
 *
 * Time in which the process had no core does not count, nor that in which another rank of this machine had none,
 * or their launcher.
 */

enum pp_deadline_phase {
    PP_DEADLINE_NONE,
    PP_DEADLINE_MPI_START,
    PP_DEADLINE_PREPARE,
    PP_DEADLINE_DATA,
    PP_DEADLINE_MPI_END,
    PP_DEADLINE_PHASES
};

/* Takes the news that a run hangs: text has several lines; NULL: another process of the run prints
 * it. It ends the process, whatever its threads hold; it is called in a thread of the watch. NULL in
 * place of such a function: nothing is watched. */
typedef void pp_lost(const char *text);

struct pp_deadline;

/* Looks after the calling thread. Does nothing, with *out NULL, when run.hang_timeout is 0 or
 * nobody takes the news. Local. The caller owns *out. Errors: PP_ERESOURCE. */
int pp_deadline_start(const struct pp_config *cfg, pp_lost *lost, struct pp_deadline **out);
void pp_deadline_stop(struct pp_deadline **d); /* accepts NULL in *d */

/* The phase that begins now. d may be NULL, here and below. Local. */
void pp_deadline_enter(struct pp_deadline *d, enum pp_deadline_phase phase);

/* From now on the thread that looks after d also beats, and listens; either may be NULL. Local. */
void pp_deadline_beat(struct pp_deadline *d, struct pp_pulse *pulse, struct pp_listener *listener);

/* *stop is not 0 once the run was asked to end (Slurm asks the remaining ranks when one was killed). A lost
 * rank then ends the run after PP_HURRY_NS, because nothing can be saved. NULL: never asked. Local. */
#define PP_HURRY_NS 2000000000u
void pp_deadline_heed(struct pp_deadline *d, const volatile sig_atomic_t *stop);

/* From now until somebody else asks for it, what tp waits for is seen here. Local. */
void pp_deadline_watch_waits(struct pp_deadline *d, struct pp_transport *tp);

/* ---- the watchdog of ranks at work */

/*
 * One thread of each process looks at the rings of all ranks it can see and ends the run when none
 * of them makes progress: the ranks of this process, and those of other processes of this machine
 * through their files in the run folder. It calls no MPI and no rank waits for it.
 *
 * run.hang_timeout is the limit of one action while no other rank makes progress. Longer ones:
 *   set-up                        2 times
 *   a rank's first step           10 times (memory is touched, kernels are made)
 *   saving, reporting, between    10 times
 *   when what the ranks wait for cannot be seen   10 times
 * and never less than 3 times the longest silence that has ended by itself since set-up: a model
 * whose actions take long shows that in its first step.
 *
 * Only time in which the watchdog itself ran counts, so a stopped process, a suspended machine or a
 * debugger is not a hang; nor is a standard output whose reader pauses. Nor does the time in which a
 * rank waited for a core. As long as more than one rank does not wait for another one, three times
 * as long: who is only late to say that it waits must not look like who hangs.
 */

struct pp_watchdog;

/* Does nothing, with *out NULL, when run.hang_timeout is 0 or nobody takes the news. log: of the
 * run: where it is full its reader pauses, which is not a hang. pulse: is told what the rank of this
 * process is at; may be NULL. Local. Errors: PP_ERESOURCE. */
int pp_watchdog_start(const struct pp_run *run, pp_lost *lost, FILE *log, struct pp_pulse *pulse,
                      struct pp_watchdog **out);
void pp_watchdog_stop(struct pp_watchdog **w); /* accepts NULL in *w */

/* As pp_deadline_heed(). w may be NULL, here and below. Local. */
void pp_watchdog_heed(struct pp_watchdog *w, const volatile sig_atomic_t *stop);

/* The calling thread runs rank r: from now on its set-up must end. */
void pp_watchdog_expect(struct pp_watchdog *w, int r);
/* Rank r records its actions there; dir: the run folder, "" for none. In the thread of the rank. */
void pp_watchdog_enter(struct pp_watchdog *w, int r, const struct pp_ring *ring, const char *dir);
/* How long this process was stopped so far (SIGSTOP, Ctrl-Z, a debugger): time in which its threads asked for
 * no core and got none. Of pauses of 2 s and more. Any thread. */
uint64_t pp_watchdog_paused_ns(const struct pp_watchdog *w);
/* Rank r is at its end, and the watchdog lets go of its ring. Any thread. */
void pp_watchdog_leave(struct pp_watchdog *w, int r);

#endif
