/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that watch a run and end it if it hangs. */
#ifndef PPCLI_WATCH_WATCH_H
#define PPCLI_WATCH_WATCH_H

#include <signal.h>

#include "ppcli/cluster/pulse.h"
#include "ppcli/pipe/layout.h"

/* ---- deadlines of the phases before ranks work */

/*
 * Before the watchdog can see the ranks, and after, each phase of a run has a limit. A process that
 * exceeds it ends with one line that names its rank and the phase. It knows only itself; if it
 * seems to wait for other ranks, it lets them report first.
 *
 *   the start and the end of MPI    2 times run.hang_timeout + 10 s: other processes cannot be seen
 *   before the data is read         10 times + 10 s: an open schedule is chosen by measuring
 *   reading the data (threads)      2 times
 *
 * Time in which the process had no core does not count, nor time in which another rank on this
 * host, or their launcher, had no core.
 */

enum pp_deadline_phase {
    PP_DEADLINE_NONE,
    PP_DEADLINE_MPI_START,
    PP_DEADLINE_PREPARE,
    PP_DEADLINE_DATA,
    PP_DEADLINE_MPI_END,
    PP_DEADLINE_PHASES
};

/* Ends the process when a run hangs, whatever its threads hold, after printing `text` (several
 * lines; NULL if another process of the run prints it). A thread of this module calls it. If the
 * function is NULL, nothing is watched. */
typedef void pp_lost(const char *text);

struct pp_deadline;

/* Watches the calling thread. Does nothing, with *out NULL, if run.hang_timeout is 0 or lost is
 * NULL. Local. The caller owns *out. Errors: PP_ERESOURCE. */
int pp_deadline_start(const struct pp_config *cfg, pp_lost *lost, struct pp_deadline **out);
void pp_deadline_stop(struct pp_deadline **d); /* accepts NULL in *d */

/* Begins a phase. d may be NULL, here and below. Local. */
void pp_deadline_enter(struct pp_deadline *d, enum pp_deadline_phase phase);

/* Makes the watching thread also send heartbeats and listen for them; either may be NULL. Local. */
void pp_deadline_beat(struct pp_deadline *d, struct pp_pulse *pulse, struct pp_listener *listener);

/* Tells the deadline where to read whether the run was asked to end: *stop is then not 0 (Slurm
 * asks the remaining ranks when one was killed). From then on the loss of a rank ends the run after
 * PP_HURRY_NS, because nothing can be saved. NULL: the run is never asked. Local. */
#define PP_HURRY_NS 2000000000u
void pp_deadline_heed(struct pp_deadline *d, const volatile sig_atomic_t *stop);

/* Makes the transport tp show the deadline when it waits, until another caller takes that over.
 * Local. */
void pp_deadline_watch_waits(struct pp_deadline *d, struct pp_transport *tp);

/* ---- the watchdog of ranks at work */

/*
 * One thread of each process watches the rings of all ranks that it can see, and ends the run if
 * none makes progress: the ranks of this process and, through their files in the run folder, those
 * of other processes on this machine. It does not call MPI, and no rank waits for it.
 *
 * run.hang_timeout limits one action while no other rank makes progress. Longer limits:
 *   set-up                        2 times
 *   a rank's first step           10 times (memory is touched, kernels are made)
 *   saving, reporting, between    10 times
 *   if the awaited rank cannot be seen            10 times
 * and never less than 3 times the longest silence since set-up that ended by itself: a model with
 * long actions shows that in its first step.
 *
 * Only time in which the watchdog itself ran counts, so a stopped process, a suspended machine or a
 * debugger is not a hang; nor is a standard output whose reader pauses. Time in which a rank waited
 * for a core does not count either. If more than one rank does not wait for another, the limit is
 * three times as long, because a rank that is late to show that it waits must not look like the
 * culprit.
 */

struct pp_watchdog;

/* Starts the watchdog. Does nothing, with *out NULL, if run.hang_timeout is 0 or `lost` is NULL.
 * `log` is the run's log: if it is full, its reader pauses, which is not a hang. `pulse` gets the
 * current action of this process's rank; it may be NULL. Local. Errors: PP_ERESOURCE. */
int pp_watchdog_start(const struct pp_run *run, pp_lost *lost, FILE *log, struct pp_pulse *pulse,
                      struct pp_watchdog **out);
void pp_watchdog_stop(struct pp_watchdog **w); /* accepts NULL in *w */

/* Tells the watchdog where to read whether the run was asked to end, as pp_deadline_heed() does.
 * `w` may be NULL, here and below. Local. */
void pp_watchdog_heed(struct pp_watchdog *w, const volatile sig_atomic_t *stop);

/* Declares that the calling thread runs rank r. From now on the time of the rank's set-up is
 * limited. */
void pp_watchdog_expect(struct pp_watchdog *w, int r);
/* Declares that rank r records its actions in `ring`; called in the rank's thread. `dir` is the run
 * folder, "" if there is none. */
void pp_watchdog_enter(struct pp_watchdog *w, int r, const struct pp_ring *ring, const char *dir);
/* Returns how long this process was stopped so far (by SIGSTOP, Ctrl-Z or a debugger), counting
 * pauses of 2 s or more. A pause is time in which its threads neither ran nor waited for a core.
 * Any thread. */
uint64_t pp_watchdog_paused_ns(const struct pp_watchdog *w);
/* Declares that rank r has ended; the watchdog releases its ring. Any thread. */
void pp_watchdog_leave(struct pp_watchdog *w, int r);

#endif
