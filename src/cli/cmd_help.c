/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli help: the list of commands, or one command's own help. */
#include "command.h"

static void print_commands(FILE *f)
{
    fputs("usage: ppcli COMMAND [WORD]... [OPTION]...\n\nCommands:\n", f);
    for (int i = 0; pp_commands[i]; i++)
        fprintf(f, "  %-16s %s\n", pp_commands[i]->name, pp_commands[i]->summary);
    fputs("\n"
          "ppcli help COMMAND (or ppcli COMMAND --help) shows examples and options of one.\n"
          "-q, -v and --no-color work with every command; ppcli --version is ppcli version.\n"
          "Manual pages: ppcli(1), ppcli.ini(5).\n",
          f);
}

int cmd_help(int argc, char **argv)
{
    const char *words[1];
    PP_TRY(pp_cli_parse(argc, argv, &command_help, NULL, NULL, words, 1));
    if (!words[0]) {
        print_commands(stdout);
        return 0;
    }
    const struct pp_command *c = pp_command_find(words[0]);
    if (!c)
        return pp_fail(PP_EUSAGE, "no command '%s'%s", words[0], pp_command_hint(words[0]).s);
    char flag[] = "--help";
    return c->run(2, (char *[]){NULL, flag, NULL});
}
