/* SPDX-License-Identifier: Apache-2.0 */
/* How a command starts the ranks of a config. */
#ifndef PPCLI_CLI_START_H
#define PPCLI_CLI_START_H

#include "ppcli/train.h"

struct start {
    struct pp_world world;
    bool open;             /* the world */
    bool works;            /* this process has ranks to run: pp_train() and the like */
    bool speaks;           /* whether it speaks for the run; theirs to set */
    void (*leave)(int rc); /* last_words.h */
};

/*
 * Set options->name, quiet and lost, and choose what the config leaves to a measurement; or start
 * mpirun where the config asks for it, whose processes come here again. word: the config as it was
 * given. Errors: those of launch_mpirun(), pp_world_open() and pp_choose().
 */
int start_begin(const char *word, struct pp_config *cfg, struct pp_train_options *options,
                struct start *out);

/* After the work, or what failed before it: rc, when the config's problems are printed. */
int start_end(struct start *s, struct pp_config *cfg, int rc);

#endif
