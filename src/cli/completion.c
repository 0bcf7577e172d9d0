/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints what can replace the last of some words: one answer a line, then a tab and a line of help.
 * ":files [SUFFIX]" and ":folders" tell the shell to complete paths; an answer that ends in '=' is
 * not complete. The scripts in share/cli/completion-SHELL.txt call `ppcli completion words
 * WORD...`.
 */
#include <string.h>

#include "command.h"
#include "ppcli/data/dataset.h"
#include "ppcli/conf/config.h"
#include "ppcli/base/base.h"

struct question {
    const char *before; /* the word before the last; "": that is the command */
    const char *last;
    bool answered;
};

/* Prints words that blanks or bars separate, one on each line and after `start`. */
static void print_words(const char *start, const char *words)
{
    for (size_t n; *words; words += n + (words[n] != '\0')) {
        n = strcspn(words, " |");
        if (n > 0)
            printf("%s%.*s\n", start, (int)n, words);
    }
}

static void print_key_words(const char *start, const char *key)
{
    char words[1024] = "";
    for (int i = 0; i < pp_config_key_count(); i++)
        if (strcmp(pp_config_key_name(i), key) == 0)
            pp_config_key_words(i, pp_cli_names(), words, sizeof(words));
    print_words(start, words);
}

/* Prints "KEY=" for every key, or the values that a key can have. */
static void print_settings(const char *start, const char *word)
{
    char key[PP_NAME_MAX], whole[2 * PP_NAME_MAX];
    snprintf(key, sizeof(key), "%.*s", (int)strcspn(word, "="), word);
    snprintf(whole, sizeof(whole), "%s%s=", start, key);
    if (strchr(word, '=')) {
        print_key_words(whole, key);
        return;
    }
    for (int i = 0; i < pp_config_key_count(); i++)
        printf("%s%s=\n", start, pp_config_key_name(i));
}

static void print_keys(const char *start, bool (*wanted)(const char *key))
{
    for (int i = 0; i < pp_config_key_count(); i++)
        if (!wanted || wanted(pp_config_key_name(i)))
            printf("%s%s\n", start, pp_config_key_name(i));
}

static struct pp_shipped shipped[2]; /* configs, machines */

static void print_shipped(const char *start, bool machines)
{
    for (const char *const *name = shipped[machines].names; *name; name++)
        printf("%s%s\n", start, *name);
    puts(":files .ini");
}

static void print_value(const struct pp_cli_option *o, const char *start, const char *word)
{
    if (o->kind == PP_CLI_SET)
        print_settings(start, word);
    else if (o->kind == PP_CLI_WORDS) /* keys of --allow */
        print_keys(start, pp_config_may_allow);
    else if (strcmp(o->name, "machine") == 0)
        print_shipped(start, true);
    else if (strstr(o->arg, "PATH") || strstr(o->arg, "FILE"))
        puts(":files");
    else if (strchr(o->arg, '|'))
        print_words(start, o->arg);
    else if (strstr(o->arg, "DIR"))
        puts(":folders");
    else if (o->kind == PP_CLI_KEY)
        print_key_words(start, o->target);
}

/* Prints the completions if the last word is the value of this option, as a word of its own or in
 * --name=value. */
static void answer_option(const struct pp_cli_option *o, void *context)
{
    struct question *q = context;
    char start[PP_NAME_MAX], letter[3] = {'-', o->letter};
    int n = snprintf(start, sizeof(start), "--%s=", o->name);
    bool apart = strncmp(q->before, start, (size_t)n - 1) == 0 && !q->before[n - 1];
    bool joined = strncmp(q->last, start, (size_t)n) == 0;
    if (!o->arg || !(apart || joined || (o->letter && strcmp(q->before, letter) == 0)))
        return;
    print_value(o, joined ? start : "", joined ? q->last + n : q->last);
    q->answered = true;
}

static void print_option(const struct pp_cli_option *o, void *context)
{
    printf("--%s\t%s\n", o->name, o->help);
    if (o->letter)
        printf("-%c\t%s\n", o->letter, o->help);
}

static void print_commands(void)
{
    for (int i = 0; pp_commands[i]; i++)
        printf("%s\t%s\n", pp_commands[i]->name, pp_commands[i]->summary);
}

/* Prints the completions of operands, whose kinds are the words of the command's usage line. */
static void print_operands(const struct pp_command *c)
{
    const char *words = c->words ? c->words : "";
    if (c == &command_download) {
        puts("all");
        for (int i = 0; pp_fetch_sets[i].name; i++)
            puts(pp_fetch_sets[i].name);
    } else if (strstr(words, "CONFIG")) {
        print_shipped("", false);
    } else if (strstr(words, "PATH") || strstr(words, "RUN") || strstr(words, "TABLE")) {
        puts(":files");
    } else if (strstr(words, "KEY")) {
        print_keys("", NULL);
    } else if (strstr(words, "COMMAND")) {
        print_commands();
    } else if (strstr(words, "SHELL")) {
        puts("bash\nzsh\nfish");
    }
}

int completion_answer(int n, char **words)
{
    int at = 0;
    PP_TRY(pp_shipped_read(false, &shipped[0]));
    PP_TRY(pp_shipped_read(true, &shipped[1]));
    while (at < n - 1 && words[at][0] == '-')
        at++;
    struct question q = {.last = n > 0 ? words[n - 1] : "",
                         .before = at < n - 2 ? words[n - 2] : ""};
    if (at >= n - 1) {
        if (q.last[0] == '-')
            puts("--help\tprint help\n--version\tprint the version");
        else
            print_commands();
        return 0;
    }
    const struct pp_command *c = pp_command_find(words[at]);
    if (!c)
        return 0;
    PP_TRY(pp_cli_describe(c, answer_option, &q));
    if (!q.answered && q.last[0] == '-')
        PP_TRY(pp_cli_describe(c, print_option, NULL));
    else if (!q.answered)
        print_operands(c);
    return 0;
}
