/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums over the rows of a matrix, one or more for each column, in double. Which rows a block has,
 * and in which order the blocks' sums are added, follows from the shape alone.
 */
#ifndef PPCLI_DEV_CUDA_COLUMNS_H
#define PPCLI_DEV_CUDA_COLUMNS_H

#include "kernels.h"
#include "vector.h"

#define COLUMNS 32 /* of a block: reads are whole lines */
#define LANES 8    /* rows r, r + LANES, ... of a column are one lane's */
#define LEAST_ROWS 128

/* The sums of the chunks of rows that the first launch made. */
template <int N> struct chunk_sums {
    const double *sums; /* [chunks][N][C] */
    int C;

    __device__ void operator()(size_t chunk, int c, double *out) const
    {
        for (int k = 0; k < N; k++)
            out[k] = sums[(chunk * N + (size_t)k) * (size_t)C + (size_t)c];
    }
};

/* get(row, column, out) gives the terms of a sum, put(column, sums) takes it; with several chunks
 * of rows the sums go to *chunks instead. */
template <int N, typename Get, typename Put>
__global__ void column_sums(size_t rows, size_t chunk, int C, Get get, Put put, double *chunks)
{
    __shared__ double sums[LANES][N][COLUMNS];
    int column = (int)(blockIdx.x * COLUMNS + threadIdx.x), lane = (int)threadIdx.y;
    size_t from = blockIdx.y * chunk, end = from + chunk < rows ? from + chunk : rows;
    double sum[N] = {0}, term[N];
    for (size_t r = from + (size_t)lane; r < end && column < C; r += LANES) {
        get(r, column, term);
        for (int k = 0; k < N; k++)
            sum[k] += term[k];
    }
    for (int k = 0; k < N; k++)
        sums[lane][k][threadIdx.x] = sum[k];
    for (int half = LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        for (int k = 0; k < N && lane < half; k++)
            sums[lane][k][threadIdx.x] += sums[lane + half][k][threadIdx.x];
    }
    if (lane > 0 || column >= C)
        return;
    for (int k = 0; k < N; k++)
        sum[k] = sums[0][k][threadIdx.x];
    for (int k = 0; k < N && gridDim.y > 1; k++)
        chunks[(blockIdx.y * N + (size_t)k) * (size_t)C + (size_t)column] = sum[k];
    if (gridDim.y == 1)
        put(column, sum);
}

/* chunks: scratch of CUDA_SCRATCH doubles. */
template <int N, typename Get, typename Put>
static cudaError_t sum_columns(cudaStream_t s, size_t rows, int C, Get get, Put put, double *chunks)
{
    static_assert(N * 1024 * COLUMNS <= CUDA_SCRATCH, "the sums of all chunks fit");
    size_t tiles = ((size_t)C + COLUMNS - 1) / COLUMNS, most = tiles < 1024 ? 1024 / tiles : 1;
    size_t n = (rows + LEAST_ROWS - 1) / LEAST_ROWS;
    n = n < 1 ? 1 : n < most ? n : most;
    size_t chunk = (rows + n - 1) / n;
    dim3 block(COLUMNS, LANES);
    auto first = column_sums<N, Get, Put>;
    auto last = column_sums<N, struct chunk_sums<N>, Put>;
    cudaError_t e = PP_LAUNCHED(first, dim3((unsigned)tiles, (unsigned)n), block, 0, s, rows, chunk,
                                C, get, put, chunks);
    if (e == cudaSuccess && n > 1) {
        struct chunk_sums<N> of_chunks = {
            chunks, C
        };
        e = PP_LAUNCHED(last, (unsigned)tiles, block, 0, s, n, n, C, of_chunks, put, chunks);
    }
    return e;
}

#endif
