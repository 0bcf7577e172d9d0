/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encodes a text without added tokens: cuts it into pieces, and each piece goes through BPE. A long
 * text is cut where a piece probably begins, and all cores encode the parts; each continues to
 * where the next one began. If that is not the end of a piece, the next part is encoded a second
 * time.
 */
#include <string.h>

#include "ppcli/base/base.h"
#include "ppcli/base/cores.h"
#include "tokenizer.h"

#define CACHE (1 << 15) /* pieces in the cache of a thread */
#define CACHE_BYTES 26
#define CACHE_IDS 9
#define PART_BYTES ((size_t)128 << 10)
#define PARTS 128 /* parts in one round, after which progress is shown */
#define THREADS_MAX 64
#define DEAD UINT32_MAX

struct cached { /* one cache line */
    uint8_t n, n_ids;
    char text[CACHE_BYTES];
    uint32_t ids[CACHE_IDS];
};

struct symbol {
    uint32_t id; /* DEAD: it was merged into the one before */
    uint32_t before, after;
};

struct candidate {
    uint32_t place, at, into;
};

struct encoder {
    const struct pp_tokenizer *t;
    const struct crew *crew;
    struct pattern_match *match;
    struct cached *cache;
    struct symbol *symbols;
    struct candidate *heap;
    size_t n, capacity, n_heap, heap_capacity;
    struct pp_ids *ids;
    int rc; /* of one part */
    struct pp_error error;
};

struct crew {
    struct encoder *encoders; /* [n], one for each thread */
    int n;
    struct pp_team *team;
    tokenizer_piece *each; /* receives pieces in place of BPE; NULL: BPE */
    void *ctx;
    const char *text; /* [end] the text that is cut into parts */
    size_t end, starts[PARTS + 1], reached[PARTS];
    struct pp_ids ids[PARTS];
    int n_parts;
};

/* ---- BPE: the merge of lowest rank first, the leftmost among equals */

static bool comes_first(const struct candidate *a, const struct candidate *b)
{
    return a->place < b->place || (a->place == b->place && a->at < b->at);
}

static int push_candidate(struct encoder *e, uint32_t at)
{
    uint32_t after = e->symbols[at].after;
    if (after >= e->n)
        return 0;
    const struct pair_slot *s =
        pair_table_find(&e->t->work->pairs, e->symbols[at].id, e->symbols[after].id);
    if (s->place == 0)
        return 0;
    PP_RESERVE(e->heap, e->n_heap, e->heap_capacity);
    size_t i = e->n_heap++;
    const struct candidate c = {s->place, at, s->value};
    for (; i > 0 && comes_first(&c, &e->heap[(i - 1) / 2]); i = (i - 1) / 2)
        e->heap[i] = e->heap[(i - 1) / 2];
    e->heap[i] = c;
    return 0;
}

static struct candidate pop_candidate(struct encoder *e)
{
    struct candidate top = e->heap[0], last = e->heap[--e->n_heap];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < e->n_heap; i = k) {
        k += k + 1 < e->n_heap && comes_first(&e->heap[k + 1], &e->heap[k]);
        if (!comes_first(&e->heap[k], &last))
            break;
        e->heap[i] = e->heap[k];
    }
    e->heap[i] = last;
    return top;
}

static int merge_symbols(struct encoder *e)
{
    e->n_heap = 0;
    for (uint32_t i = 0; i + 1 < e->n; i++)
        PP_TRY(push_candidate(e, i));
    while (e->n_heap > 0) {
        struct candidate c = pop_candidate(e);
        struct symbol *s = &e->symbols[c.at];
        uint32_t next = s->after;
        if (s->id == DEAD || next >= e->n)
            continue;
        const struct pair_slot *now =
            pair_table_find(&e->t->work->pairs, s->id, e->symbols[next].id);
        if (now->place == 0 || now->value != c.into)
            continue;
        s->id = c.into;
        s->after = e->symbols[next].after;
        e->symbols[next].id = DEAD;
        if (s->after < e->n)
            e->symbols[s->after].before = c.at;
        PP_TRY(s->before != DEAD ? push_candidate(e, s->before) : 0);
        PP_TRY(push_candidate(e, c.at));
    }
    return 0;
}

static int push_symbol(struct encoder *e, uint32_t id)
{
    uint32_t i = (uint32_t)e->n;
    PP_RESERVE(e->symbols, e->n, e->capacity);
    e->symbols[e->n++] = (struct symbol){id, i > 0 ? i - 1 : DEAD, i + 1};
    return 0;
}

static int refuse_character(const struct encoder *e, const char *piece)
{
    char shown[CHARACTER_SHOWN];
    if (e->t->byte_level && (unsigned char)piece[0] >= 0x80)
        snprintf(shown, sizeof(shown), "byte 0x%02x", (unsigned char)piece[0]);
    else
        character_shown(piece, shown);
    return pp_fail(PP_EFORMAT, "%s has no token in this vocabulary, which names no unk_token",
                   shown);
}

/* Appends the tokens of the bytes of a character that has no token itself. Sets *unknown and
 * appends nothing if a byte has no token either. */
static int push_bytes(struct encoder *e, const char *at, size_t n, bool *unknown)
{
    const uint32_t *of_byte = e->t->work->of_byte;
    *unknown = !e->t->work->byte_fallback;
    for (size_t i = 0; i < n; i++)
        *unknown = *unknown || of_byte[(unsigned char)at[i]] == 0;
    for (size_t i = 0; i < n && !*unknown; i++)
        PP_TRY(push_symbol(e, of_byte[(unsigned char)at[i]] - 1));
    return 0;
}

/* Lists the characters, or bytes, of a piece as tokens. As in `tokenizers`, the token of an unknown
 * character is appended only before the next known one. */
static int list_symbols(struct encoder *e, const char *piece, size_t n)
{
    const struct pp_tokenizer *t = e->t;
    bool waits = false, unknown;
    e->n = 0;
    for (size_t at = 0, m; at < n; at += m) {
        m = t->byte_level ? 1 : (size_t)pp_utf8_length(piece + at);
        const struct text_slot *s =
            t->byte_level ? NULL : text_table_find(&t->work->words, piece + at, m);
        uint32_t known = t->byte_level ? t->work->of_byte[(unsigned char)piece[at]]
                         : s->text     ? s->value + 1
                                       : 0;
        if (known > 0) {
            PP_TRY(waits ? push_symbol(e, (uint32_t)t->unk) : 0);
            PP_TRY(push_symbol(e, known - 1));
            waits = false;
            continue;
        }
        PP_TRY(push_bytes(e, piece + at, m, &unknown));
        if (!unknown)
            continue;
        if (t->unk < 0)
            return refuse_character(e, piece + at);
        PP_TRY(waits && !t->work->fuse_unk ? push_symbol(e, (uint32_t)t->unk) : 0);
        waits = true;
    }
    return waits ? push_symbol(e, (uint32_t)t->unk) : 0;
}

static int append_id(struct pp_ids *ids, uint32_t id)
{
    PP_RESERVE(ids->at, ids->n, ids->capacity);
    ids->at[ids->n++] = id;
    return 0;
}

static int encode_piece(struct encoder *e, const char *piece, size_t n)
{
    if (e->crew->each)
        return e->crew->each(e->crew->ctx, piece, n);
    struct cached *c = &e->cache[text_hash(piece, n) & (CACHE - 1)];
    if (n <= CACHE_BYTES && c->n == n && memcmp(c->text, piece, n) == 0) {
        for (int i = 0; i < c->n_ids; i++)
            PP_TRY(append_id(e->ids, c->ids[i]));
        return 0;
    }
    size_t first = e->ids->n, made;
    const struct text_slot *whole =
        e->t->work->ignore_merges ? text_table_find(&e->t->work->words, piece, n) : NULL;
    if (whole && whole->text) {
        PP_TRY(append_id(e->ids, whole->value));
    } else {
        PP_TRY(list_symbols(e, piece, n));
        PP_TRY(merge_symbols(e));
        for (size_t i = 0; i < e->n; i = e->symbols[i].after)
            PP_TRY(append_id(e->ids, e->symbols[i].id));
    }
    made = e->ids->n - first;
    if (n <= CACHE_BYTES && made <= CACHE_IDS) {
        *c = (struct cached){.n = (uint8_t)n, .n_ids = (uint8_t)made};
        memcpy(c->text, piece, n);
        memcpy(c->ids, e->ids->at + first, made * sizeof(*c->ids));
    }
    return 0;
}

/* ---- pieces */

static int find_match(struct encoder *e, const struct split_step *s, const char *text, size_t end,
                      size_t from, size_t *at, size_t *to)
{
    if (s->pattern)
        return pattern_find(s->pattern, e->match, text, end, from, at, to);
    const char *found = memmem(text + from, end - from, s->word, strlen(s->word));
    *at = found ? (size_t)(found - text) : end;
    *to = found ? *at + strlen(s->word) : end;
    return 0;
}

/* Returns where a piece that begins at `from` ends if there is no pattern: at the next place where
 * no token has the two bytes around it side by side, so that no merge can cross it. */
static size_t find_seam(const struct tokenizer_work *w, const char *text, size_t end, size_t from)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t to = w->joined ? from + 1 : end;
    while (to < end &&
           ((s[to] & 0xc0) == 0x80 || w->joined[s[to - 1] * 32 + s[to] / 8] & 1 << s[to] % 8))
        to++;
    return to;
}

/* Finds the end of the piece that begins at `from`. *out_drop tells that the piece gets no
 * tokens. */
static int next_piece(struct encoder *e, int level, const char *text, size_t end, size_t from,
                      size_t *out_to, bool *out_drop)
{
    const struct split_step *s = &e->t->work->steps[level];
    size_t at, to, none;
    *out_drop = false;
    if (e->t->work->n_steps == 0) {
        *out_to = find_seam(e->t->work, text, end, from);
        return 0;
    }
    PP_TRY(find_match(e, s, text, end, from, &at, &to));
    bool match = at == from;
    if (match && s->rest == STEP_WITH_NEXT)
        PP_TRY(find_match(e, s, text, end, to, &to, &none));
    *out_to = match || s->rest == STEP_WITH_PREVIOUS ? to : at;
    *out_drop = s->rest == STEP_REMOVED && match != s->invert;
    return 0;
}

/* Cuts the text from offset `from` on into pieces and encodes them, up to the first end of a piece
 * at or after `stop`. */
static int cut_text(struct encoder *e, int level, const char *text, size_t end, size_t from,
                    size_t stop, size_t *out_reached)
{
    size_t to, ignored;
    bool drop;
    for (; from < stop; from = to) {
        PP_TRY(next_piece(e, level, text, end, from, &to, &drop));
        if (drop)
            continue;
        if (level + 1 < e->t->work->n_steps)
            PP_TRY(cut_text(e, level + 1, text + from, to - from, 0, to - from, &ignored));
        else
            PP_TRY(encode_piece(e, text + from, to - from));
    }
    *out_reached = from;
    return 0;
}

/* ---- parts of a long text */

static void encode_parts(const void *args, const struct pp_piece *piece)
{
    struct crew *c = *(struct crew *const *)args;
    struct encoder *e = &c->encoders[piece->member];
    for (size_t i = piece->from; i < piece->to && e->rc == 0; i++) {
        e->ids = &c->ids[i];
        e->rc = cut_text(e, 0, c->text, c->end, c->starts[i], c->starts[i + 1], &c->reached[i]);
        if (e->rc < 0)
            e->error = *pp_error_get();
    }
}

/* Finds where the parts start. Each start is a few pieces after a place chosen by length: by then
 * pieces nearly always end at the same places, wherever cutting began. */
static int find_starts(struct crew *c, size_t from)
{
    bool ignored;
    c->starts[0] = from;
    for (c->n_parts = 0; c->n_parts < PARTS && c->starts[c->n_parts] < c->end;) {
        size_t at = c->starts[c->n_parts] + PART_BYTES;
        while (at < c->end && ((unsigned char)c->text[at] & 0xc0) == 0x80)
            at++;
        for (int k = 0; k < 32 && at < c->end; k++)
            PP_TRY(next_piece(&c->encoders[0], 0, c->text, c->end, at, &at, &ignored));
        c->starts[++c->n_parts] = at < c->end ? at : c->end;
    }
    return 0;
}

static int join_parts(struct crew *c, struct pp_ids *ids, size_t *out_reached)
{
    size_t reached = c->starts[0];
    for (int i = 0; i < c->n_parts; i++) {
        struct pp_ids *part = &c->ids[i];
        if (c->starts[i] != reached) {
            part->n = 0;
            c->encoders[0].ids = part;
            PP_TRY(cut_text(&c->encoders[0], 0, c->text, c->end, reached, c->starts[i + 1],
                            &c->reached[i]));
        }
        reached = c->reached[i];
        if (ids->capacity < ids->n + part->n) {
            size_t capacity = 2 * ids->capacity + part->n;
            PP_GROW(ids->at, capacity);
            ids->capacity = capacity;
        }
        memcpy(ids->at + ids->n, part->at, part->n * sizeof(*ids->at));
        ids->n += part->n;
        part->n = 0;
    }
    *out_reached = reached;
    return 0;
}

static int encode_long(struct crew *c, const char *label, struct pp_ids *ids)
{
    for (size_t from = 0; from < c->end;) {
        PP_TRY(find_starts(c, from));
        const struct pp_work work = {
            .fn = encode_parts, .units = (size_t)c->n_parts, .cost = (double)c->n_parts * 1e6};
        pp_team_run(c->team, &work, &c);
        for (int i = 0; i < c->n; i++)
            if (c->encoders[i].rc < 0)
                return pp_error_adopt(&c->encoders[i].error);
        PP_TRY(join_parts(c, ids, &from));
        pp_log_progress("%s: %.0f %% are tokens", label, 100.0 * (double)from / (double)c->end);
    }
    pp_log_progress(NULL);
    return 0;
}

/* ---- functions for tokenizer.c */

static int create_crew(struct pp_tokenizer *t)
{
    struct crew *c;
    struct pp_cpu_mask mask;
    PP_ALLOC(t->work->crew, 1);
    c = t->work->crew;
    int cpus = pp_machine_mask(false, &mask);
    c->n = cpus > THREADS_MAX ? THREADS_MAX : cpus;
    PP_ALLOC(c->encoders, c->n);
    for (int i = 0; i < c->n; i++) {
        struct encoder *e = &c->encoders[i];
        *e = (struct encoder){.t = t, .crew = c};
        PP_ALLOC(e->cache, CACHE);
        PP_TRY(t->work->n_steps > 0 ? pattern_match_create(&e->match) : 0);
    }
    const struct pp_team_spec spec = {.threads = c->n, .processors = c->n, .crowded = true};
    return c->n > 1 ? pp_team_create(&spec, &c->team) : 0;
}

void tokenizer_stop(struct tokenizer_work *w)
{
    struct crew *c = w->crew;
    if (!c)
        return;
    pp_team_destroy(&c->team);
    for (int i = 0; i < c->n && c->encoders; i++) {
        pattern_match_destroy(&c->encoders[i].match);
        pp_free(c->encoders[i].cache);
        pp_free(c->encoders[i].symbols);
        pp_free(c->encoders[i].heap);
    }
    for (int i = 0; i < PARTS; i++)
        pp_free(c->ids[i].at);
    pp_free(c->encoders);
    pp_free(c);
    w->crew = NULL;
}

int tokenizer_run(struct pp_tokenizer *t, const char *label, const char *text, size_t n,
                  const struct tokenizer_out *out)
{
    if (!t->work->crew)
        PP_TRY_UNDO(create_crew(t), tokenizer_stop(t->work));
    struct crew *c = t->work->crew;
    size_t reached;
    for (int i = 0; i < c->n; i++)
        c->encoders[i].rc = 0;
    c->each = out->each;
    c->ctx = out->ctx;
    c->text = text;
    c->end = n;
    if (!out->each && n > 2 * PART_BYTES)
        return encode_long(c, label, out->ids);
    c->encoders[0].ids = out->ids;
    return cut_text(&c->encoders[0], 0, text, n, 0, n, &reached);
}
