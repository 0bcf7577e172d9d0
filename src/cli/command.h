/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands are thin: parse words, wire modules together, return a code. main.c prints the error
 * and exits. A command is one file cmd_<name>.c, a row in commands.def and a text in share/cli.
 */
#ifndef PPCLI_CLI_COMMAND_H
#define PPCLI_CLI_COMMAND_H

#include "ppcli/cluster/launch.h"
#include "ppcli/train/train.h"
#include "ppcli/conf/config.h"

struct pp_command {
    const char *name;
    const char *also;    /* an older name that still works; NULL: absent */
    const char *summary; /* one line of `ppcli help` */
    /* Positional words, for the usage line and the completions: "CONFIG", "[KEY]", "COMMAND",
     * "SHELL". NULL: none. */
    const char *words;
    /* Options of a config that have no effect on the command, separated by blanks: they are
     * refused. */
    const char *without;
    /* Under an MPI launch all ranks run the command; otherwise rank 0 alone, and the others end
     * with 0. */
    bool all_ranks;
    bool folds; /* long lines of its result are folded on a narrow terminal */
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
struct pp_did_you_mean pp_command_hint(const char *word);   /* "; did you mean 'train'?", or
                                                               nothing, for a word that is not a
                                                               command */

/* Returns the names in the modules' .def lists, for pp_config_load() and the like. */
const struct pp_names *pp_cli_names(void);

/*
 * One option of a command. Names must match exactly.
 * kind decides where the argument goes.
 */
enum pp_cli_kind {
    PP_CLI_FLAG,   /* *(bool *)target = true */
    PP_CLI_STRING, /* *(const char **)target = argument */
    /* The same, but the argument may be missing and is "auto" then: the next word is taken
     * unless it begins with '-' or names a config (*.ini). */
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
    char letter;      /* 0: absent */
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

/* Returns whether `word` is one of -q, -v and --no-color, also under their long names. If so, it
 * takes effect. */
bool pp_cli_presentation_flag(const char *word);

/* Returns lines "key = value" with the command that was parsed last and its options, without the
 * options that set a key and those of every command. */
const char *pp_cli_given(void);

/*
 * Call visit() for every option that a command accepts, the common ones last, without running it:
 * the command's own pp_cli_parse() call is the only list there is.
 */
typedef void pp_cli_visit(const struct pp_cli_option *option, void *context);
int pp_cli_describe(const struct pp_command *command, pp_cli_visit *visit, void *context);

/* Finds the config that `word` names: that of a run folder or of a checkpoint in it, else that
 * of pp_config_find(). Prints the path of an installed one on stderr. Errors: as of
 * pp_config_find(). */
int pp_cli_find_config(const char *word, char out[PP_PATH_MAX]);

/* ---- old_words.c
 *
 * Replace a command line of `plan` that has an option of an earlier version by the one of today, which
 * a warning shows. at: where the command's name is. Errors: PP_ERESOURCE. */
int pp_cli_translate(int *argc, char ***argv, int at, const struct pp_command **command);

/* Sets *out to whether `word` is a run folder or one of its checkpoints, whose config
 * pp_cli_find_config() takes. It is not if `word` is NULL. Errors: those of pp_path_stat(). */
int pp_cli_is_run(const char *word, bool *out);

/* Fails with the reason why `word` is not a run. Errors: PP_EUSAGE: it is a config, so the weights
 * are missing; PP_ENOINPUT: it does not exist, or is another folder. */
int pp_cli_refuse_run(const char *word, const char *needs);

/* Finds the machine file that `word` names. Errors: those of pp_machine_find(). */
int pp_cli_find_machine(const char *word, char out[PP_PATH_MAX]);

/* Loads a config (word NULL: defaults and settings only) and prints all its problems to stderr if
 * there are any. Errors: those of pp_cli_find_config() and pp_config_load(). */
int pp_cli_load_config(const char *word, const struct pp_cli_settings *settings,
                       struct pp_config **out);

/* Loads the configs of pp_sweep_load(), and prints the problems if no combination is a config. Call
 * pp_sweep_fini() even after an error. */
int pp_cli_load_sweep(const char *word, const struct pp_cli_settings *settings,
                      struct pp_sweep *out);

/* Parses the arguments of --trace and --trace-steps (NULL: not given) into a range of steps for
 * struct pp_train_options; 0 and 0 are its default. Errors: PP_EUSAGE, also for an existing file
 * that is not a trace. */
int pp_cli_trace_steps(const char *file, const char *steps, int64_t *first, int64_t *last);

/* Returns the libraries of this build, for `version` and `env`; `what` NULL ends the list.
 * Static storage. */
struct pp_build_fact;
const struct pp_build_fact *build_facts(void);

/* Prints the name of the file that holds the result, if rc is 0; nothing if path is NULL, "-" or
 * a device. Returns rc. */
int pp_cli_name_file(int rc, const char *path);

/* Checks that the file which `option` names can be written, before the work whose result it will
 * hold. Nothing is checked if path is NULL or "-". Errors: PP_EUSAGE for an empty name; those of
 * pp_file_create(). */
int pp_cli_check_output(const char *option, const char *path);

/* Folds long lines of standard output from here on, if it is a terminal. */
void pp_cli_fold_lines(void);

/* Prints what can replace the last of these words, which follow "ppcli". Errors: those of
 * pp_cli_describe(). */
int completion_answer(int n, char **words);

/* Returns rc. If rc is PP_ECONFIG and cfg (may be NULL) has problems, prints them and returns the
 * error code that they have. */
int pp_cli_config_verdict(const struct pp_config *cfg, int rc);

/* Does the work of pp_cli_config_verdict() for commands that only look: if the user's own files are
 * missing, the error also names the keys that stand in for them. */
int pp_cli_look_verdict(const struct pp_config *cfg, int rc);

/* ---- init_pictures.c */

/* Looks at a folder of pictures: proposes keys, reads both splits with them as a run would, and makes
 * the config for two stages with a model for them. The caller owns what was made, also on failure.
 * Errors: those of pp_dataset_open(). Local. */
int pp_cli_look_at_pictures(const char *folder, struct pp_images_proposal *proposal,
                            struct pp_dataset **train, struct pp_dataset **test,
                            struct pp_config **cfg, struct pp_model **model);

/* ---- last_words.c: see struct pp_train_options */

/* Prints this thread's error record to stderr. It is the function before_abort of struct
 * pp_train_options. Local. */
void last_words_before_abort(void);

/* Prints `text` and ends the process with PP_ELOST. Prints nothing if it is NULL or standard error
 * takes nothing. It is the function `lost` of struct pp_train_options. pp_process_leave must not be
 * NULL. Any thread. */
void last_words_lost(const char *text);

/* Returns options that print results on stdout and have the last words above. */
struct pp_train_options pp_cli_train_options(void);

/* Ends a run, after the work or an earlier failure: prints the problems of the config and returns
 * rc. */
int pp_cli_end(struct pp_start *s, struct pp_config *cfg, int rc);

#endif
