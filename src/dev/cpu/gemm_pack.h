/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights in the order in which a tile reads them: panels of WIDTH outputs (the last one a multiple
 * of PAD), each [I][width]. Included once for each instruction set.
 */
#ifndef PPCLI_DEV_CPU_GEMM_PACK_H
#define PPCLI_DEV_CPU_GEMM_PACK_H

#include <string.h>

#include "gemm_tile.h"

enum {
    PAD = 16 /* packed panels are multiples of this wide on every machine */
};

INLINE size_t packed_floats(int O, int I)
{
    return ((size_t)O + PAD - 1) / PAD * PAD * (size_t)I;
}

INLINE int panel_width(int O, int o)
{
    return least(WIDTH, (O - o + PAD - 1) / PAD * PAD);
}

/* Writes to[8][to_row] = the transpose of from[8][from_row]. */
#ifdef __AVX2__
INLINE void transpose_8x8(const float *from, size_t from_row, float *to, size_t to_row)
{
    __m256 t[8], u[8];
    UNROLL for (int i = 0; i < 4; i++)
    {
        const float *p = from + (size_t)i * from_row;
        t[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)),
                                    _mm_loadu_ps(p + 4 * from_row), 1);
        t[i + 4] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + 4)),
                                        _mm_loadu_ps(p + 4 * from_row + 4), 1);
    }
    UNROLL for (int h = 0; h < 8; h += 4)
    {
        u[h] = _mm256_unpacklo_ps(t[h], t[h + 1]);
        u[h + 1] = _mm256_unpackhi_ps(t[h], t[h + 1]);
        u[h + 2] = _mm256_unpacklo_ps(t[h + 2], t[h + 3]);
        u[h + 3] = _mm256_unpackhi_ps(t[h + 2], t[h + 3]);
        _mm256_storeu_ps(to + (size_t)h * to_row, _mm256_shuffle_ps(u[h], u[h + 2], 0x44));
        _mm256_storeu_ps(to + (size_t)(h + 1) * to_row, _mm256_shuffle_ps(u[h], u[h + 2], 0xee));
        _mm256_storeu_ps(to + (size_t)(h + 2) * to_row,
                         _mm256_shuffle_ps(u[h + 1], u[h + 3], 0x44));
        _mm256_storeu_ps(to + (size_t)(h + 3) * to_row,
                         _mm256_shuffle_ps(u[h + 1], u[h + 3], 0xee));
    }
}

#else
INLINE void transpose_8x8(const float *from, size_t from_row, float *to, size_t to_row)
{
    for (int k = 0; k < 8; k++, to += to_row)
        for (int r = 0; r < 8; r++)
            to[r] = from[(size_t)r * from_row + (size_t)k];
}
#endif

/* Writes the transpose of W[have][depth] to to[depth][8] and sets the columns from `have` on to 0.
 * Rows of `to` are `width` apart, and rows of W are I apart. */
INLINE void pack_block(int depth, size_t I, int have, int width, const float *W, float *to)
{
    for (int k = 0; k < depth; k += 8) {
        /* the last block overlaps the one before it; a W too short for that is copied */
        int at = k + 8 <= depth || depth < 8 ? k : depth - 8;
        int n = least(8, depth - at);
        const float *from = W + at;
        float *block = to + (size_t)at * (size_t)width;
        if (have == 8 && n == 8) {
            transpose_8x8(from, I, block, (size_t)width);
            continue;
        }
        float in[64] = {0}, out[64];
        for (int r = 0; r < have; r++)
            memcpy(in + (size_t)r * 8, from + (size_t)r * I, (size_t)n * sizeof(*in));
        transpose_8x8(in, 8, out, 8);
        for (int j = 0; j < n; j++)
            memcpy(block + (size_t)j * (size_t)width, out + (size_t)j * 8, 8 * sizeof(*out));
    }
}

/* Writes the transpose of W[outputs][depth], whose rows are I apart, to to[depth][width] and sets
 * the columns from `outputs` on to 0. */
static inline void pack_panel(int depth, size_t I, int outputs, int width, const float *W,
                              float *to)
{
    for (int o = 0; o < width; o += 8) {
        int have = outputs - o < 8 ? outputs - o : 8;
        pack_block(depth, I, have, width, W + (size_t)o * I, to + o);
    }
}

static inline void pack(int O, int I, const float *W, float *packed)
{
    for (int o = 0; o < O; o += WIDTH) {
        pack_panel(I, (size_t)I, least(O - o, WIDTH), panel_width(O, o), W + (size_t)o * (size_t)I,
                   packed + (size_t)o * (size_t)I);
    }
}

#endif
