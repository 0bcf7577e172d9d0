/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the tokens of a checkpoint in Hugging Face's formats. */
#include "ppcli/ckpt/checkpoint.h"
#include "ppcli/base/files.h"
#include "ppcli/base/base.h"
#include "ppcli/data/tokenizer.h"

/* Writes the names of the special tokens to tokenizer_config.json; AutoTokenizer finds them nowhere
 * else. */
static int write_marks(const char *dir, const struct pp_tokenizer *t)
{
    char path[PP_PATH_MAX];
    struct pp_file_write file;
    PP_TRY(pp_path_format(path, "%s/tokenizer_config.json", dir));
    PP_TRY(pp_file_create(path, &file));
    struct pp_json j = pp_json_begin(file.f, 2);
    const char *const names[] = {"bos_token", "eos_token", "unk_token"};
    const int ids[] = {t ? t->bos : -1, t ? t->eos : -1, t ? t->unk : -1};
    pp_json_str(&j, "tokenizer_class", "PreTrainedTokenizerFast");
    pp_json_bool(&j, "clean_up_tokenization_spaces", false);
    for (int i = 0; i < 3; i++)
        if (ids[i] >= 0)
            pp_json_str(&j, names[i], t->tokens[ids[i]].text);
    pp_json_end(&j);
    return pp_file_commit(&file);
}

int pp_ckpt_export_vocabulary(const struct pp_ckpt *ck, const struct pp_config *cfg,
                              const char *dir, bool *out_any)
{
    PP_OWN(pp_vocabulary_fini) struct pp_vocabulary v = {0};
    PP_OWN_MEMORY char *json = NULL;
    const char *text = pp_ckpt_state(ck)->vocabulary;
    bool bytes = cfg->data.tokens == PP_TOKENS_BYTES;
    PP_TRY(text    ? pp_vocabulary_from(ck->path, text, &v)
           : bytes ? pp_dataset_vocabulary(cfg, &v)
                   : 0);
    *out_any = v.n > 0;
    if (v.n == 0)
        return 0;
    PP_TRY(pp_vocabulary_json(&v, &json));
    PP_TRY(pp_file_write_text(dir, "tokenizer.json", json));
    PP_TRY(write_marks(dir, v.bpe));
    return pp_io_sync_dir(&pp_io_system, dir);
}
