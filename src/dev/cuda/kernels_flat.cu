/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels over flat arrays: sums of replicas, the norm, noise. */
#include "activations.h"
#include "kernels.h"
#include "vector.h"

template <typename V, int N> static cudaError_t sums_by(cudaStream_t s, const struct pp_sum *sum)
{
    typedef struct several<V, N> lanes;
    const lanes *a = (const lanes *)sum->a, *b = (const lanes *)sum->b;
    lanes *y = (lanes *)sum->y;
    bool relu = sum->relu;
    return launch_each(s, sum->n / N, [=] __device__(size_t i) {
        lanes v = a[i], w = b[i];
        for (int k = 0; k < N; k++) {
            float both = v.at[k] + w.at[k];
            v.at[k] = relu ? relu_value(both) : both;
        }
        y[i] = v;
    });
}

template <typename V> static cudaError_t sums_of(cudaStream_t s, const struct pp_sum *a)
{
    bool fours = goes_by_fours(a->n, (const V *)a->a, (const V *)a->b, (const V *)a->y);
    return fours ? sums_by<V, 4>(s, a) : sums_by<V, 1>(s, a);
}

KERNEL(sum, pp_sum)
{
    return a->f32 ? sums_of<float>(s, a) : sums_of<V>(s, a);
}

/* ---- Muon */

static __device__ void muon_at(const struct pp_muon *a, size_t i)
{
    const struct pp_optimizer_args *o = a->args;
    if (a->part == PP_MUON_MIX) {
        a->y[i] = a->a * a->x[i] + a->b * a->y[i];
    } else if (a->part == PP_MUON_UNIT) {
        a->x[i] *= (float)(1 / fmax(sqrt(*a->squares), 1e-7));
    } else if (o->skip) {
        return;
    } else if (a->part == PP_MUON_BEGIN) {
        float keep = o->momentum, scale = (1.0f - keep) * o->grad_scale;
        a->y[i] = keep * a->y[i] + scale * a->x[i];
        a->x[i] = scale * a->x[i] + keep * a->y[i];
    } else {
        float lr = o->lr;
        a->y[i] = (1.0f - a->b * lr * o->weight_decay) * a->y[i] - a->a * lr * a->x[i];
    }
}

KERNEL(muon, pp_muon)
{
    struct pp_muon m = *a;
    return launch_each(s, m.n, [=] __device__(size_t i) { muon_at(&m, i); });
}

/* ---- sum of squares */

#define SQUARES_TILE 16384 /* elements of a block, or a multiple for arrays of more than 2^28 */

static PP_DEVICE size_t square_tile(size_t n)
{
    return ((n >> 28) + 1) * SQUARES_TILE;
}

extern "C" size_t kernels_square_blocks(size_t n)
{
    return (n + square_tile(n) - 1) / square_tile(n);
}

__global__ void squares_of_blocks(const __grid_constant__ struct cuda_squares all, double *partials)
{
    __shared__ double sums[THREADS];
    const struct cuda_square *q = of_block(all.at, all.n);
    size_t tile = square_tile(q->n), from = (blockIdx.x - q->first) * tile;
    size_t to = from + tile < q->n ? from + tile : q->n;
    bool fours = (uintptr_t)q->g % sizeof(struct float4_) == 0;
    double sum[4] = {0};
    for (size_t i = from + 4 * threadIdx.x; i < to; i += 4 * THREADS) {
        struct float4_ g = {};
        if (fours && i + 4 <= to)
            g = *(const struct float4_ *)(q->g + i);
        else
            for (size_t k = 0; k < 4 && i + k < to; k++)
                g.at[k] = q->g[i + k];
        for (int k = 0; k < 4; k++)
            sum[k] += (double)g.at[k] * (double)g.at[k];
    }
    double all_four = sum_of_block(sums, (sum[0] + sum[1]) + (sum[2] + sum[3]));
    if (threadIdx.x == 0)
        partials[blockIdx.x] = all_four;
}

/* Adds up the partial sums of squares of each array. A block has one array. */
__global__ void sum_partials(const __grid_constant__ struct cuda_squares all,
                             const double *partials)
{
    __shared__ double sums[THREADS];
    const struct cuda_square *q = &all.at[blockIdx.x];
    size_t tile = square_tile(q->n), blocks = (q->n + tile - 1) / tile;
    double sum = 0;
    for (size_t i = threadIdx.x; i < blocks; i += THREADS)
        sum += partials[q->first + i];
    sum = sum_of_block(sums, sum);
    if (threadIdx.x == 0)
        *q->out = sum;
}

/* Computes the sum of squares of each array. The length of an array alone decides which elements a
 * thread and a block have, and with that the order of the sum. */
extern "C" cudaError_t kernels_all_squares(cudaStream_t s, struct cuda_squares *all,
                                           double *scratch)
{
    unsigned blocks = 0;
    for (int i = 0; i < all->n; i++) {
        all->at[i].first = blocks;
        blocks += (unsigned)kernels_square_blocks(all->at[i].n);
    }
    cudaError_t e = cudaSuccess;
    if (blocks > 0)
        e = PP_LAUNCHED(squares_of_blocks, blocks, THREADS, 0, s, *all, scratch);
    if (e == cudaSuccess && all->n > 0)
        e = PP_LAUNCHED(sum_partials, (unsigned)all->n, THREADS, 0, s, *all, scratch);
    return e;
}

/* ---- noise */

/* Returns a pseudo-random number for index i. Mixes the bits of the index by multiplications and
 * shifts, so that no pattern is left from which a product could profit. */
static __device__ float noise_at(size_t i)
{
    uint32_t h = (uint32_t)i * 2654435761u;
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    return (float)(h >> 8) * (1.0f / 8388608.0f) - 1.0f;
}

extern "C" cudaError_t kernels_noise(cudaStream_t s, size_t n, bool bf16, void *to)
{
    return launch_each(
        s, n,
        [=] __device__(size_t i) {
            if (bf16)
                ((uint16_t *)to)[i] = to_bf16(noise_at(i));
            else
                ((float *)to)[i] = noise_at(i);
        });
}
