/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multiply-add in registers alone: what a core can compute when nothing has to be fetched. One
 * source, compiled once per instruction set.
 */
#ifndef PPCLI_BENCH_FMA_H
#define PPCLI_BENCH_FMA_H

#include <stdint.h>

struct cpu_fma {
    const char *name;
    double flops;                 /* of one turn */
    float (*loop)(int64_t turns); /* returns a sum of it all, so that it cannot be left out */
};

extern const struct cpu_fma cpu_fma_base, cpu_fma_neon; /* of these one is there */
#ifdef PPCLI_KERNELS_X86
extern const struct cpu_fma cpu_fma_avx2, cpu_fma_avx512;
#endif

#endif
