/* SPDX-License-Identifier: Apache-2.0 */
/* The files of configs and machines, by the words that users type; what is installed of them; and a config
 * that outlives its file. */
#ifndef PPCLI_FIND_H
#define PPCLI_FIND_H

#include "ppcli/config.h"
#include "ppcli/shipped.h"

#define PP_SHIPPED_NAMES 256
struct pp_shipped { /* large: not for a stack */
    char folders[PP_SHIPPED_MAX][PP_PATH_MAX], storage[PP_SHIPPED_NAMES][PP_NAME_MAX];
    const char *names[PP_SHIPPED_NAMES + 1]; /* NULL-terminated, sorted */
    const char *folder;                      /* that has them */
    int n;
};

/* The installed configs ("mnist.ini") or machine files ("laptop"). Errors: PP_ERESOURCE. */
int pp_shipped_read(bool machines, struct pp_shipped *out);

/*
 * The config's path: the word itself where there is such a file ("-" is standard input), else that of
 * an installed one (*shipped). Run from its build folder, ppcli looks in the source tree's configs as
 * well. Errors: PP_ENOINPUT with what was looked at and the nearest name; PP_EUSAGE for a file that is
 * something else.
 */
int pp_config_find(const char *word, bool *shipped, char out[PP_PATH_MAX]);
/* The same of a machine file; of an installed one ".ini" may be left out. */
int pp_machine_find(const char *word, bool *shipped, char out[PP_PATH_MAX]);

/*
 * What processes that this one starts read in place of the file of `word`, as the user wrote it: its text
 * as it was for cfg, which came from a file. So they have the same config after an edit. In their
 * environment. Errors: PP_ECONFIG (too long), PP_ERESOURCE. Local.
 */
#define PP_CONFIG_PINNED "PPCLI_PINNED_CONFIG"
int pp_config_pin(const struct pp_config *cfg, const char *word);

#endif
