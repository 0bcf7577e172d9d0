/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax, cross-entropy and its gradient: a warp has a row, which it reads twice. The losses of
 * the rows are summed by halves, in an order that depends on their number only: up to
 * ROWS_OF_A_BLOCK rows in the same block, more of them by a second kernel.
 */
#include "kernels.h"
#include "vector.h"

#include <math.h>

#define ROWS_OF_A_BLOCK 256
#define CLASSES_OF_A_BLOCK                                                                         \
    1024                  /* with more rows, one multiprocessor takes longer than a second launch */
#define LOSS_THREADS 1024 /* of the single block: as many rows at once as it can have */

/* Returns whether candidate (x, at) for the arg max is better than candidate (than, than_at):
 * larger, or equal with a lower index. An index of -1 means that there is no candidate yet. */
static __device__ bool is_better(float x, int at, float than, int than_at)
{
    if (at < 0 || than_at < 0)
        return at >= 0;
    return x > than || (x == than && at < than_at);
}

/* Stands for a row without a target, for add_rows(). */
#define IGNORED (-1)

/* A row is read in groups of WARP * N elements, of which lane `lane` has N: adjacent ones if rows
 * are a multiple of N apart, so that one access reads them all, else every WARP-th. What such an
 * access reads beyond the row does not count, and zeros are written there. */
template <typename V> struct row_groups {
    static constexpr int N = 16 / sizeof(V);
    int C, lane;
    bool even, wide;

    __device__ int at(int from, int k) const
    {
        return from + (even ? lane * N + k : k * WARP + lane);
    }
    __device__ void read(const V *x, int from, float *v) const
    {
        if (wide && at(from, 0) < C) {
            struct several<V, N> all = values_at<N>(x + at(from, 0), true);
            for (int k = 0; k < N; k++)
                v[k] = all.at[k];
        }
        for (int k = 0; k < N && !wide; k++)
            v[k] = at(from, k) < C ? (float)x[at(from, k)] : 0.0f;
    }
    __device__ void write(V *d, int from, const float *v) const
    {
        struct several<V, N> all;
        for (int k = 0; k < N; k++)
            all.at[k] = at(from, k) < C ? v[k] : 0.0f;
        if (wide && at(from, 0) < C)
            put_values<N>(d + at(from, 0), true, all);
        for (int k = 0; k < N && !wide; k++)
            if (at(from, k) < C)
                d[at(from, k)] = all.at[k];
    }
};

/* What a lane knows of a row: the largest element that is a number, its index (-1: none), the sum
 * of exp(element - largest), and the sum of the elements. */
struct seen {
    float most;
    int best;
    double sum, all;
};

/* Adds the elements v of a group to what the lane knows of the row. A NaN makes the sum NaN. */
template <typename V>
static __device__ void see_group(const struct row_groups<V> &g, int from, const float *v,
                                 struct seen *s)
{
    float before = s->most;
    bool some = s->best >= 0;
    for (int k = 0; k < g.N; k++) {
        int c = g.at(from, k);
        if (c < g.C && v[k] == v[k] && is_better(v[k], c, s->most, s->best)) {
            s->most = v[k];
            s->best = c;
        }
    }
    if (some && s->most > before)
        s->sum *= (double)expf(before - s->most);
    for (int k = 0; k < g.N; k++) {
        if (g.at(from, k) < g.C) {
            s->sum += v[k] == s->most ? 1.0 : (double)expf(v[k] - s->most);
            s->all += (double)v[k];
        }
    }
}

/* Merges what the lanes know into what is known of the whole row, in every lane. If all elements
 * are infinite the sum is NaN. Comparisons with a NaN are false, so, as in a loop, a NaN is the arg
 * max only if its index is 0. */
static __device__ void merge_lanes(float first, int C, struct seen *s)
{
    float mine = s->most;
    bool some = s->best >= 0;
    for (int half = WARP / 2; half > 0; half /= 2) {
        float v = __shfl_xor_sync(ALL, s->most, half);
        int at = __shfl_xor_sync(ALL, s->best, half);
        if (is_better(v, at, s->most, s->best)) {
            s->most = v;
            s->best = at;
        }
    }
    if (s->best < 0 || first != first) {
        s->best = 0;
        s->most = first;
    }
    s->sum = warp_sum(some ? s->sum * (double)expf(mine - s->most) : s->sum);
    s->all = warp_sum(s->all) - (double)C * (double)s->most;
}

/* What the softmax of a row is compared with. */
struct aim {
    float smoothing;
    const float *weights; /* [C]; NULL: all are 1 */
};

/* Returns the sum of the weighted differences of the row to its largest element, and sets *total to
 * the sum of the weights, in every lane. */
template <typename V>
static __device__ double sum_weighted(int C, const V *x, float most, const float *weights,
                                      double *total)
{
    double all = 0, sum = 0;
    for (int c = (int)(threadIdx.x % WARP); c < C; c += WARP) {
        sum += (double)weights[c];
        all += (double)weights[c] * ((double)(float)x[c] - (double)most);
    }
    *total = warp_sum(sum);
    return warp_sum(all);
}

/* Computes one row with a whole warp. Returns the loss, and sets *hit to whether the arg max is the
 * target, in every lane; *hit is IGNORED if the row has no target. Reads the row twice: once for
 * the sum of exponentials, whose largest element is known only at the end, and once for the
 * gradient. Each lane overwrites only elements that it has read itself. even: rows are a multiple
 * of N apart. wide: x and d are aligned to 16 bytes. */
template <typename V>
static __device__ double row_loss(int C, bool even, const V *x, int label, float grad_scale,
                                  struct aim aim, V *d, bool wide, int *hit)
{
    constexpr int N = row_groups<V>::N, GROUP = WARP * N;
    struct row_groups<V> g = {
        C, (int)(threadIdx.x % WARP), even, even &&wide
    };
    float v[N] = {};
    *hit = IGNORED;
    for (int from = 0; label < 0 && d && from < C; from += GROUP)
        g.write(d, from, v);
    if (label < 0)
        return 0;
    struct seen s = {0.0f, -1, 0, 0};
    float at_label = nanf(""); /* a label that is not a class shows as NaN */
    for (int from = 0; from < C; from += GROUP) {
        g.read(x, from, v);
        see_group(g, from, v, &s);
        for (int k = 0; k < N; k++)
            at_label = g.at(from, k) == label && label < C ? v[k] : at_label;
    }
    at_label = __shfl_sync(ALL, at_label, even ? label % GROUP / N : label % WARP);
    merge_lanes(x[0], C, &s);
    const float *weights = aim.weights;
    double rest = aim.smoothing, at_one = 1 - rest, whole = 1;
    if (weights) {
        s.all = sum_weighted(C, x, s.most, weights, &whole);
        at_one *= label < C ? (double)weights[label] : 0;
        whole = at_one + rest / C * whole;
    }
    if (d) {
        float scale = (float)((double)grad_scale * whole / s.sum);
        float other = (float)(grad_scale * rest / C), one = (float)(grad_scale * at_one);
        for (int from = 0; from < C; from += GROUP) {
            g.read(x, from, v);
            for (int k = 0; k < N && !weights; k++)
                v[k] = expf(v[k] - s.most) * scale - (g.at(from, k) == label ? one + other : other);
            for (int k = 0; k < N && weights; k++) {
                int c = g.at(from, k);
                float w = c < C ? weights[c] : 0;
                v[k] = expf(v[k] - s.most) * scale - other * w - (c == label ? one : 0);
            }
            g.write(d, from, v);
        }
    }
    *hit = s.best == label;
    double smooth = rest > 0 ? rest / C * s.all : 0;
    return whole * log(s.sum) - (at_one * ((double)at_label - (double)s.most) + smooth);
}

/* Adds the losses of n rows, which belong to B samples, to *sums. Every thread of one block calls
 * it. */
static __device__ void add_rows(int B, int n, const double *losses, const int *hits,
                                const int32_t *targets, const float *weights,
                                struct pp_loss_sums *sums)
{
    __shared__ double loss[LOSS_THREADS], weight[LOSS_THREADS];
    __shared__ int hit[LOSS_THREADS], ignored[LOSS_THREADS];
    int t = (int)threadIdx.x;
    loss[t] = 0;
    weight[t] = 0;
    hit[t] = 0;
    ignored[t] = 0;
    for (int r = t; r < n; r += LOSS_THREADS) {
        loss[t] += losses[r];
        if (weights && hits[r] != IGNORED)
            weight[t] += (double)weights[targets[r]];
        hit[t] += hits[r] == IGNORED ? 0 : hits[r];
        ignored[t] += hits[r] == IGNORED;
    }
    for (int half = LOSS_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) {
            loss[t] += loss[t + half];
            weight[t] += weight[t + half];
            hit[t] += hit[t + half];
            ignored[t] += ignored[t + half];
        }
    }
    if (t == 0) {
        sums->loss += loss[0];
        sums->correct += hit[0];
        sums->rows += B;
        sums->targets += n - ignored[0];
        sums->weight += weights ? weight[0] : (double)(n - ignored[0]);
    }
}

/* Computes the loss and the hit of row r with a whole warp, for add_rows(). */
template <typename V>
static __device__ void loss_of_row(int r, int C, int row, const V *logits, const int32_t *targets,
                                   float grad_scale, struct aim aim, double *losses, int *hits,
                                   V *dlogits)
{
    size_t at = (size_t)r * (size_t)row;
    int hit;
    bool even = row % row_groups<V>::N == 0;
    bool wide = ((uintptr_t)logits | (uintptr_t)dlogits) % 16 == 0;
    double loss = row_loss(C, even, logits + at, targets[r], grad_scale, aim,
                           dlogits ? dlogits + at : NULL, wide, &hit);
    if (threadIdx.x % WARP == 0) {
        losses[r] = loss;
        hits[r] = hit;
    }
}

template <typename V>
__global__ void __launch_bounds__(LOSS_THREADS)
    loss_of_a_block(int B, int n, int C, int row, const V *logits, const int32_t *targets,
                    float grad_scale, const float *scale, struct aim aim, struct pp_loss_sums *sums,
                    V *dlogits)
{
    __shared__ double losses[ROWS_OF_A_BLOCK];
    __shared__ int hits[ROWS_OF_A_BLOCK];
    grad_scale = scale ? *scale : grad_scale;
    for (int r = (int)(threadIdx.x / WARP); r < n; r += LOSS_THREADS / WARP)
        loss_of_row(r, C, row, logits, targets, grad_scale, aim, losses, hits, dlogits);
    __syncthreads();
    add_rows(B, n, losses, hits, targets, aim.weights, sums);
}

template <typename V>
__global__ void loss_of_rows(int n, int C, int row, const V *logits, const int32_t *targets,
                             float grad_scale, const float *scale, struct aim aim, double *losses,
                             int *hits, V *dlogits)
{
    int r = (int)(blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP);
    if (r < n) /* true for the whole warp, or for none of it */
        loss_of_row(r, C, row, logits, targets, scale ? *scale : grad_scale, aim, losses, hits,
                    dlogits);
}

__global__ void __launch_bounds__(LOSS_THREADS)
    sum_rows(int B, int n, const double *losses, const int *hits, const int32_t *targets,
             const float *weights, struct pp_loss_sums *sums)
{
    add_rows(B, n, losses, hits, targets, weights, sums);
}

KERNEL(softmax_cross_entropy, pp_softmax_cross_entropy)
{
    int n = a->B * a->P, samples = a->B - a->uncounted, most = CUDA_SCRATCH / 2;
    int row = a->row > 0 ? a->row : a->C;
    double *losses = scratch;
    int *hits = (int *)(losses + most);
    const V *logits = (const V *)a->logits;
    V *dlogits = (V *)a->dlogits;
    const struct aim aim = {a->smoothing, a->weights};
    cudaError_t e = cudaSuccess;
    if (n > 0 && n <= ROWS_OF_A_BLOCK && a->C <= CLASSES_OF_A_BLOCK) {
        PP_LAUNCH(loss_of_a_block<V>, 1, LOSS_THREADS, 0, s, samples, n, a->C, row, logits,
                  a->targets, a->grad_scale, a->scale, aim, a->sums, dlogits);
        return cudaGetLastError();
    }
    for (int from = 0; e == cudaSuccess && from < n; from += most) {
        int rows = n - from < most ? n - from : most;
        size_t at = (size_t)from * (size_t)row;
        PP_LAUNCH(loss_of_rows<V>, ((unsigned)rows + THREADS / WARP - 1) / (THREADS / WARP),
                  THREADS, 0, s, rows, a->C, row, logits + at, a->targets + from, a->grad_scale,
                  a->scale, aim, losses, hits, dlogits ? dlogits + at : NULL);
        e = cudaGetLastError();
        if (e == cudaSuccess) {
            PP_LAUNCH(sum_rows, 1, LOSS_THREADS, 0, s, from == 0 ? samples : 0, rows, losses, hits,
                      a->targets + from, a->weights, a->sums);
            e = cudaGetLastError();
        }
    }
    return e;
}

/* ---- numbers */

#define NUMBERS_THREADS 256
#define NUMBERS_OF_A_BLOCK 4096 /* outputs */

/* The sums of some outputs. */
struct number_sums {
    double of[5]; /* losses, squared and absolute errors, targets and their squares */
    int correct;
};

/* Adds output y and target t, and returns the derivative of the loss. */
static __device__ float add_number(enum pp_loss_kind kind, float y, float t, struct number_sums *s)
{
    float e = y - t, size = fabsf(e), slope = 2 * e;
    float side = e > 0 ? 1.0f : e < 0 ? -1.0f : e; /* NaN stays */
    double d = (double)y - (double)t, loss = d * d;
    if (kind == PP_LOSS_MAE || (kind == PP_LOSS_HUBER && size > 1)) {
        loss = fabs(d) - (kind == PP_LOSS_HUBER ? 0.5 : 0);
        slope = side;
    } else if (kind == PP_LOSS_HUBER) {
        loss = d * d / 2;
        slope = e;
    } else if (kind == PP_LOSS_BCE) {
        float small = expf(-fabsf(y)); /* log(1 + exp(y)) = max(y, 0) + log(1 + exp(-|y|)) */
        loss = (y < 0 ? 0 : (double)y) - (double)y * (double)t + log1p(exp(-fabs((double)y)));
        slope = (y < 0 ? small : 1.0f) / (1.0f + small) - t;
    }
    s->of[0] += loss;
    s->of[1] += d * d;
    s->of[2] += fabs(d);
    s->of[3] += (double)t;
    s->of[4] += (double)t * (double)t;
    s->correct += kind == PP_LOSS_BCE && (y > 0) == (t > 0.5f);
    return slope;
}

/* Adds up the sums of a block's threads, in an order that depends on their number only; thread 0
 * gets the result. */
static __device__ void add_threads(struct number_sums *s)
{
    __shared__ struct number_sums part[NUMBERS_THREADS];
    int t = (int)threadIdx.x;
    part[t] = *s;
    for (int half = NUMBERS_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) {
            for (int i = 0; i < 5; i++)
                part[t].of[i] += part[t + half].of[i];
            part[t].correct += part[t + half].correct;
        }
    }
    *s = part[t];
}

static __device__ void put_sums(int B, int C, const struct number_sums *s,
                                struct pp_loss_sums *sums)
{
    sums->loss += s->of[0];
    sums->squares += s->of[1];
    sums->absolutes += s->of[2];
    sums->sum += s->of[3];
    sums->sum_squares += s->of[4];
    sums->correct += s->correct;
    sums->rows += B;
    sums->targets += (int64_t)B * C;
    sums->weight += (double)B * C;
}

/* Computes NUMBERS_OF_A_BLOCK outputs. A single block adds to *sums, others leave their sums in
 * parts. */
template <typename V>
__global__ void numbers_of_blocks(int B, int C, int row, enum pp_loss_kind kind, const V *outputs,
                                  const float *targets, float grad_scale, V *doutputs,
                                  struct number_sums *parts, struct pp_loss_sums *sums)
{
    size_t n = (size_t)B * (size_t)C, first = (size_t)blockIdx.x * NUMBERS_OF_A_BLOCK;
    size_t end = first + NUMBERS_OF_A_BLOCK < n ? first + NUMBERS_OF_A_BLOCK : n;
    struct number_sums s = {};
    for (size_t i = first + threadIdx.x; i < end; i += NUMBERS_THREADS) {
        size_t at = i / (size_t)C * (size_t)row + i % (size_t)C;
        float slope = add_number(kind, (float)outputs[at], targets[i], &s);
        if (doutputs)
            doutputs[at] = slope * grad_scale;
    }
    add_threads(&s);
    if (threadIdx.x == 0 && parts)
        parts[blockIdx.x] = s;
    else if (threadIdx.x == 0)
        put_sums(B, C, &s, sums);
}

__global__ void sum_numbers(int B, int C, int n, const struct number_sums *parts,
                            struct pp_loss_sums *sums)
{
    struct number_sums s = {};
    for (int p = (int)threadIdx.x; p < n; p += NUMBERS_THREADS) {
        for (int i = 0; i < 5; i++)
            s.of[i] += parts[p].of[i];
        s.correct += parts[p].correct;
    }
    add_threads(&s);
    if (threadIdx.x == 0)
        put_sums(B, C, &s, sums);
}

KERNEL(numbers_loss, pp_numbers_loss)
{
    size_t n = (size_t)a->B * (size_t)a->C;
    unsigned blocks = (unsigned)((n + NUMBERS_OF_A_BLOCK - 1) / NUMBERS_OF_A_BLOCK);
    int row = a->row > 0 ? a->row : a->C;
    struct number_sums *parts = blocks > 1 ? (struct number_sums *)scratch : NULL;
    if (n == 0)
        return cudaSuccess;
    if (blocks * sizeof(*parts) > CUDA_SCRATCH * sizeof(double))
        return cudaErrorInvalidValue;
    PP_LAUNCH(numbers_of_blocks<V>, blocks, NUMBERS_THREADS, 0, s, a->B, a->C, row, a->kind,
              (const V *)a->outputs, a->targets, a->grad_scale, (V *)a->doutputs, parts, a->sums);
    cudaError_t e = cudaGetLastError();
    if (e == cudaSuccess && parts)
        e = PP_LAUNCHED(sum_numbers, 1, NUMBERS_THREADS, 0, s, a->B, a->C, (int)blocks, parts,
                        a->sums);
    return e;
}
