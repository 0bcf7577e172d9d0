/* SPDX-License-Identifier: Apache-2.0 */
/* What the three completion writers share. Local to cli/. */
#ifndef PPCLI_CLI_COMPLETION_H
#define PPCLI_CLI_COMPLETION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "command.h"

#define COMPLETION_SHELLS "bash zsh fish"
#define COMPLETION_VALUES_MAX 1024

enum completion_words {
    WORDS_NONE,
    WORDS_CONFIG,
    WORDS_PATH,
    WORDS_KEY,
    WORDS_COMMAND,
    WORDS_SHELL
};

/* What the positional words of a command are. */
enum completion_words completion_words(const struct pp_command *command, bool config);

/* The values an option's argument can have, separated by blanks; false when they are not a list. */
bool completion_values(const struct pp_cli_option *o, char *out, size_t bytes);

/* Every "section.key" of a config between `before` and `after`. */
void completion_print_keys(FILE *f, const char *before, const char *after);

/* Text for inside single quotes; characters of `special` get a backslash as well. */
void completion_quote(FILE *f, const char *text, const char *special);

int completion_bash(FILE *f);
int completion_zsh(FILE *f);
int completion_fish(FILE *f);

#endif
