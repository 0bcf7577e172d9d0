/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels over flat buffers: sums of replicas, the norm, noise. */
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
    size_t wide = 4 * sizeof(V);
    bool fours =
        a->n % 4 == 0 && is_aligned(a->a, wide) && is_aligned(a->b, wide) && is_aligned(a->y, wide);
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

#define PER_BLOCK 4096 /* elements a block has before there are CUDA_PARTIALS blocks */

__global__ void squares_of_blocks(size_t n, const float *g, double *partials)
{
    __shared__ double sums[THREADS];
    double sum = 0;
    for (size_t i = first_of_grid(); i < n; i += threads_of_grid())
        sum += (double)g[i] * (double)g[i];
    sum = sum_of_block(sums, sum);
    if (threadIdx.x == 0)
        partials[blockIdx.x] = sum;
}

__global__ void sum_partials(int n, const double *partials, double *out)
{
    __shared__ double sums[THREADS];
    double sum = 0;
    for (int i = (int)threadIdx.x; i < n; i += THREADS)
        sum += partials[i];
    sum = sum_of_block(sums, sum);
    if (threadIdx.x == 0)
        *out = sum;
}

/* How many blocks there are, and so the order of the sum, follows from n alone. */
extern "C" cudaError_t kernels_sum_squares(cudaStream_t s, size_t n, const float *g,
                                           double *scratch, double *out)
{
    size_t blocks = (n + PER_BLOCK - 1) / PER_BLOCK;
    blocks = blocks < CUDA_PARTIALS ? blocks : CUDA_PARTIALS;
    if (blocks > 0) {
        cudaError_t e =
            PP_LAUNCHED(squares_of_blocks, (unsigned)blocks, THREADS, 0, s, n, g, scratch);
        if (e != cudaSuccess)
            return e;
    }
    return PP_LAUNCHED(sum_partials, 1, THREADS, 0, s, (int)blocks, scratch, out);
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
