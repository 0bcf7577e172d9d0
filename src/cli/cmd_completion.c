/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ppcli completion: a completion script for bash, zsh or fish, written from the command table, the
 * option tables and the key list, so that it cannot name what this ppcli does not have.
 */
#include <string.h>

#include "command.h"

int cmd_completion(int argc, char **argv)
{
    const char *words[1];
    PP_TRY(pp_cli_parse(argc, argv, &command_completion, NULL, NULL, words, 1));
    if (!words[0])
        return pp_fail(PP_EUSAGE, "name a shell: bash, zsh or fish");
    if (!pp_cli_shipped(false) || !pp_cli_shipped(true))
        return pp_error_get()->code;
    return strcmp(words[0], "bash") == 0  ? completion_bash(stdout)
           : strcmp(words[0], "zsh") == 0 ? completion_zsh(stdout)
           : strcmp(words[0], "fish") == 0
               ? completion_fish(stdout)
               : pp_fail(PP_EUSAGE, "no completions for '%s'; use bash, zsh or fish", words[0]);
}
