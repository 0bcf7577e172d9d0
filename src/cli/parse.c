/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words of a command line against option tables. getopt_long() does the splitting; what it would
 * guess (abbreviated long options) is refused, because a guess that changes when an option is
 * added breaks scripts. The same tables print the help and describe a command to the completions.
 */
#include "command.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/err.h"
#include "ppcli/log.h"

#define OPTIONS_MAX 64
#define LONG_BASE 256 /* getopt_long's value of option i is LONG_BASE + i: no letter */

struct table {
    const struct pp_cli_option *items[OPTIONS_MAX];
    int n;
};

const struct pp_cli_option pp_cli_config_options[] = {
    {"set", 0, PP_CLI_SET, NULL, "SECTION.KEY=VALUE", "set any config key; may be repeated"},
    {"stages", 0, PP_CLI_KEY, (void *)"pipeline.stages", "P", "ranks of one pipeline"},
    {"replicas", 0, PP_CLI_KEY, (void *)"pipeline.replicas", "D", "copies of the pipeline"},
    {"microbatches", 0, PP_CLI_KEY, (void *)"pipeline.microbatches", "M",
     "pieces a batch is cut into"},
    {"schedule", 0, PP_CLI_KEY, (void *)"pipeline.schedule", "NAME",
     "order of forwards and backwards"},
    {"epochs", 0, PP_CLI_KEY, (void *)"train.epochs", "N", "passes over the training data"},
    {"max-steps", 0, PP_CLI_KEY, (void *)"train.max_steps", "N", "stop after so many steps"},
    {"batch-size", 0, PP_CLI_KEY, (void *)"train.batch_size", "N", "samples per optimizer step"},
    {"optimizer", 0, PP_CLI_KEY, (void *)"train.optimizer", "sgd|momentum|adam|adamw",
     "how weights follow gradients"},
    {"lr", 0, PP_CLI_KEY, (void *)"train.lr", "RATE", "learning rate"},
    {"seed", 0, PP_CLI_KEY, (void *)"train.seed", "N", "of weights and of the data's order"},
    {"backend", 0, PP_CLI_KEY, (void *)"run.backend", "NAME", "device that computes"},
    {"transport", 0, PP_CLI_KEY, (void *)"run.transport", "NAME", "how ranks exchange data"},
    {"launch", 0, PP_CLI_KEY, (void *)"run.launch", "auto|threads|mpirun", "how ranks are started"},
    {"dir", 0, PP_CLI_KEY, (void *)"run.dir", "DIR", "run directory: metrics, summary, config"},
    {"log-every", 0, PP_CLI_KEY, (void *)"run.log_every", "N", "steps between two log lines"},
    {0},
};

static const struct pp_cli_option common_options[] = {
    {"quiet", 'q', PP_CLI_FLAG, NULL, NULL, "only warnings and errors on stderr"},
    {"verbose", 'v', PP_CLI_FLAG, NULL, NULL, "more on stderr"},
    {"no-color", 0, PP_CLI_FLAG, NULL, NULL, "no colours (as NO_COLOR=1)"},
    {"help", 'h', PP_CLI_FLAG, NULL, NULL, "print this help"},
    {0},
};

/* Set while pp_cli_describe() runs: pp_cli_parse() then shows its tables and parses nothing. */
static _Thread_local struct {
    pp_cli_visit *visit;
    void *context;
    bool config;
} describing;

static void add(struct table *t, const struct pp_cli_option *options)
{
    for (; options && options->name; options++) {
        pp_assert(t->n < OPTIONS_MAX);
        t->items[t->n++] = options;
    }
}

static const struct pp_cli_option *find(const struct table *t, const char *name, size_t len)
{
    for (int i = 0; i < t->n; i++) {
        if (strlen(t->items[i]->name) == len && strncmp(t->items[i]->name, name, len) == 0) {
            return t->items[i];
        }
    }
    return NULL;
}

/* --- help ----------------------------------------------------------------------------------- */

static void print_options(FILE *f, const struct pp_cli_option *options)
{
    for (; options && options->name; options++) {
        char left[128];
        char letter[8] = "    ";
        if (options->letter) {
            snprintf(letter, sizeof(letter), "-%c, ", options->letter);
        }
        int n = snprintf(left, sizeof(left), "  %s--%s%s%s", letter, options->name,
                         options->arg ? " " : "", options->arg ? options->arg : "");
        if (n > 30) {
            fprintf(f, "%s\n%-30s", left, "");
        } else {
            fprintf(f, "%-30s", left);
        }
        fprintf(f, " %s", options->help);
        if (options->kind == PP_CLI_KEY) {
            fprintf(f, " (%s)", (const char *)options->target);
        }
        fputc('\n', f);
    }
}

const char *pp_cli_words(const struct pp_command *command, bool config)
{
    if (command->words) {
        return command->words;
    }
    return config ? "CONFIG" : "";
}

static void print_help(FILE *f, const struct pp_command *command,
                       const struct pp_cli_option *options, bool config)
{
    const char *words = pp_cli_words(command, config);
    fprintf(f, "usage: ppcli %s%s%s [OPTION]...\n\n", command->name, words[0] ? " " : "", words);
    if (command->help) {
        command->help(f);
        fputc('\n', f);
    }
    fprintf(f, "Options:\n");
    print_options(f, options);
    print_options(f, common_options);
    if (config) {
        fprintf(f, "\nOptions that set a config key (ppcli keys lists all keys):\n");
        print_options(f, pp_cli_config_options);
    }
}

/* --- effects -------------------------------------------------------------------------------- */

static void present(const char *name)
{
    if (strcmp(name, "quiet") == 0) {
        pp_log_set_level(PP_LOG_QUIET);
    } else if (strcmp(name, "verbose") == 0) {
        pp_log_set_level(PP_LOG_DEBUG);
    } else {
        /* One switch for both ways to say it; no thread is running yet. */
        setenv("NO_COLOR", "1", 1);
    }
}

bool pp_cli_presentation_flag(const char *word)
{
    for (const struct pp_cli_option *o = common_options; o->name; o++) {
        bool is_letter = o->letter && word[0] == '-' && word[1] == o->letter && !word[2];
        bool is_name = strncmp(word, "--", 2) == 0 && strcmp(word + 2, o->name) == 0;
        if ((is_letter || is_name) && o->letter != 'h') {
            present(o->name);
            return true;
        }
    }
    return false;
}

static int store_int(const struct pp_cli_option *o, const char *text)
{
    pp_assert(text != NULL); /* getopt_long() insists on it */
    char *end = NULL;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end) {
        return pp_fail(PP_EUSAGE, "--%s wants a whole number, not '%s'", o->name, text);
    }
    if (errno == ERANGE || value < INT_MIN || value > INT_MAX) {
        return pp_fail(PP_EUSAGE, "--%s: %s is too large", o->name, text);
    }
    *(int *)o->target = (int)value;
    return 0;
}

static int store_setting(struct pp_cli_settings *s, const struct pp_cli_option *o, const char *text)
{
    if (s->n == PP_CLI_SETTINGS_MAX) {
        return pp_fail(PP_EUSAGE, "too many settings (at most %d); put them into a config file",
                       PP_CLI_SETTINGS_MAX);
    }
    char *storage = s->keys[s->n];
    struct pp_setting *item = &s->items[s->n];
    if (o->kind == PP_CLI_KEY) {
        snprintf(storage, PP_NAME_MAX, "--%s", o->name);
        *item = (struct pp_setting){.key = o->target, .value = text, .said = storage};
    } else {
        const char *equals = strchr(text, '=');
        const char *dot = strchr(text, '.');
        if (!equals || !dot || dot > equals || dot == text || dot + 1 == equals) {
            return pp_fail(PP_EUSAGE, "--set wants SECTION.KEY=VALUE (as train.lr=0.1), not '%s'",
                           text);
        }
        size_t len = (size_t)(equals - text);
        if (len >= PP_NAME_MAX) {
            return pp_fail(PP_EUSAGE, "--set: no config key is as long as '%.*s'", (int)len, text);
        }
        memcpy(storage, text, len);
        storage[len] = '\0';
        *item = (struct pp_setting){.key = storage, .value = equals + 1, .said = "--set"};
    }
    s->n++;
    return 0;
}

static int store(const struct pp_cli_option *o, const char *text, struct pp_cli_settings *settings)
{
    switch (o->kind) {
    case PP_CLI_FLAG:
        if (o->target) {
            *(bool *)o->target = true;
        } else {
            present(o->name);
        }
        return 0;
    case PP_CLI_STRING:
    case PP_CLI_OPTIONAL:
        *(const char **)o->target = text;
        return 0;
    case PP_CLI_INT:
        return store_int(o, text);
    case PP_CLI_SET:
    case PP_CLI_KEY:
        pp_assert(settings != NULL);
        return store_setting(settings, o, text);
    }
    return 0;
}

/* --- words ---------------------------------------------------------------------------------- */

/* The word behind an option whose value may be missing. getopt_long() itself takes only
 * "--option=value". */
static const char *optional_value(int argc, char **argv)
{
    const char *next = optind < argc ? argv[optind] : "-";
    size_t n = strlen(next);
    if (next[0] == '-' || (n > 4 && strcmp(next + n - 4, ".ini") == 0)) {
        return "auto";
    }
    optind++;
    return next;
}

/* `word` is "--something", maybe with "=value", and is no option of the table. */
static int unknown_option(const struct table *t, const char *word, bool config)
{
    const char *name = word + 2;
    size_t len = strcspn(name, "=");
    char typed[PP_NAME_MAX];
    snprintf(typed, sizeof(typed), "%.*s", (int)(len < sizeof(typed) ? len : sizeof(typed) - 1),
             name);

    const char *names[OPTIONS_MAX + 1];
    const char *begins = NULL;
    int n_begins = 0;
    for (int i = 0; i < t->n; i++) {
        names[i] = t->items[i]->name;
        if (len > 0 && strncmp(names[i], typed, strlen(typed)) == 0) {
            begins = names[i];
            n_begins++;
        }
    }
    names[t->n] = NULL;
    const char *near = n_begins == 1 ? begins : pp_nearest(typed, names);
    if (near) {
        return pp_fail(PP_EUSAGE, "unknown option '--%s'; did you mean '--%s'?", typed, near);
    }
    if (config && strchr(typed, '.')) {
        return pp_fail(PP_EUSAGE,
                       "unknown option '--%s'; a config key is set with '--set %s=VALUE'", typed,
                       typed);
    }
    return pp_fail(PP_EUSAGE, "unknown option '--%s'", typed);
}

/* What getopt_long() refused: argv[optind - 1], or the letter optopt of a cluster. */
static int refused(const struct table *t, const char *word, bool config)
{
    if (optopt > 0 && optopt < LONG_BASE) {
        return pp_fail(PP_EUSAGE, "unknown option '-%c'", optopt);
    }
    const struct pp_cli_option *o = find(t, word + 2, strcspn(word + 2, "="));
    if (o) {
        return pp_fail(PP_EUSAGE, "--%s takes no value ('%s')", o->name, word);
    }
    return unknown_option(t, word, config);
}

static int missing_argument(const struct table *t, int value)
{
    for (int i = 0; i < t->n; i++) {
        if (value == LONG_BASE + i || (t->items[i]->letter && value == t->items[i]->letter)) {
            return pp_fail(PP_EUSAGE, "--%s wants %s after it", t->items[i]->name,
                           t->items[i]->arg);
        }
    }
    return pp_fail(PP_EUSAGE, "a value is missing at the end");
}

static int take_word(const char *word, const char **words, int max_words, int *n_words)
{
    if (*n_words == max_words) {
        return pp_fail(PP_EUSAGE, "unexpected word '%s'", word);
    }
    words[(*n_words)++] = word;
    return 0;
}

static void prepare(const struct table *t, struct option *longs, char *shorts)
{
    /* "-": positional words come back in place, whatever POSIXLY_CORRECT says; ":": a missing
     * argument is told from an unknown option. */
    char *s = shorts;
    *s++ = '-';
    *s++ = ':';
    for (int i = 0; i < t->n; i++) {
        const struct pp_cli_option *o = t->items[i];
        longs[i] = (struct option){o->name,
                                   o->kind == PP_CLI_OPTIONAL ? optional_argument
                                   : o->arg                   ? required_argument
                                                              : no_argument,
                                   NULL, LONG_BASE + i};
        if (o->letter) {
            *s++ = o->letter;
            if (o->arg) {
                *s++ = ':';
            }
        }
    }
    longs[t->n] = (struct option){0};
    *s = '\0';
}

static const struct pp_cli_option *by_letter(const struct table *t, int letter)
{
    for (int i = 0; i < t->n; i++) {
        if (t->items[i]->letter == letter) {
            return t->items[i];
        }
    }
    return NULL;
}

int pp_cli_parse(int argc, char **argv, const struct pp_command *command,
                 const struct pp_cli_option *options, struct pp_cli_settings *settings,
                 const char **words, int max_words, bool *done)
{
    struct table t = {.n = 0};
    add(&t, options);
    add(&t, common_options);
    if (settings) {
        add(&t, pp_cli_config_options);
    }
    if (describing.visit) {
        describing.config = settings != NULL;
        for (int i = 0; i < t.n; i++) {
            describing.visit(t.items[i], describing.context);
        }
        *done = true;
        return 0;
    }

    struct option longs[OPTIONS_MAX + 1];
    char shorts[2 * OPTIONS_MAX + 3];
    prepare(&t, longs, shorts);
    int n_words = 0;
    for (int i = 0; i < max_words; i++) {
        words[i] = NULL;
    }
    *done = false;

    optind = 0; /* 0 makes glibc and musl forget an earlier scan */
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, shorts, longs, NULL)) != -1;) {
        const struct pp_cli_option *o = NULL;
        if (c == 1) {
            PP_TRY(take_word(optarg, words, max_words, &n_words));
            continue;
        }
        if (c == '?') {
            return refused(&t, argv[optind - 1], settings != NULL);
        }
        if (c == ':') {
            /* also for an abbreviation: the word that is there decides what is said */
            const char *word = argv[optind - 1];
            if (optopt >= LONG_BASE && !find(&t, word + 2, strlen(word + 2))) {
                return unknown_option(&t, word, settings != NULL);
            }
            return missing_argument(&t, optopt);
        }
        if (c >= LONG_BASE) {
            o = t.items[c - LONG_BASE];
            bool apart = optarg && optarg == argv[optind - 1];
            const char *word = argv[optind - (apart ? 2 : 1)];
            size_t len = strcspn(word + 2, "=");
            if (find(&t, word + 2, len) != o) {
                return unknown_option(&t, word, settings != NULL);
            }
        } else {
            o = by_letter(&t, c);
        }
        pp_assert(o != NULL);
        if (o->letter == 'h' && !o->target) {
            print_help(stdout, command, options, settings != NULL);
            *done = true;
            return 0;
        }
        if (o->kind == PP_CLI_OPTIONAL && !optarg) {
            optarg = (char *)optional_value(argc, argv);
        }
        PP_TRY(store(o, optarg, settings));
    }
    for (int i = optind; i < argc; i++) { /* behind "--" */
        PP_TRY(take_word(argv[i], words, max_words, &n_words));
    }
    return 0;
}

int pp_cli_describe(const struct pp_command *command, pp_cli_visit *visit, void *context,
                    bool *config)
{
    char name[PP_NAME_MAX];
    snprintf(name, sizeof(name), "%s", command->name);
    char *argv[] = {name, NULL};
    describing.visit = visit;
    describing.context = context;
    describing.config = false;
    int rc = command->run(1, argv);
    describing.visit = NULL;
    if (config) {
        *config = describing.config;
    }
    return rc;
}
