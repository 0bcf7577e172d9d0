/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiles of attention in shared memory, and their products on tensor cores. A tile has lines of D
 * values, and LINE bytes from one to the next: an odd multiple of 16 bytes, so that eight lines of
 * a matrix lie in different banks. STEP bytes of a line are the depth of one mma for both types, so
 * the same code serves both.
 */
#ifndef PPCLI_DEV_CUDA_ATTENTION_TILES_H
#define PPCLI_DEV_CUDA_ATTENTION_TILES_H

#include "mma.h"

#define STEP 32
#define PART 16 /* bytes of one access */
#define ROWS 16 /* of a warp */
#define LANES 4 /* that share a row of an accumulator */

/* The type in which values are stored and multiplied. */
struct of_bf16 {
    typedef struct bf16 value;
    static const int DEEP = 2; /* tiles of 8 columns that make the depth of one mma */
};
struct of_tf32 {
    typedef float value;
    static const int DEEP = 1;
};

template <typename T, int D> struct tiles {
    typedef typename T::value value;
    static const int EACH = PART / (int)sizeof(value); /* values of one part of a line */
    static const int BYTES = D * (int)sizeof(value), LINE = BYTES + PART;
    static const int STEPS = BYTES / STEP;
    /* For blocks of queries: how many keys a tile has. There are two buffers. */
    static const int KEYS = BYTES <= 128 ? 64 : BYTES <= 256 ? 32 : 16;
    /* For blocks of keys: the warps of 16 keys each, the queries of a tile, and the number of
     * buffers. */
    static const int KEY_WARPS = BYTES <= 192 ? 4 : 2;
    static const int QUERIES = BYTES <= 128 ? 32 : BYTES <= 256 ? 16 : 8;
    static const int BUFFERS = BYTES <= 384 ? 2 : 1;
    /* Blocks on a multiprocessor, in the forward pass and by keys, set where the compiler's own
     * choice would spill registers. 0: the compiler chooses. */
    static const int BLOCKS = BYTES == 64 ? 4 : 0;
    static const int KEY_BLOCKS = BYTES == 128 && D == 64 ? 2 : 0;
};

/* Rows of an array: `width` values each, `step` bytes from one row to the next. */
template <typename V> struct rows {
    const char *at;
    int step, n, width;
    bool whole; /* every 16-byte part is aligned, and lies wholly inside or outside */

    __device__ V *row(int i) const
    {
        return (V *)(at + (int64_t)i * step);
    }
};

template <typename V>
static __device__ inline struct rows<V> rows_of(const float *x, size_t at, size_t step, int n,
                                                int width) {
    const int each = PART / (int)sizeof(V);
    const char *p = (const char *)((const V *)x + at);
    return {p, (int)(step * sizeof(V)), n, width,
            width % each == 0 && step % each == 0 && (size_t)p % PART == 0};
}

/* Calls do_it(row, part) for each part of COUNT rows that belongs to this thread, one of BLOCK
 * threads. */
template <int PARTS, int COUNT, int BLOCK, typename Do>
static __device__ inline void each_part(Do do_it)
{
    UNROLL
    for (unsigned i = 0; i < COUNT * PARTS; i += BLOCK) {
        unsigned t = threadIdx.x, k = i + t;
        if (BLOCK % PARTS == 0) /* a thread has one part of several rows */
            do_it((int)(t / PARTS + i / PARTS), (int)(t % PARTS));
        else if (COUNT * PARTS % BLOCK == 0 || k < COUNT * PARTS)
            do_it((int)(k / PARTS), (int)(k % PARTS));
    }
}

/* Starts copying the rows from .. from + COUNT - 1 into a tile, with 0 for elements outside the
 * array. */
template <typename T, int D, int COUNT, int BLOCK>
static __device__ inline void load_tile(const struct rows<typename T::value> &x, int from,
                                        char *tile)
{
    typedef struct tiles<T, D> S;
    if (x.whole) {
        each_part<S::BYTES / PART, COUNT, BLOCK>([&](int r, int c) {
            copy_16(tile + r * S::LINE + c * PART, (const char *)x.row(from + r) + c * PART,
                    from + r < x.n && c * S::EACH < x.width);
        });
        return;
    }
    const int parts = S::BYTES / PART; /* the same parts for each thread as below, for
                                          round_tile() */
    NOT_UNROLLED
    for (int k = (int)threadIdx.x; k < COUNT * parts; k += BLOCK) {
        int r = k / parts, c = k % parts * S::EACH;
        typename T::value *to = (typename T::value *)(tile + r * S::LINE) + c;
        NOT_UNROLLED
        for (int e = 0; e < S::EACH; e++)
            if (from + r < x.n && c + e < x.width)
                to[e] = x.row(from + r)[c + e];
            else
                to[e] = 0.0f;
    }
}

static __device__ inline void round_part(struct of_bf16 *, char *)
{
}

static __device__ inline void round_part(struct of_tf32 *, char *part)
{
    float4 v = *(const float4 *)part;
    *(uint4 *)part = {tf32_bits(v.x), tf32_bits(v.y), tf32_bits(v.z), tf32_bits(v.w)};
}

/* Rounds the elements that this thread has copied into a tile to the type of the products. Called
 * after wait_for_copies(), before other threads read them. */
template <typename T, int D, int COUNT, int BLOCK>
static __device__ inline void round_tile(char *tile)
{
    typedef struct tiles<T, D> S;
    each_part<S::BYTES / PART, COUNT, BLOCK>(
        [&](int r, int c) { round_part((T *)NULL, tile + r * S::LINE + c * PART); });
}

/* ---- factors of one mma */

static __device__ inline void multiply_add(struct of_bf16 *, float *c, const uint32_t *a,
                                           const uint32_t *b)
{
    mma_bf16(c, a, b);
}

static __device__ inline void multiply_add(struct of_tf32 *, float *c, const uint32_t *a,
                                           const uint32_t *b)
{
    mma_tf32(c, a, b);
}

/* Returns the offset in a tile that a lane passes to load_matrices() for four matrices side by
 * side; in_square() is for two above two. */
template <int LINE> static __device__ inline int in_line(int lane)
{
    return lane % 8 * LINE + lane / 8 * PART;
}

template <int LINE> static __device__ inline int in_square(int lane)
{
    return lane % 16 * LINE + lane / 16 * PART;
}

/* Converts the accumulators s to the left factors of step k. Their columns are the rows that
 * to_right() loads. */
static __device__ inline void to_left(struct of_bf16 *, const float (*s)[4], int k, uint32_t *a)
{
    for (int i = 0; i < 4; i++)
        a[i] = bf16_pair(s[2 * k + i / 2][i % 2 * 2], s[2 * k + i / 2][i % 2 * 2 + 1]);
}

/* Converts the accumulators s to the left factors of step k. A pair of an accumulator becomes
 * columns l % 4 and l % 4 + 4, so columns have an order of their own, which to_right() follows. */
static __device__ inline void to_left(struct of_tf32 *, const float (*s)[4], int k, uint32_t *a)
{
    for (int i = 0; i < 4; i++)
        a[i] = tf32_bits(s[k][i % 2 * 2 + i / 2]);
}

/* Loads the right factors of step k for columns 8 n .. 8 n + 15 of a tile. The product sums over
 * the rows of the tile. */
template <int LINE>
static __device__ inline void to_right(struct of_bf16 *, const char *tile, int lane, int k, int n,
                                       uint32_t *b)
{
    load_transposed(b, tile + in_square<LINE>(lane) + k * 16 * LINE + n * PART);
}

template <int LINE>
static __device__ inline void to_right(struct of_tf32 *, const char *tile, int lane, int k, int n,
                                       uint32_t *b)
{
    const char *p = tile + (8 * k + 2 * (lane % 4)) * LINE + (8 * n + lane / 4) * 4;
    for (int i = 0; i < 4; i++)
        b[i] = *(const uint32_t *)(p + i % 2 * LINE + i / 2 * 8 * 4);
}

/* ---- products of a warp */

/* Loads the rows of a tile that belong to this warp as the left factors of step k. */
template <typename T, int D>
static __device__ inline void left_of(const char *tile, int lane, int k, uint32_t *a)
{
    load_matrices(a, tile + in_square<tiles<T, D>::LINE>(lane) + k * STEP);
}

/* Computes s[16][8 N] = the left rows times rows 0 .. 8 N - 1 of a tile; left(k, a) gives the
 * factors of step k. */
template <typename T, int D, int N, typename Left>
static __device__ inline void multiply_rows(Left left, const char *tile, int lane, float (*s)[4])
{
    typedef struct tiles<T, D> S;
    tile += in_line<S::LINE>(lane);
    UNROLL
    for (int i = 0; i < 4 * N; i++)
        s[i / 4][i % 4] = 0.0f;
    UNROLL
    for (int k = 0; k < S::STEPS; k += 2) {
        uint32_t a[2][4], b[4];
        left(k, a[0]);
        left(k + 1, a[1]);
        UNROLL
        for (int n = 0; n < N; n++) {
            load_matrices(b, tile + n * 8 * S::LINE + k * STEP);
            multiply_add((T *)NULL, s[n], a[0], b);
            multiply_add((T *)NULL, s[n], a[1], b + 2);
        }
    }
}

/* Computes sum[16][D] += s[16][8 N] times rows 0 .. 8 N - 1 of a tile. */
template <typename T, int D, int N>
static __device__ inline void add_product(const float (*s)[4], const char *tile, int lane,
                                          float (*sum)[4])
{
    UNROLL
    for (int k = 0; k < N / T::DEEP; k++) {
        uint32_t a[4], b[4];
        to_left((T *)NULL, s, k, a);
        UNROLL
        for (int n = 0; n < D / 8; n += 2) {
            to_right<tiles<T, D>::LINE>((T *)NULL, tile, lane, k, n, b);
            multiply_add((T *)NULL, sum[n], a, b);
            multiply_add((T *)NULL, sum[n + 1], a, b + 2);
        }
    }
}

/* Writes by[] * sum to this lane's part of the rows `row` and row + 8 of y, or adds it if `add`. */
template <typename V, int D>
static __device__ inline void store_rows(const float (*sum)[4], const float *by, bool add, int row,
                                         int lane, const struct rows<V> &y)
{
    typedef struct several<V, 2> pair;
    UNROLL
    for (int r = 0; r < 2; r++) {
        if (row + 8 * r >= y.n)
            break;
        V *to = y.row(row + 8 * r);
        UNROLL
        for (int n = 0; n < D / 8; n++) {
            int c = 8 * n + 2 * (lane % LANES);
            float v[2] = {by[r] * sum[n][2 * r], by[r] * sum[n][2 * r + 1]};
            if (y.whole && c < y.width) {
                pair both = add ? *(pair *)(to + c) : pair();
                for (int e = 0; e < 2; e++)
                    put(&both.at[e], add, v[e]);
                *(pair *)(to + c) = both;
            }
            for (int e = 0; e < 2 && !y.whole; e++)
                if (c + e < y.width)
                    put(to + c + e, add, v[e]);
        }
    }
}

#endif
