/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums over the rows of a matrix, one or more for each column, in double. Which rows a block has,
 * and in which order the sums of blocks are added, follows from the shape alone.
 */
#ifndef PPCLI_DEV_CUDA_COLUMNS_H
#define PPCLI_DEV_CUDA_COLUMNS_H

#include "kernels.h"
#include "vector.h"

#define COLUMNS 32 /* of a block: reads are whole lines */
#define LANES 8    /* a lane has rows r, r + LANES, ... of a column */
#define LEAST_ROWS 128

/* How a sum over rows is divided among blocks: into tiles of COLUMNS columns and, if there are few
 * tiles, into chunks of at least `least` rows. */
struct columns_split {
    unsigned tiles, chunks;
    size_t rows; /* of a chunk */
};

static PP_DEVICE inline struct columns_split split_columns(size_t rows, int C, size_t least)
{
    size_t tiles = ((size_t)C + COLUMNS - 1) / COLUMNS, most = tiles < 1024 ? 1024 / tiles : 1;
    size_t n = (rows + least - 1) / least;
    n = n < 1 ? 1 : n < most ? n : most;
    return {(unsigned)tiles, (unsigned)n, (rows + n - 1) / n};
}

static __device__ inline unsigned *cuda_counters(double *scratch)
{
    return (unsigned *)(scratch + CUDA_SCRATCH);
}

/* The part of the sum that one block computes. */
struct columns_part {
    int C;
    size_t rows; /* of the whole matrix */
    struct columns_split split;
    unsigned tile, chunk;
    double *sums;      /* for several chunks: [chunks][N][C] */
    unsigned *counter; /* of the tile's chunks that are done; 0 before and after the kernel */
};

/* Sums N terms of a column over the rows from .. end - 1; get(row, column, term) gives the terms.
 * Sets sum[N] in lane 0. */
template <int N, typename Get>
static __device__ void sum_lanes(size_t from, size_t end, int column, int C, Get get, double *sum)
{
    __shared__ double sums[LANES][N][COLUMNS];
    int lane = (int)threadIdx.y;
    double all[N] = {0}, term[N];
    for (size_t r = from + (size_t)lane; r < end && column < C; r += LANES) {
        get(r, column, term);
        for (int k = 0; k < N; k++)
            all[k] += term[k];
    }
    for (int k = 0; k < N; k++)
        sums[lane][k][threadIdx.x] = all[k];
    for (int half = LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        for (int k = 0; k < N && lane < half; k++)
            sums[lane][k][threadIdx.x] += sums[lane + half][k][threadIdx.x];
    }
    for (int k = 0; k < N && lane == 0; k++)
        sum[k] = sums[0][k][threadIdx.x];
}

/* Calls put(column, sum) with the sums of all rows. If there are several chunks of rows, the block
 * that finishes last adds up the sums of all chunks, in the order of the chunks. */
template <int N, typename Get, typename Put>
static __device__ void sum_part(const struct columns_part &p, Get get, Put put)
{
    __shared__ bool last;
    size_t from = p.chunk * p.split.rows, C = (size_t)p.C;
    size_t end = from + p.split.rows < p.rows ? from + p.split.rows : p.rows;
    int column = (int)(p.tile * COLUMNS + threadIdx.x);
    bool mine = threadIdx.y == 0 && column < p.C, leads = threadIdx.x == 0 && threadIdx.y == 0;
    double sum[N] = {0};
    sum_lanes<N>(from, end, column, p.C, get, sum);
    if (p.split.chunks > 1) {
        for (int k = 0; k < N && mine; k++)
            p.sums[(p.chunk * N + (size_t)k) * C + (size_t)column] = sum[k];
        __threadfence();
        __syncthreads();
        if (leads)
            last = atomicAdd(p.counter, 1u) == p.split.chunks - 1;
        __syncthreads();
        if (!last)
            return;
        __threadfence();
        const double *sums = p.sums;
        auto of_chunk = [=](size_t chunk, int c, double *out) {
            for (int k = 0; k < N; k++)
                out[k] = sums[(chunk * N + (size_t)k) * C + (size_t)c];
        };
        sum_lanes<N>(0, p.split.chunks, column, p.C, of_chunk, sum);
        if (leads)
            *p.counter = 0;
    }
    if (mine)
        put(column, sum);
}

template <int N, typename Get, typename Put>
__global__ void column_sums(size_t rows, struct columns_split split, int C, Get get, Put put,
                            double *scratch)
{
    const struct columns_part part = {
        C, rows, split, blockIdx.x, blockIdx.y, scratch, cuda_counters(scratch) + blockIdx.x};
    sum_part<N>(part, get, put);
}

/* Sums N terms of each of C columns over `rows` rows: get() gives the terms, put() takes the sums.
 * `scratch` has CUDA_SCRATCH_BYTES. */
template <int N, typename Get, typename Put>
static cudaError_t sum_columns(cudaStream_t s, size_t rows, int C, Get get, Put put,
                               double *scratch)
{
    static_assert(N * 1024 * COLUMNS <= CUDA_SCRATCH, "the sums of all chunks fit");
    struct columns_split split = split_columns(rows, C, LEAST_ROWS);
    auto kernel = column_sums<N, Get, Put>;
    return PP_LAUNCHED(kernel, dim3(split.tiles, split.chunks), dim3(COLUMNS, LANES), 0, s, rows,
                       split, C, get, put, scratch);
}

#endif
