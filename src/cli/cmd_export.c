/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli export: a checkpoint in the form that other programs load. */
#include <inttypes.h>
#include <string.h>

#include "ppcli/ckpt/checkpoint.h"
#include "ppcli/base/base.h"
#include "ppcli/nn/model.h"
#include "ppcli/pipe/layout.h"
#include "ppcli/data/tokenizer.h"
#include "command.h"

/* Opens the checkpoint and reads its config. If a run removes the checkpoint before its config is
 * read, the next one is taken. *cfg stays NULL if the checkpoint has no config. */
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

/* Writes the exported files. Opens the model and the tokens first, as far as the format needs
 * them. */
static int write_files(struct pp_export *x, struct pp_config *cfg, const char *tokenizer,
                       const char *dir)
{
    PP_OWN(pp_model_destroy) struct pp_model *model = NULL;
    PP_OWN(pp_tokenizer_destroy) struct pp_tokenizer *tokens = NULL;
    PP_OWN(pp_vocabulary_fini) struct pp_vocabulary kept = {0};
    const struct pp_data_input unknown = {0}; /* a program has its own sizes */
    if (x->format == PP_EXPORT_PT2)
        PP_TRY(strcmp(cfg->model.type, "graph") == 0 ? pp_model_create(cfg, &unknown, &model) : 0);
    else if (x->format >= PP_EXPORT_ONNX) {
        int rc = pp_run_model(cfg, &model);
        bool said = rc == PP_ECONFIG && pp_config_problem_count(cfg) > 0;
        PP_TRY(said ? pp_fail(PP_ECONFIG, "%s", pp_config_problem_text(cfg, 0)) : rc);
    }
    const char *text = pp_ckpt_state(x->ck)->vocabulary;
    if (tokenizer)
        PP_TRY(pp_tokenizer_open(tokenizer, &tokens));
    else if (text && x->format == PP_EXPORT_GGUF)
        PP_TRY(pp_vocabulary_from(x->ck->path, text, &kept));
    x->model = model;
    x->tokenizer = tokens ? tokens : kept.bpe;
    return pp_ckpt_export(x, dir);
}

int cmd_export(int argc, char **argv)
{
    static const enum pp_st_dtype dtypes[] = {PP_ST_F32, PP_ST_F16, PP_ST_BF16};
    static const char *const files[] = {"model.safetensors, config.json", "model.gguf",
                                        "model.onnx", "model.safetensors and model.py",
                                        "the program with the weights"};
    int format = -1, dtype = 0;
    const char *tokenizer = NULL;
    const struct pp_cli_option options[] = {
        {"format", 0, PP_CLI_CHOICE, &format, "hf|gguf|onnx|torch|pt2",
         "the kind of files; hf; of a program pt2"},
        {"dtype", 0, PP_CLI_CHOICE, &dtype, "f32|f16|bf16", "gguf: of matrices; default f32"},
        {"tokenizer", 0, PP_CLI_STRING, &tokenizer, "DIR",
         "gguf: tokenizer.json's folder; the checkpoint's"},
        {0},
    };
    const char *words[2];
    char dir[PP_PATH_MAX], shown[PP_PATH_MAX];
    PP_TRY(pp_cli_parse(argc, argv, &command_export, options, NULL, words, 2));
    bool is_run = false;
    PP_TRY(pp_cli_is_run(words[0], &is_run));
    if (words[0] && !words[1] && !is_run)
        return pp_cli_refuse_run(words[0], "name a run");
    if (!words[0])
        return pp_fail(PP_EUSAGE,
                       "name a run and a new folder. For example: ppcli export runs/a dir");
    if (format != PP_EXPORT_GGUF && (dtype > 0 || tokenizer))
        return pp_fail(PP_EUSAGE, "--%s is for --format gguf", tokenizer ? "tokenizer" : "dtype");
    PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = NULL;
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    PP_TRY(open_with_config(words[0], &ck, &cfg));
    if (!ck->config) {
        return pp_fail(PP_EFORMAT, "%s holds tensors, but no config; name a run or a checkpoint",
                       ck->path);
    }
    int64_t step = pp_ckpt_state(ck)->step;
    if (format < 0)
        format = strcmp(cfg->model.type, "graph") == 0 ? PP_EXPORT_PT2 : PP_EXPORT_HF;
    if (words[1])
        PP_TRY(pp_path_format(dir, "%s", words[1]));
    else
        PP_TRY(pp_path_format(dir, "%s/export-%08" PRId64 "%s", words[0], step,
                              format == PP_EXPORT_PT2 ? ".pt2" : ""));
    struct pp_export x = {
        .ck = ck, .cfg = cfg, .format = (enum pp_export_format)format, .dtype = dtypes[dtype]};
    bool named = false;
    PP_TRY(write_files(&x, cfg, tokenizer, dir));
    if (format == PP_EXPORT_HF)
        PP_TRY(pp_ckpt_export_vocabulary(ck, cfg, dir, &named));
    printf("%s: %s%s of step %" PRId64 "\n", pp_text_shown(dir, shown, sizeof(shown)),
           files[format], named ? " and tokenizer.json" : "", step);
    return 0;
}
