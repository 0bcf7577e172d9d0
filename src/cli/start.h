/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a command starts the ranks of a config, as threads or under mpirun; what reaches them from the
 * user; and how they end.
 */
#ifndef PPCLI_CLI_START_H
#define PPCLI_CLI_START_H

#include "ppcli/launch.h"

struct start {
    struct pp_world world;
    bool open;   /* the world */
    bool works;  /* this process has ranks to run: pp_train() and the like */
    bool speaks; /* whether it speaks for the run; theirs to set */
};

/*
 * Set options->name, quiet and lost, and choose what the config leaves to a measurement; or start
 * mpirun where the config asks for it, whose processes come here again. word: the config as it was
 * given. Errors: those of pp_launch_mpirun(), pp_world_open() and pp_choose().
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
 * pp_process_leave is not NULL. Any thread. */
void last_words_lost(const char *text);

#endif
