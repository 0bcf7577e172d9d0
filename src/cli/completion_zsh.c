/* SPDX-License-Identifier: Apache-2.0 */
/* Completions for zsh, in the words of its _arguments and _describe. */
#include "completion.h"

#include <string.h>

#include "ppcli/err.h"

/* Characters that mean something in an _arguments specification. */
#define SPECIAL "[]:\\"

static void print_option(const struct pp_cli_option *o, void *context)
{
    FILE *f = context;
    char values[COMPLETION_VALUES_MAX];
    fprintf(f, "        '%s--%s%s[", o->kind == PP_CLI_SET ? "*" : "", o->name, o->arg ? "=" : "");
    completion_quote(f, o->help, SPECIAL);
    fputc(']', f);
    if (o->arg) {
        fputc(':', f);
        completion_quote(f, o->arg, SPECIAL);
        fputc(':', f);
        if (o->kind == PP_CLI_SET) {
            fputs("_ppcli_settings", f);
        } else if (completion_values(o, values, sizeof(values))) {
            fprintf(f, "(%s)", values);
        } else if (strstr(o->arg, "DIR")) {
            fputs("_files -/", f);
        }
    }
    fputs("'\n", f);
}

static void print_words(FILE *f, enum completion_words words)
{
    switch (words) {
    case WORDS_CONFIG:
        fputs("        '1:config:_files -g \"*.ini\"'\n", f);
        break;
    case WORDS_PATH:
        fputs("        '*:path:_files'\n", f);
        break;
    case WORDS_KEY:
        fputs("        '1:key:_ppcli_keys'\n", f);
        break;
    case WORDS_COMMAND:
        fputs("        '1:command:_ppcli_commands'\n", f);
        break;
    case WORDS_SHELL:
        fputs("        '1:shell:(" COMPLETION_SHELLS ")'\n", f);
        break;
    case WORDS_NONE:
        break;
    }
}

int completion_zsh(FILE *f)
{
    fputs("#compdef ppcli\n"
          "# zsh completion for ppcli; written by 'ppcli completion zsh'\n"
          "_ppcli_commands()\n{\n    local -a commands=(\n",
          f);
    for (int i = 0; pp_commands[i]; i++) {
        fprintf(f, "        '%s:", pp_commands[i]->name);
        completion_quote(f, pp_commands[i]->summary, ":\\");
        fputs("'\n", f);
    }
    fputs("    )\n    _describe command commands\n}\n_ppcli_keys()\n{\n    compadd --", f);
    completion_print_keys(f, " ", "");
    fputs("\n}\n_ppcli_settings()\n{\n    compadd -S = --", f);
    completion_print_keys(f, " ", "");
    fputs("\n}\n"
          "_ppcli()\n{\n"
          "    local state line\n"
          "    local -a arguments\n"
          "    _arguments -C '--help[print help]' '--version[print the version]' \\\n"
          "        '1:command:_ppcli_commands' '*::word:->words' && return\n"
          "    case $line[1] in\n",
          f);
    for (int i = 0; pp_commands[i]; i++) {
        bool config = false;
        fprintf(f, "    %s)\n        arguments=(\n", pp_commands[i]->name);
        PP_TRY(pp_cli_describe(pp_commands[i], print_option, f, &config));
        print_words(f, completion_words(pp_commands[i], config));
        fputs("        )\n        ;;\n", f);
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
