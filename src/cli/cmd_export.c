/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli export: a checkpoint in the form that other programs load. */
#include <inttypes.h>

#include "ppcli/checkpoint.h"
#include "ppcli/text.h"
#include "command.h"

int cmd_export(int argc, char **argv)
{
    int format = 0;
    const struct pp_cli_option options[] = {
        {"format", 0, PP_CLI_CHOICE, &format, "hf", "Hugging Face's; the only one there is"},
        {0},
    };
    const char *words[2];
    char path[PP_PATH_MAX], dir[PP_PATH_MAX], shown[PP_PATH_MAX];
    PP_TRY(pp_cli_parse(argc, argv, &command_export, options, NULL, words, 2));
    if (!words[0] || (!words[1] && !pp_cli_is_run(words[0])))
        return pp_fail(PP_EUSAGE,
                       "name a run and a new folder. For example: ppcli export runs/a dir");
    PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = NULL;
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    PP_TRY(pp_ckpt_open(words[0], PP_CKPT_VERIFY, &ck));
    if (!ck->config) {
        return pp_fail(PP_EFORMAT, "%s holds tensors, but no config; name a run or a checkpoint",
                       ck->path);
    }
    PP_TRY(pp_path_format(path, "%s/config.ini", ck->path));
    PP_TRY(pp_cli_load_config(path, NULL, &cfg));
    int64_t step = pp_ckpt_state(ck)->step;
    if (words[1])
        PP_TRY(pp_path_format(dir, "%s", words[1]));
    else
        PP_TRY(pp_path_format(dir, "%s/export-%08" PRId64, words[0], step));
    PP_TRY(pp_ckpt_export_hf(ck, cfg, dir));
    printf("%s: model.safetensors and config.json of step %" PRId64 "\n",
           pp_text_shown(dir, shown, sizeof(shown)), step);
    return 0;
}
