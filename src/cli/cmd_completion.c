/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ppcli completion: a completion script for bash, zsh or fish, written from the command table, the
 * option tables and the key list, so that it cannot name what this ppcli does not have.
 */
#include <string.h>

#include "command.h"
#include "completion.h"
#include "ppcli/err.h"

static void help(FILE *f)
{
    fputs("  ppcli completion bash > ~/.local/share/bash-completion/completions/ppcli\n"
          "  ppcli completion zsh > ~/.zfunc/_ppcli          (a folder of $fpath)\n"
          "  ppcli completion fish > ~/.config/fish/completions/ppcli.fish\n"
          "\n"
          "Installing ppcli puts the same scripts into the usual places.\n",
          f);
}

static int run(int argc, char **argv)
{
    const char *words[1];
    PP_TRY(pp_cli_parse(argc, argv, &command_completion, NULL, NULL, words, 1));
    if (!words[0])
        return pp_fail(PP_EUSAGE, "which shell? bash, zsh or fish");
    return strcmp(words[0], "bash") == 0   ? completion_bash(stdout)
           : strcmp(words[0], "zsh") == 0  ? completion_zsh(stdout)
           : strcmp(words[0], "fish") == 0 ? completion_fish(stdout)
                                           : pp_fail(PP_EUSAGE,
                                                     "no completions for '%s'; there are bash, zsh "
                                                     "and fish",
                                                     words[0]);
}

const struct pp_command command_completion = {
    .name = "completion",
    .summary = "print a completion script for bash, zsh or fish",
    .words = "SHELL",
    .one_rank = true,
    .run = run,
    .help = help,
};
