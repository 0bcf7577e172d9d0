/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a warp does with its tensor cores, one function for each instruction. All 32 lanes call
 * functions marked "warp" together; l is the lane. Needs compute capability 8.0 or later. Without
 * nvcc these are declarations, which the tests' emulated device defines.
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

/* Warp. Computes c[16][8] += a[16][16] b[16][8] of bfloat16 pairs. a[0] and a[1] belong to rows l /
 * 4 and l / 4 + 8, columns 2 (l % 4) and the next; a[2] and a[3] to the columns 8 further. b[0] and
 * b[1] have these two pairs as rows, in column l / 4. c[0] and c[1] are in row l / 4, columns 2 (l
 * % 4) and the next; c[2] and c[3] are 8 rows below. */
INSTRUCTION void mma_bf16(float *c, const uint32_t *a, const uint32_t *b);

/* Warp. Computes c[16][8] += a[16][8] b[8][8]; 10 bits of each mantissa count. a[0] and a[1] belong
 * to row l / 4 and the row 8 below, column l % 4; a[2] and a[3] to the column 4 further. b[0] and
 * b[1] have these as rows, in column l / 4. */
INSTRUCTION void mma_tf32(float *c, const uint32_t *a, const uint32_t *b);

/* Warp. Loads four matrices of 8 rows of 16 bytes. Lanes 8 i .. 8 i + 7 pass the rows of matrix i,
 * which are in shared memory. to[i] receives the bytes from 4 (l % 4) on of row l / 4. */
INSTRUCTION void load_matrices(uint32_t *to, const void *row);

/* Warp. Loads 2-byte values transposed: to[i] receives the values in column l / 4 of row 2 (l % 4)
 * and of the next. */
INSTRUCTION void load_transposed(uint32_t *to, const void *row);

/* Returns 2^x with a relative error below 2^-21; results below 2^-126 become 0. */
INSTRUCTION float exp2_near(float x);

/* Packs two bfloat16 into one word, the first in the lower half. Ties go to even, and a NaN stays a
 * NaN. */
INSTRUCTION uint32_t bf16_pair(float low, float high);

/* Rounds to the nearest TF32, ties away from 0; a NaN stays a NaN. */
INSTRUCTION uint32_t tf32_bits(float x);

/* Starts to copy 16 aligned bytes from the device's memory to shared memory; writes zeros there if
 * `reads` is false. */
INSTRUCTION void copy_16(void *to, const void *from, bool reads);

/* Waits until all copies of this thread have arrived. The copies of other threads have arrived
 * after the next barrier. */
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

/* Returns x in a way that the compiler cannot see through, so that it computes what follows from x
 * here, and not before a loop in which the result would occupy registers. */
static __device__ inline int computed_here(int x)
{
#ifdef __CUDACC__
    asm volatile("" : "+r"(x));
#endif
    return x;
}

#endif
