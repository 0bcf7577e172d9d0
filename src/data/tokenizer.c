/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes a text as `tokenizers` does: finds the added tokens, changes the text between them
 * (normalizer), finds the added tokens that stand for changed text, and encodes the rest by pieces
 * and BPE. */
#include <string.h>

#include "ppcli/base/base.h"
#include "tokenizer.h"

/* ---- changes of a text */

#define GROWTH_MAX 64 /* most bytes that a tokenizer may make of one; for a blank three are usual */

/* Limits the growth of a text, which is named `label` in messages: a few steps that each replace a
 * letter by a thousand would use all memory. */
static int check_growth(const char *label, size_t n, size_t whole)
{
    return n / GROWTH_MAX <= whole + 1024
               ? 0
               : pp_fail(
                     PP_EFORMAT,
                     "%s: the normalizer of this tokenizer makes %zu bytes of %zu, more than %d "
                     "times as many",
                     label, n, whole, GROWTH_MAX);
}

static int replace_words(const char *label, const char *from, const char *to, const char *text,
                         size_t n, size_t whole, char **out, size_t *out_n)
{
    size_t f = strlen(from), m = strlen(to), k = 0, used = 0;
    const char *end = text + n, *at = text, *next;
    while ((next = memmem(at, (size_t)(end - at), from, f))) {
        k++;
        at = next + f;
    }
    PP_TRY(check_growth(label, n + k * m, whole));
    char *made = pp_alloc(n + k * m + 1, 1);
    if (!made)
        return PP_ERESOURCE;
    for (at = text; (next = memmem(at, (size_t)(end - at), from, f)); at = next + f) {
        memcpy(made + used, at, (size_t)(next - at));
        memcpy(made + used + (next - at), to, m); // NOLINT(bugprone-not-null-terminated-result)
        used += (size_t)(next - at) + m;
    }
    memcpy(made + used, at, (size_t)(end - at));
    *out = made;
    *out_n = used + (size_t)(end - at);
    return 0;
}

static int put_before(const char *what, const char *text, size_t n, char **out, size_t *out_n)
{
    size_t m = strlen(what);
    char *made = pp_alloc(n + m + 1, 1);
    if (!made)
        return PP_ERESOURCE;
    memcpy(made, what, m); // NOLINT(bugprone-not-null-terminated-result): text follows
    memcpy(made + m, text, n);
    *out = made;
    *out_n = n + m;
    return 0;
}

/* A text and its owner: the caller, or `made`. */
struct held {
    const char *text;
    char *made;
    size_t n;
};

static void held_fini(struct held *h)
{
    pp_free(h->made);
}

/* Replaces the text by `made`, which it takes over; if `made` is NULL, the text is unchanged. */
static void hold_text(struct held *h, char *made, size_t n)
{
    if (!made)
        return;
    pp_free(h->made);
    *h = (struct held){made, made, n};
}

static int change_text(const struct tokenizer_work *w, const char *label, struct held *h)
{
    const size_t whole = h->n;
    for (int i = 0; i < w->n_changes && h->n > 0; i++) {
        const struct change *c = &w->changes[i];
        char *made = NULL;
        size_t n = 0;
        PP_TRY(c->form   ? unicode_form(label, c->to, h->text, h->n, &made, &n)
               : c->from ? replace_words(label, c->from, c->to, h->text, h->n, whole, &made, &n)
                         : put_before(c->to, h->text, h->n, &made, &n));
        hold_text(h, made, n);
    }
    return 0;
}

/* Applies the step Metaspace, and adds the blank that ByteLevel may put first. `first`: the text is
 * the beginning of the whole text. */
static int put_blanks(const struct tokenizer_work *w, const char *label, bool first, struct held *h)
{
    char *made = NULL;
    size_t n = 0;
    if (w->blank)
        PP_TRY(replace_words(label, " ", w->blank, h->text, h->n, h->n, &made, &n));
    hold_text(h, made, n);
    made = NULL;
    size_t m = w->prefix ? strlen(w->prefix) : 0;
    bool has = h->n >= m && strncmp(h->text, w->prefix ? w->prefix : "", m) == 0;
    if (m > 0 && !has && (first || !w->prefix_first))
        PP_TRY(put_before(w->prefix, h->text, h->n, &made, &n));
    hold_text(h, made, n);
    return 0;
}

/* ---- added tokens */

static bool is_space(const char *s, size_t *out_n)
{
    static const char *const spaces[] = {
        "\x85",         "\xa0",         "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81",
        "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86",
        "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8",
        "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};
    *out_n = 1;
    if (*s == ' ' || (*s >= '\t' && *s <= '\r'))
        return true;
    for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++) {
        bool two = spaces[i][1] == '\0';
        *out_n = two ? 2 : 3;
        if (two ? s[0] == '\xc2' && s[1] == spaces[i][0] : strncmp(s, spaces[i], 3) == 0)
            return true;
    }
    return false;
}

/* Returns the longest added token that begins at s; NULL if there is none. */
static const struct added *added_at(const struct tokenizer_work *w, bool normalized, const char *s,
                                    size_t n)
{
    for (int i = 0; i < w->n_added; i++) {
        const struct added *a = &w->added[i];
        if (a->normalized == normalized && a->n <= n && memcmp(a->text, s, a->n) == 0)
            return a;
    }
    return NULL;
}

struct task {
    struct pp_tokenizer *t;
    const char *label;
    const struct tokenizer_out *out;
};

static int take_rest(const struct task *k, bool normalized, bool first, const char *text, size_t n);

/* Cuts text[n] at the added tokens that match either the changed text (`normalized`) or the
 * original. `first`: the text is the beginning of the whole text. */
static int find_added(const struct task *k, bool normalized, bool first, const char *text, size_t n)
{
    const struct tokenizer_work *w = k->t->work;
    size_t done = 0, at = 0, to, m;
    while (at < n) {
        const struct added *a = w->begins[normalized][(unsigned char)text[at]]
                                    ? added_at(w, normalized, text + at, n - at)
                                    : NULL;
        if (!a) {
            at++;
            continue;
        }
        for (to = at + a->n; a->rstrip && to < n && is_space(text + to, &m);)
            to += m;
        for (size_t back; a->lstrip && at > done; at = back) {
            for (back = at - 1; back > done && (text[back] & 0xc0) == 0x80; back--)
                ;
            if (!is_space(text + back, &m))
                break;
        }
        PP_TRY(take_rest(k, normalized, first && done == 0, text + done, at - done));
        if (k->out->ids) {
            PP_RESERVE(k->out->ids->at, k->out->ids->n, k->out->ids->capacity);
            k->out->ids->at[k->out->ids->n++] = a->id;
        }
        done = at = to;
    }
    return take_rest(k, normalized, first && done == 0, text + done, n - done);
}

static int take_rest(const struct task *k, bool normalized, bool first, const char *text, size_t n)
{
    PP_OWN(held_fini) struct held h = {text, NULL, n};
    if (n == 0)
        return 0;
    if (!normalized) {
        PP_TRY(change_text(k->t->work, k->label, &h));
        return find_added(k, true, first, h.text, h.n);
    }
    PP_TRY(put_blanks(k->t->work, k->label, first, &h));
    return tokenizer_run(k->t, k->label, h.text, h.n, k->out);
}

/* ---- encoding */

static int check_utf8(const char *label, const char *text, size_t bytes)
{
    for (size_t at = 0, n, word; at < bytes; at += n) {
        memcpy(&word, text + at, bytes - at >= sizeof(word) ? sizeof(word) : 0);
        n = bytes - at >= sizeof(word) && !(word & 0x8080808080808080u)
                ? sizeof(word)
                : (size_t)pp_utf8_length(text + at);
        if (n == 0 || n > bytes - at)
            return pp_fail(PP_EFORMAT, "%s: byte %zu (0x%02x) begins no character of UTF-8", label,
                           at, (unsigned char)text[at]);
    }
    return 0;
}

int tokenizer_pieces(struct pp_tokenizer *t, const char *label, const char *text, size_t bytes,
                     const struct tokenizer_out *out)
{
    const struct task k = {t, label, out};
    PP_TRY(check_utf8(label, text, bytes));
    return find_added(&k, false, true, text, bytes);
}

int pp_tokenizer_encode(struct pp_tokenizer *t, const char *label, const char *text, size_t bytes,
                        struct pp_ids *ids)
{
    const struct tokenizer_out out = {.ids = ids};
    int rc = tokenizer_pieces(t, label, text, bytes, &out);
    bool named = rc < 0 && strncmp(pp_error_get()->text, label, strlen(label)) == 0;
    return rc == 0 || named ? rc : pp_error_context("%s", label);
}

bool pp_tokenizer_same(const struct pp_tokenizer *a, const struct pp_tokenizer *b)
{
    bool same = a->n == b->n && a->n_merges == b->n_merges;
    for (int i = 0; same && i < a->n; i++)
        same = strcmp(a->tokens[i].text, b->tokens[i].text) == 0;
    return same && memcmp(a->merges, b->merges, (size_t)a->n_merges * sizeof(*a->merges)) == 0;
}

/* ---- tables derived from the tokenizer.json */

static int derive_added(const char *label, struct tokenizer_work *w)
{
    for (int i = 0; i < w->n_added; i++) {
        struct added *a = &w->added[i];
        if (a->normalized) {
            PP_OWN(held_fini) struct held h = {a->text, NULL, a->n};
            PP_TRY(change_text(w, label, &h));
            a->made = h.made;
            a->text = h.text;
            a->n = h.n;
            h.made = NULL;
        }
        w->begins[a->normalized][(unsigned char)a->text[0]] = true;
    }
    return 0;
}

/* Finds all pairs of bytes that are adjacent in some token. Without a pattern a text may be cut
 * between any other two bytes. It may not be cut if a step looks at the whole text, or if an
 * unknown character may wait for those that follow. */
static int derive_seams(struct pp_tokenizer *t)
{
    struct tokenizer_work *w = t->work;
    bool all_bytes = w->byte_fallback, whole = w->ignore_merges;
    for (int i = 0; i < 256; i++)
        all_bytes = all_bytes && w->of_byte[i] > 0;
    for (int i = 0; i < t->n_merges; i++)
        whole = whole || t->tokens[t->merges[i].left].byte || t->tokens[t->merges[i].right].byte;
    bool waits = t->unk >= 0 && !all_bytes && (w->fuse_unk || w->byte_fallback);
    if (w->n_steps > 0 || whole || waits)
        return 0;
    PP_ALLOC(w->joined, 256 * 32);
    for (int i = 0; i < t->n; i++) {
        const struct pp_token *token = &t->tokens[i];
        const unsigned char *s =
            (const unsigned char *)(t->byte_level ? token->bytes : token->text);
        size_t n = t->byte_level ? token->n : strlen(token->text);
        for (size_t k = 1; k < n; k++)
            w->joined[s[k - 1] * 32 + s[k] / 8] |= (uint8_t)(1 << s[k] % 8);
    }
    return 0;
}

int tokenizer_shape(const char *label, struct pp_tokenizer *t)
{
    PP_TRY(derive_added(label, t->work));
    return derive_seams(t);
}

void pp_tokenizer_destroy(struct pp_tokenizer **tokenizer)
{
    struct pp_tokenizer *t = *tokenizer;
    if (t && t->work) {
        tokenizer_stop(t->work);
        for (int i = 0; i < t->work->n_steps; i++)
            pattern_destroy(&t->work->steps[i].pattern);
        pp_free(t->work->texts);
        pp_free(t->work->words.slots);
        pp_free(t->work->pairs.slots);
        pp_free(t->work->joined);
        for (int i = 0; i < t->work->n_added; i++)
            pp_free(t->work->added[i].made);
        pp_free(t->work->added);
        pp_free(t->work);
    }
    if (t) {
        pp_free(t->tokens);
        pp_free(t->merges);
        pp_free(t->json);
        pp_free(t->steps);
    }
    pp_free(t);
    *tokenizer = NULL;
}
