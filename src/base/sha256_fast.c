/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 with the instructions of x86 processors since 2016: two rounds each, on the state as the
 * vectors {A,B,E,F} and {C,D,G,H}. (Intel, "Intel SHA Extensions", 2013.)
 */
#include "sha256_block.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

static bool has_instructions(void)
{
    /* Asked once per thread, because cpuid is slow in virtual machines. 0: not asked yet. */
    static _Thread_local int known;
    if (known == 0) {
        unsigned a, b = 0, c = 0, d, sha = 0;
        known = 1;
        if (__get_cpuid_count(7, 0, &a, &sha, &c, &d) && __get_cpuid(1, &a, &b, &c, &d) &&
            (sha & bit_SHA) && (c & bit_SSSE3) && (c & bit_SSE4_1))
            known = 2;
    }
    return known == 2;
}

__attribute__((target("sha,ssse3,sse4.1"))) static void hash_blocks(uint32_t h[8], const uint8_t *p,
                                                                    size_t n)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i low = _mm_shuffle_epi32(_mm_loadu_si128((const void *)h), 0xb1);        /* CDAB */
    __m128i cdgh = _mm_shuffle_epi32(_mm_loadu_si128((const void *)(h + 4)), 0x1b); /* EFGH */
    __m128i abef = _mm_alignr_epi8(low, cdgh, 8);
    cdgh = _mm_blend_epi16(cdgh, low, 0xf0);
    for (; n > 0; n--, p += 64) {
        const __m128i abef0 = abef, cdgh0 = cdgh;
        __m128i w[4]; /* the last 16 words of the message schedule */
        for (size_t i = 0; i < 4; i++)
            w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const void *)(p + 16 * i)), swap);
#pragma GCC unroll 16
        for (size_t r = 0; r < 16; r++) {
            __m128i *w0 = &w[r % 4], w1 = w[(r + 1) % 4], w2 = w[(r + 2) % 4], w3 = w[(r + 3) % 4];
            __m128i k = _mm_add_epi32(*w0, _mm_loadu_si128((const void *)(sha256_k + 4 * r)));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, k);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(k, 0x0e));
            if (r < 12) {
                __m128i x = _mm_sha256msg1_epu32(*w0, w1);
                x = _mm_add_epi32(x, _mm_alignr_epi8(w3, w2, 4));
                *w0 = _mm_sha256msg2_epu32(x, w3);
            }
        }
        abef = _mm_add_epi32(abef, abef0);
        cdgh = _mm_add_epi32(cdgh, cdgh0);
    }
    low = _mm_shuffle_epi32(abef, 0x1b);  /* FEBA */
    cdgh = _mm_shuffle_epi32(cdgh, 0xb1); /* DCHG */
    _mm_storeu_si128((void *)h, _mm_blend_epi16(low, cdgh, 0xf0));
    _mm_storeu_si128((void *)(h + 4), _mm_alignr_epi8(cdgh, low, 8));
}

bool sha256_blocks_fast(uint32_t h[8], const uint8_t *p, size_t n)
{
    if (!has_instructions())
        return false;
    hash_blocks(h, p, n);
    return true;
}

#else

bool sha256_blocks_fast(uint32_t h[8], const uint8_t *p, size_t n)
{
    return false;
}

#endif
