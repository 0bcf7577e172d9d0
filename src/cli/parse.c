/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words of a command line against option tables. Options are never abbreviated: a guess that
 * changes when an option is added breaks scripts. The same tables print the help and describe a
 * command to the completions.
 */
#include "command.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ppcli/base/base.h"

#define OPTIONS_MAX 64
#define HELP_WIDTH 80
#define OWNERS_MAX 3 /* more commands than these are not named */
#define AMOUNT_MAX 1e15

static char given[1 << 16]; /* see pp_cli_given() */

struct table {
    const struct pp_cli_option *items[OPTIONS_MAX];
    int n;
};

static const char optimizer_words[] = "" /* "|sgd|momentum" and so on */
#define PP_OPTIMIZER(NAME, word, moments) "|" #word
#include "ppcli/conf/optimizers.def"
    ;

const struct pp_cli_option pp_cli_config_options[] = {
    {"set", 0, PP_CLI_SET, NULL, "SECTION.KEY=VALUE", "set any config key; may be repeated"},
    {"stages", 0, PP_CLI_KEY, (void *)"pipeline.stages", "P", "ranks of one pipeline"},
    {"replicas", 0, PP_CLI_KEY, (void *)"pipeline.replicas", "D", "copies of the pipeline"},
    {"microbatches", 0, PP_CLI_KEY, (void *)"pipeline.microbatches", "M", "pieces of a batch"},
    {"schedule", 0, PP_CLI_KEY, (void *)"pipeline.schedule", "NAME", "order of the passes"},
    {"epochs", 0, PP_CLI_KEY, (void *)"train.epochs", "N", "passes over the training data"},
    {"max-steps", 0, PP_CLI_KEY, (void *)"train.max_steps", "N", "stop after this many steps"},
    {"batch-size", 0, PP_CLI_KEY, (void *)"train.batch_size", "N", "samples per optimizer step"},
    {"optimizer", 0, PP_CLI_KEY, (void *)"train.optimizer", &optimizer_words[1], "update rule"},
    {"lr", 0, PP_CLI_KEY, (void *)"train.lr", "RATE", "learning rate"},
    {"seed", 0, PP_CLI_KEY, (void *)"train.seed", "N", "of the weights and the order of data"},
    {"backend", 0, PP_CLI_KEY, (void *)"run.backend", "NAME", "device that computes"},
    {"transport", 0, PP_CLI_KEY, (void *)"run.transport", "NAME", "how ranks exchange data"},
    {"launch", 0, PP_CLI_KEY, (void *)"run.launch", "auto|threads|mpirun", "how ranks are started"},
    {"hosts", 0, PP_CLI_KEY, (void *)"run.hosts", "H:N,...", "machines of the ranks, or file:PATH"},
    {"retries", 0, PP_CLI_KEY, (void *)"run.retries", "N", "starts after a lost rank or host"},
    {"dir", 0, PP_CLI_KEY, (void *)"run.dir", "DIR", "folder of metrics, summary, checkpoints"},
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
} describing;

static void add_options(struct table *t, const struct pp_cli_option *options, const char *without)
{
    for (; options && options->name; options++) {
        if (!pp_has_word(without, options->name)) {
            pp_assert(t->n < OPTIONS_MAX);
            t->items[t->n++] = options;
        }
    }
}

static struct table table_of(const struct pp_command *command, const struct pp_cli_option *options,
                             bool config)
{
    struct table t = {.n = 0};
    add_options(&t, options, NULL);
    add_options(&t, common_options, NULL);
    if (config)
        add_options(&t, pp_cli_config_options, command->without);
    return t;
}

/* ---- help */

static void print_options(FILE *f, const struct pp_cli_option *options, const char *without)
{
    for (; options && options->name; options++) {
        if (pp_has_word(without, options->name))
            continue;
        char left[128];
        char letter[8] = "    ";
        if (options->letter)
            snprintf(letter, sizeof(letter), "-%c, ", options->letter);
        int n = snprintf(left, sizeof(left), "  %s--%s%s%s", letter, options->name,
                         options->arg ? " " : "", options->arg ? options->arg : "");
        if (n > 30)
            fprintf(f, "%s\n%-30s", left, "");
        else
            fprintf(f, "%-30s", left);
        char text[256];
        bool key = options->kind == PP_CLI_KEY;
        snprintf(text, sizeof(text), "%s%s%s%s", options->help, key ? " (" : "",
                 key ? (const char *)options->target : "", key ? ")" : "");
        fputc(' ', f);
        pp_text_hang(f, 31, text);
    }
}

/* Prints the names of options, several on a line, except those that `without` lists. */
static void print_names(FILE *f, const struct pp_cli_option *options, const char *without)
{
    int column = 0;
    for (; options->name; options++) {
        char word[128];
        if (pp_has_word(without, options->name))
            continue;
        int n = snprintf(word, sizeof(word), "  --%s %s", options->name, options->arg);
        if (column + n > HELP_WIDTH) {
            fputc('\n', f);
            column = 0;
        }
        fputs(word, f);
        column += n;
    }
    fputc('\n', f);
}

static void print_help(FILE *f, const struct pp_command *command,
                       const struct pp_cli_option *options, bool config)
{
    const char *words = command->words;
    fprintf(f, "usage: ppcli %s%s%s [OPTION]...\n\n", command->name, words ? " " : "",
            words ? words : "");
    if (command->help) {
        fputs(command->help, f);
        fputc('\n', f);
    }
    fprintf(f, "Options:\n");
    print_options(f, options, NULL);
    print_options(f, common_options, NULL);
    if (config && command == &command_train) {
        fprintf(f, "\nOptions that set a config key (ppcli keys lists all keys):\n");
        print_options(f, pp_cli_config_options, command->without);
    } else if (config) {
        fprintf(f, "\nOptions that set a config key (ppcli help train explains them):\n");
        print_names(f, pp_cli_config_options, command->without);
    }
}

/* ---- effects */

static void apply_presentation(const char *name)
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
            apply_presentation(o->name);
            return true;
        }
    }
    return false;
}

static int store_int(const struct pp_cli_option *o, const char *text)
{
    char *end = NULL;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end)
        return pp_fail(PP_EUSAGE, "--%s needs a whole number, not '%s'", o->name, text);
    if (errno == ERANGE || value < INT_MIN || value > INT_MAX)
        return pp_fail(PP_EUSAGE, "--%s: %s is too large", o->name, text);
    *(int *)o->target = (int)value;
    return 0;
}

static int store_amount(const struct pp_cli_option *o, const char *text)
{
    char *end = NULL;
    errno = 0;
    double x = strtod(text, &end);
    bool above = o->kind == PP_CLI_AMOUNT;
    if (end == text || *end || errno || !(x > 0 || (!above && x == 0)) || x > AMOUNT_MAX) {
        return pp_fail(PP_EUSAGE, "--%s needs a number %s 0 and up to %g, not '%s'", o->name,
                       above ? "above" : "from", AMOUNT_MAX, text);
    }
    *(double *)o->target = x;
    return 0;
}

/* Stores the number of `text` among the words of o->arg, which are written as "text|json". */
static int store_choice(const struct pp_cli_option *o, const char *text)
{
    char words[128], all[128] = "";
    const char *names[OPTIONS_MAX] = {NULL};
    int n = 0;
    snprintf(words, sizeof(words), "%s", o->arg);
    for (char *rest = words, *word; (word = strsep(&rest, "|"));) {
        if (strcmp(word, text) == 0) {
            *(int *)o->target = n;
            return 0;
        }
        pp_text_add(all, sizeof(all), "%s%s", n == 0 ? "" : rest ? ", " : " or ", word);
        names[n++] = word;
    }
    struct pp_did_you_mean hint = pp_did_you_mean(text, names);
    return pp_fail(PP_EUSAGE, "unknown %s '%s'%s%s", o->name, text,
                   hint.s[0] ? hint.s
                   : n == 1  ? "; the only one is "
                             : "; use ",
                   hint.s[0] ? "" : all);
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
            return pp_fail(PP_EUSAGE, "--set needs SECTION.KEY=VALUE (as train.lr=0.1), not '%s'",
                           text);
        }
        size_t len = (size_t)(equals - text);
        if (len >= PP_NAME_MAX)
            return pp_fail(PP_EUSAGE, "--set: no config key is as long as '%.*s'", (int)len, text);
        memcpy(storage, text, len);
        storage[len] = '\0';
        *item = (struct pp_setting){.key = storage, .value = equals + 1, .said = "--set"};
    }
    s->n++;
    return 0;
}

static int store_value(const struct pp_cli_option *o, const char *text,
                       struct pp_cli_settings *settings)
{
    pp_assert(text || o->kind == PP_CLI_FLAG || o->kind == PP_CLI_OPTIONAL);
    switch (o->kind) {
    case PP_CLI_FLAG:
        if (o->target)
            *(bool *)o->target = true;
        else
            apply_presentation(o->name);
        return 0;
    case PP_CLI_STRING:
    case PP_CLI_OPTIONAL:
        *(const char **)o->target = text;
        return 0;
    case PP_CLI_WORDS:
        if (strlen(o->target) + strlen(text) + 2 > PP_CLI_WORDS_BYTES)
            return pp_fail(PP_EUSAGE, "--%s: more than %d bytes", o->name, PP_CLI_WORDS_BYTES - 2);
        pp_text_add(o->target, PP_CLI_WORDS_BYTES, "%s%s", *(char *)o->target ? "," : "", text);
        return 0;
    case PP_CLI_INT:
        return store_int(o, text);
    case PP_CLI_AMOUNT:
    case PP_CLI_NUMBER:
        return store_amount(o, text);
    case PP_CLI_CHOICE:
        return store_choice(o, text);
    case PP_CLI_SET:
    case PP_CLI_KEY:
        pp_assert(settings != NULL);
        return store_setting(settings, o, text);
    }
    return 0;
}

/* ---- words */

/* The state of a parse: the words from argv[at] on are not read yet. */
struct scan {
    const struct pp_command *command;
    struct table table;
    struct pp_cli_settings *settings;
    int argc, at;
    char **argv;
    const char *given[OPTIONS_MAX]; /* the argument of each option of the table; NULL: not given */
};

/* Returns the number of the option with this name of n bytes or, if `letter` is not 0, with this
 * letter; -1 if the table has no such option. */
static int find_option(const struct table *t, const char *name, size_t n, char letter)
{
    for (int i = 0; i < t->n; i++)
        if (letter ? t->items[i]->letter == letter
                   : strlen(t->items[i]->name) == n && strncmp(t->items[i]->name, name, n) == 0)
            return i;
    return -1;
}

/* Returns the name of the option that sets a key, such as "stages" for pipeline.stages; NULL if
 * there is no such option. */
static const char *find_short_form(const struct table *t, const char *key)
{
    for (int i = 0; i < t->n; i++)
        if (t->items[i]->kind == PP_CLI_KEY && strcmp(t->items[i]->target, key) == 0)
            return t->items[i]->name;
    return NULL;
}

/* The commands that have an option. */
struct owners {
    const struct pp_command *command;
    const char *option;
    char names[128]; /* "'ppcli tune', 'ppcli estimate'" */
    int n;
};

static void note_owner(const struct pp_cli_option *o, void *context)
{
    struct owners *x = context;
    if (strcmp(o->name, x->option) != 0)
        return;
    pp_text_add(x->names, sizeof(x->names), "%s'ppcli %s'", x->n > 0 ? ", " : "", x->command->name);
    x->n++;
}

/* Fails if an option that is unknown here belongs to other commands, but not if these are many. */
static int refuse_option_of_others(const char *option)
{
    struct owners x = {.option = option};
    for (int i = 0; pp_commands[i]; i++) {
        x.command = pp_commands[i];
        PP_TRY(pp_cli_describe(x.command, note_owner, &x));
    }
    return x.n == 0 || x.n > OWNERS_MAX
               ? 0
               : pp_fail(PP_EUSAGE, "unknown option '--%s', which is one of %s", option, x.names);
}

/* Fails with advice for `word`, which is "--something", maybe with "=value", but not an option of
 * the table. */
static int unknown_option(const struct scan *s, const char *word)
{
    char typed[PP_NAME_MAX];
    snprintf(typed, sizeof(typed), "%.*s", (int)strcspn(word + 2, "="), word + 2);
    bool refused = s->settings && pp_has_word(s->command->without, typed);
    if (refused && strcmp(typed, "hosts") == 0) {
        return pp_fail(PP_EUSAGE,
                       "'ppcli %s' is one process, with the whole model in its memory: run it on "
                       "one host (ssh HOST ppcli %s ...); eval --hosts judges weights over several",
                       s->command->name, s->command->name);
    }
    if (refused)
        return pp_fail(PP_EUSAGE, "--%s has no effect on 'ppcli %s'", typed, s->command->name);
    PP_TRY(refuse_option_of_others(typed));
    const char *names[OPTIONS_MAX + 1] = {NULL};
    const char *begins = NULL;
    int n_begins = 0;
    for (int i = 0; i < s->table.n; i++) {
        names[i] = s->table.items[i]->name;
        if (typed[0] && strncmp(names[i], typed, strlen(typed)) == 0) {
            begins = names[i];
            n_begins++;
        }
    }
    const char *near = n_begins == 1 ? begins : pp_nearest(typed, names);
    if (near)
        return pp_fail(PP_EUSAGE, "unknown option '--%s'; did you mean '--%s'?", typed, near);
    const char *like = s->settings ? pp_config_key_like(typed) : NULL;
    const char *short_form = like ? find_short_form(&s->table, like) : NULL;
    if (short_form)
        return pp_fail(PP_EUSAGE, "unknown option '--%s'; did you mean '--%s'?", typed, short_form);
    if (like) {
        return pp_fail(PP_EUSAGE, "unknown option '--%s'; did you mean '--set %s=VALUE'?", typed,
                       like);
    }
    if (s->settings && strchr(typed, '.')) {
        return pp_fail(PP_EUSAGE,
                       "unknown option '--%s'; a config key is set with '--set %s=VALUE'", typed,
                       typed);
    }
    return pp_fail(PP_EUSAGE, "unknown option '--%s'", typed);
}

/* Stores an option. `value` is the text after '=' or after the letter; if it is NULL, the next word
 * may be the value. */
static int take_option(struct scan *s, int number, const char *value)
{
    const struct pp_cli_option *o = s->table.items[number];
    const char *next = s->at < s->argc ? s->argv[s->at] : NULL;
    if (o->kind == PP_CLI_OPTIONAL && !value) {
        bool other = !next || next[0] == '-' || pp_text_ends(next, ".ini");
        s->at += !other;
        value = other ? "auto" : next;
    }
    if (o->arg && !value) {
        if (!next)
            return pp_fail(PP_EUSAGE, "--%s needs a value (--%s %s)", o->name, o->name, o->arg);
        value = next;
        s->at++;
    }
    s->given[number] = value ? value : "given";
    return store_value(o, value, s->settings);
}

static int take_long(struct scan *s, const char *word)
{
    size_t n = strcspn(word + 2, "=");
    int i = find_option(&s->table, word + 2, n, 0);
    if (i < 0)
        return unknown_option(s, word);
    bool joined = word[2 + n] == '=';
    if (joined && !s->table.items[i]->arg)
        return pp_fail(PP_EUSAGE, "--%s takes no value ('%s')", s->table.items[i]->name, word);
    return take_option(s, i, joined ? word + 2 + n + 1 : NULL);
}

/* Parses a word of letters: "-q", "-qv", "-o FILE" or "-oFILE". */
static int take_letters(struct scan *s, const char *word)
{
    for (const char *p = word + 1; *p; p++) {
        int i = find_option(&s->table, NULL, 0, *p);
        if (i < 0)
            return pp_fail(PP_EUSAGE, "unknown option '-%c'", *p);
        if (s->table.items[i]->arg)
            return take_option(s, i, p[1] ? p + 1 : NULL);
        PP_TRY(take_option(s, i, NULL));
    }
    return 0;
}

/* Writes the text that pp_cli_given() returns. A path that exists is written as an absolute
 * path. */
static void write_given(const struct scan *s)
{
    char path[PP_PATH_MAX], here[PP_PATH_MAX];
    given[0] = '\0';
    pp_text_add(given, sizeof(given), "command = %s\n", s->command->name);
    for (int i = 0; i < s->table.n; i++) {
        const struct pp_cli_option *o = s->table.items[i];
        const char *text = s->given[i];
        if (o->kind == PP_CLI_KEY || o->kind == PP_CLI_SET || !o->target)
            continue;
        if (text && text[0] != '/' && access(text, F_OK) == 0 && getcwd(here, sizeof(here)) &&
            pp_path_format(path, "%s/%s", here, text) == 0)
            text = path;
        pp_text_add(given, sizeof(given), "--%s = %s\n", o->name, text ? text : "(not given)");
    }
}

const char *pp_cli_given(void)
{
    return given;
}

int pp_cli_parse(int argc, char **argv, const struct pp_command *command,
                 const struct pp_cli_option *options, struct pp_cli_settings *settings,
                 const char **words, int max_words)
{
    bool only_words = false;
    int n_words = 0;
    struct scan s = {.command = command,
                     .table = table_of(command, options, settings != NULL),
                     .settings = settings,
                     .argc = argc,
                     .at = 1,
                     .argv = argv};
    if (describing.visit) {
        for (int i = 0; i < s.table.n; i++)
            describing.visit(s.table.items[i], describing.context);
        return PP_CLI_DONE;
    }
    for (int i = 0; i < max_words; i++)
        words[i] = NULL;
    while (s.at < argc) {
        const char *word = argv[s.at++];
        if (only_words || word[0] != '-' || word[1] == '\0') {
            if (n_words == max_words)
                return pp_fail(PP_EUSAGE, "unexpected word '%s'", word);
            words[n_words++] = word;
        } else if (strcmp(word, "--") == 0) {
            only_words = true;
        } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            print_help(stdout, command, options, settings != NULL);
            return PP_CLI_DONE;
        } else {
            PP_TRY(word[1] == '-' ? take_long(&s, word) : take_letters(&s, word));
        }
    }
    write_given(&s);
    return 0;
}

int pp_cli_describe(const struct pp_command *command, pp_cli_visit *visit, void *context)
{
    describing.visit = visit;
    describing.context = context;
    int rc = command->run(1, NULL);
    describing.visit = NULL;
    return rc == PP_CLI_DONE ? 0 : rc;
}
