/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli completion: the script by which bash, zsh or fish ask this program what can follow. */
#include <string.h>

#include "command.h"

int cmd_completion(int argc, char **argv)
{
    static const struct {
        const char *shell, *script;
    } scripts[] = {{"bash", text_completion_bash},
                   {"zsh", text_completion_zsh},
                   {"fish", text_completion_fish}};
    const char *words[1];
    if (argc > 1 && strcmp(argv[1], "words") == 0) /* asked by the scripts, not by people */
        return completion_answer(argc - 2, argv + 2);
    PP_TRY(pp_cli_parse(argc, argv, &command_completion, NULL, NULL, words, 1));
    if (!words[0])
        return pp_fail(PP_EUSAGE, "name a shell: bash, zsh or fish");
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        if (strcmp(words[0], scripts[i].shell) == 0) {
            fputs(scripts[i].script, stdout);
            return 0;
        }
    }
    return pp_fail(PP_EUSAGE, "no completions for '%s'; use bash, zsh or fish", words[0]);
}
