/* SPDX-License-Identifier: Apache-2.0 */
/* Norms. Of a row, or of a group of one sample: with as many threads as its size deserves. Of a
 * channel over a batch: as sums over columns. */
#include "columns.h"

#include <math.h>

/* Adds the residual to an element and applies relu. */
static __device__ float add_residual_and_relu(float y, float residual, bool relu)
{
    y += residual;
    return relu && y < 0.0f ? 0.0f : y; /* written so that a NaN stays */
}

/* Replaces dy[i] .. dy[i + N - 1] by the gradient before relu, stores that in d_residual or adds it
 * to d_residual, and returns it. */
template <int N, typename V>
static __device__ struct several<V, N> undo_relu(const V *y, V *dy, bool add, V *d_residual,
                                                 size_t i, bool wide) {
    struct several<V, N> d = values_at<N>(dy + i, wide), more = {
    };
    if (y) {
        struct several<V, N> out = values_at<N>(y + i, wide);
        for (int k = 0; k < N; k++)
            d.at[k] = out.at[k] <= 0.0f ? 0.0f : (float)d.at[k];
        put_values(dy + i, wide, d);
    }
    if (d_residual && add)
        more = values_at<N>(d_residual + i, wide);
    for (int k = 0; d_residual && k < N; k++)
        put(&more.at[k], add, d.at[k]);
    if (d_residual)
        put_values(d_residual + i, wide, more);
    return d;
}

/* ---- norm of a row: one warp for each */

#define ROWS (THREADS / WARP) /* of a block */

/* Normalizes rows, one warp for each. A lane has N elements, then the N elements that are WARP * N
 * further on, and so on, so that C alone decides the order of a sum. */
template <typename V, int N>
__global__ void norm_rows(struct pp_row_norm_forward a, bool wide)
{
    typedef struct several<V, N> lanes;
    size_t r = (size_t)blockIdx.x * ROWS + threadIdx.x / WARP, C = (size_t)a.C;
    int lane = (int)(threadIdx.x % WARP);
    if (r >= (size_t)a.B) /* true for the whole warp, or for none of it */
        return;
    const V *x = (const V *)a.x + r * C;
    V *y = (V *)a.y + r * C;
    float sum = 0.0f, left = 0.0f, squares = 0.0f;
    for (int c = lane * N; a.centred && c < a.C; c += WARP * N) {
        lanes v = values_at<N>(x + c, wide);
        for (int k = 0; k < N; k++)
            sum += v.at[k];
    }
    float near = warp_sum(sum) / (float)a.C; /* the mean, except for what a sum of large numbers
                                                loses */
    for (int c = lane * N; c < a.C; c += WARP * N) {
        lanes v = values_at<N>(x + c, wide);
        for (int k = 0; k < N; k++) {
            float d = v.at[k] - near;
            left += d;
            squares += d * d;
        }
    }
    left = a.centred ? warp_sum(left) / (float)a.C : 0.0f;
    float mean = near + left, var = warp_sum(squares) / (float)a.C - left * left;
    float rstd = 1.0f / sqrtf((var < 0.0f ? 0.0f : var) + a.eps);
    float off = (left - (mean - near)) * rstd; /* what the mean lost when it was rounded */
    for (int c = lane * N; c < a.C; c += WARP * N) {
        lanes v = values_at<N>(x + c, wide);
        for (int k = 0; k < N; k++) {
            float beta = a.beta ? a.beta[c + k] : 0.0f;
            v.at[k] = ((v.at[k] - mean) * rstd - off) * a.gamma[c + k] + beta;
        }
        put_values(y + c, wide, v);
    }
    if (lane == 0) {
        a.keep[2 * r] = mean;
        a.keep[2 * r + 1] = rstd;
    }
}

KERNEL(row_norm_forward, pp_row_norm_forward)
{
    if (a->B == 0)
        return cudaSuccess;
    size_t C = (size_t)a->C;
    auto kernel = C % 4 == 0 ? norm_rows<V, 4> : norm_rows<V, 1>;
    return PP_LAUNCHED(kernel, ((unsigned)a->B + ROWS - 1) / ROWS, THREADS, 0, s, *a,
                       goes_by_fours(C, (const V *)a->x, (const V *)a->y));
}

template <typename V, int N>
__global__ void norm_rows_back(struct pp_row_norm_backward_input a, bool wide)
{
    typedef struct several<V, N> lanes;
    size_t r = (size_t)blockIdx.x * ROWS + threadIdx.x / WARP, C = (size_t)a.C;
    int lane = (int)(threadIdx.x % WARP);
    if (r >= (size_t)a.B)
        return;
    const V *x = (const V *)a.x + r * C, *dy = (const V *)a.dy + r * C;
    V *dx = (V *)a.dx + r * C;
    float mean = a.keep[2 * r], rstd = a.keep[2 * r + 1];
    float sum = 0.0f, product = 0.0f;
    for (int c = lane * N; c < a.C; c += WARP * N) {
        lanes v = values_at<N>(x + c, wide), g = values_at<N>(dy + c, wide);
        for (int k = 0; k < N; k++) {
            float d = g.at[k] * a.gamma[c + k];
            sum += d;
            product += d * ((v.at[k] - mean) * rstd);
        }
    }
    sum = a.centred ? warp_sum(sum) / (float)a.C : 0.0f;
    product = warp_sum(product) / (float)a.C;
    for (int c = lane * N; c < a.C; c += WARP * N) {
        lanes v = values_at<N>(x + c, wide), g = values_at<N>(dy + c, wide);
        lanes to = a.add ? values_at<N>(dx + c, wide) : v;
        for (int k = 0; k < N; k++) {
            float mine = sum + (v.at[k] - mean) * rstd * product;
            put(&to.at[k], a.add, rstd * (g.at[k] * a.gamma[c + k] - mine));
        }
        put_values(dx + c, wide, to);
    }
}

KERNEL(row_norm_backward_input, pp_row_norm_backward_input)
{
    if (a->B == 0)
        return cudaSuccess;
    size_t C = (size_t)a->C;
    auto kernel = C % 4 == 0 ? norm_rows_back<V, 4> : norm_rows_back<V, 1>;
    return PP_LAUNCHED(kernel, ((unsigned)a->B + ROWS - 1) / ROWS, THREADS, 0, s, *a,
                       goes_by_fours(C, (const V *)a->x, (const V *)a->dy, (const V *)a->dx));
}

/* ---- norm of a group: one block for each */

/* Sums *a and *b over the block; every thread gets both sums. */
static __device__ void sum_block(double *a, double *b)
{
    __shared__ double sums[2][THREADS / WARP];
    int lane = (int)(threadIdx.x % WARP), warp = (int)(threadIdx.x / WARP);
    double x = warp_sum(*a), y = warp_sum(*b);
    __syncthreads(); /* all threads have read the last call's values */
    if (lane == 0) {
        sums[0][warp] = x;
        sums[1][warp] = y;
    }
    __syncthreads();
    *a = *b = 0;
    for (int w = 0; w < THREADS / WARP; w++) {
        *a += sums[0][w];
        *b += sums[1][w];
    }
}

/* The group of a block: `run` channels of each pixel, n elements in all. */
struct group {
    unsigned run, n, channel; /* the first */
    size_t first, C;

    __device__ size_t at(unsigned k) const
    {
        return first + (size_t)(k / run) * C + k % run;
    }
    __device__ unsigned channel_of(unsigned k) const
    {
        return channel + k % run;
    }
};

static __device__ struct group group_of_block(int P, int C, int G)
{
    unsigned run = (unsigned)(C / G), b = blockIdx.x / (unsigned)G;
    unsigned channel = blockIdx.x % (unsigned)G * run;
    return {run, (unsigned)P * run, channel, (size_t)b * (size_t)P * (size_t)C + channel,
            (size_t)C};
}

/* Normalizes groups, one block for each. A thread has N elements, then the N elements that are
 * THREADS * N further on, and so on. N divides the channels of a group. */
template <typename V, int N> __global__ void norm_groups(struct pp_group_norm_forward a, bool wide)
{
    typedef struct several<V, N> lanes;
    const struct group g = group_of_block(a.P, a.C, a.G);
    const V *x = (const V *)a.x, *residual = (const V *)a.residual;
    double sum = 0, squares = 0, from = (double)(float)x[g.first];
    for (unsigned k = threadIdx.x * N; k < g.n; k += THREADS * N) {
        lanes v = values_at<N>(x + g.at(k), wide);
        for (int e = 0; e < N; e++) {
            double far = (double)(float)v.at[e] - from;
            sum += far;
            squares += far * far;
        }
    }
    sum_block(&sum, &squares);
    double left = sum / (double)g.n, var = squares / (double)g.n - left * left, mean = from + left;
    float m = (float)mean, rstd = (float)(1 / sqrt((var < 0 ? 0 : var) + (double)a.eps));
    float lost = (float)(mean - (double)m);
    for (unsigned k = threadIdx.x * N; k < g.n; k += THREADS * N) {
        size_t i = g.at(k), c = g.channel_of(k);
        lanes v = values_at<N>(x + i, wide), more = {};
        if (residual)
            more = values_at<N>(residual + i, wide);
        for (int e = 0; e < N; e++)
            v.at[e] =
                add_residual_and_relu((v.at[e] - m - lost) * rstd * a.gamma[c + e] + a.beta[c + e],
                                      residual ? (float)more.at[e] : 0.0f, a.relu);
        put_values((V *)a.y + i, wide, v);
    }
    if (threadIdx.x == 0) {
        a.keep[blockIdx.x] = m;
        a.keep[(size_t)a.B * (size_t)a.G + blockIdx.x] = rstd;
    }
}

KERNEL(group_norm_forward, pp_group_norm_forward)
{
    if (a->B == 0)
        return cudaSuccess;
    size_t run = (size_t)(a->C / a->G);
    auto kernel = run % 4 == 0 ? norm_groups<V, 4> : norm_groups<V, 1>;
    return PP_LAUNCHED(
        kernel, (unsigned)a->B * (unsigned)a->G, THREADS, 0, s, *a,
        goes_by_fours(run, (const V *)a->x, (const V *)a->residual, (const V *)a->y));
}

template <typename V, int N>
__global__ void norm_groups_backward(struct pp_group_norm_backward_input a, bool wide)
{
    typedef struct several<V, N> lanes;
    const struct group g = group_of_block(a.P, a.C, a.G);
    float mean = a.keep[blockIdx.x], rstd = a.keep[(size_t)a.B * (size_t)a.G + blockIdx.x];
    const V *x = (const V *)a.x, *y = (const V *)a.y;
    V *dy = (V *)a.dy, *dx = (V *)a.dx, *d_residual = (V *)a.d_residual;
    double sum = 0, product = 0;
    for (unsigned k = threadIdx.x * N; k < g.n; k += THREADS * N) {
        size_t i = g.at(k), c = g.channel_of(k);
        lanes v = values_at<N>(x + i, wide);
        lanes d = undo_relu<N>(y, dy, a.add_residual, d_residual, i, wide);
        for (int e = 0; e < N; e++) {
            double to_sum = (double)(float)d.at[e] * (double)a.gamma[c + e];
            sum += to_sum;
            product += to_sum * (double)((v.at[e] - mean) * rstd);
        }
    }
    sum_block(&sum, &product);
    float s = (float)(sum / (double)g.n), p = (float)(product / (double)g.n);
    for (unsigned k = threadIdx.x * N; k < g.n && dx; k += THREADS * N) {
        size_t i = g.at(k), c = g.channel_of(k);
        lanes v = values_at<N>(x + i, wide), d = values_at<N>(dy + i, wide);
        lanes to = a.add ? values_at<N>(dx + i, wide) : v;
        for (int e = 0; e < N; e++)
            put(&to.at[e], a.add,
                rstd * (d.at[e] * a.gamma[c + e] - (s + (v.at[e] - mean) * rstd * p)));
        put_values(dx + i, wide, to);
    }
}

KERNEL(group_norm_backward_input, pp_group_norm_backward_input)
{
    if (a->B == 0)
        return cudaSuccess;
    size_t run = (size_t)(a->C / a->G);
    auto kernel = run % 4 == 0 ? norm_groups_backward<V, 4> : norm_groups_backward<V, 1>;
    bool fours = goes_by_fours(run, (const V *)a->x, (const V *)a->y, (const V *)a->dy,
                               (const V *)a->dx, (const V *)a->d_residual);
    return PP_LAUNCHED(kernel, (unsigned)a->B * (unsigned)a->G, THREADS, 0, s, *a, fours);
}

/* ---- norm of a channel over the batch */

template <typename V, int N>
static cudaError_t normed_by(cudaStream_t s, const struct pp_batch_norm_forward *a,
                             const double *lost_of)
{
    typedef struct several<V, N> lanes;
    struct pp_batch_norm_forward n = *a;
    const lanes *x = (const lanes *)n.x, *residual = (const lanes *)n.residual;
    lanes *y = (lanes *)n.y;
    size_t width = (size_t)n.P * (size_t)n.C / N;
    return launch_rows(s, (size_t)n.B, width, [=] __device__(size_t r, int f) {
        size_t i = r * width + (size_t)f;
        lanes v = x[i], more = {};
        if (residual)
            more = residual[i];
        for (int k = 0; k < N; k++) {
            int c = f * N % n.C + k;
            float mean = n.running_mean ? n.running_mean[c] : n.keep[c];
            float rstd = n.running_mean ? 1.0f / sqrtf(n.running_var[c] + n.eps) : n.keep[n.C + c];
            float lost = n.running_mean || c >= CUDA_SCRATCH ? 0.0f : (float)lost_of[c];
            v.at[k] = add_residual_and_relu((v.at[k] - mean - lost) * rstd * n.gamma[c] + n.beta[c],
                                            residual ? (float)more.at[k] : 0.0f, n.relu);
        }
        y[i] = v;
    });
}

KERNEL(batch_norm_forward, pp_batch_norm_forward)
{
    struct pp_batch_norm_forward n = *a;
    const V *x = (const V *)n.x;
    size_t rows = (size_t)n.B * (size_t)n.P;
    bool fours = goes_by_fours((size_t)n.C, x, (const V *)n.residual, (const V *)n.y);
    cudaError_t e = cudaSuccess;
    if (!n.running_mean && rows > 0) {
        auto get = [=] __device__(size_t r, int c, double *out) {
            out[0] = (double)(float)x[r * (size_t)n.C + (size_t)c] - (double)(float)x[c];
            out[1] = out[0] * out[0];
        };
        /* What a mean loses when it is rounded is kept in an array that is not read any more: the
         * first of this column's sums of chunks. */
        auto take = [=] __device__(int c, const double *sums) {
            double left = sums[0] / (double)rows, var = sums[1] / (double)rows - left * left;
            double mean = (double)(float)x[c] + left;
            n.keep[c] = (float)mean;
            n.keep[n.C + c] = (float)(1 / sqrt((var < 0 ? 0 : var) + (double)n.eps));
            if (c < CUDA_SCRATCH)
                scratch[c] = mean - (double)n.keep[c];
        };
        e = sum_columns<2>(s, rows, n.C, get, take, scratch);
    }
    if (e != cudaSuccess)
        return e;
    return fours ? normed_by<V, 4>(s, a, scratch) : normed_by<V, 1>(s, a, scratch);
}

template <typename V, int N>
static cudaError_t normed_back_by(cudaStream_t s, const struct pp_batch_norm_backward_input *a)
{
    typedef struct several<V, N> lanes;
    struct pp_batch_norm_backward_input n = *a;
    const lanes *x = (const lanes *)n.x, *dy = (const lanes *)n.dy;
    lanes *dx = (lanes *)n.dx;
    size_t width = (size_t)n.P * (size_t)n.C / N, rows = (size_t)n.B * (size_t)n.P;
    return launch_rows(s, (size_t)n.B, width, [=] __device__(size_t r, int f) {
        size_t i = r * width + (size_t)f;
        lanes v = x[i], g = dy[i], to = n.add ? dx[i] : v;
        for (int k = 0; k < N; k++) {
            int c = f * N % n.C + k;
            float rstd = n.keep[n.C + c], xhat = (v.at[k] - n.keep[c]) * rstd;
            float mean = (n.sums[c] + xhat * n.sums[n.C + c]) / (float)rows;
            put(&to.at[k], n.add, n.gamma[c] * rstd * (g.at[k] - mean));
        }
        dx[i] = to;
    });
}

KERNEL(batch_norm_backward_input, pp_batch_norm_backward_input)
{
    struct pp_batch_norm_backward_input n = *a;
    const V *x = (const V *)n.x, *y = (const V *)n.y;
    V *dy = (V *)n.dy, *d_residual = (V *)n.d_residual;
    size_t rows = (size_t)n.B * (size_t)n.P;
    auto get = [=] __device__(size_t r, int c, double *out) {
        size_t i = r * (size_t)n.C + (size_t)c;
        out[0] = (double)(float)undo_relu<1>(y, dy, n.add_residual, d_residual, i, false).at[0];
        out[1] = out[0] * (double)((x[i] - n.keep[c]) * n.keep[n.C + c]);
    };
    auto take = [=] __device__(int c, const double *sums) {
        n.sums[c] = (float)sums[0];
        n.sums[n.C + c] = (float)sums[1];
    };
    cudaError_t e = sum_columns<2>(s, rows, n.C, get, take, scratch);
    if (e != cudaSuccess || !n.dx)
        return e;
    bool fours = goes_by_fours((size_t)n.C, x, dy, (const V *)n.dx);
    return fours ? normed_back_by<V, 4>(s, a) : normed_back_by<V, 1>(s, a);
}

static __device__ void add_to(float *to, bool adds, double more)
{
    *to = (float)((adds ? (double)*to : 0) + more);
}

/* Computes the weight gradients and the statistics of batch norms. A block has one norm, because
 * the number of terms may change only after all threads have read it. */
__global__ void batch_norm_sums(const __grid_constant__ struct cuda_norms all)
{
    const struct pp_batch_norm_backward_weight &w = all.at[blockIdx.x];
    double n = (double)w.B * w.P;
    bool adds = w.beta != 0;
    for (int c = (int)threadIdx.x; c < w.C; c += THREADS) {
        double mean = n > 0 ? (double)w.keep[c] : 0, rstd = n > 0 ? (double)w.keep[w.C + c] : 1;
        double var = 1 / (rstd * rstd) - (double)w.eps, old = adds ? (double)*w.stat_n : 0;
        double far = old > 0 && n > 0 ? mean - (double)w.stat_mean[c] / old : 0;
        double between = old > 0 ? far * far * old * n / (old + n) : 0;
        if (w.sums) {
            add_to(w.dgamma + c, adds, (double)w.sums[w.C + c]);
            add_to(w.dbeta + c, adds, (double)w.sums[c]);
        }
        add_to(w.stat_mean + c, adds, n * mean);
        add_to(w.stat_squares + c, adds, n * (var < 0 ? 0 : var) + between);
    }
    __syncthreads();
    if (threadIdx.x == 0)
        add_to(w.stat_n, adds, n);
}

extern "C" cudaError_t kernels_batch_norm_weights(cudaStream_t s, const struct cuda_norms *all)
{
    if (all->n == 0)
        return cudaSuccess;
    return PP_LAUNCHED(batch_norm_sums, (unsigned)all->n, THREADS, 0, s, *all);
}

KERNEL(batch_norm_spread, pp_batch_norm_spread)
{
    struct pp_batch_norm_spread t = *a;
    return launch_rows(s, 1, (size_t)t.C, [=] __device__(size_t, int c) {
        double n = (double)t.own[t.C], all = (double)*t.stat_n;
        double far = n > 0 ? (double)t.own[c] / n - (double)t.stat_mean[c] / all : 0;
        t.own[c] = (float)(n * far * far);
    });
}

__global__ void batch_norm_statistics(const __grid_constant__ struct cuda_commits all)
{
    const struct pp_batch_norm_commit &t = all.at[blockIdx.x];
    double n = (double)*t.stat_n, momentum = (double)t.momentum;
    if (*t.skip || n == 0)
        return;
    if (threadIdx.x == 0)
        *t.tracked += 1.0f;
    for (int c = (int)threadIdx.x; c < t.C; c += THREADS) {
        double mean = (double)t.stat_mean[c] / n;
        double var = (double)t.stat_squares[c] / (n > 1 ? n - 1 : 1);
        if (!(mean - mean == 0 && var - var == 0)) /* not finite */
            continue;
        t.running_mean[c] += (float)(momentum * (mean - (double)t.running_mean[c]));
        t.running_var[c] += (float)(momentum * (var - (double)t.running_var[c]));
    }
}

extern "C" cudaError_t kernels_batch_norm_commits(cudaStream_t s, const struct cuda_commits *all)
{
    if (all->n == 0)
        return cudaSuccess;
    return PP_LAUNCHED(batch_norm_statistics, (unsigned)all->n, THREADS, 0, s, *all);
}
