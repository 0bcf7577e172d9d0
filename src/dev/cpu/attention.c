/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention as small products, with the tile of gemm_tile.h: chains of fused multiply-adds in
 * ascending order, and sums of a row in 16 chains, so all instruction sets give the same bits.
 *
 * Forward works on a block of queries at a time: its scores with all keys, their softmax, the
 * product with the values. Backward works on a block of keys at a time, whose gradients stay in the
 * cache, with all blocks of queries. Causally hidden scores are skipped in groups of ROWS queries.
 * Keys are transposed, and values and other arrays that are read by columns are copied, because
 * rows that are kilobytes apart share few sets of the cache.
 *
 * GFLOP/s of F and I, causal, and their share of a 512 x 512 x 512 product measured next to them,
 * on one core of a shared Xeon at 2.5 GHz; hidden flops do not count:
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

struct attention_drop {
    bool on;
    uint32_t limit;
    float scale;
};

/* Random numbers of a query's row, and the number of its first element; see struct pp_attention. */
struct drop_numbers {
    uint64_t of;
    uint32_t first;
};

static struct drop_numbers find_numbers(const struct pp_attention *a, int b, int h, int i)
{
    uint32_t row = a->first_row + (uint32_t)(a->of_queries ? i : b);
    uint32_t line = a->of_queries ? (uint32_t)h * (uint32_t)a->B + (uint32_t)b
                                  : (uint32_t)h * (uint32_t)a->queries + (uint32_t)i;
    return (struct drop_numbers){dropout_row(a->key, *a->step, row), line * (uint32_t)a->keys};
}

static struct attention_drop find_drop(const struct pp_attention *a)
{
    if (!a->step || a->p == 0)
        return (struct attention_drop){.on = false};
    return (struct attention_drop){true, dropout_limit(a->p), (float)(1 / (1 - (double)a->p))};
}

static inline float dropout_factor(const struct attention_drop *d, const struct drop_numbers *n,
                                   uint32_t j)
{
    return dropout_number(n->of, n->first + j) < d->limit ? 0 : d->scale;
}

/* Returns how many of the n keys from key `from` on query i sees. */
static int count_seen(const struct pp_attention *a, int i, int from, int n)
{
    int all = (a->causal ? a->keys - a->queries + i + 1 : a->keys) - from;
    return all < 0 ? 0 : all < n ? all : n;
}

static size_t offset_of_head(const struct pp_strides *s, int b, int i, int h)
{
    return (size_t)b * s->sequence + (size_t)i * s->position + (size_t)h * s->head;
}

/* Returns the same for the gradient of the array. */
static size_t gradient_of_head(const struct pp_strides *s, int b, int i, int h)
{
    struct pp_strides gradient = attention_gradient(*s);
    return offset_of_head(&gradient, b, i, h);
}

static float find_scale(const struct pp_attention *a)
{
    return a->scale > 0 ? a->scale : (float)(1 / sqrt((double)a->width));
}

/* Copies rows that are `step` apart, multiplied by `by`, to contiguous to[rows][width]. Uses no
 * memcpy(), which is slow for short rows. */
static void copy_rows(int rows, int width, const float *from, size_t step, float by, float *to)
{
    for (int r = 0; r < rows; r++, from += step, to += width)
        for (int d = 0; d < width; d++)
            to[d] = by * from[d];
}

/* Prefetches head h of position i, because the processor does not detect a pattern of rows that are
 * kilobytes apart. */
static inline void prefetch_head(const struct pp_attention *a, const float *x,
                                 const struct pp_strides *s, int b, int i, int h)
{
    const float *row = x + offset_of_head(s, b, i, h);
    for (int d = 0; d < a->width; d += 16)
        __builtin_prefetch(row + d, 0, 2);
}

/* Returns the scratch memory of one thread of the rank. */
static float *scratch_of(const struct pp_attention *a, int member)
{
    return a->scratch + (size_t)member * pp_attention_scratch_floats(
                                             a->queries, a->keys, a->heads / a->kv_heads, a->width);
}

/* ---- forward */

/* The arrays in the scratch. */
struct forward {
    float *k, *v, *s; /* keys, transposed block by block; values; scores of a block of queries */
    size_t row;       /* elements per row of s */
};

static void normalize_query(const struct pp_attention *a, int b, int h, int i, float sum)
{
    float *y = a->y + offset_of_head(&a->y_at, b, i, h), by = 1 / sum;
    for (int d = 0; d < a->width; d++)
        y[d] *= by;
}

/* Replaces a row of large scores, whose differences a float would lose, by exp(score - largest), as
 * make_exponentials() does for other rows. Sets *most to the largest score before rounding, and
 * returns the sum. */
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

/* Computes the outputs of queries from .. from + n - 1 of head h. */
static void query_block(const struct pp_attention *a, const struct forward *f,
                        const struct attention_drop *drop, int b, int h, int from, int n)
{
    float scale = find_scale(a), most[QUERIES], sum[QUERIES], lse[QUERIES];
    size_t D = (size_t)a->width;
    int g = h / (a->heads / a->kv_heads);
    for (int k = 0; k < a->keys; k += KEYS) {
        for (int r = 0; r < n; r += ROWS) {
            int rows = least(ROWS, n - r), columns = count_seen(a, from + r + rows - 1, k, KEYS);
            if (columns > 0) {
                multiply_few_rows(rows, columns, a->width,
                                  a->q + offset_of_head(&a->q_at, b, from + r, h), a->q_at.position,
                                  1, f->k + (size_t)k * D, KEYS, false,
                                  f->s + (size_t)r * f->row + k, f->row);
            }
        }
    }
    for (int r = 0; r < n && !a->mask; r++)
        most[r] = find_greatest(count_seen(a, from + r, 0, a->keys), f->s + (size_t)r * f->row);
    for (int r = 0; r < n && a->mask; r++)
        most[r] = add_mask(count_seen(a, from + r, 0, a->keys), scale,
                           a->mask + offset_of_head(&a->mask_at, b, from + r, h), a->mask_key,
                           f->s + (size_t)r * f->row);
    for (int r = 0; r < n; r++) {
        float *s = f->s + (size_t)r * f->row;
        int i = from + r, keys = count_seen(a, i, 0, a->keys);
        if (i + QUERIES < a->queries)
            prefetch_head(a, a->q, &a->q_at, b, i + QUERIES, h);
        if (i < a->keys && (h + 1) % (a->heads / a->kv_heads) == 0 && h + 1 < a->heads) {
            prefetch_head(a, a->k, &a->k_at, b, i, g + 1);
            prefetch_head(a, a->v, &a->v_at, b, i, g + 1);
        }
        prefetch_head(a, a->y, &a->y_at, b, i, h);
        if (a->mask && (most[r] == -INFINITY || fabsf(most[r]) < ATTENTION_LARGE)) {
            sum[r] = make_masked_exponentials(keys, &most[r], s);
            lse[r] = sum[r] == 0 ? INFINITY : most[r] + logf(sum[r]);
            sum[r] = sum[r] == 0 ? 1 : sum[r]; /* y is 0 */
        } else if (!a->mask && fabsf(most[r] * scale) < ATTENTION_LARGE) {
            sum[r] = make_exponentials(keys, scale, most[r], s);
            lse[r] = most[r] * scale + logf(sum[r]);
        } else {
            double exact, all = large_row(a, b, h, i, keys, s, &exact);
            lse[r] = (float)(exact + log(all));
            sum[r] = (float)all;
        }
        if (drop->on) {
            struct drop_numbers of = find_numbers(a, b, h, i);
            for (int j = 0; j < keys; j++)
                s[j] *= dropout_factor(drop, &of, (uint32_t)j);
        }
    }
    for (int r = 0; a->lse && r < n; r++) {
        size_t line = (size_t)b * (size_t)a->queries + (size_t)(from + r);
        a->lse[line * (size_t)a->heads + (size_t)h] = lse[r];
    }
    for (int k = 0; k < a->keys; k += KEYS) {
        for (int r = 0; r < n; r += ROWS) {
            int rows = least(ROWS, n - r), depth = count_seen(a, from + r + rows - 1, k, KEYS);
            if (depth > 0) {
                multiply_few_rows(rows, a->width, depth, f->s + (size_t)r * f->row + k, f->row, 1,
                                  f->v + (size_t)k * D, D, k > 0,
                                  a->y + offset_of_head(&a->y_at, b, from + r, h),
                                  a->y_at.position);
            }
        }
    }
    for (int r = 0; r < n; r++)
        normalize_query(a, b, h, from + r, sum[r]);
}

void CPU_LOOP(attention_forward)(const void *args, const struct pp_piece *w)
{
    const struct pp_attention *a = args;
    size_t D = (size_t)a->width, all = ((size_t)a->keys + KEYS - 1) / KEYS * KEYS;
    float *scratch = scratch_of(a, w->member);
    struct forward f = {scratch, scratch + all * D, scratch + 2 * all * D, all + GAP};
    struct attention_drop drop = find_drop(a);
    int group = a->heads / a->kv_heads;
    struct pp_attention one = *a;
    for (int i = (int)w->from; i < (int)w->to; i++) {
        int b = i / a->kv_heads, g = i % a->kv_heads;
        const float *of_k = a->k + offset_of_head(&a->k_at, b, 0, g);
        one.keys = pp_length(a->lengths, a->index, b, a->keys);
        for (int k = 0; k < one.keys; k += KEYS) {
            transpose_rows(least(KEYS, one.keys - k), a->width, of_k + (size_t)k * a->k_at.position,
                           a->k_at.position, f.k + (size_t)k * D);
        }
        copy_rows(one.keys, a->width, a->v + offset_of_head(&a->v_at, b, 0, g), a->v_at.position, 1,
                  f.v);
        for (int h = g * group; h < (g + 1) * group; h++)
            for (int q = 0; q < a->queries; q += QUERIES)
                query_block(&one, &f, &drop, b, h, q, least(QUERIES, a->queries - q));
    }
}

/* ---- backward */

/* The arrays in the scratch, of a block of keys and a block of queries. The copies of k and q are
 * multiplied by the scale, so that gradients of scores need none. */
struct backward {
    float *k_t, *v_t;   /* [width][KEYS] */
    float *k, *dk, *dv; /* [KEYS][width] */
    float *q, *dy;      /* [QUERIES][width] */
    float *p, *ds;      /* [QUERIES][KEYS + GAP] */
    /* [heads of a group][queries]: -log2 of the sums, and NaN in key; for rows of large scores the
     * sum of exp(s - largest), and the key with the largest; dy . y */
    float *lse, *key, *delta;
    float scale;
    int from, keys, queries; /* first key; keys and queries of the blocks */
};

enum {
    ROW = KEYS + GAP
};

/* Replaces a row of large scores and its dp as gradients() does for other rows, with scores in
 * double. */
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

/* Adds the gradients ds[keys] of the scores of query i of head h to those of the mask. */
static void add_mask_gradient(const struct pp_attention *a, int b, int h, int i, int from, int keys,
                              const float *ds)
{
    float *to = a->dmask + gradient_of_head(&a->mask_at, b, i, h) + (size_t)from * a->mask_key;
    if (a->mask_key == 1) {
        for (int j = 0; j < keys; j++)
            to[j] += ds[j];
        return;
    }
    for (int j = 0; j < keys; j++)
        to[(size_t)j * a->mask_key] += ds[j];
}

/* Replaces the scores of all queries of the block by probabilities, and dp by the gradients of the
 * scores. */
static void score_gradients(const struct pp_attention *a, const struct backward *w,
                            const struct attention_drop *drop, int b, int h, int first)
{
    size_t at = (size_t)(h % (a->heads / a->kv_heads)) * (size_t)a->queries + (size_t)first;
    for (int r = 0; r < w->queries; r++) {
        int keys = count_seen(a, first + r, w->from, w->keys);
        float *p = w->p + (size_t)r * ROW, *ds = w->ds + (size_t)r * ROW;
        float from = w->lse[at + (size_t)r], delta = w->delta[at + (size_t)r], keep[KEYS];
        int i = first + r, g = h / (a->heads / a->kv_heads);
        /* the row of the next block of keys */
        int k = w->from + KEYS + i - (a->causal ? w->from : 0);
        if (i + QUERIES < a->queries) {
            prefetch_head(a, a->q, &a->q_at, b, i + QUERIES, h);
            prefetch_head(a, a->dy, &a->y_at, b, i + QUERIES, h);
        }
        if (k >= w->from + KEYS && k < least(w->from + 2 * KEYS, a->keys)) {
            prefetch_head(a, a->k, &a->k_at, b, k, g);
            prefetch_head(a, a->v, &a->v_at, b, k, g);
        }
        if (a->dq)
            prefetch_head(a, a->dq, &a->q_at, b, i, h);
        if (drop->on) {
            struct drop_numbers of = find_numbers(a, b, h, first + r);
            of.first += (uint32_t)w->from;
            for (int j = 0; j < KEYS; j++)
                keep[j] = dropout_factor(drop, &of, (uint32_t)j);
        }
        if (!isnan(w->key[at + (size_t)r]))
            large_gradients(a, w, b, h, i, keys, at + (size_t)r, drop->on ? keep : NULL, p, ds);
        else if (a->mask)
            masked_gradients(keys, from, delta, drop->on ? keep : NULL,
                             a->mask + offset_of_head(&a->mask_at, b, i, h) +
                                 (size_t)w->from * a->mask_key,
                             a->mask_key, p, ds);
        else if (drop->on)
            gradients(keys, from, delta, keep, p, ds);
        else
            gradients(keys, from, delta, NULL, p, ds);
        if (a->dmask)
            add_mask_gradient(a, b, h, i, w->from, keys, ds);
    }
}

/* Adds what the block of queries from `first` on of head h and the block of keys contribute to each
 * other's gradients. */
static void combine_blocks(const struct pp_attention *a, struct backward *w,
                           const struct attention_drop *drop, int b, int h, int first, bool add)
{
    int D = a->width;
    size_t width = (size_t)D;
    copy_rows(w->queries, D, a->q + offset_of_head(&a->q_at, b, first, h), a->q_at.position,
              w->scale, w->q);
    copy_rows(w->queries, D, a->dy + offset_of_head(&a->y_at, b, first, h), a->y_at.position, 1,
              w->dy);
    for (int r = 0; r < w->queries; r += ROWS) {
        int rows = least(ROWS, w->queries - r);
        int columns = count_seen(a, first + r + rows - 1, w->from, w->keys);
        if (columns > 0) {
            multiply_few_rows(rows, columns, D, w->q + (size_t)r * width, width, 1, w->k_t, KEYS,
                              false, w->p + (size_t)r * ROW, ROW);
            multiply_few_rows(rows, columns, D, w->dy + (size_t)r * width, width, 1, w->v_t, KEYS,
                              false, w->ds + (size_t)r * ROW, ROW);
        }
    }
    score_gradients(a, w, drop, b, h, first);
    for (int k = 0, skip = 0; (a->dk || a->dv) && k < w->keys; k += ROWS) {
        int rows = least(ROWS, w->keys - k);
        while (skip < w->queries && count_seen(a, first + skip, w->from, w->keys) <= k)
            skip++;
        if (skip < w->queries) {
            size_t to = (size_t)k * width, from = (size_t)skip * width;
            multiply_few_rows(rows, D, w->queries - skip, w->p + (size_t)skip * ROW + k, 1, ROW,
                              w->dy + from, width, true, w->dv + to, width);
            multiply_few_rows(rows, D, w->queries - skip, w->ds + (size_t)skip * ROW + k, 1, ROW,
                              w->q + from, width, true, w->dk + to, width);
        }
    }
    for (int r = 0; a->dq && r < w->queries; r += ROWS) {
        int rows = least(ROWS, w->queries - r);
        int depth = count_seen(a, first + r + rows - 1, w->from, w->keys);
        if (depth > 0) {
            multiply_few_rows(rows, D, depth, w->ds + (size_t)r * ROW, ROW, 1, w->k, width, add,
                              a->dq + gradient_of_head(&a->q_at, b, first + r, h),
                              a->q_at.position);
        }
    }
}

static void store_rows(int rows, int width, const float *from, bool add, float *to, size_t step)
{
    for (int r = 0; r < rows; r++, from += width, to += step)
        for (int d = 0; d < width; d++)
            to[d] = add ? to[d] + from[d] : from[d];
}

/* Computes dk and dv of a block of keys of head g, and what the block contributes to dq, by
 * combining it with all blocks of queries. */
static void key_block(const struct pp_attention *a, struct backward *w,
                      const struct attention_drop *drop, int b, int g)
{
    int group = a->heads / a->kv_heads;
    const float *k = a->k + offset_of_head(&a->k_at, b, w->from, g);
    const float *v = a->v + offset_of_head(&a->v_at, b, w->from, g);
    size_t bytes = (size_t)w->keys * (size_t)a->width * sizeof(float);
    transpose_rows(w->keys, a->width, k, a->k_at.position, w->k_t);
    transpose_rows(w->keys, a->width, v, a->v_at.position, w->v_t);
    copy_rows(w->keys, a->width, k, a->k_at.position, w->scale, w->k);
    memset(w->dk, 0, bytes);
    memset(w->dv, 0, bytes);
    for (int h = g * group; h < (g + 1) * group; h++) {
        for (int i = 0; i < a->queries; i += QUERIES) {
            w->queries = least(QUERIES, a->queries - i);
            if (count_seen(a, i + w->queries - 1, w->from, w->keys) > 0)
                combine_blocks(a, w, drop, b, h, i, a->add || w->from > 0);
        }
    }
    if (a->dk)
        store_rows(w->keys, a->width, w->dk, a->add_k,
                   a->dk + gradient_of_head(&a->k_at, b, w->from, g), a->k_at.position);
    if (a->dv)
        store_rows(w->keys, a->width, w->dv, a->add_v,
                   a->dv + gradient_of_head(&a->v_at, b, w->from, g), a->v_at.position);
}

/* Computes lse, key and delta of `w` for all queries of the heads that share the keys of head g. */
static void row_sums(const struct pp_attention *a, const struct backward *w, int b, int g)
{
    int group = a->heads / a->kv_heads;
    for (int h = 0; h < group; h++) {
        for (int i = 0; i < a->queries; i++) {
            size_t at = (size_t)h * (size_t)a->queries + (size_t)i,
                   line = (size_t)b * (size_t)a->queries + (size_t)i;
            size_t y = offset_of_head(&a->y_at, b, i, g * group + h);
            float lse = a->lse[line * (size_t)a->heads + (size_t)(g * group + h)];
            w->lse[at] = -LOG2_E * lse;
            w->key[at] = NAN;
            if (isfinite(lse) && fabsf(lse) >= ATTENTION_LARGE) {
                double sum;
                w->key[at] = (float)plain_attention_most(a, b, g * group + h, i, &sum);
                w->lse[at] = (float)sum;
            }
            w->delta[at] = dot_product(a->width, a->dy + y, a->y + y);
        }
    }
}

/* Sets the gradients of the mask of the heads that share the keys of head g to 0. */
static void clear_mask_gradient(const struct pp_attention *a, int b, int g)
{
    int group = a->heads / a->kv_heads, from = g * group, to = from + group;
    int queries = a->mask_at.position > 0 ? a->queries : 1, keys = a->mask_key > 0 ? a->keys : 1;
    if (a->mask_at.head == 0)
        to = g == 0 ? 1 : 0; /* one for all heads, whose first comes first */
    for (int h = from; h < to; h++)
        for (int i = 0; i < queries; i++) {
            float *row = a->dmask + gradient_of_head(&a->mask_at, b, i, h);
            for (int j = 0; j < keys; j++)
                row[(size_t)j * a->mask_key] = 0;
        }
}

void CPU_LOOP(attention_backward)(const void *args, const struct pp_piece *piece)
{
    const struct pp_attention *a = args;
    size_t keys = (size_t)KEYS * (size_t)a->width, queries = (size_t)QUERIES * (size_t)a->width;
    struct attention_drop drop = find_drop(a);
    struct backward w = {.k_t = scratch_of(a, piece->member), .scale = find_scale(a)};
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
        if (a->dmask && !a->add_mask)
            clear_mask_gradient(a, b, g);
        one.keys = pp_length(a->lengths, a->index, b, a->keys);
        row_sums(&one, &w, b, g);
        for (w.from = 0; w.from < one.keys; w.from += KEYS) {
            w.keys = least(KEYS, one.keys - w.from);
            key_block(&one, &w, &drop, b, g);
        }
        for (int j = one.keys; j < a->keys; j++) {
            size_t bytes = (size_t)a->width * sizeof(float);
            if (a->dk && !a->add_k)
                memset(a->dk + gradient_of_head(&a->k_at, b, j, g), 0, bytes);
            if (a->dv && !a->add_v)
                memset(a->dv + gradient_of_head(&a->v_at, b, j, g), 0, bytes);
        }
    }
}
