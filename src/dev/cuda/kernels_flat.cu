/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels over flat buffers: sums of replicas, the norm, noise. */
#include "activations.h"
#include "kernels.h"
#include "launch.h"
#include "vector.h"

#include <math.h>

static __device__ float sum_of(float a, float b, bool relu)
{
    float y = a + b;
    return relu ? relu_value(y) : y;
}

__global__ void sum_each(size_t n, const float *a, const float *b, bool relu, float *y)
{
    for (size_t i = first_of_grid(); i < n; i += threads_of_grid())
        y[i] = sum_of(a[i], b[i], relu);
}

__global__ void sum_each4(size_t n4, const struct float4_ *a, const struct float4_ *b, bool relu,
                          struct float4_ *y)
{
    for (size_t i = first_of_grid(); i < n4; i += threads_of_grid()) {
        struct float4_ x = a[i], z = b[i];
        for (int k = 0; k < 4; k++)
            x.at[k] = sum_of(x.at[k], z.at[k], relu);
        y[i] = x;
    }
}

extern "C" cudaError_t kernels_sum(cudaStream_t s, const struct pp_sum *a)
{
    if (a->n == 0)
        return cudaSuccess;
    if (a->n % 4 == 0 && is_aligned(a->a, 16) && is_aligned(a->b, 16) && is_aligned(a->y, 16)) {
        PP_LAUNCH(sum_each4, blocks_for(a->n / 4), THREADS, 0, s, a->n / 4,
                  (const struct float4_ *)a->a, (const struct float4_ *)a->b, a->relu,
                  (struct float4_ *)a->y);
    } else {
        PP_LAUNCH(sum_each, blocks_for(a->n), THREADS, 0, s, a->n, a->a, a->b, a->relu, a->y);
    }
    return cudaGetLastError();
}

/* ---- sum of squares */

#define PER_BLOCK 4096 /* elements a block has before there are CUDA_PARTIALS blocks */

/* sums[0] becomes the sum of sums[0..THREADS-1], by halves. Every thread of the block calls it. */
static __device__ void sum_block(double *sums)
{
    int t = (int)threadIdx.x;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half)
            sums[t] += sums[t + half];
    }
}

__global__ void squares_of_blocks(size_t n, const float *g, double *partials)
{
    __shared__ double sums[THREADS];
    double sum = 0;
    for (size_t i = first_of_grid(); i < n; i += threads_of_grid())
        sum += (double)g[i] * (double)g[i];
    sums[threadIdx.x] = sum;
    sum_block(sums);
    if (threadIdx.x == 0)
        partials[blockIdx.x] = sums[0];
}

__global__ void sum_partials(int n, const double *partials, double *out)
{
    __shared__ double sums[THREADS];
    double sum = 0;
    for (int i = (int)threadIdx.x; i < n; i += THREADS)
        sum += partials[i];
    sums[threadIdx.x] = sum;
    sum_block(sums);
    if (threadIdx.x == 0)
        *out = sums[0];
}

/* How many blocks there are, and so the order of the sum, follows from n alone. */
extern "C" cudaError_t kernels_sum_squares(cudaStream_t s, size_t n, const float *g,
                                           double *partials, double *out)
{
    size_t blocks = (n + PER_BLOCK - 1) / PER_BLOCK;
    blocks = blocks < CUDA_PARTIALS ? blocks : CUDA_PARTIALS;
    if (blocks > 0) {
        PP_LAUNCH(squares_of_blocks, (unsigned)blocks, THREADS, 0, s, n, g, partials);
        cudaError_t e = cudaGetLastError();
        if (e != cudaSuccess)
            return e;
    }
    PP_LAUNCH(sum_partials, 1, THREADS, 0, s, (int)blocks, partials, out);
    return cudaGetLastError();
}

/* ---- noise */

/* The bits of the place, mixed by multiplications and shifts until no pattern is left that a
 * product could profit from. */
static __device__ float noise_at(size_t i)
{
    uint32_t h = (uint32_t)i * 2654435761u;
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    return (float)(h >> 8) * (1.0f / 8388608.0f) - 1.0f;
}

__global__ void noise(size_t n, float *to)
{
    for (size_t i = first_of_grid(); i < n; i += threads_of_grid())
        to[i] = noise_at(i);
}

__global__ void noise_bf16(size_t n, uint16_t *to)
{
    for (size_t i = first_of_grid(); i < n; i += threads_of_grid())
        to[i] = to_bf16(noise_at(i));
}

extern "C" cudaError_t kernels_noise(cudaStream_t s, size_t n, bool bf16, void *to)
{
    if (n == 0)
        return cudaSuccess;
    if (bf16)
        PP_LAUNCH(noise_bf16, blocks_for(n), THREADS, 0, s, n, (uint16_t *)to);
    else
        PP_LAUNCH(noise, blocks_for(n), THREADS, 0, s, n, (float *)to);
    return cudaGetLastError();
}
