/* SPDX-License-Identifier: Apache-2.0 */
/* Philox4x32-10, with the constants and the round function of the paper named in the header. */
#include "ppcli/base/base.h"

#include <math.h>
#include <stdbool.h>

#define M0 0xD2511F53u
#define M1 0xCD9E8D57u
#define W0 0x9E3779B9u /* golden ratio */
#define W1 0xBB67AE85u /* sqrt(3) - 1 */

void pp_philox4x32(const uint32_t key[2], const uint32_t ctr[4], uint32_t out[4])
{
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = ctr[0], c1 = ctr[1], c2 = ctr[2], c3 = ctr[3];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)M0 * c0;
        uint64_t p1 = (uint64_t)M1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += W0;
        k1 += W1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint64_t pp_rng_stream(const char *name, uint64_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (const unsigned char *p = (const unsigned char *)name; *p; p++)
        h = (h ^ *p) * 0x100000001b3u;
    for (int i = 0; i < 8; i++)
        h = (h ^ ((n >> (8 * i)) & 0xff)) * 0x100000001b3u;
    return h;
}

static void fill_block(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4])
{
    uint64_t b = index / 4;
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t ctr[4] = {(uint32_t)b, (uint32_t)(b >> 32), (uint32_t)stream,
                       (uint32_t)(stream >> 32)};
    pp_philox4x32(key, ctr, out);
}

uint32_t pp_rng_u32(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t w[4];
    fill_block(seed, stream, index, w);
    return w[index % 4];
}

void pp_rng_uniform(uint64_t seed, uint64_t stream, uint64_t first, float lo, float hi, size_t n,
                    float *out)
{
    uint32_t w[4];
    for (size_t i = 0; i < n; i++) {
        uint64_t index = first + i;
        if (i == 0 || index % 4 == 0)
            fill_block(seed, stream, index, w);
        out[i] = lo + (hi - lo) * ((float)(w[index % 4] >> 8) * 0x1p-24f);
    }
}

/* Computes -ln(n / 2^32) for 1 <= n <= 2^32. Uses sums and products only, whose last bits are the
 * same on every machine; those of the C library's log() are not. */
static double compute_minus_log(uint64_t n)
{
    int e;
    double m = frexp((double)n, &e), sum = 0;
    if (m < M_SQRT1_2) {
        m *= 2;
        e--;
    }
    double s = (m - 1) / (m + 1); /* ln m = 2 artanh s, |s| < 0.172 */
    for (int k = 21; k > 0; k -= 2)
        sum = sum * s * s + 1.0 / k;
    return (32 - e) * M_LN2 - 2 * s * sum;
}

/* Computes cos(2 pi turn / 2^32) from the series of the cosine, which is used from 0 to pi/2
 * only. */
static double compute_cosine(uint32_t turn)
{
    uint32_t half = turn > 0x80000000u ? 0u - turn : turn;
    bool back = half > 0x40000000u;
    double x = (back ? 0x80000000u - half : half) * (M_PI * 0x1p-31), sum = 1;
    for (int k = 22; k > 0; k -= 2)
        sum = 1 - x * x * sum * (1.0 / (k * (k - 1)));
    return back ? -sum : sum;
}

void pp_rng_normal(uint64_t seed, uint64_t stream, uint64_t first, float mean, float deviation,
                   size_t n, float *out)
{
    uint32_t w[4];
    double radius = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t index = first + i;
        if (i == 0 || index % 4 == 0)
            fill_block(seed, stream, index, w);
        if (i == 0 || index % 2 == 0)
            radius = sqrt(2 * compute_minus_log((uint64_t)w[index % 4 & 2] + 1));
        uint32_t quarter = index % 2 ? 0x40000000u : 0; /* gives the sine */
        out[i] = (float)(mean + deviation * radius * compute_cosine(w[index % 4 | 1] - quarter));
    }
}

void pp_rng_permutation(uint64_t seed, uint64_t stream, uint32_t n, uint32_t *out)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = i;
    uint32_t w[4];
    uint64_t have = UINT64_MAX; /* block number in w */
    for (uint32_t i = n; i-- > 1;) {
        if (i / 4 != have) {
            fill_block(seed, stream, i, w);
            have = i / 4;
        }
        uint32_t j = (uint32_t)(((uint64_t)w[i % 4] * ((uint64_t)i + 1)) >> 32);
        uint32_t t = out[i];
        out[i] = out[j];
        out[j] = t;
    }
}
