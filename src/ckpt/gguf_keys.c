/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the keys of GGUF, including those of the tokenizer. */
#include <string.h>

#include "gguf.h"
#include "ppcli/base/base.h"
#include "ppcli/data/tokenizer.h"

enum token_type {
    NORMAL = 1,
    UNKNOWN = 2,
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

/* Writes the name and type of a key. Names get the architecture as a prefix, except general.* and
 * tokenizer.*. */
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

/* Writes a byte as GPT-2 does and returns the length: printable bytes as themselves, the others as
 * characters from 256 on. */
static size_t spell_byte(uint8_t byte, char out[2])
{
    static const char map[] = {33, 126}; /* also 161 to 172 and 174 to 255 */
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

static size_t spell_bytes(const char *bytes, int n, char *out)
{
    size_t used = 0;
    for (int i = 0; i < n; i++)
        used += spell_byte((uint8_t)bytes[i], out + used);
    return used;
}

/* Writes names for the numbers `from` to n - 1 of the vocabulary, which have no token. */
static void put_unused(struct pp_bytes *b, int from, int n)
{
    for (int i = from; i < n; i++) {
        char name[32];
        snprintf(name, sizeof(name), "<unused %d>", i);
        gguf_string(b, name, strlen(name));
    }
}

/* Writes the merges that build each character from its bytes, one byte after the other. Adjacent
 * characters with the same first bytes share merges. */
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
            size_t n = spell_bytes(p, i, merge);
            merge[n++] = ' ';
            n += spell_byte((uint8_t)p[i], merge + n);
            gguf_string(&all, merge, n);
            count++;
        }
    }
    begin_array(g, "tokenizer.ggml.merges", STRING, (size_t)count);
    pp_bytes_put(&g->keys, all.at, all.n);
    g->keys.lost |= all.lost;
}

/* Writes a vocabulary of the characters of `text`, in order; if it is "", of the 256 bytes. */
static void put_chars(struct gguf *g, const char *text, int vocabulary)
{
    int n = 0;
    begin_array(g, "tokenizer.ggml.tokens", STRING, (size_t)vocabulary);
    for (int b = 0; b < 256 && !text[0] && b < vocabulary; b++, n++) {
        char out[2];
        gguf_string(&g->keys, out, spell_byte((uint8_t)b, out));
    }
    for (const char *p = text; *p && n < vocabulary; n++) {
        char out[16];
        int length = pp_utf8_length(p);
        gguf_string(&g->keys, out, spell_bytes(p, length, out));
        p += length;
    }
    put_unused(&g->keys, n, vocabulary);
    begin_array(g, "tokenizer.ggml.token_type", I32, (size_t)vocabulary);
    for (int i = 0; i < vocabulary; i++)
        pp_bytes_little(&g->keys, i < n ? NORMAL : UNUSED, 4);
    gguf_text(g, "tokenizer.ggml.pre", "gpt-2");
    put_char_merges(g, text);
}

static enum token_type choose_token_type(const struct pp_tokenizer *t, int i)
{
    const struct pp_token *k = i < t->n ? &t->tokens[i] : NULL;
    return !k || !k->text[0] ? UNUSED
           : i == t->unk     ? UNKNOWN
           : k->special      ? CONTROL
           : k->added        ? USER
           : k->byte         ? BYTE
                             : NORMAL;
}

static void put_token_types(struct gguf *g, const struct pp_tokenizer *t, int vocabulary)
{
    begin_array(g, "tokenizer.ggml.token_type", I32, (size_t)vocabulary);
    for (int i = 0; i < vocabulary; i++)
        pp_bytes_little(&g->keys, choose_token_type(t, i), 4);
}

/* What llama.cpp does to a text before its merges, by its name: lines of pp_tokenizer's steps after
 * NFC, which llama.cpp does not support. */
#define GPT2_WORDS                                                                                 \
    "isolated 's|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| "                                       \
    "?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+\n"
#define GPT4_WORDS(digits)                                                                         \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                           \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+\n"
static const char *const cuts[][2] = {
    {"gpt-2", GPT2_WORDS},
    {"qwen2", "isolated " GPT4_WORDS("\\p{N}")},
    {"qwen2", "inverted\nremoved " GPT4_WORDS("\\p{N}")},
    {"llama-bpe", "isolated " GPT4_WORDS("\\p{N}{1,3}") "ignore_merges\n"},
    {"llama-bpe", "inverted\nremoved " GPT4_WORDS("\\p{N}{1,3}") "ignore_merges\n"},
    {"dbrx", "isolated " GPT4_WORDS("\\p{N}{1,3}")},
    {"dbrx", "inverted\nremoved " GPT4_WORDS("\\p{N}{1,3}")},
    {"starcoder", "isolated \\p{N}\n" GPT2_WORDS},
};
/* The steps of llama.cpp's "llama": blanks become U+2581, with or without one at the start. */
static const char *const blanks[] = {"prepend \u2581\nreplace  \nby \u2581\n",
                                     "replace  \nby \u2581\nprepend \u2581\n",
                                     "replace  \nby \u2581\n",
                                     "blank \u2581\nblank first always\n",
                                     "blank \u2581\nblank first always\nwith next \u2581\n",
                                     "blank \u2581\nblank first never\n",
                                     "blank \u2581\nblank first never\nwith next \u2581\n"};

/* Refuses a tokenizer with steps that llama.cpp does not support; the message lists the steps in
 * one line. */
static int refuse_steps(const struct gguf *g, const char *steps)
{
    char text[400];
    snprintf(text, sizeof(text), "%s", steps);
    for (char *p = text; (p = strchr(p, '\n'));)
        *p = p[1] ? ';' : '\0';
    return pp_fail(PP_ECONFIG,
                   "%s: llama.cpp has no name for what the tokenizer does before its merges (%s): "
                   "it would give other tokens",
                   g->e->ck->path,
                   text[0] ? pp_text_make_plain(text) : "nothing, texts are not cut");
}

/* Returns the tokenizer's steps without a leading NFC; warns that llama.cpp leaves that step
 * out. */
static const char *skip_form(const struct gguf *g, const struct pp_tokenizer *t)
{
    bool form = strncmp(t->steps, "NFC\n", 4) == 0;
    if (form)
        pp_log_warn("%s: the tokenizer brings texts into the form NFC, which llama.cpp does not: "
                    "it has other tokens for a text in another form",
                    g->e->ck->path);
    return t->steps + (form ? 4 : 0);
}

static int find_cut(const struct gguf *g, const struct pp_tokenizer *t, const char **out)
{
    const char *steps = skip_form(g, t);
    *out = "gpt-2";
    if (t->n_merges == 0 && !steps[0])
        return 0; /* every byte is a token, so cutting has no effect */
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        *out = cuts[i][0];
        if (strcmp(steps, cuts[i][1]) == 0)
            return 0;
    }
    return refuse_steps(g, steps);
}

/* Refuses a tokenizer whose steps llama.cpp does not know, or one that cuts the text before each
 * blank although its merges make tokens with a blank inside. */
static int check_blanks(const struct gguf *g, const struct pp_tokenizer *t)
{
    const char *steps = skip_form(g, t);
    bool known = false, cuts_blanks = strstr(steps, "with next ");
    for (size_t i = 0; i < sizeof(blanks) / sizeof(blanks[0]); i++)
        known = known || strcmp(steps, blanks[i]) == 0;
    for (int i = 0; i < t->n_merges && known && cuts_blanks; i++)
        known = !strstr(t->tokens[t->merges[i].right].text, "\u2581");
    return known ? 0 : refuse_steps(g, steps);
}

static int put_scores(struct gguf *g, const struct pp_tokenizer *t, int vocabulary)
{
    PP_TRY(check_blanks(g, t));
    PP_TAKE(float, scores, (size_t)vocabulary);
    PP_TAKE(bool, made, (size_t)vocabulary);
    for (int i = t->n_merges - 1; i >= 0; i--) {
        scores[t->merges[i].into] = (float)-i;
        made[t->merges[i].into] = true;
    }
    for (int i = 0; i < t->n; i++)
        if (choose_token_type(t, i) == NORMAL && !made[i] && pp_text_columns(t->tokens[i].text) > 1)
            return pp_fail(PP_ECONFIG,
                           "%s: no merge makes token %d, but llama.cpp would find it in texts",
                           g->e->ck->path, i);
    begin_array(g, "tokenizer.ggml.scores", F32, (size_t)vocabulary);
    pp_bytes_put(&g->keys, scores, (size_t)vocabulary * sizeof(*scores));
    put_bool(g, "tokenizer.ggml.add_space_prefix", t->opens_with_space);
    return 0;
}

static int put_merges(struct gguf *g, const struct pp_tokenizer *t)
{
    const char *pre;
    PP_TRY(find_cut(g, t, &pre));
    gguf_text(g, "tokenizer.ggml.pre", pre);
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
    put_token_types(g, t, vocabulary);
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
