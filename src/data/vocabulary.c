/* SPDX-License-Identifier: Apache-2.0 */
/* Converts texts to tokens and back. */
#include "ppcli/data/tokenizer.h"

#include <stdio.h>
#include <string.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"
#include "tokenizer.h"

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

/* Returns the character at text[at], which is inside the text; *length is 0 if it is not valid
 * UTF-8. */
static uint32_t decode_character(const char *text, size_t at, size_t bytes, size_t *length)
{
    const unsigned char *s = (const unsigned char *)text + at;
    int n = pp_utf8_length(text + at);
    *length = (size_t)n > bytes - at ? 0 : (size_t)n;
    uint32_t code = n < 2 ? s[0] : s[0] & (0x7fu >> n);
    for (int i = 1; i < n; i++)
        code = code << 6 | (s[i] & 0x3fu);
    return code;
}

static int fail_character(const char *label, const char *text, size_t at)
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
            uint32_t code = decode_character(texts[i], at, bytes[i], &length);
            if (length == 0 || code == 0)
                return fail_character(paths[i], texts[i], at);
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

int pp_vocabulary_open(const char *path, bool padded, struct pp_vocabulary *out)
{
    struct pp_tokenizer *t = NULL;
    PP_TRY(pp_tokenizer_open(path, &t));
    *out = (struct pp_vocabulary){.n = t->n + padded, .first = padded, .bpe = t};
    return 0;
}

/* Returns whether the text is a tokenizer.json and not a list of characters: in JSON a blank or a
 * quote follows '{', in an ascending list neither can. */
static bool is_json(const char *text)
{
    return text[0] == '{' && text[1] && (unsigned char)text[1] < '{';
}

int pp_vocabulary_from(const char *label, const char *text, struct pp_vocabulary *out)
{
    size_t bytes = strlen(text);
    struct pp_tokenizer *t = NULL;
    if (!is_json(text))
        return pp_vocabulary_of(1, &label, &text, &bytes, false, out);
    PP_TRY(pp_tokenizer_parse(label, text, bytes, &t));
    *out = (struct pp_vocabulary){.n = t->n, .bpe = t};
    return 0;
}

int pp_vocabulary_beside(const char *path, struct pp_vocabulary *out)
{
    char dir[PP_PATH_MAX];
    *out = (struct pp_vocabulary){0};
    PP_TRY(pp_path_format(dir, "%s", path));
    char *slash = strrchr(dir, '/');
    if (!pp_tokenizer_is_in(dir) && slash)
        *slash = '\0';
    return pp_tokenizer_is_in(dir) ? pp_vocabulary_open(dir, false, out) : 0;
}

char *pp_vocabulary_text(const struct pp_vocabulary *v)
{
    if (v->bpe)
        return pp_strdup(v->bpe->json);
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

const char *character_shown(const char *at, char out[CHARACTER_SHOWN])
{
    static const struct {
        uint32_t code;
        const char *name;
    } names[] = {{'\r', "a carriage return, as in line ends of Windows"},
                 {'\n', "the end of a line"},
                 {'\t', "a tab"},
                 {' ', "a blank"},
                 {0xa0, "a no-break space"},
                 {0xfeff, "a byte order mark"}};
    size_t length;
    uint32_t code = decode_character(at, 0, PP_UTF8_MAX, &length);
    const char *name = pp_text_control(at) ? "a character that is not shown" : NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        name = names[i].code == code ? names[i].name : name;
    if (name)
        snprintf(out, CHARACTER_SHOWN, "%s (U+%04X)", name, (unsigned)code);
    else
        snprintf(out, CHARACTER_SHOWN, "'%.*s' (U+%04X)", (int)length, at, (unsigned)code);
    return out;
}

/* Returns the token of a character; -1: there is none. */
static int find_token(const struct pp_vocabulary *v, uint32_t code)
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

static int encode_subwords(const struct pp_vocabulary *v, const char *label, const char *text,
                           size_t bytes, enum pp_element element, size_t most, void *out,
                           size_t *out_n)
{
    struct pp_ids ids = {0};
    size_t each = pp_element_bytes(element);
    int rc = pp_tokenizer_encode(v->bpe, label, text, bytes, &ids);
    *out_n = ids.n < most ? ids.n : most;
    for (size_t i = 0; i < *out_n; i++) {
        uint32_t token = ids.at[i] + (uint32_t)v->first;
        memcpy((char *)out + i * each, &token, each);
    }
    pp_free(ids.at);
    return rc;
}

int pp_vocabulary_encode(const struct pp_vocabulary *v, const char *label, const char *text,
                         size_t bytes, enum pp_element element, size_t most, void *out,
                         size_t *out_n)
{
    size_t n = 0, each = pp_element_bytes(element);
    if (v->bpe)
        return encode_subwords(v, label, text, bytes, element, most, out, out_n);
    for (size_t at = 0, length = 1; at < bytes && n < most; at += length, n++) {
        int token = (unsigned char)text[at] + v->first;
        if (v->codes) {
            uint32_t code = decode_character(text, at, bytes, &length);
            if (length == 0)
                return fail_character(label, text, at);
            char shown[CHARACTER_SHOWN];
            token = find_token(v, code);
            if (token < 0) {
                return pp_fail(PP_EFORMAT,
                               "%s: character %zu, %s, is not one of the %d in the vocabulary",
                               label, n + 1, character_shown(text + at, shown), v->n - v->first);
            }
        }
        memcpy((char *)out + n * each, &token, each); /* little-endian, as in safetensors */
    }
    *out_n = n;
    return 0;
}

const char *pp_vocabulary_decode(const struct pp_vocabulary *v, int token,
                                 char buffer[PP_TOKEN_TEXT], size_t *out_n)
{
    *out_n = 0;
    if (token < v->first || token >= v->n)
        return "";
    token -= v->first;
    if (v->bpe) {
        *out_n = v->bpe->tokens[token].n;
        return v->bpe->tokens[token].bytes;
    }
    buffer[0] = (char)token;
    *out_n = v->codes ? pp_utf8_put(v->codes[token], buffer) : 1;
    return buffer;
}

/* ---- comparing two vocabularies */

/* Makes a vocabulary with a tokenizer from a text, which is a tokenizer.json or a list of
 * characters. */
static int make_tokenizer(const char *label, const char *text, struct pp_vocabulary *v)
{
    PP_OWN(pp_vocabulary_fini) struct pp_vocabulary characters = {0};
    PP_OWN_MEMORY char *json = NULL;
    if (is_json(text))
        return pp_vocabulary_from(label, text, v);
    PP_TRY(pp_vocabulary_from(label, text, &characters));
    PP_TRY(pp_vocabulary_json(&characters, &json));
    return pp_vocabulary_from(label, json, v);
}

static int compare_texts(const struct pp_config *cfg, const char *path, const char *then,
                         const char *now)
{
    PP_OWN(pp_vocabulary_fini) struct pp_vocabulary a = {0}, b = {0};
    if (strcmp(then, now) == 0)
        return 0;
    PP_TRY(make_tokenizer(path, then, &a));
    PP_TRY(make_tokenizer("data.tokenizer", now, &b));
    pp_assert(a.bpe && b.bpe);
    if (pp_tokenizer_same(a.bpe, b.bpe))
        return 0;
    if (a.bpe->n_merges > 0 && b.bpe->n_merges == 0) {
        return pp_fail(PP_EFORMAT,
                       "%s has weights for the %d subwords of its tokenizer, and data set '%s' has "
                       "%d characters or bytes; use data.tokens = bpe",
                       path, a.n, cfg->data.dataset, b.n);
    }
    return pp_fail(PP_EFORMAT,
                   "%s was trained on a text of %d kinds of %s, data set '%s' has %d different "
                   "ones: tokens would have other numbers",
                   path, a.n, a.bpe->n_merges > 0 ? "subwords" : "characters", cfg->data.dataset,
                   b.n);
}

int pp_vocabulary_check(const struct pp_config *cfg, const char *path, bool plain, const char *then,
                        const char *now, int kinds)
{
    PP_OWN(pp_vocabulary_fini) struct pp_vocabulary beside = {0};
    PP_OWN_MEMORY char *bytes = NULL;
    const struct pp_vocabulary of_bytes = pp_vocabulary_bytes(false);
    int mine = cfg->model.vocab_size;
    if (!now && kinds == of_bytes.n) {
        PP_TRY(pp_vocabulary_json(&of_bytes, &bytes));
        now = bytes;
    }
    if (plain && now)
        PP_TRY(pp_vocabulary_beside(path, &beside));
    then = beside.bpe ? beside.bpe->json : then;
    if (plain && !then && kinds > 0 && mine > 0 && kinds != mine) {
        pp_log_warn("%s has weights for %d tokens, and the text of data set '%s' has %d kinds: a "
                    "model of another program needs its own tokenizer; put its tokenizer.json into "
                    "its folder and use data.tokens = bpe",
                    path, mine, cfg->data.dataset, kinds);
    }
    return then && now ? compare_texts(cfg, path, then, now) : 0;
}
