/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a command starts the ranks of a config, as threads or under mpirun; what reaches them from the
 * user; and how they end.
 */
#ifndef PPCLI_CLI_START_H
#define PPCLI_CLI_START_H

#include "ppcli/train.h"

struct start {
    struct pp_world world;
    bool open;   /* the world */
    bool works;  /* this process has ranks to run: pp_train() and the like */
    bool speaks; /* whether it speaks for the run; theirs to set */
};

/*
 * Set options->name, quiet and lost, and choose what the config leaves to a measurement; or start
 * mpirun where the config asks for it, whose processes come here again. word: the config as it was
 * given. Errors: those of launch_mpirun(), pp_world_open() and pp_choose().
 */
int start_begin(const char *word, struct pp_config *cfg, struct pp_train_options *options,
                struct start *out);

/* How the other processes of a launch learn that this one has failed before it opened MPI. */
enum start_others {
    START_ALONE, /* they do not: it says so itself */
    START_JOIN,  /* they open MPI and wait for it there */
    START_KNOW   /* they find the same */
};
extern enum start_others start_others; /* set by the command */

/* This process has failed with rc: START_JOIN: collective with those that open MPI. Returns the
 * failure of all. */
int start_tell_others(int rc);
bool start_told_others(void); /* or somebody else has */

/* Whether this launch can be one run; all its processes find the same. Errors: PP_ECONFIG. Local. */
int start_check(const struct pp_config *cfg);

/* Lines of what all processes of a launch must have alike: program, command, options, and these
 * configs. The caller's: free(). Errors: PP_ERESOURCE, those of reading the program. Local. */
int start_same(struct pp_config *const *configs, int n, char **out);

/* After the work, or what failed before it: rc, when the config's problems are printed. */
int start_end(struct start *s, struct pp_config *cfg, int rc);

/* ---- last words, in start.c: see struct pp_train_options */

/* before_abort: prints this thread's error record to stderr. Local. */
void last_words_before_abort(void);

/* lost: prints `text`, unless nobody takes it or it is NULL, and ends the process with PP_ELOST.
 * pp_cli_leave is not NULL. Any thread. */
void last_words_lost(const char *text);

/* Whether no other rank that this host's supervise() started has asked this before: one line says why
 * all end. In signals.c, which reads that file. Local. */
bool last_words_first(void);

/* ---- launch.c: starting ppcli again under mpirun */

/* Whether this process reports what all processes of a launch share: true for rank 0 and for a
 * process that no launcher started. */
bool launch_speaks(void);

/* Whether this process is to start mpirun: nobody has. */
bool launch_wanted(const struct pp_config *cfg);

/* Whether this process tells what is known before the ranks start: once for a launch. */
bool launch_announces(void);

/* Run mpirun with `ranks` copies of the same command line, on cfg's hosts where it has some and after
 * they were asked (word: the config as it was given; NULL: none), pass the user's signals on to it
 * and wait for its end. Returns when all went well, or could not begin: PP_ERESOURCE when there is
 * no mpirun or this build has no MPI, or no way to a host; PP_ECONFIG; PP_ESTOPPED. What the ranks
 * said and their exit code are this process's, which then ends here. */
int launch_mpirun(const struct pp_config *cfg, const char *word, int ranks);

struct launch_end {
    int code;            /* of mpirun, where nothing else is wrong */
    bool started, asked; /* mpirun; the user wanted the end */
    bool ranks;          /* rank 0 has begun */
};

/* The same with `more` words (NULL-terminated; NULL: none) behind those of the user, and it comes
 * back: launch_leave() then ends this process where the ranks have said why. */
int launch_once(const struct pp_config *cfg, const char *word, int ranks, const char *const *more,
                struct launch_end *out);
int launch_leave(int rc, const struct launch_end *end);

/* ---- retry.c: the same, and again as often as run.retries says when the run lost something: from
 * its newest checkpoint, on the hosts that answer. Comes back as launch_mpirun() does. options: of the
 * training, stop not NULL. */
int retry_launch(const struct pp_config *cfg, const char *word,
                 const struct pp_train_options *options);

/* ---- supervise.c: a parent for mpirun
 *
 * mpirun itself must not get the signals of the user: it answers TERM and INT by giving its ranks one
 * second and forgetting their exit codes, and leaves them alone on the second INT. USR1 it passes on
 * and waits. */

/* In the environment of the ranks: a file of two ints, the number of the signal the user sent (0: none
 * yet), and whether a rank has said why all end. On other hosts there is none, or something else
 * under its path: SUPERVISE_FILE is its name. */
#define SUPERVISE_ASKED "PPCLI_ASKED"
#define SUPERVISE_FILE "ppcli-asked"

/* In a rank that supervise() started: tells it so, before anything else goes to stdout. Local. */
void supervise_started(void);

/*
 * Run args[0] (NULL-terminated words) and wait for it. TERM, INT, HUP and USR1 become USR1 for it,
 * USR2 stays USR2; a second INT ends it and all it has started. It ends with this process.
 * What it writes to its standard output goes through this process's stdout, so that a failure to
 * write is known here: mpirun forgets it. listener: of its ranks; NULL: none. Local.
 * Errors: PP_ERESOURCE, also when it ended without having started a rank; PP_ENOINPUT when there is
 * no such program; PP_ESTOPPED when it was told to end before it could listen; PP_ELOST when it or
 * one of its ranks was ended by a signal, or when its ranks are gone and it does not end; the text
 * names the rank. A second INT does not return, nor a signal after which the ranks had nothing to
 * save: this process ends by it.
 */
int supervise(const char *const *args, struct pp_listener *listener, struct launch_end *out);

/*
 * The keeper of an orted, which waits for its mpirun forever: run args[0] (NULL-terminated words) until
 * it ends, and end it where the listener at `address` (see pulse.h) says so, is gone or silent for
 * timeout (seconds of run.hang_timeout). Removes the files of one that was killed. Leaves the process
 * with its code, or returns 0 or an error. Local.
 */
int supervise_orted(const char *address, double timeout, char **args);

/* ---- signals.c: requests that arrive as signals while a run trains
 *
 * TERM, INT, HUP and USR1: save, then end with exit code 75; a second INT ends the process at once,
 * as INT does elsewhere. USR2: save and go on. A handler can only note; the run looks at the notes
 * where all its ranks meet. */

/* From now on, for the whole process. What was ignored on purpose (nohup) stays ignored. */
void signals_catch(void);

const volatile sig_atomic_t *signals_stop(void); /* the number of the first one; 0: none yet */
const volatile sig_atomic_t *signals_save(void); /* how many USR2 there were */

#endif
