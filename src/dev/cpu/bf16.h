/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operands of the products of gemm_bf16.c: values rounded to bfloat16 (to nearest, ties to even;
 * denormals become 0). A word holds two values that are neighbours in the summed index, the first
 * in its upper half. The processor's instruction adds the upper halves' product first.
 */
#ifndef PPCLI_DEV_CPU_BF16_H
#define PPCLI_DEV_CPU_BF16_H

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

#include "mathf.h"

static inline uint32_t bf16_of(float x)
{
    union float_bits v = {.f = x};
    uint32_t power = v.u & 0x7f800000, r = v.u + 0x7fff + (v.u >> 16 & 1);
    r = power == 0 ? v.u & 0x80000000 : r;
    r = power == 0x7f800000 ? v.u | ((v.u & 0x7fffff) ? 0x400000 : 0) : r; /* a NaN stays a NaN */
    return r & 0xffff0000;
}

/* Rounds from[n] to bf16 and writes pairs of neighbours to to[(n + 1) / 2]. If n is odd, the last
 * pair is completed with 0. */
static inline void bf16_pairs(int n, const float *restrict from, float *restrict to)
{
    union float_bits *restrict words = (union float_bits *)(void *)to;
    ptrdiff_t i = 0;
#ifdef __AVX512BF16__
    for (; i + 16 <= n / 2; i += 16) {
        __m512bh both =
            _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + 2 * i + 16), _mm512_loadu_ps(from + 2 * i));
        _mm512_storeu_si512(words + i, _mm512_rol_epi32((__m512i)both, 16));
    }
#endif
    for (; i < n / 2; i++)
        words[i].u = bf16_of(from[2 * i]) | bf16_of(from[2 * i + 1]) >> 16;
    if (n % 2)
        words[n / 2].u = bf16_of(from[n - 1]);
}

/* Rounds first[n] and second[n] to bf16 and writes the pairs (first[i], second[i]) to to[n]. If
 * `second` is NULL, the second of each pair is 0. */
static inline void bf16_zip(int n, const float *restrict first, const float *restrict second,
                            float *restrict to)
{
    union float_bits *restrict words = (union float_bits *)(void *)to;
    ptrdiff_t i = 0;
#ifdef __AVX512BF16__
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i order =
        _mm512_or_si512(lane, _mm512_slli_epi32(_mm512_add_epi32(lane, _mm512_set1_epi32(16)), 16));
    for (; second && i + 16 <= n; i += 16) {
        __m512bh both =
            _mm512_cvtne2ps_pbh(_mm512_loadu_ps(first + i), _mm512_loadu_ps(second + i));
        _mm512_storeu_si512(words + i, _mm512_permutexvar_epi16(order, (__m512i)both));
    }
#endif
    for (; second && i < n; i++)
        words[i].u = bf16_of(first[i]) | bf16_of(second[i]) >> 16;
    for (; !second && i < n; i++)
        words[i].u = bf16_of(first[i]);
}

#endif
