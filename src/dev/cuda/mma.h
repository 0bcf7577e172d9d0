/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a warp does with its tensor cores, each instruction as one function. All 32 lanes call
 * functions marked "warp" together; l is the lane. Compute capability 8.0 and later. Without nvcc
 * these are declarations, which the emulated device of the tests defines.
 */
#ifndef PPCLI_DEV_CUDA_MMA_H
#define PPCLI_DEV_CUDA_MMA_H

#include "vector.h"

#ifdef __CUDACC__
#define INSTRUCTION static __device__ inline
#define UNROLL _Pragma("unroll")
#define NOT_UNROLLED _Pragma("unroll 1")
#else
#define INSTRUCTION
#define UNROLL
#define NOT_UNROLLED
#endif

/* Warp. c[16][8] += a[16][16] b[16][8], bfloat16 in pairs: a[0] and a[1] are of rows l / 4 and
 * l / 4 + 8, columns 2 (l % 4) and the next; a[2], a[3] of columns 8 further; b[0] and b[1] have
 * these two pairs as rows, in column l / 4. c[0], c[1]: row l / 4, columns 2 (l % 4) and the next;
 * c[2], c[3]: 8 rows below. */
INSTRUCTION void mma_bf16(float *c, const uint32_t *a, const uint32_t *b);

/* Warp. c[16][8] += a[16][8] b[8][8], of which 10 bits of the mantissa count. a[0], a[1]: rows l / 4
 * and 8 below, column l % 4; a[2], a[3] 4 columns further; b[0], b[1]: these as rows, column l / 4. */
INSTRUCTION void mma_tf32(float *c, const uint32_t *a, const uint32_t *b);

/* Warp. Four matrices of 8 rows of 16 bytes; lanes 8 i .. 8 i + 7 give the rows of matrix i, which
 * are in shared memory. to[i]: of row l / 4 the bytes 4 (l % 4) and on. */
INSTRUCTION void load_matrices(uint32_t *to, const void *row);

/* Warp. Of 2-byte values; to[i]: of rows 2 (l % 4) and the next the values in column l / 4. */
INSTRUCTION void load_transposed(uint32_t *to, const void *row);

/* 2^x, relative error below 2^-21; what is below 2^-126 becomes 0. */
INSTRUCTION float exp2_near(float x);

/* Two bfloat16 in one word, the first in its lower half; ties to even, a NaN stays one. */
INSTRUCTION uint32_t bf16_pair(float low, float high);

/* The nearest TF32, ties away from 0; a NaN stays one. */
INSTRUCTION uint32_t tf32_bits(float x);

/* Starts to copy 16 bytes, aligned, from the device to shared memory; zeros if not `reads`. */
INSTRUCTION void copy_16(void *to, const void *from, bool reads);

/* All copies of this thread have arrived; of the others' after the next barrier. */
INSTRUCTION void wait_for_copies(void);

#ifdef __CUDACC__
#define MULTIPLY(which)                                                                            \
    asm("mma.sync.aligned." which ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"     \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                           \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

#define LOAD_FOUR(which)                                                                           \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" which ".shared.b16 {%0,%1,%2,%3}, [%4];"          \
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])                              \
                 : "r"((unsigned)__cvta_generic_to_shared(row))                                    \
                 : "memory")

INSTRUCTION void mma_bf16(float *c, const uint32_t *a, const uint32_t *b)
{
    MULTIPLY("m16n8k16.row.col.f32.bf16.bf16");
}

INSTRUCTION void mma_tf32(float *c, const uint32_t *a, const uint32_t *b)
{
    MULTIPLY("m16n8k8.row.col.f32.tf32.tf32");
}

INSTRUCTION void load_matrices(uint32_t *to, const void *row)
{
    LOAD_FOUR("");
}

INSTRUCTION void load_transposed(uint32_t *to, const void *row)
{
    LOAD_FOUR(".trans");
}

INSTRUCTION float exp2_near(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

INSTRUCTION uint32_t bf16_pair(float low, float high)
{
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

INSTRUCTION uint32_t tf32_bits(float x)
{
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

INSTRUCTION void copy_16(void *to, const void *from, bool reads)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(reads ? 16 : 0)
                 : "memory");
}

INSTRUCTION void wait_for_copies(void)
{
    asm volatile("cp.async.wait_all;" : : : "memory");
}
#endif

/* x; what follows from it is computed here and not, to be kept in registers, before a loop. */
static __device__ inline int computed_here(int x)
{
#ifdef __CUDACC__
    asm volatile("" : "+r"(x));
#endif
    return x;
}

#endif
