/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completions for bash. "=" separates words there, so that "--set train.lr=" and "--dir=x" arrive
 * in pieces; the script looks one piece further back for the option.
 */
#include "completion.h"

#include <string.h>

#include "ppcli/err.h"

static const char head[] = "# bash completion for ppcli; written by 'ppcli completion bash'\n"
                           "_ppcli()\n"
                           "{\n"
                           "    local cur prev command i words\n"
                           "    COMPREPLY=()\n"
                           "    cur=${COMP_WORDS[COMP_CWORD]}\n"
                           "    prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
                           "    if [[ $cur == '=' ]]; then\n"
                           "        cur=\n"
                           "    elif [[ $prev == '=' ]]; then\n"
                           "        prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
                           "    fi\n"
                           "    command=\n"
                           "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
                           "        if [[ ${COMP_WORDS[i]} != -* ]]; then\n"
                           "            command=${COMP_WORDS[i]}\n"
                           "            break\n"
                           "        fi\n"
                           "    done\n";

static const char tail[] =
    "    if [[ $cur == -* ]]; then\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$cur\")\n"
    "        return\n"
    "    fi\n"
    "    case $words in\n"
    "    @config)\n"
    "        compopt -o filenames 2>/dev/null\n"
    "        mapfile -t COMPREPLY < <(compgen -f -X '!*.ini' -- \"$cur\"; compgen -d -- \"$cur\")\n"
    "        ;;\n"
    "    @path)\n"
    "        compopt -o filenames 2>/dev/null\n"
    "        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
    "        ;;\n"
    "    *)\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
    "        ;;\n"
    "    esac\n"
    "}\n"
    "complete -F _ppcli ppcli\n";

struct context {
    FILE *f;
    const char *command;
};

static void print_value_case(const struct pp_cli_option *o, void *context)
{
    const struct context *c = context;
    char values[COMPLETION_VALUES_MAX];
    if (o->kind == PP_CLI_SET) {
        fprintf(c->f,
                "    '%s --%s')\n"
                "        compopt -o nospace 2>/dev/null\n"
                "        mapfile -t COMPREPLY < <(compgen -W \"$keys\" -- \"$cur\")\n"
                "        return\n"
                "        ;;\n",
                c->command, o->name);
    } else if (completion_values(o, values, sizeof(values))) {
        fprintf(c->f,
                "    '%s --%s')\n"
                "        mapfile -t COMPREPLY < <(compgen -W '%s' -- \"$cur\")\n"
                "        return\n"
                "        ;;\n",
                c->command, o->name, values);
    } else if (o->arg && strstr(o->arg, "DIR")) {
        fprintf(c->f,
                "    '%s --%s')\n"
                "        compopt -o filenames 2>/dev/null\n"
                "        mapfile -t COMPREPLY < <(compgen -d -- \"$cur\")\n"
                "        return\n"
                "        ;;\n",
                c->command, o->name);
    } else if (o->arg) {
        fprintf(c->f, "    '%s --%s') return ;;\n", c->command, o->name);
    }
}

static void print_option(const struct pp_cli_option *o, void *context)
{
    const struct context *c = context;
    fprintf(c->f, " --%s", o->name);
}

static void print_commands(FILE *f)
{
    for (int i = 0; pp_commands[i]; i++) {
        fprintf(f, "%s%s", i ? " " : "", pp_commands[i]->name);
    }
}

static void print_words(FILE *f, enum completion_words words)
{
    switch (words) {
    case WORDS_CONFIG:
        fputs("@config", f);
        break;
    case WORDS_PATH:
        fputs("@path", f);
        break;
    case WORDS_KEY:
        completion_print_keys(f, "", " ");
        break;
    case WORDS_COMMAND:
        print_commands(f);
        break;
    case WORDS_SHELL:
        fputs(COMPLETION_SHELLS, f);
        break;
    case WORDS_NONE:
        break;
    }
}

int completion_bash(FILE *f)
{
    fputs(head, f);
    fputs("    local keys='", f);
    completion_print_keys(f, "", "= ");
    fputs("'\n    case \"$command $prev\" in\n", f);
    for (int i = 0; pp_commands[i]; i++) {
        struct context c = {.f = f, .command = pp_commands[i]->name};
        PP_TRY(pp_cli_describe(pp_commands[i], print_value_case, &c, NULL));
    }
    fputs("    esac\n    local options='--help --version'\n    words='", f);
    print_commands(f);
    fputs("'\n    case $command in\n", f);
    for (int i = 0; pp_commands[i]; i++) {
        struct context c = {.f = f, .command = pp_commands[i]->name};
        bool config = false;
        fprintf(f, "    %s)\n        options='", pp_commands[i]->name);
        PP_TRY(pp_cli_describe(pp_commands[i], print_option, &c, &config));
        fputs("'\n        words='", f);
        print_words(f, completion_words(pp_commands[i], config));
        fputs("'\n        ;;\n", f);
    }
    fputs("    esac\n", f);
    fputs(tail, f);
    return 0;
}
