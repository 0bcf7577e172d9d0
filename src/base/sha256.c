/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256, FIPS 180-4, section 6.2. */
#include "ppcli/base/base.h"

#include <stdio.h>
#include <string.h>

#include "sha256_block.h"

const uint32_t sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate_right(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void hash_block(uint32_t h[8], const uint8_t *p)
{
    uint32_t w[64];
    for (size_t t = 0; t < 16; t++) {
        w[t] = (uint32_t)p[4 * t] << 24 | (uint32_t)p[4 * t + 1] << 16 |
               (uint32_t)p[4 * t + 2] << 8 | p[4 * t + 3];
    }
    for (int t = 16; t < 64; t++) {
        uint32_t s0 = rotate_right(w[t - 15], 7) ^ rotate_right(w[t - 15], 18) ^ w[t - 15] >> 3;
        uint32_t s1 = rotate_right(w[t - 2], 17) ^ rotate_right(w[t - 2], 19) ^ w[t - 2] >> 10;
        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    /* a..h are v[(i - t) mod 8]: the names rotate instead of the eight values. */
    uint32_t v[8];
    memcpy(v, h, sizeof(v));
#pragma GCC unroll 64
    for (unsigned t = 0; t < 64; t++) {
        uint32_t a = v[-t & 7], b = v[(1 - t) & 7], c = v[(2 - t) & 7];
        uint32_t e = v[(4 - t) & 7], f = v[(5 - t) & 7], g = v[(6 - t) & 7];
        uint32_t s1 = rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25);
        uint32_t t1 = v[(7 - t) & 7] + s1 + ((e & f) ^ (~e & g)) + sha256_k[t] + w[t];
        uint32_t s0 = rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22);
        v[(3 - t) & 7] += t1;
        v[(7 - t) & 7] = t1 + s0 + ((a & b) ^ (a & c) ^ (b & c));
    }
    for (int i = 0; i < 8; i++)
        h[i] += v[i];
}

void sha256_blocks_plain(uint32_t h[8], const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash_block(h, p + 64 * i);
}

static void hash_blocks(uint32_t h[8], const uint8_t *p, size_t n)
{
    if (!sha256_blocks_fast(h, p, n))
        sha256_blocks_plain(h, p, n);
}

void pp_sha256_init(struct pp_sha256 *s)
{
    static const uint32_t h0[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                   0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(s->h, h0, sizeof(h0));
    s->bytes = 0;
}

void pp_sha256_update(struct pp_sha256 *s, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    size_t have = s->bytes % 64;
    s->bytes += bytes;
    if (have > 0) {
        size_t take = 64 - have < bytes ? 64 - have : bytes;
        memcpy(s->block + have, p, take);
        p += take;
        bytes -= take;
        if (have + take < 64)
            return;
        hash_blocks(s->h, s->block, 1);
    }
    if (bytes >= 64) {
        hash_blocks(s->h, p, bytes / 64);
        p += bytes / 64 * 64;
        bytes %= 64;
    }
    if (bytes > 0)
        memcpy(s->block, p, bytes);
}

void pp_sha256_final(struct pp_sha256 *s, uint8_t out[PP_SHA256_BYTES])
{
    uint64_t bits = s->bytes * 8;
    uint8_t pad[72] = {0x80};
    size_t have = s->bytes % 64;
    size_t n = (have < 56 ? 56 : 120) - have;
    for (int i = 0; i < 8; i++)
        pad[n + (size_t)i] = (uint8_t)(bits >> (56 - 8 * i));
    pp_sha256_update(s, pad, n + 8);
    for (int i = 0; i < 32; i++)
        out[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

char *pp_sha256_hex(const uint8_t digest[PP_SHA256_BYTES], char out[PP_SHA256_HEX])
{
    for (size_t i = 0; i < PP_SHA256_BYTES; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
    return out;
}
