/* SPDX-License-Identifier: Apache-2.0 */
/* Option values that are lists: `--stages 1,2 --schedule gpipe,1f1b` is four configs. */
#ifndef PPCLI_SWEEP_H
#define PPCLI_SWEEP_H

#include "ppcli/config.h"

#define PP_SWEEP_ROWS_MAX 4096

struct pp_settings { /* in command-line order; nothing is owned */
    const struct pp_setting *items;
    int n;
};

struct pp_sweep {
    struct pp_config **configs; /* [n] owned; those with problems say so themselves */
    int n;
};

/*
 * Load the config once (its path is what find(word) says; word NULL: the defaults) for every combination
 * of the values that `settings` lists; the first list varies slowest. Lists are taken apart for keys that change how a
 * run is laid out, not for paths and the like. Errors: PP_EUSAGE for a text that is not a list,
 * PP_ECONFIG when no combination is a config: the first one says why; as of pp_config_load().
 * pp_sweep_fini() even then.
 */
int pp_sweep_load(int (*find)(const char *word, char *out), const char *word,
                  const struct pp_settings *settings, const struct pp_names *names,
                  struct pp_sweep *out);
int pp_sweep_ranks(const struct pp_sweep *s); /* of the combination that has most */
void pp_sweep_fini(struct pp_sweep *s);

#endif
