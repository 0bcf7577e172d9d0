/* SPDX-License-Identifier: Apache-2.0 */
/* Texts to tokens and back. */
#include "ppcli/vocabulary.h"

#include <string.h>

#include "ppcli/log.h"
#include "ppcli/mem.h"
#include "ppcli/text.h"

#define CODES 0x110000u

struct pp_vocabulary pp_vocabulary_bytes(bool padded)
{
    return (struct pp_vocabulary){.n = 256 + padded, .first = padded};
}

void pp_vocabulary_fini(struct pp_vocabulary *v)
{
    pp_free(v->codes);
    pp_tokenizer_destroy(&v->bpe);
    *v = (struct pp_vocabulary){0};
}

/* The character at text[at], which is not behind its end; *length 0: none. */
static uint32_t code_at(const char *text, size_t at, size_t bytes, size_t *length)
{
    const unsigned char *s = (const unsigned char *)text + at;
    int n = pp_utf8_length(text + at);
    *length = (size_t)n > bytes - at ? 0 : (size_t)n;
    uint32_t code = n < 2 ? s[0] : s[0] & (0x7fu >> n);
    for (int i = 1; i < n; i++)
        code = code << 6 | (s[i] & 0x3fu);
    return code;
}

static int no_character(const char *label, const char *text, size_t at)
{
    return pp_fail(PP_EFORMAT,
                   "%s: byte %zu (0x%02x) begins no character of UTF-8%s; use data.tokens = bytes",
                   label, at, (unsigned char)text[at], text[at] ? "" : ", it is a NUL");
}

int pp_vocabulary_of(int n, const char *const *paths, const char *const *texts, const size_t *bytes,
                     bool padded, struct pp_vocabulary *out)
{
    int count = 0;
    PP_TAKE(bool, seen, CODES);
    for (int i = 0; i < n; i++) {
        for (size_t at = 0, length; at < bytes[i]; at += length) {
            uint32_t code = code_at(texts[i], at, bytes[i], &length);
            if (length == 0 || code == 0)
                return no_character(paths[i], texts[i], at);
            count += !seen[code];
            seen[code] = true;
        }
    }
    uint32_t *codes;
    PP_ALLOC(codes, count);
    *out = (struct pp_vocabulary){.n = count + padded, .first = padded, .codes = codes};
    for (uint32_t code = 0; code < CODES; code++)
        if (seen[code])
            *codes++ = code;
    return 0;
}

char *pp_vocabulary_text(const struct pp_vocabulary *v)
{
    size_t codes = v->codes ? (size_t)(v->n - v->first) : 0, used = 0;
    char *text = pp_alloc(4 * codes + 1, 1);
    for (size_t i = 0; text && i < codes; i++)
        used += pp_utf8_put(v->codes[i], text + used);
    return text;
}

enum pp_element pp_vocabulary_element(const struct pp_vocabulary *v)
{
    return v->n <= 1 << 8 ? PP_U8 : v->n <= 1 << 16 ? PP_U16 : PP_U32;
}

/* -1: it has none for this character. */
static int token_of(const struct pp_vocabulary *v, uint32_t code)
{
    int low = 0, high = v->n - v->first;
    while (low < high) {
        int middle = (low + high) / 2;
        if (v->codes[middle] < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < v->n - v->first && v->codes[low] == code ? low + v->first : -1;
}

int pp_vocabulary_encode(const struct pp_vocabulary *v, const char *label, const char *text,
                         size_t bytes, enum pp_element element, size_t most, void *out,
                         size_t *out_n)
{
    size_t n = 0, each = pp_element_bytes(element);
    for (size_t at = 0, length = 1; at < bytes && n < most; at += length, n++) {
        int token = (unsigned char)text[at] + v->first;
        if (v->codes) {
            uint32_t code = code_at(text, at, bytes, &length);
            if (length == 0)
                return no_character(label, text, at);
            char shown[PP_TOKEN_TEXT];
            token = token_of(v, code);
            if (token < 0) {
                snprintf(shown, sizeof(shown), "%.*s", (int)length, text + at);
                return pp_fail(PP_EFORMAT,
                               "%s: character %zu, '%s' (U+%04X), is none of the %d that the "
                               "vocabulary has",
                               label, n + 1, pp_text_plain(shown), (unsigned)code, v->n - v->first);
            }
        }
        memcpy((char *)out + n * each, &token, each); /* little-endian, as safetensors want it */
    }
    *out_n = n;
    return 0;
}

size_t pp_vocabulary_decode(const struct pp_vocabulary *v, int token, char out[PP_TOKEN_TEXT])
{
    size_t n = 0;
    if (token >= v->first && token < v->n) {
        if (v->codes)
            n = pp_utf8_put(v->codes[token - v->first], out);
        else
            out[n++] = (char)(token - v->first);
    }
    out[n] = '\0';
    return n;
}

int pp_vocabulary_check(const struct pp_config *cfg, const char *path, const char *then,
                        const char *now, int foreign)
{
    int kinds[2] = {0, 0}, mine = cfg->model.vocab_size;
    if (foreign > 0 && mine > 0 && foreign != mine) {
        pp_log_warn("%s has weights for %d tokens, and the text of data set '%s' has %d characters "
                    "or bytes: the tokens of another program's model are those of its tokenizer; "
                    "if this is one, use data.dataset = tokens with files that it made",
                    path, mine, cfg->data.dataset, foreign);
    }
    if (!then || !now || strcmp(then, now) == 0)
        return 0;
    for (int k = 0; k < 2; k++)
        for (const char *p = k ? now : then; *p; p++)
            kinds[k] += ((unsigned char)*p & 0xc0) != 0x80;
    return pp_fail(PP_EFORMAT,
                   "%s was trained on a text of %d kinds of characters, data set '%s' has %d and "
                   "not the same ones: tokens would have other numbers",
                   path, kinds[0], cfg->data.dataset, kinds[1]);
}
