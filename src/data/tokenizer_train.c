/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trains a vocabulary: byte-level BPE with GPT-2's pattern. The most frequent pair becomes a token
 * (among equals the one with the lowest numbers), and so on, as in the trainer of `tokenizers`.
 */
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"
#include "tokenizer.h"

#define MARK "<|endoftext|>"

struct word { /* a piece of the texts: its symbols are symbols[first .. first + n - 1] */
    const char *text;
    size_t first;
    uint32_t n;
    int64_t count;
};

struct pair { /* a pair of symbols */
    uint32_t a, b;
    int64_t count;
    uint32_t *words; /* words that contain it, or did; owned */
    size_t n, capacity;
};

struct ranked { /* an entry of the heap */
    int64_t count;
    uint32_t pair;
};

struct trainer {
    struct text_table table;
    struct word *words;
    size_t n_words, words_capacity;
    uint32_t *symbols;
    struct pair_table known; /* maps to indices of pairs[] */
    struct pair *pairs;
    size_t n_pairs, pairs_capacity;
    struct ranked *heap;
    size_t n_heap, heap_capacity;
    char **texts; /* [256 + n_merges] texts of the tokens, in GPT-2's letters; owned */
    uint32_t (*merges)[2];
    int n_merges;
    uint32_t of_byte[256]; /* token of each byte */
};

static void trainer_fini(struct trainer *t)
{
    for (size_t i = 0; i < t->n_pairs; i++)
        pp_free(t->pairs[i].words);
    for (int i = 0; t->texts && i < 256 + t->n_merges; i++)
        pp_free(t->texts[i]);
    pp_free(t->table.slots);
    pp_free(t->words);
    pp_free(t->symbols);
    pp_free(t->known.slots);
    pp_free(t->pairs);
    pp_free(t->heap);
    pp_free(t->texts);
    pp_free(t->merges);
}

/* ---- words */

static int grow_words(struct trainer *t)
{
    struct text_table larger;
    PP_TRY(text_table_create(2 * t->table.n + 1024, &larger));
    for (size_t i = 0; i < t->n_words; i++)
        *text_table_find(&larger, t->words[i].text, t->words[i].n) =
            (struct text_slot){t->words[i].text, t->words[i].n, (uint32_t)i};
    larger.n = t->n_words;
    pp_free(t->table.slots);
    t->table = larger;
    return 0;
}

static int count_word(void *ctx, const char *piece, size_t n)
{
    struct trainer *t = ctx;
    if (2 * t->table.n >= t->table.mask)
        PP_TRY(grow_words(t));
    struct text_slot *s = text_table_find(&t->table, piece, n);
    if (!s->text) {
        PP_RESERVE(t->words, t->n_words, t->words_capacity);
        t->words[t->n_words] = (struct word){.text = piece, .n = (uint32_t)n};
        *s = (struct text_slot){piece, (uint32_t)n, (uint32_t)t->n_words++};
        t->table.n++;
    }
    t->words[s->value].count++;
    return 0;
}

/* ---- pairs: the heap's top is the most frequent pair, unless its count is out of date */

static bool is_above(const struct trainer *t, const struct ranked *x, const struct ranked *y)
{
    const struct pair *p = &t->pairs[x->pair], *q = &t->pairs[y->pair];
    return x->count != y->count ? x->count > y->count
                                : p->a < q->a || (p->a == q->a && p->b < q->b);
}

static int push_pair(struct trainer *t, uint32_t pair)
{
    const struct ranked r = {t->pairs[pair].count, pair};
    PP_RESERVE(t->heap, t->n_heap, t->heap_capacity);
    size_t i = t->n_heap++;
    for (; i > 0 && is_above(t, &r, &t->heap[(i - 1) / 2]); i = (i - 1) / 2)
        t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = r;
    return 0;
}

static struct ranked pop_pair(struct trainer *t)
{
    struct ranked top = t->heap[0], last = t->heap[--t->n_heap];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < t->n_heap; i = k) {
        k += k + 1 < t->n_heap && is_above(t, &t->heap[k + 1], &t->heap[k]);
        if (!is_above(t, &t->heap[k], &last))
            break;
        t->heap[i] = t->heap[k];
    }
    t->heap[i] = last;
    return top;
}

static int add_pair(struct trainer *t, uint32_t a, uint32_t b, uint32_t word, int64_t count)
{
    if (2 * t->n_pairs >= t->known.mask) {
        struct pair_table larger;
        PP_TRY(pair_table_create(2 * t->n_pairs + 1024, &larger));
        for (size_t i = 0; i < t->n_pairs; i++)
            *pair_table_find(&larger, t->pairs[i].a, t->pairs[i].b) =
                (struct pair_slot){(uint64_t)t->pairs[i].a << 32 | t->pairs[i].b, (uint32_t)i, 1};
        pp_free(t->known.slots);
        t->known = larger;
    }
    struct pair_slot *s = pair_table_find(&t->known, a, b);
    if (s->place == 0) {
        PP_RESERVE(t->pairs, t->n_pairs, t->pairs_capacity);
        *s = (struct pair_slot){(uint64_t)a << 32 | b, (uint32_t)t->n_pairs, 1};
        t->pairs[t->n_pairs++] = (struct pair){.a = a, .b = b};
    }
    struct pair *p = &t->pairs[s->value];
    p->count += count;
    /* it is listed otherwise */
    uint32_t newest = t->n_merges > 0 ? 255 + (uint32_t)t->n_merges : 0;
    if (count > 0 && (a >= newest || b >= newest) && (p->n == 0 || p->words[p->n - 1] != word)) {
        PP_RESERVE(p->words, p->n, p->capacity);
        p->words[p->n++] = word;
    }
    return 0;
}

/* Adds the pairs of symbols of a word to their counts; with sign -1 subtracts them. */
static int add_pairs(struct trainer *t, uint32_t word, int sign)
{
    const struct word *w = &t->words[word];
    for (uint32_t i = 0; i + 1 < w->n; i++)
        PP_TRY(add_pair(t, t->symbols[w->first + i], t->symbols[w->first + i + 1], word,
                        sign * w->count));
    return 0;
}

static int begin_words(struct trainer *t)
{
    size_t all = 0;
    for (size_t i = 0; i < t->n_words; i++)
        all += t->words[i].n;
    PP_ALLOC(t->symbols, all);
    size_t first = 0;
    for (size_t i = 0; i < t->n_words; i++) {
        t->words[i].first = first;
        for (uint32_t k = 0; k < t->words[i].n; k++)
            t->symbols[first + k] = t->of_byte[(unsigned char)t->words[i].text[k]];
        first += t->words[i].n;
        PP_TRY(add_pairs(t, (uint32_t)i, 1));
    }
    for (uint32_t i = 0; i < t->n_pairs; i++)
        PP_TRY(push_pair(t, i));
    return 0;
}

/* ---- merging */

static int merge_word(struct trainer *t, uint32_t word, uint32_t a, uint32_t b, uint32_t into)
{
    struct word *w = &t->words[word];
    uint32_t *s = t->symbols + w->first, n = 0;
    PP_TRY(add_pairs(t, word, -1));
    for (uint32_t i = 0; i < w->n; i++) {
        bool both = i + 1 < w->n && s[i] == a && s[i + 1] == b;
        s[n++] = both ? into : s[i];
        i += both;
    }
    w->n = n;
    return add_pairs(t, word, 1);
}

static int merge_pair(struct trainer *t, uint32_t pair)
{
    uint32_t a = t->pairs[pair].a, b = t->pairs[pair].b, into = 256 + (uint32_t)t->n_merges;
    size_t before = t->n_pairs;
    t->merges[t->n_merges][0] = a;
    t->merges[t->n_merges++][1] = b;
    char *text = t->texts[into] = pp_alloc(strlen(t->texts[a]) + strlen(t->texts[b]) + 1, 1);
    PP_TRY(text ? 0 : PP_ERESOURCE);
    strcat(strcpy(text, t->texts[a]), t->texts[b]);
    PP_OWN_MEMORY uint32_t *words = t->pairs[pair].words;
    size_t n = t->pairs[pair].n;
    t->pairs[pair].words = NULL;
    t->pairs[pair].n = t->pairs[pair].capacity = 0;
    for (size_t i = 0; i < n; i++)
        PP_TRY(merge_word(t, words[i], a, b, into));
    for (size_t i = before; i < t->n_pairs; i++)
        PP_TRY(push_pair(t, (uint32_t)i));
    return 0;
}

static int merge_all(struct trainer *t, int n)
{
    while (t->n_merges < n && t->n_heap > 0) {
        struct ranked top = pop_pair(t);
        int64_t now = t->pairs[top.pair].count;
        if (now != top.count && now > 0)
            PP_TRY(push_pair(t, top.pair));
        if (now != top.count || now < 1)
            continue;
        PP_TRY(merge_pair(t, top.pair));
        if (t->n_merges % 256 == 0)
            pp_log_progress("%d of %d tokens", 256 + t->n_merges, 256 + n);
    }
    pp_log_progress(NULL);
    return 0;
}

static int print_tokenizer(const struct trainer *t, char **out)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    if (!f)
        return pp_fail(PP_ERESOURCE, "out of memory");
    struct pp_json j = tokenizer_begin_json(
        f, MARK, 256 + t->n_merges, TOKENIZER_BYTE_LEVEL("true"), TOKENIZER_BYTE_LEVEL("true"));
    pp_json_object(&j, "vocab");
    for (int i = 0; i < 256 + t->n_merges; i++)
        pp_json_int(&j, t->texts[i], i);
    pp_json_int(&j, MARK, 256 + t->n_merges);
    pp_json_end(&j);
    pp_json_array(&j, "merges");
    for (int i = 0; i < t->n_merges; i++) {
        pp_json_array(&j, NULL);
        pp_json_str(&j, NULL, t->texts[t->merges[i][0]]);
        pp_json_str(&j, NULL, t->texts[t->merges[i][1]]);
        pp_json_end(&j);
    }
    return tokenizer_end_json(&j, &text, out);
}

/* Makes the 256 tokens of single bytes, numbered in the order of the letters by which GPT-2 writes
 * bytes. */
static int begin_tokens(struct trainer *t, int n)
{
    PP_ALLOC(t->texts, n);
    PP_ALLOC(t->merges, n);
    for (int byte = 0; byte < 256; byte++) {
        for (int b = 0; b < 256; b++)
            t->of_byte[byte] += tokenizer_byte_letter(b) < tokenizer_byte_letter(byte);
        char *text = pp_alloc(PP_UTF8_MAX + 1, 1);
        PP_TRY(text ? 0 : PP_ERESOURCE);
        (void)pp_utf8_put(tokenizer_byte_letter(byte), text);
        t->texts[t->of_byte[byte]] = text;
    }
    return 0;
}

int pp_tokenizer_train(int n_texts, const char *const *labels, const char *const *texts,
                       const size_t *bytes, int n, char **out_json)
{
    static const char empty[] = "{\"pre_tokenizer\":" TOKENIZER_BYTE_LEVEL(
        "true") ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}";
    PP_OWN(pp_tokenizer_destroy) struct pp_tokenizer *cutter = NULL;
    PP_OWN(trainer_fini) struct trainer t = {0};
    const struct tokenizer_out out = {.each = count_word, .ctx = &t};
    PP_TRY(pp_tokenizer_parse("training", empty, sizeof(empty) - 1, &cutter));
    PP_TRY(grow_words(&t));
    for (int i = 0; i < n_texts; i++)
        PP_TRY(tokenizer_pieces(cutter, labels[i], texts[i], bytes[i], &out));
    PP_TRY(begin_tokens(&t, n));
    PP_TRY(begin_words(&t));
    PP_TRY(merge_all(&t, n - 257));
    return print_tokenizer(&t, out_json);
}
