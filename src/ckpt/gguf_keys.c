/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of GGUF, the tokenizer's among them. */
#include <string.h>

#include "gguf.h"
#include "ppcli/mem.h"
#include "ppcli/text.h"
#include "ppcli/tokenizer.h"

enum token_type {
    NORMAL = 1,
    CONTROL = 3,
    USER = 4,
    UNUSED = 5,
    BYTE = 6
};

/* ---- keys */

void gguf_string(struct pp_bytes *b, const char *text, size_t n)
{
    pp_bytes_little(b, n, 8);
    pp_bytes_put(b, text, n);
}

/* "%s.x" begins with the architecture. */
static void put_key(struct gguf *g, const char *name, enum value type)
{
    char key[96];
    bool own = strncmp(name, "general.", 8) == 0 || strncmp(name, "tokenizer.", 10) == 0;
    snprintf(key, sizeof(key), "%s%s%s", own ? "" : g->arch, own ? "" : ".", name);
    gguf_string(&g->keys, key, strlen(key));
    pp_bytes_little(&g->keys, type, 4);
    g->n_keys++;
}

void gguf_u32(struct gguf *g, const char *name, int64_t value)
{
    put_key(g, name, U32);
    pp_bytes_little(&g->keys, (uint64_t)value, 4);
}

void gguf_f32(struct gguf *g, const char *name, double value)
{
    float f = (float)value;
    put_key(g, name, F32);
    pp_bytes_put(&g->keys, &f, sizeof(f));
}

static void put_bool(struct gguf *g, const char *name, bool value)
{
    put_key(g, name, BOOL);
    pp_bytes_little(&g->keys, value, 1);
}

void gguf_text(struct gguf *g, const char *name, const char *text)
{
    put_key(g, name, STRING);
    gguf_string(&g->keys, text, strlen(text));
}

static void begin_array(struct gguf *g, const char *name, enum value type, size_t n)
{
    put_key(g, name, ARRAY);
    pp_bytes_little(&g->keys, type, 4);
    pp_bytes_little(&g->keys, n, 8);
}

/* ---- the tokenizer */

/* A byte in GPT-2's spelling: the printable ones stand for themselves, the others follow from 256. */
static size_t spell(uint8_t byte, char out[2])
{
    static const char map[] = {33, 126}; /* and 161 to 172, 174 to 255 */
    uint32_t code = 256;
    bool plain = false;
    for (uint32_t b = 0; b <= byte; b++) {
        plain = (b >= (uint32_t)map[0] && b <= (uint32_t)map[1]) || (b >= 161 && b != 173);
        code += !plain && b < byte;
    }
    code = plain ? byte : code;
    if (code < 128) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xC0 | code >> 6);
    out[1] = (char)(0x80 | (code & 63));
    return 2;
}

static size_t spell_all(const char *bytes, int n, char *out)
{
    size_t used = 0;
    for (int i = 0; i < n; i++)
        used += spell((uint8_t)bytes[i], out + used);
    return used;
}

/* Numbers of the model that no token has. */
static void put_unused(struct pp_bytes *b, int from, int n)
{
    for (int i = from; i < n; i++) {
        char name[32];
        snprintf(name, sizeof(name), "<unused %d>", i);
        gguf_string(b, name, strlen(name));
    }
}

/* A character's bytes are merged one after the other. Neighbours that begin alike share the first. */
static void put_char_merges(struct gguf *g, const char *text)
{
    PP_OWN(pp_bytes_fini) struct pp_bytes all = {0};
    const char *before = "";
    int count = 0, length = 0;
    for (const char *p = text; *p; before = p, p += length) {
        length = pp_utf8_length(p);
        for (int i = 1; i < length; i++) {
            char merge[32];
            if (strncmp(before, p, (size_t)i + 1) == 0)
                continue;
            size_t n = spell_all(p, i, merge);
            merge[n++] = ' ';
            n += spell((uint8_t)p[i], merge + n);
            gguf_string(&all, merge, n);
            count++;
        }
    }
    begin_array(g, "tokenizer.ggml.merges", STRING, (size_t)count);
    pp_bytes_put(&g->keys, all.at, all.n);
    g->keys.lost |= all.lost;
}

/* A vocabulary of characters in order, "": of the 256 bytes. */
static void put_chars(struct gguf *g, const char *text, int vocabulary)
{
    int n = 0;
    begin_array(g, "tokenizer.ggml.tokens", STRING, (size_t)vocabulary);
    for (int b = 0; b < 256 && !text[0] && b < vocabulary; b++, n++) {
        char out[2];
        gguf_string(&g->keys, out, spell((uint8_t)b, out));
    }
    for (const char *p = text; *p && n < vocabulary; n++) {
        char out[16];
        int length = pp_utf8_length(p);
        gguf_string(&g->keys, out, spell_all(p, length, out));
        p += length;
    }
    put_unused(&g->keys, n, vocabulary);
    begin_array(g, "tokenizer.ggml.token_type", I32, (size_t)vocabulary);
    for (int i = 0; i < vocabulary; i++)
        pp_bytes_little(&g->keys, i < n ? NORMAL : UNUSED, 4);
    gguf_text(g, "tokenizer.ggml.pre", "gpt-2");
    put_char_merges(g, text);
}

static void put_types(struct gguf *g, const struct pp_tokenizer *t, int vocabulary)
{
    begin_array(g, "tokenizer.ggml.token_type", I32, (size_t)vocabulary);
    for (int i = 0; i < vocabulary; i++) {
        const struct pp_token *k = i < t->n ? &t->tokens[i] : NULL;
        enum token_type type = !k || !k->text[0] ? UNUSED
                               : k->special      ? CONTROL
                               : k->added        ? USER
                               : k->byte         ? BYTE
                                                 : NORMAL;
        pp_bytes_little(&g->keys, type, 4);
    }
}

static int put_scores(struct gguf *g, const struct pp_tokenizer *t, int vocabulary)
{
    PP_TAKE(float, scores, (size_t)vocabulary);
    for (int i = t->n_merges - 1; i >= 0; i--)
        scores[t->merges[i].into] = (float)-i;
    begin_array(g, "tokenizer.ggml.scores", F32, (size_t)vocabulary);
    pp_bytes_put(&g->keys, scores, (size_t)vocabulary * sizeof(*scores));
    put_bool(g, "tokenizer.ggml.add_space_prefix", t->opens_with_space);
    return 0;
}

static int put_merges(struct gguf *g, const struct pp_tokenizer *t)
{
    const char *p = t->pattern ? t->pattern : "";
    const char *pre = strstr(p, "{1,3}")    ? "llama-bpe"
                      : strstr(p, "(?i:'s") ? "qwen2"
                      : strstr(p, "'s|'t")  ? "gpt-2"
                                            : NULL;
    if (!pre && p[0])
        return pp_fail(PP_ECONFIG,
                       "the tokenizer cuts texts by a pattern for which GGUF has no name: %s", p);
    gguf_text(g, "tokenizer.ggml.pre", pre ? pre : "gpt-2");
    begin_array(g, "tokenizer.ggml.merges", STRING, (size_t)t->n_merges);
    for (int i = 0; i < t->n_merges; i++) {
        const char *left = t->tokens[t->merges[i].left].text,
                   *right = t->tokens[t->merges[i].right].text;
        size_t a = strlen(left), b = strlen(right);
        pp_bytes_little(&g->keys, a + 1 + b, 8);
        pp_bytes_put(&g->keys, left, a);
        pp_bytes_put(&g->keys, " ", 1);
        pp_bytes_put(&g->keys, right, b);
    }
    return 0;
}

static int put_subwords(struct gguf *g, const struct pp_tokenizer *t, int vocabulary)
{
    if (t->n > vocabulary)
        return pp_fail(PP_ECONFIG, "the tokenizer has %d tokens, the model %d", t->n, vocabulary);
    begin_array(g, "tokenizer.ggml.tokens", STRING, (size_t)vocabulary);
    for (int i = 0; i < t->n; i++) {
        const char *text = t->tokens[i].text;
        if (text[0])
            gguf_string(&g->keys, text, strlen(text));
        else
            put_unused(&g->keys, i, i + 1);
    }
    put_unused(&g->keys, t->n, vocabulary);
    put_types(g, t, vocabulary);
    if (t->bos >= 0)
        gguf_u32(g, "tokenizer.ggml.bos_token_id", t->bos);
    if (t->eos >= 0)
        gguf_u32(g, "tokenizer.ggml.eos_token_id", t->eos);
    if (t->unk >= 0)
        gguf_u32(g, "tokenizer.ggml.unknown_token_id", t->unk);
    return t->byte_level ? put_merges(g, t) : put_scores(g, t, vocabulary);
}

int gguf_tokenizer(struct gguf *g, int vocabulary)
{
    const struct pp_tokenizer *t = g->x->tokenizer;
    const struct pp_ckpt_state *s = pp_ckpt_state(g->e->ck);
    const char *chars = s ? s->vocabulary : NULL;
    gguf_u32(g, "vocab_size", vocabulary);
    gguf_text(g, "tokenizer.ggml.model",
              t       ? t->byte_level ? "gpt2" : "llama"
              : chars ? "gpt2"
                      : "no_vocab");
    put_bool(g, "tokenizer.ggml.add_bos_token", false);
    if (t)
        return put_subwords(g, t, vocabulary);
    if (chars)
        put_chars(g, chars, vocabulary);
    return 0;
}
