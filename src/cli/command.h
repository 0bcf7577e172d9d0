/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands are thin: parse words, wire modules together, return a code. main.c prints the error
 * and exits. A command is one file cmd_<name>.c and one line in commands.def.
 */
#ifndef PPCLI_CLI_COMMAND_H
#define PPCLI_CLI_COMMAND_H

#include <stdbool.h>
#include <stdio.h>

#include "ppcli/config.h"

struct pp_command {
    const char *name;
    const char *summary; /* one line of `ppcli help` */
    /* argv[0] is the command's name. 0 or PP_E...; PP_EUSAGE after pp_fail() for wrong words. */
    int (*run)(int argc, char **argv);
    /* The text of `ppcli <name> --help`, examples first. */
    void (*help)(FILE *f);
};

extern const struct pp_command *const pp_commands[]; /* NULL-terminated, commands.def order */

/* Names from the modules' .def lists, for pp_config_load() and friends. */
const struct pp_names *pp_cli_names(void);

/*
 * One option of a command. Long names must match exactly (getopt_long's abbreviations are off).
 * kind decides where the argument goes.
 */
enum pp_cli_kind {
    PP_CLI_FLAG,   /* *(bool *)target = true */
    PP_CLI_STRING, /* *(const char **)target = argument */
    PP_CLI_INT,    /* *(int *)target = checked number */
    PP_CLI_SET,    /* --set section.key=value: appended to the settings, may repeat */
    PP_CLI_KEY,    /* short flag for a config key: target is "pipeline.stages" */
};

struct pp_cli_option {
    const char *name; /* "stages" */
    char letter;      /* 0: none */
    enum pp_cli_kind kind;
    void *target;
    const char *arg;  /* "N" in help; NULL for flags */
    const char *help; /* one line */
};

#define PP_CLI_SETTINGS_MAX 256

struct pp_cli_settings { /* what PP_CLI_SET and PP_CLI_KEY collected, in command-line order */
    struct pp_setting items[PP_CLI_SETTINGS_MAX];
    char keys[PP_CLI_SETTINGS_MAX][PP_NAME_MAX]; /* storage for the "section.key" of --set */
    int n;
};

/* The config flags that train, explain, bench and plan share: --set, --stages, --microbatches,
 * --schedule, --epochs, --batch-size, --backend, --launch, --replicas, --seed, ... */
extern const struct pp_cli_option pp_cli_config_options[]; /* name NULL ends */

/*
 * Parse argv by `options` (name NULL ends) and, when `settings` is not NULL, by
 * pp_cli_config_options too. Also accepts -q, -v, --no-color everywhere. `--help` prints the help
 * and sets *done. Positional words: at most max_words, into words[] (unset ones NULL).
 * Errors: PP_EUSAGE with the nearest known option.
 */
int pp_cli_parse(int argc, char **argv, const struct pp_command *command,
                 const struct pp_cli_option *options, struct pp_cli_settings *settings,
                 const char **words, int max_words, bool *done);

/*
 * Find the config a command was given: the path itself when it exists, else a bare name among the
 * installed configs (then *note gets a line to tell the user). Errors: PP_ENOINPUT with what was
 * looked at.
 */
int pp_cli_find_config(const char *word, char out[PP_PATH_MAX]);

/* Load a config and print all its problems to stderr when there are any. */
int pp_cli_load_config(const char *word, const struct pp_cli_settings *settings,
                       struct pp_config **out);

/* Print the problems of a config that a later check refused; returns its verdict. */
int pp_cli_config_verdict(const struct pp_config *cfg);

#endif
