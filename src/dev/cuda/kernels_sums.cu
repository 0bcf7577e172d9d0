/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients that are sums over rows, for biases and for the weights of norms: many in one
 * launch. */
#include "columns.h"

#define CHUNK_ROWS 4096                     /* there are many sums, so only long ones are divided */
#define UNIT (CUDA_SCRATCH / CUDA_COUNTERS) /* doubles: two sums of a tile's columns */

#define SLICED_COLUMNS (4 * THREADS) /* of a block */

static PP_DEVICE inline struct columns_split split_of(const struct cuda_sum *one)
{
    if (one->slices)
        return {(unsigned)((one->C + SLICED_COLUMNS - 1) / SLICED_COLUMNS), 1, (size_t)one->rows};
    return split_columns((size_t)one->rows, one->C, CHUNK_ROWS);
}

extern "C" unsigned kernels_sum_units(const struct cuda_sum *one)
{
    struct columns_split split = split_of(one);
    static_assert(UNIT == 2 * COLUMNS && 1024 <= CUDA_COUNTERS, "one fits");
    return split.chunks > 1 ? split.chunks * split.tiles : 0;
}

/* Adds up the slices of a weight gradient in the order of their rows and, if q.adds, adds the array
 * to the sum; stores it in the array. */
static __device__ void add_slices(const struct cuda_sum &q, unsigned tile)
{
    size_t C = (size_t)q.C,
           c = (size_t)tile * SLICED_COLUMNS + 4 * (threadIdx.y * COLUMNS + threadIdx.x);
    if (c >= C)
        return;
    const float *from = (const float *)q.dz + c;
    bool wide = (uintptr_t)q.db % 16 == 0;
    struct several<float, 4> sum = values_at<4>(from, true);
    for (int r = 1; r < q.rows; r++) {
        struct several<float, 4> more = values_at<4>(from + (size_t)r * C, true);
        for (int k = 0; k < 4; k++)
            sum.at[k] += more.at[k];
    }
    if (q.adds) {
        struct several<float, 4> old = values_at<4>(q.db + c, wide);
        for (int k = 0; k < 4; k++)
            sum.at[k] = old.at[k] + sum.at[k];
    }
    put_values(q.db + c, wide, sum);
}

template <typename V>
__global__ void sums_over_rows(const __grid_constant__ struct cuda_sums all, double *scratch)
{
    const struct cuda_sum q = *of_block(all.at, all.n);
    struct columns_split split = split_of(&q);
    unsigned block = blockIdx.x - q.first, tile = block % split.tiles;
    if (q.slices) {
        add_slices(q, tile);
        return;
    }
    const struct columns_part part = {q.C,
                                      (size_t)q.rows,
                                      split,
                                      tile,
                                      block / split.tiles,
                                      scratch + (size_t)q.unit * UNIT,
                                      cuda_counters(scratch) + q.unit + tile};
    const V *dz = (const V *)q.dz, *x = (const V *)q.x;
    size_t C = (size_t)q.C;
    auto take = [&](int c, const double *sums) {
        if (q.db)
            put(q.db + c, q.adds, (float)*sums);
    };
    if (!x) {
        sum_part<1>(
            part,
            [&](size_t r, int c, double *out) { *out = (double)(float)dz[r * C + (size_t)c]; },
            take);
        return;
    }
    int column = (int)(tile * COLUMNS + threadIdx.x);
    int group = q.G > 0 ? (int)((size_t)column * (size_t)q.G / C) : 0;
    size_t apart = q.G > 0 ? (size_t)(q.rows / q.P) * (size_t)q.G : 1;
    sum_part<2>(
        part,
        [&](size_t r, int c, double *out) {
            size_t i = r * C + (size_t)c;
            const float *of =
                q.keep +
                (q.G > 0 ? (unsigned)r / (unsigned)q.P * (unsigned)q.G + (unsigned)group : 2 * r);
            out[0] = (double)(float)dz[i];
            out[1] = out[0] * (double)((x[i] - *of) * of[apart]);
        },
        [&](int c, const double *sums) {
            take(c, sums);
            put(q.dgamma + c, q.adds, (float)sums[1]);
        });
}

extern "C" cudaError_t kernels_sum_all(cudaStream_t s, bool half, struct cuda_sums *all,
                                       double *scratch)
{
    unsigned blocks = 0, units = 0;
    for (int i = 0; i < all->n; i++) {
        struct cuda_sum *q = &all->at[i];
        struct columns_split split = split_of(q);
        q->first = blocks;
        q->unit = units;
        blocks += split.tiles * split.chunks;
        units += kernels_sum_units(q);
    }
    if (blocks == 0)
        return cudaSuccess;
    auto kernel = half ? sums_over_rows<bf16> : sums_over_rows<float>;
    return PP_LAUNCHED(kernel, blocks, dim3(COLUMNS, LANES), 0, s, *all, scratch);
}
