/* SPDX-License-Identifier: Apache-2.0 */
/* Completions for fish: one `complete` line per fact. */
#include "completion.h"

#include <string.h>

#include "ppcli/err.h"

struct context {
    FILE *f;
    const char *command;
};

static void print_option(const struct pp_cli_option *o, void *context)
{
    const struct context *c = context;
    char values[COMPLETION_VALUES_MAX];
    fprintf(c->f, "complete -c ppcli -n '__fish_seen_subcommand_from %s' -l %s", c->command,
            o->name);
    if (o->letter) {
        fprintf(c->f, " -s %c", o->letter);
    }
    if (o->kind == PP_CLI_SET) {
        fputs(" -x -a '", c->f);
        completion_print_keys(c->f, "", "= ");
        fputc('\'', c->f);
    } else if (completion_values(o, values, sizeof(values))) {
        fprintf(c->f, " -x -a '%s'", values);
    } else if (o->arg && strstr(o->arg, "DIR")) {
        fputs(" -x -a '(__fish_complete_directories)'", c->f);
    } else if (o->arg) {
        fputs(" -x", c->f);
    }
    fputs(" -d '", c->f);
    completion_quote(c->f, o->help, "\\");
    fputs("'\n", c->f);
}

static void print_words(FILE *f, const char *command, enum completion_words words)
{
    if (words == WORDS_NONE) {
        return;
    }
    if (words == WORDS_PATH) {
        fprintf(f, "complete -c ppcli -n '__fish_seen_subcommand_from %s' -F\n", command);
        return;
    }
    fprintf(f, "complete -c ppcli -n '__fish_seen_subcommand_from %s' -a '", command);
    switch (words) {
    case WORDS_CONFIG:
        fputs("(__fish_complete_suffix .ini)", f);
        break;
    case WORDS_KEY:
        completion_print_keys(f, "", " ");
        break;
    case WORDS_COMMAND:
        for (int i = 0; pp_commands[i]; i++) {
            fprintf(f, "%s ", pp_commands[i]->name);
        }
        break;
    case WORDS_SHELL:
    case WORDS_PATH:
    case WORDS_NONE:
        fputs(COMPLETION_SHELLS, f);
        break;
    }
    fputs("'\n", f);
}

int completion_fish(FILE *f)
{
    fputs("# fish completion for ppcli; written by 'ppcli completion fish'\n"
          "complete -c ppcli -f\n"
          "complete -c ppcli -n __fish_use_subcommand -l version -d 'print the version'\n"
          "complete -c ppcli -n __fish_use_subcommand -l help -d 'print help'\n",
          f);
    for (int i = 0; pp_commands[i]; i++) {
        fprintf(f, "complete -c ppcli -n __fish_use_subcommand -a %s -d '", pp_commands[i]->name);
        completion_quote(f, pp_commands[i]->summary, "\\");
        fputs("'\n", f);
    }
    for (int i = 0; pp_commands[i]; i++) {
        struct context c = {.f = f, .command = pp_commands[i]->name};
        bool config = false;
        PP_TRY(pp_cli_describe(pp_commands[i], print_option, &c, &config));
        print_words(f, c.command, completion_words(pp_commands[i], config));
    }
    return 0;
}
