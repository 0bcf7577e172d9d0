/* SPDX-License-Identifier: Apache-2.0 */
/* Starts ppcli under mpirun, supervises it, and starts it again after the loss of a rank or a
 * host. */
#ifndef PPCLI_CLUSTER_LAUNCH_H
#define PPCLI_CLUSTER_LAUNCH_H

#include <signal.h>
#include <stdbool.h>

#include "ppcli/conf/config.h"

struct pp_listener;

/* Ends the process at once with the exit code of `rc`, for a thread that finds the process beyond
 * help. Set by main(), the only place that ends the program; NULL without main() (tests). */
extern void (*pp_process_leave)(int rc);
extern char **pp_process_argv; /* set by main(): the command line that mpirun starts again; NULL
                                  without main() */

/* ---- launch.c: starts ppcli again under mpirun */

/* Returns whether this process reports what all processes of a launch share: true for rank 0, and
 * for a process that no launcher started. */
bool pp_launch_is_speaker(void);

/* Returns whether this process must start mpirun, because no launcher has started it. */
bool pp_launch_wanted(const struct pp_config *cfg);

/* Returns whether this process prints what is known before the ranks start: one process per
 * launch. */
bool pp_launch_announces(void);

/* Runs mpirun with `ranks` copies of the same command line, on cfg's hosts if it has any, after
 * they were asked (word: the config as the user gave it; NULL: none). Passes the user's signals on
 * and waits for the end. Returns if the run succeeded or could not begin: PP_ERESOURCE: no mpirun,
 * no MPI in this build, or no route to a host; PP_ECONFIG; PP_ESTOPPED. If the ranks reported an
 * error, this process ends with their exit code. */
int pp_launch_mpirun(const struct pp_config *cfg, const char *word, int ranks);

/*
 * Runs a training as pp_launch_mpirun(), and again up to run.retries times if the run loses
 * something: from its newest checkpoint, on the hosts that answer. from: --resume; NULL: not given.
 * stop: the signal that asked to end, noted by a handler; never NULL.
 */
int pp_launch_retry(const struct pp_config *cfg, const char *word, const char *from,
                    const volatile sig_atomic_t *stop);

/* Returns whether this rank is the first of those that this host's supervise() started to call
 * this: only one prints why all end. Local. */
bool pp_last_words_first(void);

/*
 * ---- supervise.c: the parent of mpirun
 *
 * mpirun must not get the user's signals: at TERM and INT it gives its ranks one second and forgets
 * their exit codes, and at a second INT it abandons them. USR1 it passes on and waits.
 */

/* In the environment of the ranks: a file of two ints, the number of the user's signal (0: none
 * yet), and whether a rank has reported why all end. On other hosts the path does not exist or is
 * another file; PP_SUPERVISE_FILE is its name. */
#define PP_SUPERVISE_ASKED "PPCLI_ASKED"
#define PP_SUPERVISE_FILE "ppcli-asked"

/* exit code of the ranks for PP_EIO on a full disk */
#define PP_SUPERVISE_FULL 94

/* Tells supervise() that this rank, which it started, has begun, before anything else goes to
 * stdout. Local. */
void pp_supervise_started(void);

/*
 * Keeps an orted, which would wait for its mpirun forever: runs args[0] (NULL-terminated words)
 * until it ends, and ends it if the listener at `address` (see pulse.h) says so, or is gone or
 * silent for timeout (seconds of run.hang_timeout). Removes the files of an orted that was killed.
 * Leaves the process with the orted's code, or returns 0 or an error. Local.
 */
int pp_supervise_orted(const char *address, double timeout, char **args);

/* ---- launcher.c */

/* Ends a launcher that is cut off from its other half and would wait for it forever, here as
 * mpirun, elsewhere as orted; a child that outlives this process does it. Other launchers are left
 * alone, because they serve more than this run. Local. */
void pp_launcher_end(void);

/* ---- slurm.c: the batch script of a run */

struct pp_slurm_job {
    int nodes, ranks; /* ranks per node; 0: not given */
    int save;         /* seconds before the end at which the ranks save; 0: not given */
    const char *time, *partition, *account; /* NULL: not given */
    const char *config;                     /* path of the config */
    struct pp_settings settings;            /* of the command line; part of the job */
};

/* Divides the ranks over the nodes and checks the time; fills in what was not given. Errors:
 * PP_EUSAGE, PP_ECONFIG. Local. */
int pp_slurm_check(const struct pp_config *cfg, struct pp_slurm_job *job);
/* Writes the script. template: lines with @WORD@s. path NULL: standard output. Errors:
 * PP_ERESOURCE, those of the file. Local. */
int pp_slurm_write(const struct pp_config *cfg, const struct pp_slurm_job *job,
                   const char *template, const char *path);

/*
 * ---- signals.c: requests that arrive as signals while a run trains
 *
 * TERM, INT, HUP and USR1: save, then end with exit code 75; a second INT ends the process at once.
 * USR2: save and continue. A handler only notes the signal; the run reads the notes at sync points.
 * See pp_process_stop (process.h).
 */

/* Catches these signals from now on, for the whole process. Signals that are ignored on purpose
 * (nohup) stay ignored. text: printed at the first INT, static. */
void pp_signals_catch(const char *text);

/* Lets TERM, INT and HUP remove the temporary files and end the process, until pp_signals_catch()
 * is called. */
void pp_signals_clean(void);

#endif
