/* SPDX-License-Identifier: Apache-2.0 */
/* Option values that are lists: `--stages 1,2 --schedule gpipe,1f1b` is four configs. */
#ifndef PPCLI_CLI_SWEEP_H
#define PPCLI_CLI_SWEEP_H

#include "command.h"

#define SWEEP_ROWS_MAX 4096

struct sweep {
    struct pp_config **configs; /* [n] owned; those with problems say so themselves */
    int n;
};

/*
 * Load the config (word NULL: the defaults) once for every combination of the values that
 * `settings` lists; the first list varies slowest. Lists are taken apart for keys that change how a
 * run is laid out, not for paths and the like. Errors: PP_EUSAGE for a list that is none,
 * PP_ECONFIG when no combination is a config, its problems printed; those of pp_config_load().
 */
int sweep_load(const char *word, const struct pp_cli_settings *settings, struct sweep *out);
int sweep_ranks(const struct sweep *s); /* of the combination that has most */
void sweep_fini(struct sweep *s);

#endif
