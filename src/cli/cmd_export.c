/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli export: a checkpoint in the form that other programs load. */
#include <inttypes.h>
#include <string.h>

#include "ppcli/checkpoint.h"
#include "ppcli/text.h"
#include "command.h"

/* A run may remove the checkpoint before its config is read: then the next one is taken. (Its tensors
 * stay readable, their files are open.) Without a config *cfg stays NULL. */
static int open_with_config(const char *word, struct pp_ckpt **ck, struct pp_config **cfg)
{
    for (;;) {
        char path[PP_PATH_MAX], config[PP_PATH_MAX];
        PP_TRY(pp_ckpt_open(word, PP_CKPT_VERIFY, ck));
        if (!(*ck)->config)
            return 0;
        PP_TRY(pp_path_format(path, "%s", (*ck)->path));
        PP_TRY(pp_path_format(config, "%s/config.ini", path));
        int rc = pp_cli_load_config(config, NULL, cfg);
        if (rc != PP_ENOINPUT || strcmp(word, path) == 0)
            return rc;
        pp_ckpt_close(ck);
    }
}

int cmd_export(int argc, char **argv)
{
    int format = 0;
    const struct pp_cli_option options[] = {
        {"format", 0, PP_CLI_CHOICE, &format, "hf", "Hugging Face's; the only one there is"},
        {0},
    };
    const char *words[2];
    char dir[PP_PATH_MAX], shown[PP_PATH_MAX];
    PP_TRY(pp_cli_parse(argc, argv, &command_export, options, NULL, words, 2));
    if (!words[0] || (!words[1] && !pp_cli_is_run(words[0])))
        return pp_fail(PP_EUSAGE,
                       "name a run and a new folder. For example: ppcli export runs/a dir");
    PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = NULL;
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    PP_TRY(open_with_config(words[0], &ck, &cfg));
    if (!ck->config) {
        return pp_fail(PP_EFORMAT, "%s holds tensors, but no config; name a run or a checkpoint",
                       ck->path);
    }
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
