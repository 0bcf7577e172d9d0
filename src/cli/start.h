/* SPDX-License-Identifier: Apache-2.0 */
/* How a command starts the ranks of a config. */
#ifndef PPCLI_CLI_START_H
#define PPCLI_CLI_START_H

#include "ppcli/train.h"

/*
 * Run work(cfg, options, speaks, ctx) in this process, after options->name, quiet and lost are set
 * and what the config leaves to a measurement is chosen; or start mpirun where the config asks for
 * it, whose processes come here again. word: the config as it was given. Prints the config's
 * problems. Errors: those of work(), launch_mpirun(), pp_world_open() and pp_choose().
 */
int start_run(const char *word, struct pp_config *cfg, struct pp_train_options *options,
              int (*work)(struct pp_config *cfg, struct pp_train_options *options, bool *speaks,
                          void *ctx),
              void *ctx);

#endif
