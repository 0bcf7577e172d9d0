/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The instructions of src/dev/cuda/mma.h on the emulated device. A warp meets in each. The lane that
 * comes last runs on first: it computes for all. Copies to shared memory arrive when their thread
 * waits for them; until then there are NaNs.
 */
#include "fake.h"
#include "kernel.h"

#include "../../src/dev/cuda/mma.h"

#define UNWATCHED __attribute__((no_sanitize_thread)) /* its own memory is not the kernel's */

/* What a lane brings to a product. */
struct Factors {
    float *c;
    const uint32_t *a, *b;
    bool done;
};

/* depth 16: two bfloat16 in a word; 8: one TF32, of which the unit takes the upper 19 bits. */
UNWATCHED static float factor(uint32_t word, int depth, int k)
{
    if (depth == 16)
        return fake_bits<float>(k % 2 ? word & 0xffff0000u : word << 16);
    return fake_bits<float>(word & 0xffffe000u);
}

UNWATCHED static void multiply_all(const Factors *const *lanes, int depth)
{
    float a[16][16], b[16][8], c[16][8];
    for (int k = 0; k < depth; k++) {
        int pair = k / (depth / 8), lane = pair % 4, word = pair / 4;
        for (int i = 0; i < 16; i++)
            a[i][k] = factor(lanes[i % 8 * 4 + lane]->a[2 * word + i / 8], depth, k);
        for (int j = 0; j < 8; j++)
            b[k][j] = factor(lanes[j * 4 + lane]->b[word], depth, k);
    }
    auto home = [&](int i, int j) { return &lanes[i % 8 * 4 + j / 2]->c[i / 8 * 2 + j % 2]; };
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < 8; j++)
            c[i][j] = *home(i, j);
        for (int k = 0; k < depth; k++)
            for (int j = 0; j < 8; j++)
                c[i][j] += a[i][k] * b[k][j];
        for (int j = 0; j < 8; j++)
            *home(i, j) = c[i][j];
    }
}

UNWATCHED static void multiply(Factors mine, int depth, const char *what)
{
    int lane;
    auto lanes = (Factors *const *)fake_exchange(ALL, (uint64_t)&mine, what, &lane);
    if (mine.done)
        return;
    multiply_all(lanes, depth);
    for (int l = 0; l < WARP; l++)
        lanes[l]->done = true;
}

void mma_bf16(float *c, const uint32_t *a, const uint32_t *b)
{
    multiply({c, a, b, false}, 16, "mma_bf16");
}

void mma_tf32(float *c, const uint32_t *a, const uint32_t *b)
{
    multiply({c, a, b, false}, 8, "mma_tf32");
}

static const char *const *rows_of_warp(const void *row, const char *what, int *lane)
{
    return (const char *const *)fake_exchange(ALL, (uint64_t)row, what, lane);
}

void load_matrices(uint32_t *to, const void *row)
{
    int lane;
    const char *const *rows = rows_of_warp(row, "load_matrices", &lane);
    for (int i = 0; i < 4; i++)
        to[i] = ((const uint32_t *)rows[8 * i + lane / 4])[lane % 4];
}

void load_transposed(uint32_t *to, const void *row)
{
    int lane;
    const char *const *rows = rows_of_warp(row, "load_transposed", &lane);
    for (int i = 0; i < 8; i++)
        ((uint16_t *)to)[i] = ((const uint16_t *)rows[i / 2 * 8 + lane % 4 * 2 + i % 2])[lane / 4];
}

float exp2_near(float x)
{
    return x < -126.0f ? 0.0f : exp2f(x);
}

uint32_t bf16_pair(float low, float high)
{
    return (uint32_t)to_bf16(high) << 16 | to_bf16(low);
}

uint32_t tf32_bits(float x)
{
    uint32_t bits = fake_bits<uint32_t>(x);
    return x != x ? bits : (bits + 0x1000u) & 0xffffe000u;
}

/* Copies that a thread of the block has not waited for: where to, and what. */
static __thread struct {
    int n;
    struct {
        uint4 *to;
        const uint4 *from;
    } of[64];
} copies[128];

__attribute__((noinline)) static void write_part(uint4 *to, const uint4 &part)
{
    *to = part;
}

UNWATCHED void copy_16(void *to, const void *from, bool reads)
{
    static const uint4 zeros = {}, nans = {~0u, ~0u, ~0u, ~0u};
    auto *mine = &copies[threadIdx.x];
    if (((uintptr_t)to | (reads ? (uintptr_t)from : 0)) % 16 != 0 || mine->n == 64)
        fake_die("copy_16: an address is not aligned, or nothing was waited for");
    write_part((uint4 *)to, nans);
    mine->of[mine->n].to = (uint4 *)to;
    mine->of[mine->n++].from = reads ? (const uint4 *)from : &zeros;
}

UNWATCHED void wait_for_copies()
{
    auto *mine = &copies[threadIdx.x];
    for (int i = 0; i < mine->n; i++)
        write_part(mine->of[i].to, *mine->of[i].from);
    mine->n = 0;
}
