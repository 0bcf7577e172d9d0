/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.json, up to a NUL, and a text after it: ids are tokens, and where nothing changes a text
 * their bytes are the text. */
#include "fuzz.h"
#include "ppcli/base/base.h"
#include "../../src/data/tokenizer.h"

static void check_bytes(const struct pp_tokenizer *t, const struct pp_ids *ids, const char *text,
                        size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < ids->n; i++) {
        pp_assert(ids->at[i] < (uint32_t)t->n);
        const struct pp_token *token = &t->tokens[ids->at[i]];
        pp_assert(token->n <= n - at && memcmp(text + at, token->bytes, token->n) == 0);
        at += token->n;
    }
    pp_assert(at == n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pp_tokenizer *t = NULL;
    struct pp_ids ids = {0};
    char *json = malloc(size + 1);
    memcpy(json, data, size);
    json[size] = '\0';
    size_t n = strlen(json);
    int rc = pp_tokenizer_parse("t.json", json, n, &t);
    if (rc == 0) {
        const char *text = n < size ? json + n + 1 : json;
        size_t bytes = n < size ? size - n - 1 : n;
        rc = pp_tokenizer_encode(t, "text", text, bytes, &ids);
        bool plain = !strstr(json, "normalizer") && !strstr(json, "strip") &&
                     !strstr(json, "Split") && !strstr(json, "Metaspace") && !t->opens_with_space &&
                     t->unk < 0;
        if (rc == 0 && plain)
            check_bytes(t, &ids, text, bytes);
    }
    if (rc < 0 && rc != PP_ERESOURCE) /* without PCRE2 */
        fuzz_refused(rc);
    pp_free(ids.at);
    pp_tokenizer_destroy(&t);
    free(json);
    return 0;
}
