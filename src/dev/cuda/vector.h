/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels share: four elements in one access, and how a grid walks a flat array. */
#ifndef PPCLI_DEV_CUDA_VECTOR_H
#define PPCLI_DEV_CUDA_VECTOR_H

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime.h>

struct alignas(16) float4_ {
    float at[4];
};
struct alignas(8) half4 {
    uint16_t at[4];
};
struct alignas(4) bytes4 {
    uint8_t at[4];
};

#define THREADS 256

static inline bool is_aligned(const void *p, uintptr_t bytes)
{
    return (uintptr_t)p % bytes == 0;
}

/* Enough blocks for n elements; several waves of them on the largest device, then each thread takes
 * more. No result depends on it. */
static inline unsigned blocks_for(size_t n)
{
    size_t blocks = (n + THREADS - 1) / THREADS;
    return (unsigned)(blocks < 4096 ? blocks : 4096);
}

static __device__ inline size_t first_of_grid(void)
{
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ inline size_t threads_of_grid(void)
{
    return (size_t)gridDim.x * blockDim.x;
}

/* Ties to even; a NaN stays one. */
static __device__ inline uint16_t to_bf16(float x)
{
    union {
        float f;
        uint32_t u;
    } bits;
    bits.f = x;
    uint32_t u = bits.u;
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 0x40u); /* quiet, and never an infinity */
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

#endif
