/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention as small products, on the tile of gemm_tile.h: chains of fused multiply-adds in
 * ascending order, and sums of a row are 16 chains, so that all instruction sets give the same bits.
 *
 * Forwards a block of queries at a time: its scores with all keys, their softmax, the product with
 * the values. Backwards a block of keys at a time, whose gradients stay in the cache, with all blocks
 * of queries. What causality hides is skipped by groups of ROWS queries. Keys are transposed, and
 * values and what else is read by columns is copied: rows that are kilobytes apart share few sets of
 * the cache.
 *
 * GFLOP/s of F and I, causal, and what part that is of a 512 x 512 x 512 product beside them, on one
 * core of a shared Xeon at 2.5 GHz; flops of what causality hides do not count:
 *
 *   positions, width      64, 32         256, 64        512, 64       1024, 64
 *   AVX-512            32  44           71  67         80  80        79  80
 *                      23 %  31 %       58 %  54 %     66 %  67 %    63 %  65 %
 *   AVX2               24  29           41  40         46  45        45  44
 *                      39 %  46 %       69 %  66 %     76 %  75 %    76 %  75 %
 */
#include "kernels.h"
#include "../kernels.h"

#include <math.h>
#include <string.h>

#include "../numbers.h"
#include "../plain/plain.h"
#include "attention_rows.h"

/* ---- one call */

struct drop {
    bool on;
    uint32_t limit;
    float scale;
};

/* Numbers of a query's row and of its first element; see struct pp_attention. */
struct numbers {
    uint64_t of;
    uint32_t first;
};

static struct numbers numbers_of(const struct pp_attention *a, int b, int h, int i)
{
    uint32_t row = a->first_row + (uint32_t)(a->of_queries ? i : b);
    uint32_t line = a->of_queries ? (uint32_t)h * (uint32_t)a->B + (uint32_t)b
                                  : (uint32_t)h * (uint32_t)a->queries + (uint32_t)i;
    return (struct numbers){dropout_row(a->key, *a->step, row), line * (uint32_t)a->keys};
}

static struct drop drop_of(const struct pp_attention *a)
{
    if (!a->step || a->p == 0)
        return (struct drop){.on = false};
    return (struct drop){true, dropout_limit(a->p), (float)(1 / (1 - (double)a->p))};
}

static inline float kept(const struct drop *d, const struct numbers *n, uint32_t j)
{
    return dropout_number(n->of, n->first + j) < d->limit ? 0 : d->scale;
}

/* Keys that query i sees, of those from `from` on, at most n. */
static int seen(const struct pp_attention *a, int i, int from, int n)
{
    int all = (a->causal ? a->keys - a->queries + i + 1 : a->keys) - from;
    return all < 0 ? 0 : all < n ? all : n;
}

static size_t head(const struct pp_attention *a, const struct pp_strides *s, int b, int i, int h)
{
    return (size_t)b * s->sequence + (size_t)i * s->position + (size_t)h * (size_t)a->width;
}

/* to[rows][width], which follow each other, = by * from. No memcpy: rows are short. */
static void copy_rows(int rows, int width, const float *from, size_t step, float by, float *to)
{
    for (int r = 0; r < rows; r++, from += step, to += width)
        for (int d = 0; d < width; d++)
            to[d] = by * from[d];
}

/* Ask for head h of position i, which is needed soon: rows that are kilobytes apart are no pattern
 * that the processor would see. */
static inline void fetch(const struct pp_attention *a, const float *x, const struct pp_strides *s,
                         int b, int i, int h)
{
    const float *row = x + head(a, s, b, i, h);
    for (int d = 0; d < a->width; d += 16)
        __builtin_prefetch(row + d, 0, 2);
}

/* Each member of a team has its own. */
static float *scratch_of(const struct pp_attention *a, int member)
{
    return a->scratch + (size_t)member * pp_attention_scratch_floats(
                                             a->queries, a->keys, a->heads / a->kv_heads, a->width);
}

/* ---- forwards */

/* What lies in the scratch. */
struct forward {
    float *k, *v, *s; /* keys transposed, block by block; values; scores of a block of queries */
    size_t row;       /* of s */
};

static void normalise(const struct pp_attention *a, int b, int h, int i, float sum)
{
    float *y = a->y + head(a, &a->y_at, b, i, h), by = 1 / sum;
    for (int d = 0; d < a->width; d++)
        y[d] *= by;
}

/* A row of large scores, as exponentials(), which of these would lose what they differ by. *most is the
 * largest of all, before it was rounded. */
static double large_row(const struct pp_attention *a, int b, int h, int i, int keys, float *s,
                        double *most)
{
    double sum;
    *most = plain_attention_score(a, b, h, i, plain_attention_most(a, b, h, i, &sum));
    for (int j = 0; j < keys; j++)
        s[j] = (float)exp(plain_attention_score(a, b, h, i, j) - *most);
    memset(s + keys, 0, SUMS * sizeof(*s));
    return sum;
}

/* Queries from..from+n-1 of head h. */
static void query_block(const struct pp_attention *a, const struct forward *f,
                        const struct drop *drop, int b, int h, int from, int n)
{
    float scale = (float)(1 / sqrt((double)a->width)), most[QUERIES], sum[QUERIES], lse[QUERIES];
    size_t D = (size_t)a->width;
    int g = h / (a->heads / a->kv_heads);
    for (int k = 0; k < a->keys; k += KEYS) {
        for (int r = 0; r < n; r += ROWS) {
            int rows = least(ROWS, n - r), columns = seen(a, from + r + rows - 1, k, KEYS);
            if (columns > 0) {
                product(rows, columns, a->width, a->q + head(a, &a->q_at, b, from + r, h),
                        a->q_at.position, 1, f->k + (size_t)k * D, KEYS, false,
                        f->s + (size_t)r * f->row + k, f->row);
            }
        }
    }
    for (int r = 0; r < n; r++)
        most[r] = greatest(seen(a, from + r, 0, a->keys), f->s + (size_t)r * f->row);
    for (int r = 0; r < n; r++) {
        float *s = f->s + (size_t)r * f->row;
        int i = from + r, keys = seen(a, i, 0, a->keys);
        if (i + QUERIES < a->queries)
            fetch(a, a->q, &a->q_at, b, i + QUERIES, h);
        if (i < a->keys && (h + 1) % (a->heads / a->kv_heads) == 0 && h + 1 < a->heads) {
            fetch(a, a->k, &a->kv_at, b, i, g + 1);
            fetch(a, a->v, &a->kv_at, b, i, g + 1);
        }
        fetch(a, a->y, &a->y_at, b, i, h);
        if (fabsf(most[r] * scale) < ATTENTION_LARGE) {
            sum[r] = exponentials(keys, scale, most[r], s);
            lse[r] = most[r] * scale + logf(sum[r]);
        } else {
            double exact, all = large_row(a, b, h, i, keys, s, &exact);
            lse[r] = (float)(exact + log(all));
            sum[r] = (float)all;
        }
        if (drop->on) {
            struct numbers of = numbers_of(a, b, h, i);
            for (int j = 0; j < keys; j++)
                s[j] *= kept(drop, &of, (uint32_t)j);
        }
    }
    for (int r = 0; a->lse && r < n; r++) {
        size_t line = (size_t)b * (size_t)a->queries + (size_t)(from + r);
        a->lse[line * (size_t)a->heads + (size_t)h] = lse[r];
    }
    for (int k = 0; k < a->keys; k += KEYS) {
        for (int r = 0; r < n; r += ROWS) {
            int rows = least(ROWS, n - r), depth = seen(a, from + r + rows - 1, k, KEYS);
            if (depth > 0) {
                product(rows, a->width, depth, f->s + (size_t)r * f->row + k, f->row, 1,
                        f->v + (size_t)k * D, D, k > 0, a->y + head(a, &a->y_at, b, from + r, h),
                        a->y_at.position);
            }
        }
    }
    for (int r = 0; r < n; r++)
        normalise(a, b, h, from + r, sum[r]);
}

void CPU_LOOP(attention_forward)(const void *args, const struct pp_piece *w)
{
    const struct pp_attention *a = args;
    size_t D = (size_t)a->width, all = ((size_t)a->keys + KEYS - 1) / KEYS * KEYS;
    float *scratch = scratch_of(a, w->member);
    struct forward f = {scratch, scratch + all * D, scratch + 2 * all * D, all + GAP};
    struct drop drop = drop_of(a);
    int group = a->heads / a->kv_heads;
    struct pp_attention one = *a;
    for (int i = (int)w->from; i < (int)w->to; i++) {
        int b = i / a->kv_heads, g = i % a->kv_heads;
        size_t at = head(a, &a->kv_at, b, 0, g);
        one.keys = pp_length(a->lengths, a->index, b, a->keys);
        for (int k = 0; k < one.keys; k += KEYS) {
            transpose(least(KEYS, one.keys - k), a->width,
                      a->k + at + (size_t)k * a->kv_at.position, a->kv_at.position,
                      f.k + (size_t)k * D);
        }
        copy_rows(one.keys, a->width, a->v + at, a->kv_at.position, 1, f.v);
        for (int h = g * group; h < (g + 1) * group; h++)
            for (int q = 0; q < a->queries; q += QUERIES)
                query_block(&one, &f, &drop, b, h, q, least(QUERIES, a->queries - q));
    }
}

/* ---- backwards */

/* What lies in the scratch, of a block of keys and one of queries. The copies of k and q are times
 * 1 / sqrt(width): so the gradients of scores need not be. */
struct backward {
    float *k_t, *v_t;   /* [width][KEYS] */
    float *k, *dk, *dv; /* [KEYS][width] */
    float *q, *dy;      /* [QUERIES][width] */
    float *p, *ds;      /* [QUERIES][KEYS + GAP] */
    /* [heads of a group][queries]: -log2 of the sums, NaN; of rows of large scores the sum of exp(s -
     * largest), and the key that has it; dy . y */
    float *lse, *key, *delta;
    float scale;
    int from, keys, queries; /* first key; keys and queries of the blocks */
};

enum {
    ROW = KEYS + GAP
};

/* As gradients(), of a row of large scores. */
static void large_gradients(const struct pp_attention *a, const struct backward *w, int b, int h,
                            int i, int keys, size_t at, const float *keep, float *s, float *dp)
{
    double most = plain_attention_score(a, b, h, i, (int)w->key[at]);
    for (int j = 0; j < keys; j++) {
        double other = plain_attention_score(a, b, h, i, w->from + j);
        float p = (float)(exp(other - most) / w->lse[at]), k = keep ? keep[j] : 1;
        s[j] = p * k;
        dp[j] = p * (dp[j] * k - w->delta[at]);
    }
    memset(s + keys, 0, SUMS * sizeof(*s));
    memset(dp + keys, 0, SUMS * sizeof(*dp));
}

/* Of all queries of the block. */
static void score_gradients(const struct pp_attention *a, const struct backward *w,
                            const struct drop *drop, int b, int h, int first)
{
    size_t at = (size_t)(h % (a->heads / a->kv_heads)) * (size_t)a->queries + (size_t)first;
    for (int r = 0; r < w->queries; r++) {
        int keys = seen(a, first + r, w->from, w->keys);
        float *p = w->p + (size_t)r * ROW, *ds = w->ds + (size_t)r * ROW;
        float from = w->lse[at + (size_t)r], delta = w->delta[at + (size_t)r], keep[KEYS];
        int i = first + r, g = h / (a->heads / a->kv_heads);
        int k = w->from + KEYS + i - (a->causal ? w->from : 0); /* of the next block of keys */
        if (i + QUERIES < a->queries) {
            fetch(a, a->q, &a->q_at, b, i + QUERIES, h);
            fetch(a, a->dy, &a->y_at, b, i + QUERIES, h);
        }
        if (k >= w->from + KEYS && k < least(w->from + 2 * KEYS, a->keys)) {
            fetch(a, a->k, &a->kv_at, b, k, g);
            fetch(a, a->v, &a->kv_at, b, k, g);
        }
        if (a->dq)
            fetch(a, a->dq, &a->q_at, b, i, h);
        if (drop->on) {
            struct numbers of = numbers_of(a, b, h, first + r);
            of.first += (uint32_t)w->from;
            for (int j = 0; j < KEYS; j++)
                keep[j] = kept(drop, &of, (uint32_t)j);
        }
        if (!isnan(w->key[at + (size_t)r]))
            large_gradients(a, w, b, h, i, keys, at + (size_t)r, drop->on ? keep : NULL, p, ds);
        else if (drop->on)
            gradients(keys, from, delta, keep, p, ds);
        else
            gradients(keys, from, delta, NULL, p, ds);
    }
}

/* The block of queries from `first` on of head h, with the block of keys. */
static void block(const struct pp_attention *a, struct backward *w, const struct drop *drop, int b,
                  int h, int first, bool add)
{
    int D = a->width;
    size_t width = (size_t)D;
    copy_rows(w->queries, D, a->q + head(a, &a->q_at, b, first, h), a->q_at.position, w->scale,
              w->q);
    copy_rows(w->queries, D, a->dy + head(a, &a->y_at, b, first, h), a->y_at.position, 1, w->dy);
    for (int r = 0; r < w->queries; r += ROWS) {
        int rows = least(ROWS, w->queries - r);
        int columns = seen(a, first + r + rows - 1, w->from, w->keys);
        if (columns > 0) {
            product(rows, columns, D, w->q + (size_t)r * width, width, 1, w->k_t, KEYS, false,
                    w->p + (size_t)r * ROW, ROW);
            product(rows, columns, D, w->dy + (size_t)r * width, width, 1, w->v_t, KEYS, false,
                    w->ds + (size_t)r * ROW, ROW);
        }
    }
    score_gradients(a, w, drop, b, h, first);
    for (int k = 0, skip = 0; a->dk && k < w->keys; k += ROWS) {
        int rows = least(ROWS, w->keys - k);
        while (skip < w->queries && seen(a, first + skip, w->from, w->keys) <= k)
            skip++;
        if (skip < w->queries) {
            size_t to = (size_t)k * width, from = (size_t)skip * width;
            product(rows, D, w->queries - skip, w->p + (size_t)skip * ROW + k, 1, ROW, w->dy + from,
                    width, true, w->dv + to, width);
            product(rows, D, w->queries - skip, w->ds + (size_t)skip * ROW + k, 1, ROW, w->q + from,
                    width, true, w->dk + to, width);
        }
    }
    for (int r = 0; a->dq && r < w->queries; r += ROWS) {
        int rows = least(ROWS, w->queries - r);
        int depth = seen(a, first + r + rows - 1, w->from, w->keys);
        if (depth > 0) {
            product(rows, D, depth, w->ds + (size_t)r * ROW, ROW, 1, w->k, width, add,
                    a->dq + head(a, &a->q_at, b, first + r, h), a->q_at.position);
        }
    }
}

static void store_rows(int rows, int width, const float *from, bool add, float *to, size_t step)
{
    for (int r = 0; r < rows; r++, from += width, to += step)
        for (int d = 0; d < width; d++)
            to[d] = add ? to[d] + from[d] : from[d];
}

/* A block of keys of head g with all queries. */
static void key_block(const struct pp_attention *a, struct backward *w, const struct drop *drop,
                      int b, int g)
{
    int group = a->heads / a->kv_heads;
    size_t at = head(a, &a->kv_at, b, w->from, g), step = a->kv_at.position;
    size_t bytes = (size_t)w->keys * (size_t)a->width * sizeof(float);
    transpose(w->keys, a->width, a->k + at, step, w->k_t);
    transpose(w->keys, a->width, a->v + at, step, w->v_t);
    copy_rows(w->keys, a->width, a->k + at, step, w->scale, w->k);
    memset(w->dk, 0, bytes);
    memset(w->dv, 0, bytes);
    for (int h = g * group; h < (g + 1) * group; h++) {
        for (int i = 0; i < a->queries; i += QUERIES) {
            w->queries = least(QUERIES, a->queries - i);
            if (seen(a, i + w->queries - 1, w->from, w->keys) > 0)
                block(a, w, drop, b, h, i, a->add || w->from > 0);
        }
    }
    if (a->dk) {
        store_rows(w->keys, a->width, w->dk, a->add_kv, a->dk + at, step);
        store_rows(w->keys, a->width, w->dv, a->add_kv, a->dv + at, step);
    }
}

/* What the rows of a group of heads need. */
static void row_sums(const struct pp_attention *a, const struct backward *w, int b, int g)
{
    int group = a->heads / a->kv_heads;
    for (int h = 0; h < group; h++) {
        for (int i = 0; i < a->queries; i++) {
            size_t at = (size_t)h * (size_t)a->queries + (size_t)i,
                   line = (size_t)b * (size_t)a->queries + (size_t)i;
            size_t y = head(a, &a->y_at, b, i, g * group + h);
            float lse = a->lse[line * (size_t)a->heads + (size_t)(g * group + h)];
            w->lse[at] = -LOG2_E * lse;
            w->key[at] = NAN;
            if (isfinite(lse) && fabsf(lse) >= ATTENTION_LARGE) {
                double sum;
                w->key[at] = (float)plain_attention_most(a, b, g * group + h, i, &sum);
                w->lse[at] = (float)sum;
            }
            w->delta[at] = dot(a->width, a->dy + y, a->y + y);
        }
    }
}

void CPU_LOOP(attention_backward)(const void *args, const struct pp_piece *piece)
{
    const struct pp_attention *a = args;
    size_t keys = (size_t)KEYS * (size_t)a->width, queries = (size_t)QUERIES * (size_t)a->width;
    struct drop drop = drop_of(a);
    struct backward w = {.k_t = scratch_of(a, piece->member),
                         .scale = (float)(1 / sqrt((double)a->width))};
    w.v_t = w.k_t + keys;
    w.k = w.v_t + keys;
    w.dk = w.k + keys;
    w.dv = w.dk + keys;
    w.q = w.dv + keys;
    w.dy = w.q + queries;
    w.p = w.dy + queries;
    w.ds = w.p + (size_t)QUERIES * ROW;
    w.lse = w.ds + (size_t)QUERIES * ROW;
    w.key = w.lse + (size_t)(a->heads / a->kv_heads) * (size_t)a->queries;
    w.delta = w.key + (size_t)(a->heads / a->kv_heads) * (size_t)a->queries;
    struct pp_attention one = *a;
    for (int i = (int)piece->from; i < (int)piece->to; i++) {
        int b = i / a->kv_heads, g = i % a->kv_heads;
        one.keys = pp_length(a->lengths, a->index, b, a->keys);
        row_sums(&one, &w, b, g);
        for (w.from = 0; w.from < one.keys; w.from += KEYS) {
            w.keys = least(KEYS, one.keys - w.from);
            key_block(&one, &w, &drop, b, g);
        }
        for (int j = one.keys; a->dk && !a->add_kv && j < a->keys; j++) {
            size_t at = head(a, &a->kv_at, b, j, g), bytes = (size_t)a->width * sizeof(float);
            memset(a->dk + at, 0, bytes);
            memset(a->dv + at, 0, bytes);
        }
    }
}
