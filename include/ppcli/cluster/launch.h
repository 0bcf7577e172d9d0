/* SPDX-License-Identifier: Apache-2.0 */
/* Starts ppcli under mpirun, supervises it, and starts it again when it lost a rank or a host. */
#ifndef PPCLI_CLUSTER_LAUNCH_H
#define PPCLI_CLUSTER_LAUNCH_H

#include <signal.h>
#include <stdbool.h>

#include "ppcli/conf/config.h"

struct pp_listener;

/* The way out for a thread that finds the process beyond help: ends it at once with the exit code of
 * `rc`. Set by main(), the only place that ends the program; NULL where it was not there (tests). */
extern void (*pp_process_leave)(int rc);
extern char **pp_process_argv; /* main()'s, too: what mpirun starts again; NULL in the same case */

/* ---- launch.c: starting ppcli again under mpirun */

/* Whether this process reports what all processes of a launch share: true for rank 0 and for a
 * process that no launcher started. */
bool pp_launch_speaks(void);

/* Whether this process has to start mpirun: no launcher has started it. */
bool pp_launch_wanted(const struct pp_config *cfg);

/* Whether this process tells what is known before the ranks start: once for a launch. */
bool pp_launch_announces(void);

/* Run mpirun with `ranks` copies of the same command line, on cfg's hosts where it has some and after
 * they were asked (word: the config as it was given; NULL: none), pass the user's signals on to it
 * and wait for its end. Returns when all went well, or could not begin: PP_ERESOURCE when there is
 * no mpirun or this build has no MPI, or no way to a host; PP_ECONFIG; PP_ESTOPPED. What the ranks
 * said and their exit code are this process's, which then ends here. */
int pp_launch_mpirun(const struct pp_config *cfg, const char *word, int ranks);

/*
 * As pp_launch_mpirun(), of a training: once, and again as often as run.retries says when the run lost
 * something, from its newest checkpoint, on the hosts that answer. from: --resume; NULL: not given.
 * stop: the signal that asked to end, noted by a handler; never NULL.
 */
int pp_launch_retry(const struct pp_config *cfg, const char *word, const char *from,
                    const volatile sig_atomic_t *stop);

/* Whether no other rank that this host's supervise() started has asked this before: one line says why
 * all end. Local. */
bool pp_last_words_first(void);

/* ---- supervise.c: a parent for mpirun
 *
 * mpirun itself must not get the signals of the user: it answers TERM and INT by giving its ranks one
 * second and forgetting their exit codes, and leaves them alone on the second INT. USR1 it passes on
 * and waits. */

/* In the environment of the ranks: a file of two ints, the number of the signal the user sent (0: none
 * yet), and whether a rank has said why all end. On other hosts there is none, or something else
 * under its path: PP_SUPERVISE_FILE is its name. */
#define PP_SUPERVISE_ASKED "PPCLI_ASKED"
#define PP_SUPERVISE_FILE "ppcli-asked"

/* The exit code of its ranks, for PP_EIO of a full disk. */
#define PP_SUPERVISE_FULL 94

/* In a rank that supervise() started: tells it so, before anything else goes to stdout. Local. */
void pp_supervise_started(void);

/*
 * The keeper of an orted, which waits for its mpirun forever: run args[0] (NULL-terminated words) until
 * it ends, and end it where the listener at `address` (see pulse.h) says so, is gone or silent for
 * timeout (seconds of run.hang_timeout). Removes the files of one that was killed. Leaves the process
 * with its code, or returns 0 or an error. Local.
 */
int pp_supervise_orted(const char *address, double timeout, char **args);

/* ---- launcher.c */

/* A launcher cut off from its other half waits for it forever, here as mpirun, elsewhere as orted:
 * a child that outlives this process ends it. Others than these serve more than this run. Local. */
void pp_launcher_end(void);

/* ---- slurm.c: the batch script of a run */

struct pp_slurm_job {
    int nodes, ranks; /* of a node; 0: not given */
    int save;         /* seconds before the end at which the ranks are told to save; 0: not given */
    const char *time, *partition, *account; /* NULL: not given */
    const char *config;                     /* its path */
    struct pp_settings settings;            /* of the command line, which go into the job */
};

/* Ranks over nodes, and the time: fills in what was not given. Errors: PP_EUSAGE, PP_ECONFIG. Local. */
int pp_slurm_check(const struct pp_config *cfg, struct pp_slurm_job *job);
/* template: lines with @WORD@s. path NULL: standard output. Errors: PP_ERESOURCE, those of the file.
 * Local. */
int pp_slurm_write(const struct pp_config *cfg, const struct pp_slurm_job *job,
                   const char *template, const char *path);

/* ---- signals.c: requests that arrive as signals while a run trains
 *
 * TERM, INT, HUP and USR1: save, then end with exit code 75; a second INT ends the process at once,
 * as INT does elsewhere. USR2: save and go on. A handler can only note; the run looks at the notes
 * where all its ranks meet. See pp_process_stop (process.h). */

/* From now on, for the whole process. What was ignored on purpose (nohup) stays ignored. text: a line
 * for the user at the first INT, static. */
void pp_signals_catch(const char *text);

/* Until then TERM, INT and HUP end the process, and the files that it is writing go with it. */
void pp_signals_clean(void);

#endif
