/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of attention.c: a product of a few rows, a transpose, and functions on a row of scores,
 * with the tile and the vectors of gemm_tile.h.
 */
#ifndef PPCLI_DEV_CPU_ATTENTION_ROWS_H
#define PPCLI_DEV_CPU_ATTENTION_ROWS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "../attention.h"
#include "gemm_pack.h"

enum {
    KEYS = ATTENTION_KEYS,
    QUERIES = ATTENTION_QUERIES,
    GAP = ATTENTION_GAP
};

DEFINE_TILES(STRIDED)

/* Writes the transpose of rows[n][depth], which are `step` apart, to to[depth][KEYS]. */
static void transpose_rows(int n, int depth, const float *rows, size_t step, float *to)
{
    pack_panel(depth, step, n, KEYS, rows, to);
}

/* Computes c = a b, or adds it to c, for at most ROWS rows; element (r, k) of a is at a[r * a_row +
 * k * a_step]. */
static void multiply_few_rows(int rows, int columns, int depth, const float *a, size_t a_row,
                              size_t a_step, const float *b, size_t b_row, bool add, float *c,
                              size_t c_row)
{
    struct segment s = {.depth = depth, .a = a, .b = b};
    struct tile t = {.segments = &s,
                     .n_segments = 1,
                     .a_row = a_row,
                     .a_step = a_step,
                     .b_step = b_row,
                     .c_row = c_row,
                     .add = add};
    for (int i = 0; i < columns; i += WIDTH) {
        t.b_at = (size_t)i;
        t.c = c + i;
        run_tile(&STRIDED_tiles, &t, rows, least(WIDTH, columns - i));
    }
}

/* ---- rows: SUMS elements at a time, whatever the width of a vector. Whole groups are read and
 * written; elements after a row's end do not count. */

enum {
    SUMS = 16, /* element i belongs to lane i mod SUMS of a row's sum or maximum */
    PARTS = SUMS / LANES
};

static const int32_t lane_numbers[SUMS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* Returns part v of a group of SUMS lanes: x in lanes below n, `others` in the rest. */
INLINE vec within(int n, int v, vec x, vec others)
{
    ivec at;
    memcpy(&at, lane_numbers + (size_t)v * LANES, sizeof(at));
    ivec in = at < n;
    return (vec)((in & (ivec)x) | (~in & (ivec)others));
}

/* Computes 2^t for t < 128 with the method of mathf_exp() and the polynomial of Cephes (Moshier,
 * exp2f). A result that would be denormal becomes 2^-126. */
INLINE vec power_of_2(vec t)
{
    const vec shift = SET1(0x1.8p23f);
    vec c = MAX(SET1(-126.0f), t), n = c + shift, r = c - (n - shift);
    vec p = SET1(1.535336188319500e-4f);
    p = FMA(p, r, SET1(1.339887440266574e-3f));
    p = FMA(p, r, SET1(9.618437357674640e-3f));
    p = FMA(p, r, SET1(5.550332471162809e-2f));
    p = FMA(p, r, SET1(2.402264791363012e-1f));
    p = FMA(p, r, SET1(6.931472028550421e-1f));
    p = FMA(p, r, SET1(1.0f));
    return p * (vec)(((ivec)n + 127) << 23);
}

#define LOG2_E 1.44269504f

/* Folds the lanes to one number as a tree: halves of 16, 8, 4 and 2. */
#ifdef __AVX2__

INLINE __m256 half_of(const vec *parts, int upper)
{
#ifdef __AVX512F__
    return upper ? _mm512_extractf32x8_ps(parts[0], 1) : _mm512_castps512_ps256(parts[0]);
#else
    return parts[upper];
#endif
}

#define FOLD(name, step, unused)                                                                   \
    INLINE float name(const vec *parts)                                                            \
    {                                                                                              \
        __m256 a = _mm256_##step##_ps(half_of(parts, 0), half_of(parts, 1));                       \
        __m128 b = _mm_##step##_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));        \
        b = _mm_##step##_ps(b, _mm_movehl_ps(b, b));                                               \
        return _mm_cvtss_f32(_mm_##step##_ss(b, _mm_movehdup_ps(b)));                              \
    }

#else

#define FOLD(name, unused, step)                                                                   \
    INLINE float name(const vec *parts)                                                            \
    {                                                                                              \
        float x[SUMS];                                                                             \
        memcpy(x, parts, sizeof(x));                                                               \
        for (int half = SUMS / 2; half > 0; half /= 2)                                             \
            for (int l = 0; l < half; l++)                                                         \
                x[l] = step(x[l], x[l + half]);                                                    \
        return x[0];                                                                               \
    }

#endif

#define SUM(a, b) ((a) + (b))
#define GREATER(a, b) ((a) > (b) ? (a) : (b))
FOLD(sum_of, add, SUM)
FOLD(greatest_of, max, GREATER)

/* Returns the largest of x[n]; ignores a NaN. */
static float find_greatest(int n, const float *x)
{
    vec most[PARTS], none = SET1(-INFINITY);
    UNROLL for (int v = 0; v < PARTS; v++) most[v] = none;
    int j = 0;
    for (; j + SUMS <= n; j += SUMS)
        UNROLL for (int v = 0; v < PARTS; v++) most[v] =
            MAX(LOAD(x + j + (size_t)v * LANES), most[v]);
    UNROLL for (int v = 0; v < PARTS; v++) most[v] =
        MAX(within(n - j, v, LOAD(x + j + (size_t)v * LANES), none), most[v]);
    return greatest_of(most);
}

/* Returns `n` numbers of a mask that are `step` apart as contiguous ones: SUMS of them from the mask
 * itself or, if that is not possible, from a copy in part[SUMS]. */
INLINE const float *mask_group(int n, const float *added, size_t step, float *part)
{
    if (step == 1 && n >= SUMS)
        return added;
    for (int l = 0; l < SUMS; l++)
        part[l] = l < n ? added[(size_t)l * step] : 0;
    return part;
}

/* Replaces s[n] by scale * s + a mask, and returns the largest; ignores a NaN. */
static float add_mask(int n, float scale, const float *added, size_t step, float *s)
{
    vec most[PARTS], none = SET1(-INFINITY), c = SET1(scale);
    UNROLL for (int v = 0; v < PARTS; v++) most[v] = none;
    for (int j = 0; j < n; j += SUMS) {
        float part[SUMS];
        const float *m = mask_group(n - j, added + (size_t)j * step, step, part);
        bool last = j + SUMS > n;
        UNROLL for (int v = 0; v < PARTS; v++)
        {
            float *at = s + j + LANE(v);
            vec x = FMA(LOAD(at), c, LOAD(m + LANE(v)));
            STORE(at, x);
            most[v] = MAX(last ? within(n - j, v, x, none) : x, most[v]);
        }
    }
    return greatest_of(most);
}

/* Returns power_of_2(t), but 0 instead of a number below 2^-126. */
INLINE vec power_or_0(vec t)
{
    ivec small = (ivec)(t <= SET1(-126.0f));
    return (vec)(~small & (ivec)power_of_2(t));
}

/* Replaces s[n] by exp(scale * (s - most)), sets at least SUMS elements after it to 0, and returns
 * the sum. */
static float make_exponentials(int n, float scale, float most, float *s)
{
    vec sum[PARTS], zero = SET1(0.0f), c = SET1(scale * LOG2_E), from = -SET1(most) * c;
    UNROLL for (int v = 0; v < PARTS; v++) sum[v] = zero;
    int j = 0;
    for (; j < n; j += SUMS) {
        bool last = j + SUMS > n;
        UNROLL for (int v = 0; v < PARTS; v++)
        {
            float *at = s + j + (size_t)v * LANES;
            vec p = power_of_2(FMA(LOAD(at), c, from));
            if (last)
                p = within(n - j, v, p, zero);
            STORE(at, p);
            sum[v] += p;
        }
    }
    UNROLL for (int v = 0; v < PARTS; v++) STORE(s + j + (size_t)v * LANES, zero);
    return sum_of(sum);
}

/* As make_exponentials() for masked scores, whose scale is 1: hidden keys get 0. *most may be
 * -infinity, and is then set to 0. */
static float make_masked_exponentials(int n, float *most, float *s)
{
    *most = *most == -INFINITY ? 0 : *most;
    vec sum[PARTS], zero = SET1(0.0f), e = SET1(LOG2_E), from = SET1(*most);
    UNROLL for (int v = 0; v < PARTS; v++) sum[v] = zero;
    int j = 0;
    for (; j < n; j += SUMS) {
        bool last = j + SUMS > n;
        UNROLL for (int v = 0; v < PARTS; v++)
        {
            float *at = s + j + LANE(v);
            vec p = power_or_0((LOAD(at) - from) * e);
            if (last)
                p = within(n - j, v, p, zero);
            STORE(at, p);
            sum[v] += p;
        }
    }
    UNROLL for (int v = 0; v < PARTS; v++) STORE(s + j + LANE(v), zero);
    return sum_of(sum);
}

/* Replaces a row of scores s[n] by probabilities (times `keep` unless that is NULL), and dp = dy .
 * v by the gradients of the scores. Sets at least SUMS elements after both to 0. */
INLINE void gradients(int n, float from, float delta, const float *keep, float *s, float *dp)
{
    vec zero = SET1(0.0f), e = SET1(LOG2_E), below = SET1(from), mean = SET1(delta);
    int j = 0;
    for (; j < n; j += SUMS) {
        bool last = j + SUMS > n;
        UNROLL for (int v = 0; v < PARTS; v++)
        {
            int at = j + v * LANES;
            vec p = power_of_2(FMA(LOAD(s + at), e, below)), d = LOAD(dp + at), k = p;
            if (keep) {
                k *= LOAD(keep + at);
                d *= LOAD(keep + at);
            }
            d = p * (d - mean);
            STORE(s + at, last ? within(n - j, v, k, zero) : k);
            STORE(dp + at, last ? within(n - j, v, d, zero) : d);
        }
    }
    UNROLL for (int v = 0; v < PARTS; v++)
    {
        STORE(s + j + (size_t)v * LANES, zero);
        STORE(dp + j + (size_t)v * LANES, zero);
    }
}

/* As gradients(), for scores that the mask is still to be added to. */
static void masked_gradients(int n, float from, float delta, const float *keep, const float *added,
                             size_t step, float *s, float *dp)
{
    vec zero = SET1(0.0f), e = SET1(LOG2_E), below = SET1(from), mean = SET1(delta);
    int j = 0;
    for (; j < n; j += SUMS) {
        float part[SUMS];
        const float *m = mask_group(n - j, added + (size_t)j * step, step, part);
        bool last = j + SUMS > n;
        UNROLL for (int v = 0; v < PARTS; v++)
        {
            int at = j + v * LANES;
            vec k = keep ? LOAD(keep + at) : SET1(1.0f);
            vec p = power_or_0(FMA(LOAD(s + at) + LOAD(m + LANE(v)), e, below));
            vec d = p * (LOAD(dp + at) * k - mean);
            p *= k;
            STORE(s + at, last ? within(n - j, v, p, zero) : p);
            STORE(dp + at, last ? within(n - j, v, d, zero) : d);
        }
    }
    UNROLL for (int v = 0; v < PARTS; v++)
    {
        STORE(s + j + LANE(v), zero);
        STORE(dp + j + LANE(v), zero);
    }
}

static float dot_product(int n, const float *a, const float *b)
{
    vec sum[PARTS], zero = SET1(0.0f);
    UNROLL for (int v = 0; v < PARTS; v++) sum[v] = zero;
    int j = 0;
    for (; j + SUMS <= n; j += SUMS)
        UNROLL for (int v = 0; v < PARTS; v++) sum[v] =
            FMA(LOAD(a + j + (size_t)v * LANES), LOAD(b + j + (size_t)v * LANES), sum[v]);
    float parts[SUMS];
    memcpy(parts, sum, sizeof(parts));
    for (int l = 0; j < n; j++, l++)
        parts[l] += a[j] * b[j];
    memcpy(sum, parts, sizeof(parts));
    return sum_of(sum);
}

#endif
