/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of fma.h: twelve independent chains, more than the latency times the units of any core
 * of today, in vectors of the width that the instruction set has. */
#include "fma.h"

#if defined(__AVX512F__)
#define WIDTH 16
#elif defined(__AVX2__)
#define WIDTH 8
#else
#define WIDTH 4
#endif

#define CHAINS 12

typedef float vector __attribute__((vector_size(WIDTH * sizeof(float))));

/* Returns a * b + c as one operation. Contraction is off for the project, because it changes bits;
 * meson.build turns it on for this file, which measures it. */
static inline vector multiply_add(vector a, vector b, vector c)
{
    return a * b + c;
}

static float loop(int64_t turns)
{
    vector sum[CHAINS], a, b;
    for (int l = 0; l < WIDTH; l++) {
        a[l] = 0.999f;
        b[l] = 1e-3f;
    }
    for (int c = 0; c < CHAINS; c++)
        sum[c] = a * (float)c;
    for (int64_t i = 0; i < turns; i++) {
        /* spelt out: as a loop some compilers keep the chains in memory */
        sum[0] = multiply_add(sum[0], a, b);
        sum[1] = multiply_add(sum[1], a, b);
        sum[2] = multiply_add(sum[2], a, b);
        sum[3] = multiply_add(sum[3], a, b);
        sum[4] = multiply_add(sum[4], a, b);
        sum[5] = multiply_add(sum[5], a, b);
        sum[6] = multiply_add(sum[6], a, b);
        sum[7] = multiply_add(sum[7], a, b);
        sum[8] = multiply_add(sum[8], a, b);
        sum[9] = multiply_add(sum[9], a, b);
        sum[10] = multiply_add(sum[10], a, b);
        sum[11] = multiply_add(sum[11], a, b);
    }
    float all = 0;
    for (int c = 0; c < CHAINS; c++)
        for (int l = 0; l < WIDTH; l++)
            all += sum[c][l];
    return all;
}

#define STRING_(x) #x
#define STRING(x) STRING_(x)
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

/* PPCLI_ISA is base, neon, avx2 or avx512: set on the compiler's command line. */
const struct cpu_fma JOIN(cpu_fma_, PPCLI_ISA) = {
    .name = STRING(PPCLI_ISA),
    .flops = 2.0 * WIDTH * CHAINS,
    .loop = loop,
};
