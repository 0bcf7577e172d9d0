/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli inspect: what a checkpoint or safetensors file holds. */
#include "ppcli/show/results.h"
#include "command.h"

int cmd_inspect(int argc, char **argv)
{
    int json = 0;
    const struct pp_cli_option options[] = {
        {"format", 0, PP_CLI_CHOICE, &json, "text|json", "how to print; text"},
        {0},
    };
    const char *words[1];
    PP_TRY(pp_cli_parse(argc, argv, &command_inspect, options, NULL, words, 1));
    if (!words[0]) {
        return pp_fail(
            PP_EUSAGE,
            "name a checkpoint: a run folder, a checkpoint folder or a safetensors file");
    }
    PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = NULL;
    PP_TRY(pp_ckpt_open(words[0], PP_CKPT_STRUCTURE, &ck));
    return pp_ckpt_print(ck, json, stdout);
}
