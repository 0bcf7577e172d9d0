/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completion scripts. What can follow a word is decided once, as a kind and maybe a list; each
 * shell has a way to write that.
 */

#include <string.h>

#include "command.h"
#include "ppcli/backend.h"
#include "ppcli/fetch.h"
#include "ppcli/schedule.h"
#include "ppcli/text.h"
#include "ppcli/transport.h"

enum kind { /* what can follow */
    NOTHING,
    ANYTHING, /* a number, a name: no offer */
    LIST,
    KEYS,
    CONFIG,
    MACHINE,
    PATH,
    FOLDER,
    COMMAND
};

#define SETS_MAX 32

struct offer {
    enum kind kind;
    char list[1024]; /* LIST: words separated by blanks */
};

static void list_names(struct offer *o, const char *const *names)
{
    size_t used = 0;
    for (; *names; names++) {
        int n = snprintf(o->list + used, sizeof(o->list) - used, "%s%s", used ? " " : "", *names);
        pp_assert(n > 0 && (size_t)n < sizeof(o->list) - used);
        used += (size_t)n;
    }
    o->kind = LIST;
}

static struct offer offer_of_option(const struct pp_cli_option *option)
{
    struct offer o = {.kind = option->arg ? ANYTHING : NOTHING};
    const char *key = option->kind == PP_CLI_KEY ? option->target : "";
    if (option->kind == PP_CLI_SET) {
        o.kind = KEYS;
    } else if (option->kind == PP_CLI_WORDS) { /* keys of --allow */
        o.kind = LIST;
        for (int i = 0; i < pp_config_key_count(); i++)
            if (pp_config_may_allow(pp_config_key_name(i)))
                pp_text_add(o.list, sizeof(o.list), "%s ", pp_config_key_name(i));
    } else if (strcmp(option->name, "machine") == 0) {
        o.kind = MACHINE;
    } else if (option->arg && (strstr(option->arg, "PATH") || strstr(option->arg, "FILE"))) {
        o.kind = PATH;
    } else if (option->arg && strchr(option->arg, '|')) {
        o.kind = LIST;
        snprintf(o.list, sizeof(o.list), "%s", option->arg);
        for (char *bar; (bar = strchr(o.list, '|'));)
            *bar = ' ';
    } else if (strcmp(key, "pipeline.schedule") == 0) {
        list_names(&o, pp_schedule_names());
    } else if (strcmp(key, "run.backend") == 0) {
        list_names(&o, pp_backend_names());
    } else if (strcmp(key, "run.transport") == 0) {
        list_names(&o, pp_transport_names());
    } else if (option->arg && strstr(option->arg, "DIR")) {
        o.kind = FOLDER;
    }
    return o;
}

static struct offer offer_of_command(const struct pp_command *command)
{
    static const struct {
        const char *in;
        enum kind kind;
    } kinds[] = {{"CONFIG", CONFIG}, {"PATH", PATH},       {"RUN", PATH},
                 {"KEY", KEYS},      {"COMMAND", COMMAND}, {"SHELL", LIST}};
    struct offer o = {.kind = NOTHING};
    if (command == &command_download) {
        const char *names[SETS_MAX] = {"all"};
        for (int i = 0; pp_fetch_sets[i].name && i < SETS_MAX - 2; i++)
            names[i + 1] = pp_fetch_sets[i].name;
        list_names(&o, names);
        return o;
    }
    for (size_t i = 0; command->words && i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strstr(command->words, kinds[i].in))
            return (struct offer){.kind = kinds[i].kind, .list = "bash zsh fish"};
    return o;
}

void pp_cli_quote(FILE *f, const char *text, const char *special)
{
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", f);
        else
            fprintf(f, "%s%c", strchr(special, *text) ? "\\" : "", *text);
}

static void print_keys(FILE *f, const char *after)
{
    for (int i = 0; i < pp_config_key_count(); i++)
        fprintf(f, " %s%s", pp_config_key_name(i), after);
}

static void print_shipped(FILE *f, bool machines)
{
    for (const char *const *name = pp_cli_shipped(machines); *name; name++)
        fprintf(f, " %s", *name);
}

/* For every key with words: begin KEY between WORDS end. Blanks divide the words. */
static void print_choices(FILE *f, const char *begin, const char *between, const char *end)
{
    char words[1024];
    for (int i = 0; i < pp_config_key_count(); i++) {
        pp_config_key_words(i, pp_cli_names(), words, sizeof(words));
        if (words[0])
            fprintf(f, "%s%s%s%s%s", begin, pp_config_key_name(i), between, words, end);
    }
}

static void print_commands(FILE *f)
{
    for (int i = 0; pp_commands[i]; i++)
        fprintf(f, " %s", pp_commands[i]->name);
}

struct context {
    FILE *f;
    const char *command;
};

/* ---- bash: tables of words, "@KIND" for those that are found, and a function that looks up */

static const char *const bash_words[] = {
    [NOTHING] = "",         [ANYTHING] = "",  [KEYS] = "@keys",     [CONFIG] = "@config",
    [MACHINE] = "@machine", [PATH] = "@path", [FOLDER] = "@folder", [COMMAND] = "@commands"};

/* "=" separates words in bash, so that "--set train.lr=" and "--dir=x" arrive in pieces: the script
 * looks one piece further back for the option. */
static void bash_value(const struct pp_cli_option *option, void *context)
{
    const struct context *c = context;
    struct offer o = offer_of_option(option);
    if (o.kind != NOTHING) {
        fprintf(c->f, "_ppcli_values['%s --%s']='%s'\n", c->command, option->name,
                o.kind == LIST ? o.list : bash_words[o.kind]);
    }
}

static void bash_option(const struct pp_cli_option *option, void *context)
{
    const struct context *c = context;
    fprintf(c->f, " --%s", option->name);
}

int completion_bash(FILE *f)
{
    fputs("# bash completion for ppcli; written by 'ppcli completion bash'\n_ppcli_commands='", f);
    print_commands(f);
    fputs("'\n_ppcli_keys='", f);
    print_keys(f, "");
    fputs("'\n_ppcli_configs='", f);
    print_shipped(f, false);
    fputs("'\n_ppcli_machines='", f);
    print_shipped(f, true);
    fputs("'\ndeclare -A _ppcli_values _ppcli_options _ppcli_words _ppcli_choices\n", f);
    print_choices(f, "_ppcli_choices['", "']='", "'\n");
    for (int i = 0; pp_commands[i]; i++) {
        struct context c = {.f = f, .command = pp_commands[i]->name};
        PP_TRY(pp_cli_describe(pp_commands[i], bash_value, &c));
        struct offer o = offer_of_command(pp_commands[i]);
        fprintf(f, "_ppcli_words[%s]='%s'\n_ppcli_options[%s]='", c.command,
                o.kind == LIST ? o.list : bash_words[o.kind], c.command);
        PP_TRY(pp_cli_describe(pp_commands[i], bash_option, &c));
        fputs("'\n", f);
    }
    fputs(text_completion_bash, f);
    return 0;
}

/* ---- zsh: the words of its _arguments and _describe */

#define ZSH_SPECIAL "[]:\\" /* means something in an _arguments specification */

static const char *const zsh_values[] = {[NOTHING] = "",
                                         [ANYTHING] = "",
                                         [KEYS] = "_ppcli_settings",
                                         [FOLDER] = "_files -/",
                                         [MACHINE] = "_ppcli_machine"};
static const char *const zsh_words[] = {
    [NOTHING] = "",
    [KEYS] = "'1:key:_ppcli_keys'",
    [CONFIG] = "'1:config:_ppcli_config'",
    [PATH] = "'*:path:_files'",
    [COMMAND] = "'1:command:_ppcli_commands'",
};

static void zsh_option(const struct pp_cli_option *option, void *context)
{
    const struct context *c = context;
    struct offer o = offer_of_option(option);
    fprintf(c->f, "        '%s--%s%s[", o.kind == KEYS ? "*" : "", option->name,
            option->arg ? "=" : "");
    pp_cli_quote(c->f, option->help, ZSH_SPECIAL);
    fputc(']', c->f);
    if (option->arg) {
        fputc(':', c->f);
        pp_cli_quote(c->f, option->arg, ZSH_SPECIAL);
        fprintf(c->f, o.kind == LIST ? ":(%s)" : ":%s",
                o.kind == LIST ? o.list : zsh_values[o.kind]);
    }
    fputs("'\n", c->f);
}

int completion_zsh(FILE *f)
{
    fputs("#compdef ppcli\n"
          "# zsh completion for ppcli; written by 'ppcli completion zsh'\n"
          "_ppcli_commands()\n{\n    local -a commands=(\n",
          f);
    for (int i = 0; pp_commands[i]; i++) {
        fprintf(f, "        '%s:", pp_commands[i]->name);
        pp_cli_quote(f, pp_commands[i]->summary, ":\\");
        fputs("'\n", f);
    }
    fputs("    )\n    _describe command commands\n}\n_ppcli_keys()\n{\n    compadd --", f);
    print_keys(f, "");
    fputs("\n}\n_ppcli_settings()\n{\n    local -A choices=(\n", f);
    print_choices(f, "        '", "' '", "'\n");
    fputs("    )\n    if [[ $PREFIX == *=* ]]; then\n"
          "        local key=${PREFIX%%=*}\n        compset -P '*='\n"
          "        compadd -- ${=choices[$key]}\n    else\n        compadd -S = --",
          f);
    print_keys(f, "");
    fputs("\n    fi\n}\n_ppcli_config()\n{\n    _files -g '*.ini'\n    compadd --", f);
    print_shipped(f, false);
    fputs("\n}\n_ppcli_machine()\n{\n    _files -g '*.ini'\n    compadd --", f);
    print_shipped(f, true);
    fputs("\n}\n"
          "_ppcli()\n{\n"
          "    local state line\n"
          "    local -a arguments\n"
          "    _arguments -C '--help[print help]' '--version[print the version]' \\\n"
          "        '1:command:_ppcli_commands' '*::word:->words' && return\n"
          "    case $line[1] in\n",
          f);
    for (int i = 0; pp_commands[i]; i++) {
        struct context c = {.f = f};
        fprintf(f, "    %s)\n        arguments=(\n", pp_commands[i]->name);
        PP_TRY(pp_cli_describe(pp_commands[i], zsh_option, &c));
        struct offer o = offer_of_command(pp_commands[i]);
        if (o.kind == LIST)
            fprintf(f, "        '*:word:(%s)'\n        )\n        ;;\n", o.list);
        else
            fprintf(f, "        %s\n        )\n        ;;\n", zsh_words[o.kind]);
    }
    fputs("    esac\n    _arguments $arguments\n}\n"
          "if [[ $funcstack[1] == _ppcli ]]; then\n"
          "    _ppcli \"$@\"\n"
          "else\n"
          "    compdef _ppcli ppcli\n"
          "fi\n",
          f);
    return 0;
}

/* ---- fish: one `complete` line per fact */

#define FISH "complete -c ppcli -n '__fish_seen_subcommand_from %s'"

/* "train.optimizer=adam": a word for each value of each key. */
static void fish_settings(FILE *f)
{
    char words[1024];
    for (int i = 0; i < pp_config_key_count(); i++) {
        pp_config_key_words(i, pp_cli_names(), words, sizeof(words));
        for (char *rest = words, *word; (word = strsep(&rest, " "));)
            if (word[0])
                fprintf(f, " %s=%s", pp_config_key_name(i), word);
    }
}

static void fish_list(FILE *f, const struct offer *o, const char *after_key)
{
    if (o->kind == KEYS) {
        print_keys(f, after_key);
        if (after_key[0])
            fish_settings(f);
    } else if (o->kind == COMMAND) {
        print_commands(f);
    } else if (o->kind == CONFIG || o->kind == MACHINE) {
        fputs("(__fish_complete_suffix .ini)", f);
        print_shipped(f, o->kind == MACHINE);
    } else {
        fputs(o->kind == FOLDER ? "(__fish_complete_directories)" : o->list, f);
    }
}

static void fish_option(const struct pp_cli_option *option, void *context)
{
    const struct context *c = context;
    struct offer o = offer_of_option(option);
    fprintf(c->f, FISH " -l %s", c->command, option->name);
    if (option->letter)
        fprintf(c->f, " -s %c", option->letter);
    if (o.kind != NOTHING)
        fputs(" -x", c->f);
    if (o.kind > ANYTHING) {
        fputs(" -a '", c->f);
        fish_list(c->f, &o, "=");
        fputc('\'', c->f);
    }
    fputs(" -d '", c->f);
    pp_cli_quote(c->f, option->help, "\\");
    fputs("'\n", c->f);
}

int completion_fish(FILE *f)
{
    fputs("# fish completion for ppcli; written by 'ppcli completion fish'\n"
          "complete -c ppcli -f\n"
          "complete -c ppcli -n __fish_use_subcommand -l version -d 'print the version'\n"
          "complete -c ppcli -n __fish_use_subcommand -l help -d 'print help'\n",
          f);
    for (int i = 0; pp_commands[i]; i++) {
        struct context c = {.f = f, .command = pp_commands[i]->name};
        fprintf(f, "complete -c ppcli -n __fish_use_subcommand -a %s -d '", c.command);
        pp_cli_quote(f, pp_commands[i]->summary, "\\");
        fputs("'\n", f);
        PP_TRY(pp_cli_describe(pp_commands[i], fish_option, &c));
        struct offer o = offer_of_command(pp_commands[i]);
        if (o.kind != NOTHING) {
            fprintf(f, FISH, c.command);
            fputs(o.kind == PATH ? " -F" : " -a '", f);
            if (o.kind != PATH) {
                fish_list(f, &o, "");
                fputc('\'', f);
            }
            fputc('\n', f);
        }
    }
    return 0;
}
