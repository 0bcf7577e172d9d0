/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax, cross-entropy and its gradient in one pass: a warp has a row. The rows' losses are
 * summed by halves in an order that depends on their number only: up to ROWS_OF_A_BLOCK rows in the same
 * block, more by a second kernel.
 */
#include "kernels.h"
#include "vector.h"

#include <math.h>

#define ROWS_OF_A_BLOCK 256
#define CLASSES_OF_A_BLOCK                                                                         \
    1024                  /* with more, one multiprocessor takes longer than a second launch */
#define LOSS_THREADS 1024 /* of the one block: as many rows at once as it can have */

/* The better of two candidates for the arg max; -1: none yet. Of equal ones the lowest index. */
static __device__ bool better(float x, int at, float than, int than_at)
{
    if (at < 0 || than_at < 0)
        return at >= 0;
    return x > than || (x == than && at < than_at);
}

/* What add_rows reads of a row. */
#define IGNORED (-1)

/*
 * One row, by a whole warp. Returns its loss, and in *hit whether the arg max is the target, in
 * every lane; IGNORED: the row has none. A NaN is never larger than anything and nothing is larger
 * than it, so that one at index 0 is the arg max, as in a loop from there. Each lane reads its
 * elements before it overwrites them, and nobody else's.
 */
template <typename V>
static __device__ double row_loss(int C, const V *x, int label, float grad_scale, float smoothing,
                                  V *d, int *hit)
{
    int lane = (int)(threadIdx.x % WARP), best = -1;
    if (label < 0) {
        for (int c = lane; d && c < C; c += WARP)
            d[c] = 0.0f;
        *hit = IGNORED;
        return 0;
    }
    float most = 0.0f, at_label = nanf(""); /* a label that is not a class would show */
    for (int c = lane; c < C; c += WARP) {
        float v = x[c];
        if (v == v && better(v, c, most, best)) {
            most = v;
            best = c;
        }
        if (c == label)
            at_label = v;
    }
    at_label = __shfl_sync(ALL, at_label, label % WARP);
    float first = __shfl_sync(ALL, lane < C ? (float)x[lane] : 0.0f, 0);
    for (int half = WARP / 2; half > 0; half /= 2) {
        float v = __shfl_xor_sync(ALL, most, half);
        int at = __shfl_xor_sync(ALL, best, half);
        if (better(v, at, most, best)) {
            most = v;
            best = at;
        }
    }
    if (best < 0 || first != first) {
        best = 0;
        most = first;
    }
    double sum = 0, all = 0, rest = smoothing;
    for (int c = lane; c < C; c += WARP)
        sum += (double)expf(x[c] - most);
    for (int c = lane; c < C && smoothing > 0; c += WARP)
        all += (double)(float)x[c] - (double)most;
    sum = warp_sum(sum);
    all = warp_sum(all);
    if (d) {
        float scale = (float)((double)grad_scale / sum);
        float other = (float)(grad_scale * rest / C), one = (float)(grad_scale * (1 - rest));
        for (int c = lane; c < C; c += WARP)
            d[c] = expf(x[c] - most) * scale - (c == label ? one + other : other);
    }
    *hit = best == label;
    return log(sum) - ((1 - rest) * ((double)at_label - (double)most) + rest / C * all);
}

/* Adds the sums of rows 0..n-1, those of B samples, to *sums. Every thread of one block calls it. */
static __device__ void add_rows(int B, int n, const double *losses, const int *hits,
                                struct pp_loss_sums *sums)
{
    __shared__ double loss[LOSS_THREADS];
    __shared__ int hit[LOSS_THREADS], ignored[LOSS_THREADS];
    int t = (int)threadIdx.x;
    loss[t] = 0;
    hit[t] = 0;
    ignored[t] = 0;
    for (int r = t; r < n; r += LOSS_THREADS) {
        loss[t] += losses[r];
        hit[t] += hits[r] == IGNORED ? 0 : hits[r];
        ignored[t] += hits[r] == IGNORED;
    }
    for (int half = LOSS_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) {
            loss[t] += loss[t + half];
            hit[t] += hit[t + half];
            ignored[t] += ignored[t + half];
        }
    }
    if (t == 0) {
        sums->loss += loss[0];
        sums->correct += hit[0];
        sums->rows += B;
        sums->targets += n - ignored[0];
    }
}

/* Row r by a whole warp, with what add_rows reads. */
template <typename V>
static __device__ void loss_of_row(int r, int C, const V *logits, const int32_t *targets,
                                   float grad_scale, float smoothing, double *losses, int *hits,
                                   V *dlogits)
{
    size_t at = (size_t)r * (size_t)C;
    int hit;
    double loss = row_loss(C, logits + at, targets[r], grad_scale, smoothing,
                           dlogits ? dlogits + at : NULL, &hit);
    if (threadIdx.x % WARP == 0) {
        losses[r] = loss;
        hits[r] = hit;
    }
}

template <typename V>
__global__ void __launch_bounds__(LOSS_THREADS)
    loss_of_a_block(int B, int n, int C, const V *logits, const int32_t *targets, float grad_scale,
                    const float *scale, float smoothing, struct pp_loss_sums *sums, V *dlogits)
{
    __shared__ double losses[ROWS_OF_A_BLOCK];
    __shared__ int hits[ROWS_OF_A_BLOCK];
    grad_scale = scale ? *scale : grad_scale;
    for (int r = (int)(threadIdx.x / WARP); r < n; r += LOSS_THREADS / WARP)
        loss_of_row(r, C, logits, targets, grad_scale, smoothing, losses, hits, dlogits);
    __syncthreads();
    add_rows(B, n, losses, hits, sums);
}

template <typename V>
__global__ void loss_of_rows(int n, int C, const V *logits, const int32_t *targets,
                             float grad_scale, const float *scale, float smoothing, double *losses,
                             int *hits, V *dlogits)
{
    int r = (int)(blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP);
    if (r < n) /* the whole warp, or none of it */
        loss_of_row(r, C, logits, targets, scale ? *scale : grad_scale, smoothing, losses, hits,
                    dlogits);
}

__global__ void __launch_bounds__(LOSS_THREADS)
    sum_rows(int B, int n, const double *losses, const int *hits, struct pp_loss_sums *sums)
{
    add_rows(B, n, losses, hits, sums);
}

KERNEL(softmax_cross_entropy, pp_softmax_cross_entropy)
{
    int n = a->B * a->P, samples = a->B - a->uncounted, most = CUDA_SCRATCH / 2;
    double *losses = scratch;
    int *hits = (int *)(losses + most);
    const V *logits = (const V *)a->logits;
    V *dlogits = (V *)a->dlogits;
    cudaError_t e = cudaSuccess;
    if (n > 0 && n <= ROWS_OF_A_BLOCK && a->C <= CLASSES_OF_A_BLOCK) {
        PP_LAUNCH(loss_of_a_block<V>, 1, LOSS_THREADS, 0, s, samples, n, a->C, logits, a->targets,
                  a->grad_scale, a->scale, a->smoothing, a->sums, dlogits);
        return cudaGetLastError();
    }
    for (int from = 0; e == cudaSuccess && from < n; from += most) {
        int rows = n - from < most ? n - from : most;
        size_t at = (size_t)from * (size_t)a->C;
        PP_LAUNCH(loss_of_rows<V>, ((unsigned)rows + THREADS / WARP - 1) / (THREADS / WARP),
                  THREADS, 0, s, rows, a->C, logits + at, a->targets + from, a->grad_scale,
                  a->scale, a->smoothing, losses, hits, dlogits ? dlogits + at : NULL);
        e = cudaGetLastError();
        if (e == cudaSuccess) {
            PP_LAUNCH(sum_rows, 1, LOSS_THREADS, 0, s, from == 0 ? samples : 0, rows, losses, hits,
                      a->sums);
            e = cudaGetLastError();
        }
    }
    return e;
}
