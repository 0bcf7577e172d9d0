/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inner loop of all products (gemm_fma.c, gemm_bf16.c, conv_*, attention_rows.h): one tile of
 * the result, held in registers, for one vector width. Included once for each instruction set.
 */
#ifndef PPCLI_DEV_CPU_GEMM_TILE_H
#define PPCLI_DEV_CPU_GEMM_TILE_H

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")
#define FETCH(p, cache) __builtin_prefetch(p, 0, 4 - (cache)) /* into L1 or L2 */

/* A tile is ROWS x VECTORS accumulators, which takes all registers except those for one row of b
 * and one element of a (on ARM: a vector of each row of a). Everything that depends on the
 * processor is here: its vectors, as one-line macros. */
#if defined(__ARM_NEON) && defined(__aarch64__)
#define ROWS 5
#define SIXTH_ROW(...)
#else
#define ROWS 6
#define SIXTH_ROW(...) __VA_ARGS__
#endif
#if defined(__AVX512F__)

#define LANES 16
#define VECTORS 4
typedef __m512 vec;
typedef __mmask16 mask;
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define LOAD_PART(m, p) _mm512_maskz_loadu_ps(m, p)
#define STORE_PART(m, p, v) _mm512_mask_storeu_ps(p, m, v)
#define SET1(a) _mm512_set1_ps(a)
#define ADD(a, b) _mm512_add_ps(a, b)
#define MAX(a, b) _mm512_max_ps(a, b)
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)

INLINE mask first_lanes(int n)
{
    return (mask)((1u << n) - 1);
}

#elif defined(__AVX2__)

#define LANES 8
#define VECTORS 2
typedef __m256 vec;
typedef __m256i mask;
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, v) _mm256_storeu_ps(p, v)
#define LOAD_PART(m, p) _mm256_maskload_ps(p, m)
#define STORE_PART(m, p, v) _mm256_maskstore_ps(p, m, v)
#define SET1(a) _mm256_set1_ps(a)
#define ADD(a, b) _mm256_add_ps(a, b)
#define MAX(a, b) _mm256_max_ps(a, b)
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)

INLINE mask first_lanes(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

#else /* NEON, and plain C for all others */

#define LANES 4
#define VECTORS 4
typedef float vec __attribute__((vector_size(4 * LANES)));
typedef vec vec_at __attribute__((aligned(sizeof(float))));
typedef int mask; /* the number of lanes */
#define LOAD(p) (*(const vec_at *)(p))
#define STORE(p, v) (*(vec_at *)(p) = (v))
#define SET1(a) ((vec){a, a, a, a})
#define ADD(a, b) ((a) + (b))

INLINE mask first_lanes(int n)
{
    return n;
}

INLINE vec LOAD_PART(mask n, const float *p)
{
    if (n >= LANES)
        return LOAD(p);
    return (vec){n > 0 ? p[0] : 0, n > 1 ? p[1] : 0, n > 2 ? p[2] : 0, 0};
}

INLINE void STORE_PART(mask n, float *p, vec v)
{
    if (n >= LANES)
        STORE(p, v);
    for (int l = 0; n < LANES && l < n; l++)
        p[l] = v[l];
}

INLINE vec MAX(vec a, vec b)
{
    __typeof__(a > b) greater = a > b;
    return (vec)((greater & (__typeof__(greater))a) | (~greater & (__typeof__(greater))b));
}

#if defined(__ARM_NEON) && defined(__aarch64__)
#define FMA(a, b, c) ((vec)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#ifndef PPCLI_BF16
#define FMA_LANE(a, lane, b, c)                                                                    \
    ((vec)vfmaq_laneq_f32((float32x4_t)(c), (float32x4_t)(b), (float32x4_t)(a), lane))
#endif
#elif defined(__FP_FAST_FMAF)

INLINE vec FMA(vec a, vec b, vec c)
{
    return (vec){fmaf(a[0], b[0], c[0]), fmaf(a[1], b[1], c[1]), fmaf(a[2], b[2], c[2]),
                 fmaf(a[3], b[3], c[3])};
}

#else

/* Computes fmaf() for a processor without that instruction, where the C library is slow. The
 * product is exact in double. The sum is rounded to odd: if bits are lost, the last bit becomes 1.
 * Rounding that sum to float then gives the result of a single rounding (Boldo and Melquiond,
 * 2008). */
INLINE vec FMA(vec a, vec b, vec c)
{
    typedef double wide __attribute__((vector_size(8 * LANES)));
    typedef int64_t bits __attribute__((vector_size(8 * LANES)));
    wide x = __builtin_convertvector(a, wide) * __builtin_convertvector(b, wide);
    wide y = __builtin_convertvector(c, wide), sum = x + y, of_y = sum - x;
    wide lost = (x - (sum - of_y)) + (y - of_y);
    bits low = lost < 0, odd = (bits)sum & 1, towards = (low ^ ((bits)sum < 0)) | 1;
    sum = (wide)((bits)sum + (towards & (odd - 1) & (low | (lost > 0))));
    return __builtin_convertvector(sum, vec);
}

#endif
#endif

typedef int32_t ivec __attribute__((vector_size(4 * LANES)));

/* One step of a sum: a single term, or the two terms of a word of bf16.h, the upper half first. */
#if !defined(PPCLI_BF16)
#define TERMS(a, b, c) FMA(a, b, c)
#elif defined(__AVX512BF16__)
#define TERMS(a, b, c) _mm512_dpbf16_ps(c, (__m512bh)(a), (__m512bh)(b))
#else
#define UPPER(v) ((vec)((ivec)(v) & (int32_t)0xffff0000))
#define LOWER(v) ((vec)((ivec)(v) << 16))
#define TERMS(a, b, c) FMA(LOWER(a), LOWER(b), FMA(UPPER(a), UPPER(b), c))
#endif

enum {
    WIDTH = LANES * VECTORS, /* columns of a tile */
    FETCHES = LANES > 4      /* short vectors leave little time for prefetching */
};
#define LANE(v) ((size_t)(v)*LANES) /* the offset at which vector v begins */

/* A part of the summed index: a(r, k) = a[r * a_row + k * a_step], b(k, c) = b[k * b_step + c]. */
struct segment {
    int depth;
    const float *a, *b;
};

/* The operands of step k of the summed index: a(r, k) = a[r], b(k, c) = b[c]. A list has AHEAD more
 * steps after its last one; their b is only prefetched. */
struct step {
    const float *a, *b;
};

enum {
    AHEAD = 3
};

/* How a tile finds its operands. */
enum kind {
    STRIDED,     /* as in struct segment */
    ROWS_LISTED, /* a(r, k) = a[a_of[r] + k], c(r, j) = c[c_of[r] + j] */
    STEPS_LISTED /* as in struct step; of a segment only the depth counts */
};

/* Computes c(r, j) = the sum over segments and k of a(r, k) b(k, j), plus c(r, j) with `add`, for
 * the rows and columns of a tile that begins a_at, b_at elements into the operands. */
struct tile {
    const struct segment *segments;
    int n_segments;
    size_t a_row, a_step, b_step, c_row;
    size_t a_at, b_at;
    size_t a_of[ROWS], c_of[ROWS];
    const struct step *steps;
    bool add;
    float *c;
    /* The data that is needed next; every step of k prefetches `fetch` vectors of it. */
    const float *next;
    size_t next_step;
    int fetch;         /* 0, 1, 2 or 4 */
    const float *bias; /* [columns], added at the end; NULL: none */
    bool relu;         /* applied after the bias */
};

INLINE float *c_row_of(const struct tile *t, enum kind kind, int r)
{
    return t->c + (kind == ROWS_LISTED ? t->c_of[r] : (size_t)r * t->c_row);
}

#ifdef FMA_LANE
/* Computes LANES terms of the sums of a whole tile at a time, from term 0 on, and returns how many
 * terms it has added. A vector holds LANES factors of a row of a, and FMLA takes them lane by lane:
 * 87 % of the instructions of the loop are FMLA. */
INLINE ptrdiff_t lane_steps(int rows, ptrdiff_t depth, const float *const *row, const float *b,
                            vec acc[ROWS][VECTORS])
{
    ptrdiff_t k = 0;
    for (ptrdiff_t n = depth / LANES; n > 0; n--, k += LANES) {
        vec x[ROWS];
        UNROLL for (int r = 0; r < rows; r++)
        {
            x[r] = LOAD(row[r] + k);
        }
        UNROLL for (int lane = 0; lane < LANES; lane++)
        {
            float32x4x4_t w = vld1q_f32_x4(b);
            b += WIDTH;
            __asm__("" : "+r"(b)); /* keeps one pointer, which the load itself advances */
            UNROLL for (int r = 0; r < rows; r++)
            {
                UNROLL for (int v = 0; v < VECTORS; v++)
                {
                    acc[r][v] = FMA_LANE(x[r], lane, w.val[v], acc[r][v]);
                }
            }
        }
    }
    return k;
}
#endif

/* Computes one tile. If `partial`, only the lanes in `lanes` of the last vector are part of it. */
INLINE void tile_of(const struct tile *t, enum kind kind, int rows, int vectors, bool partial,
                    mask lanes)
{
    vec acc[ROWS][VECTORS];
    UNROLL for (int r = 0; r < rows; r++)
    {
        UNROLL for (int v = 0; v < vectors; v++)
        {
            const float *c = c_row_of(t, kind, r) + LANE(v);
            bool part = partial && v == vectors - 1;
            acc[r][v] = !t->add ? SET1(0.0f) : part ? LOAD_PART(lanes, c) : LOAD(c);
        }
    }
    const float *next = t->next;
    (void)next; /* not every processor prefetches */
    for (int s = 0; s < t->n_segments; s++) {
        const float *a = t->segments[s].a + t->a_at, *b = t->segments[s].b + t->b_at;
        const float *row[ROWS];
        const struct step *step = t->steps;
        UNROLL for (int r = 0; r < rows && kind != STEPS_LISTED; r++)
        {
            row[r] = a + (kind == ROWS_LISTED ? t->a_of[r] : (size_t)r * t->a_row);
        }
        ptrdiff_t k = 0, depth = t->segments[s].depth;
#ifdef FMA_LANE
        bool along = kind == ROWS_LISTED || (kind == STRIDED && t->a_step == 1);
        if (!partial && along && t->b_step == WIDTH) {
            k = lane_steps(rows, depth, row, b, acc);
            a += k;
            b += (size_t)k * WIDTH;
        }
#endif
        for (; k < depth; k++) {
            if (kind == STEPS_LISTED) {
                a = step->a + t->a_at;
                b = step++->b + t->b_at;
                /* after the last step soon is an arbitrary number, and nothing is read through
                 * it */
                uintptr_t soon = (uintptr_t)step[AHEAD - 1].b + (uintptr_t)t->b_at * sizeof(float);
                UNROLL for (int v = 0; v < vectors; v++)
                {
                    FETCH((const float *)(soon + (uintptr_t)(LANE(v)) * sizeof(float)), 1);
                }
            }
            vec w[VECTORS];
            UNROLL for (int v = 0; v < vectors; v++)
            {
                bool part = partial && v == vectors - 1;
                w[v] = part ? LOAD_PART(lanes, b + LANE(v)) : LOAD(b + LANE(v));
            }
            if (FETCHES && t->fetch > 0) {
                FETCH(next, 2);
                if (t->fetch > 1)
                    FETCH(next + LANES, 2);
                if (t->fetch > 2) {
                    FETCH(next + LANE(2), 2);
                    FETCH(next + LANE(3), 2);
                }
                next += t->next_step;
            }
            UNROLL for (int r = 0; r < rows; r++)
            {
                vec x = SET1(kind == ROWS_LISTED    ? row[r][k]
                             : kind == STEPS_LISTED ? a[r]
                                                    : a[(size_t)r * t->a_row]);
                UNROLL for (int v = 0; v < vectors; v++)
                {
                    acc[r][v] = TERMS(x, w[v], acc[r][v]);
                }
            }
            if (kind == STRIDED)
                a += t->a_step;
            if (kind != STEPS_LISTED)
                b += t->b_step;
        }
    }
    if (t->bias) {
        UNROLL for (int v = 0; v < vectors; v++)
        {
            bool part = partial && v == vectors - 1;
            vec bias = part ? LOAD_PART(lanes, t->bias + LANE(v)) : LOAD(t->bias + LANE(v));
            UNROLL for (int r = 0; r < rows; r++)
            {
                acc[r][v] = ADD(acc[r][v], bias);
            }
        }
    }
    if (t->relu) {
        UNROLL for (int v = 0; v < vectors; v++)
        {
            UNROLL for (int r = 0; r < rows; r++)
            {
                /* MAX returns the second operand if either is a NaN, and for two zeros */
                acc[r][v] = MAX(SET1(0.0f), acc[r][v]);
            }
        }
    }
    UNROLL for (int r = 0; r < rows; r++)
    {
        UNROLL for (int v = 0; v < vectors; v++)
        {
            float *c = c_row_of(t, kind, r) + LANE(v);
            if (partial && v == vectors - 1)
                STORE_PART(lanes, c, acc[r][v]);
            else
                STORE(c, acc[r][v]);
        }
    }
}

/* Makes one function for each shape, so that the accumulators are registers. */
#define TILE_OF(kind, rows, vectors, partial)                                                      \
    static void kind##_##rows##_##vectors##_##partial(const struct tile *t, mask lanes)            \
    {                                                                                              \
        tile_of(t, kind, rows, vectors, partial, lanes);                                           \
    }
#define TILES_OF(kind, vectors, partial)                                                           \
    TILE_OF(kind, 1, vectors, partial)                                                             \
    TILE_OF(kind, 2, vectors, partial)                                                             \
    TILE_OF(kind, 3, vectors, partial)                                                             \
    TILE_OF(kind, 4, vectors, partial)                                                             \
    TILE_OF(kind, 5, vectors, partial)                                                             \
    SIXTH_ROW(TILE_OF(kind, 6, vectors, partial))
#define TILE_NAMES(kind, vectors, partial)                                                         \
    {                                                                                              \
        kind##_1_##vectors##_##partial, kind##_2_##vectors##_##partial,                            \
            kind##_3_##vectors##_##partial, kind##_4_##vectors##_##partial,                        \
            kind##_5_##vectors##_##partial SIXTH_ROW(, kind##_6_##vectors##_##partial)             \
    }

typedef void (*tile_fn)(const struct tile *t, mask lanes);

/* The functions of one kind: partial[vectors - 1][rows - 1], full[rows - 1]. */
struct tiles {
    tile_fn partial[VECTORS][ROWS], full[ROWS];
};

/* Defines the struct tiles named `kind`_tiles. */
#if VECTORS == 4
#define DEFINE_TILES(kind)                                                                         \
    TILES_OF(kind, 1, 1)                                                                           \
    TILES_OF(kind, 2, 1)                                                                           \
    TILES_OF(kind, 3, 1)                                                                           \
    TILES_OF(kind, 4, 1)                                                                           \
    TILES_OF(kind, 4, 0)                                                                           \
    static const struct tiles kind##_tiles = {{TILE_NAMES(kind, 1, 1), TILE_NAMES(kind, 2, 1),     \
                                               TILE_NAMES(kind, 3, 1), TILE_NAMES(kind, 4, 1)},    \
                                              TILE_NAMES(kind, 4, 0)};
#else
#define DEFINE_TILES(kind)                                                                         \
    TILES_OF(kind, 1, 1)                                                                           \
    TILES_OF(kind, 2, 1)                                                                           \
    TILES_OF(kind, 2, 0)                                                                           \
    static const struct tiles kind##_tiles = {{TILE_NAMES(kind, 1, 1), TILE_NAMES(kind, 2, 1)},    \
                                              TILE_NAMES(kind, 2, 0)};
#endif

INLINE int least(int a, int b)
{
    return a < b ? a : b;
}

/* Returns how many vectors of the next block each of `tiles` tiles prefetches, so that together
 * they prefetch all of it: 1 to VECTORS. */
INLINE int vectors_a_tile(int tiles)
{
    return tiles < 1 ? VECTORS : tiles < VECTORS ? (VECTORS + tiles - 1) / tiles : 1;
}

/* `rows` rows as groups of at most ROWS, as equal as possible: the first `larger` groups have one
 * row more. */
struct groups {
    int n, size, larger;
};

INLINE struct groups groups_of(int rows)
{
    int n = (rows + ROWS - 1) / ROWS;
    return (struct groups){.n = n, .size = rows / n, .larger = rows % n};
}

INLINE void run_tile(const struct tiles *f, const struct tile *t, int rows, int columns)
{
    if (columns == WIDTH) {
        f->full[rows - 1](t, first_lanes(0));
        return;
    }
    int vectors = (columns + LANES - 1) / LANES;
    f->partial[vectors - 1][rows - 1](t, first_lanes(columns - (vectors - 1) * LANES));
}

#endif
