/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands are thin: parse words, wire modules together, return a code. main.c prints the error
 * and exits. A command is one file cmd_<name>.c, a row in commands.def and a text in share/cli.
 */
#ifndef PPCLI_CLI_COMMAND_H
#define PPCLI_CLI_COMMAND_H

#include "ppcli/config.h"

struct pp_command {
    const char *name;
    const char *also;    /* an older name that still works; NULL: none */
    const char *summary; /* one line of `ppcli help` */
    /* Positional words, for the usage line and the completions: "CONFIG", "[KEY]", "COMMAND",
     * "SHELL". NULL: none. */
    const char *words;
    /* Config flags that change nothing of what it does, separated by blanks: they are refused. */
    const char *without;
    /* Under an MPI launch all ranks run it; of others rank 0 alone, and the rest leave with 0. */
    bool all_ranks;
    /* argv[0] is the command's name. 0 or PP_E...; PP_EUSAGE after pp_fail() for wrong words.
     * Calls pp_cli_parse() before anything that has an effect. */
    int (*run)(int argc, char **argv);
    /* The middle of `ppcli <name> --help`: examples first, then what there is to know. The usage
     * line before it and the options after it are printed by pp_cli_parse(). */
    const char *help;
};

#define PP_COMMAND(name, ...)                                                                      \
    extern const struct pp_command command_##name;                                                 \
    int cmd_##name(int argc, char **argv);
#include "commands.def"

extern const char text_welcome[], text_sbatch[], text_completion_bash[], text_completion_zsh[],
    text_completion_fish[]; /* of share/cli */

extern const struct pp_command *const pp_commands[]; /* NULL-terminated, commands.def order */

const struct pp_command *pp_command_find(const char *name); /* NULL when unknown */
struct pp_did_you_mean pp_command_hint(const char *word);   /* that is not a command */

/* Names from the modules' .def lists, for pp_config_load() and friends. */
const struct pp_names *pp_cli_names(void);

/*
 * One option of a command. Names must match exactly.
 * kind decides where the argument goes.
 */
enum pp_cli_kind {
    PP_CLI_FLAG,   /* *(bool *)target = true */
    PP_CLI_STRING, /* *(const char **)target = argument */
    /* The same, but what follows may be missing and is "auto" then: the next word is taken unless
     * it begins with '-' or names a config (*.ini). */
    PP_CLI_OPTIONAL,
    /* Joined by commas in (char [PP_CLI_WORDS_BYTES])target; may repeat. */
    PP_CLI_WORDS,
    PP_CLI_INT,    /* *(int *)target = checked number */
    PP_CLI_AMOUNT, /* *(double *)target = a number above 0 */
    PP_CLI_NUMBER, /* the same, or 0 */
    PP_CLI_CHOICE, /* *(int *)target = the number of the argument among the words of arg, "a|b" */
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

#define PP_CLI_WORDS_BYTES 1024
#define PP_CLI_SETTINGS_MAX 256

struct pp_cli_settings { /* what PP_CLI_SET and PP_CLI_KEY collected, in command-line order */
    struct pp_setting items[PP_CLI_SETTINGS_MAX];
    /* storage: the "section.key" of a --set, the "--stages" (as said) of a short flag */
    char keys[PP_CLI_SETTINGS_MAX][PP_NAME_MAX];
    int n;
};

/* The config flags that train, explain, bench and plan share: --set, --stages, --microbatches,
 * --schedule, --epochs, --batch-size, --backend, --launch, --replicas, --seed, ... */
extern const struct pp_cli_option pp_cli_config_options[]; /* name NULL ends */

/*
 * Parse argv by `options` (name NULL ends) and, when `settings` is not NULL, by
 * pp_cli_config_options too. Also accepts -q, -v, --no-color everywhere. `--help` prints the help
 * and returns PP_CLI_DONE, which main() takes for 0. Positional words: at most max_words, into
 * words[] (unset ones NULL). Errors: PP_EUSAGE with the nearest known option.
 */
#define PP_CLI_DONE (-1000)
int pp_cli_parse(int argc, char **argv, const struct pp_command *command,
                 const struct pp_cli_option *options, struct pp_cli_settings *settings,
                 const char **words, int max_words);

/* Is `word` one of -q, -v, --no-color (also under their long names)? Then it has taken effect. */
bool pp_cli_presentation_flag(const char *word);

/* Lines "key = value" of the command that was parsed last and of its options, but for those that set
 * a key and those of every command. */
const char *pp_cli_given(void);

/*
 * Call visit() for every option that a command accepts, the common ones last, without running it:
 * the command's own pp_cli_parse() call is the only list there is.
 */
typedef void pp_cli_visit(const struct pp_cli_option *option, void *context);
int pp_cli_describe(const struct pp_command *command, pp_cli_visit *visit, void *context);

/*
 * Find the config a command was given: the path itself when it exists ("-" is standard input), of a
 * run folder or a checkpoint in it its config,
 * else a bare name among the installed configs, which is then said on stderr. Run from its build
 * folder, ppcli looks in the source tree's configs as well. Errors: PP_ENOINPUT with what was
 * looked at and the nearest name.
 */
int pp_cli_find_config(const char *word, char out[PP_PATH_MAX]);

/* Is it a run folder, or one of its checkpoints, whose config pp_cli_find_config() takes? NULL: no. */
bool pp_cli_is_run(const char *word);

/* The same of a machine file; of an installed one ".ini" may be left out. */
int pp_cli_find_machine(const char *word, char out[PP_PATH_MAX]);

/* Names of the installed configs ("mnist.ini") or machine files ("laptop"), NULL-terminated and found
 * once. NULL: there is no memory to look, which is recorded. */
const char *const *pp_cli_shipped(bool machines);

/* Load a config (word NULL: defaults and settings only) and print all its problems to stderr when
 * there are any. Errors: those of pp_cli_find_config() and pp_config_load(). */
int pp_cli_load_config(const char *word, const struct pp_cli_settings *settings,
                       struct pp_config **out);

/* The words after --trace and --trace-steps (NULL: not given) as a range of steps for
 * struct pp_train_options; 0 and 0: its default. Errors: PP_EUSAGE, also for a file that is there
 * and is not a trace. */
int pp_cli_trace_steps(const char *file, const char *steps, int64_t *first, int64_t *last);

/* What this ppcli was built with, for `version` and `env`. what NULL ends them. Static storage. */
struct pp_build_fact;
const struct pp_build_fact *build_facts(void);

/* Print what can replace the last of these words, which follow "ppcli". Errors: those of
 * pp_cli_describe(). */
int completion_answer(int n, char **words);

/* rc; where that is PP_ECONFIG and a config (NULL: there is none) has problems, they are printed and it
 * is their verdict. */
int pp_cli_config_verdict(const struct pp_config *cfg, int rc);

/* The same for commands that only look: where one's own files are absent, also which keys would say
 * what is wanted of them. */
int pp_cli_look_verdict(const struct pp_config *cfg, int rc);

/* ---- sweep.c: option values that are lists: `--stages 1,2 --schedule gpipe,1f1b` is four configs */

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
