/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the tokenizer.json of vocabularies that are made here. */
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "ppcli/data/tokenizer.h"
#include "tokenizer.h"

struct pp_json tokenizer_begin_json(FILE *f, const char *mark, int64_t id, const char *before,
                                    const char *after)
{
    static const char *const off[] = {"single_word", "lstrip", "rstrip", "normalized"};
    static const char *const none[] = {"dropout", "unk_token", "continuing_subword_prefix",
                                       "end_of_word_suffix"};
    static const char *const no[] = {"fuse_unk", "byte_fallback", "ignore_merges"};
    struct pp_json j = pp_json_begin(f, 0);
    pp_json_str(&j, "version", "1.0");
    pp_json_array(&j, "added_tokens");
    if (mark) {
        pp_json_object(&j, NULL);
        pp_json_int(&j, "id", id);
        pp_json_str(&j, "content", mark);
        for (int i = 0; i < 4; i++)
            pp_json_bool(&j, off[i], false);
        pp_json_bool(&j, "special", true);
        pp_json_end(&j);
    }
    pp_json_end(&j);
    pp_json_str(&j, "normalizer", NULL);
    pp_json_raw(&j, "pre_tokenizer", before);
    pp_json_str(&j, "post_processor", NULL);
    pp_json_raw(&j, "decoder", after);
    pp_json_object(&j, "model");
    pp_json_str(&j, "type", "BPE");
    for (int i = 0; i < 4; i++)
        pp_json_str(&j, none[i], NULL);
    for (int i = 0; i < 3; i++)
        pp_json_bool(&j, no[i], false);
    return j;
}

int tokenizer_end_json(struct pp_json *j, char **text, char **out)
{
    while (j->depth > 0)
        pp_json_end(j);
    PP_TRY(pp_text_close(j->f, text, "tokenizer.json"));
    *out = pp_strdup(*text);
    free(*text);
    return *out ? 0 : PP_ERESOURCE;
}

int pp_vocabulary_json(const struct pp_vocabulary *v, char **out)
{
    char *text = NULL, token[8];
    const char *const bytes = TOKENIZER_BYTE_LEVEL("false");
    size_t n = 0;
    if (v->bpe)
        return (*out = pp_strdup(v->bpe->json)) ? 0 : PP_ERESOURCE;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        return pp_fail(PP_ERESOURCE, "out of memory");
    struct pp_json j = tokenizer_begin_json(f, NULL, 0, v->codes ? "null" : bytes,
                                            v->codes ? "{\"type\":\"Fuse\"}" : bytes);
    pp_json_object(&j, "vocab");
    for (int i = 0; i < v->n - v->first; i++) {
        uint32_t code = v->codes ? v->codes[i] : tokenizer_byte_letter(i);
        token[pp_utf8_put(code, token)] = '\0';
        pp_json_int(&j, token, i + v->first);
    }
    pp_json_end(&j);
    pp_json_array(&j, "merges");
    return tokenizer_end_json(&j, &text, out);
}
