/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of transformers other than attention and norms: embedding, rotary, gates; and dropout. */
#include "columns.h"

#include "../numbers.h"
#include "activations.h"

#include <math.h>

/* ---- embedding */

/* Computes the embedding of each row: that of its token plus that of its position. A block has one
 * row. */
template <typename V>
__global__ void look_up(int T, int tokens, int C, int first, const float *x, const float *W,
                        const float *P, V *y)
{
    size_t r = blockIdx.x, columns = (size_t)C;
    int token = token_row(x[r], tokens);
    const float *word = W + (token < 0 ? 0 : (size_t)token) * columns;
    const float *place = P ? P + ((size_t)first + r % (size_t)T) * columns : NULL;
    for (size_t c = threadIdx.x; c < columns; c += blockDim.x)
        y[r * columns + c] = (token < 0 ? nanf("") : word[c]) + (place ? place[c] : 0.0f);
}

KERNEL(embedding_forward, pp_embedding_forward)
{
    if (a->B == 0)
        return cudaSuccess;
    return PP_LAUNCHED(look_up<V>, (unsigned)a->B * (unsigned)a->T, a->C < 128 ? 64 : 128, 0, s,
                       a->T, a->V, a->C, a->first, a->x, a->W, a->P, (V *)a->y);
}

/* Rows sorted by their token, and in their own order for each token. Needs [V + rows + least(V,
 * rows) + 2] of scratch. */
struct sorted {
    int rows, tokens, C;
    int *begins; /* for each token, the place of its first row in `order` */
    int *order;  /* [rows] */
    int *lists;  /* the tokens that occur, ascending */
    int *counts; /* the number of lists, and of rows in them */
};

#define SORTERS 1024 /* threads of the one block that counts */

/* Returns the sum of the values of this lane and all lower lanes of the warp. */
static __device__ int sum_to_lane(int v, int lane)
{
    for (int far = 1; far < WARP; far *= 2) {
        int more = __shfl_sync(ALL, v, lane >= far ? lane - far : lane);
        v += lane >= far ? more : 0;
    }
    return v;
}

/* Makes all of `sorted` except `order`: counts the rows of each token. A warp has a range of
 * tokens. */
__global__ void __launch_bounds__(SORTERS) count_tokens(const struct sorted s, const float *x)
{
    __shared__ int sums[2][SORTERS / WARP];
    int lane = (int)(threadIdx.x % WARP), warp = (int)(threadIdx.x / WARP), row = 0, list = 0;
    int each = (s.tokens + SORTERS - 1) / SORTERS * WARP, first = warp * each;
    int past = first + each < s.tokens ? first + each : s.tokens;
    for (int k = (int)threadIdx.x; k < s.tokens; k += SORTERS)
        s.begins[k] = 0;
    __syncthreads();
    for (int r = (int)threadIdx.x; r < s.rows; r += SORTERS)
        if (token_row(x[r], s.tokens) >= 0)
            atomicAdd((unsigned *)&s.begins[token_row(x[r], s.tokens)], 1u);
    __syncthreads();
    for (int k = first + lane; k < past; k += WARP) {
        row += s.begins[k];
        list += s.begins[k] > 0;
    }
    row = warp_sum(row);
    list = warp_sum(list);
    if (lane == 0) {
        sums[0][warp] = row;
        sums[1][warp] = list;
    }
    __syncthreads();
    row = list = 0;
    for (int w = 0; w < warp; w++) {
        row += sums[0][w];
        list += sums[1][w];
    }
    for (int from = first; from < past; from += WARP) {
        int k = from + lane, n = k < past ? s.begins[k] : 0, to = sum_to_lane(n, lane);
        unsigned there = __ballot_sync(ALL, n > 0);
        if (k < past)
            s.begins[k] = row + to - n;
        if (n > 0)
            s.lists[list + __popc(there & ((1u << lane) - 1))] = k;
        row += __shfl_sync(ALL, to, WARP - 1);
        list += __popc(there);
    }
    if (threadIdx.x == SORTERS - 1) {
        s.counts[0] = list;
        s.counts[1] = row;
    }
}

/* Makes `order`. A block has WARP rows; each of its warps counts, in a part of the rows before
 * them, the rows with the same token. */
__global__ void order_rows(const struct sorted s, const float *x)
{
    __shared__ int tokens[THREADS], sums[THREADS / WARP][WARP];
    int lane = (int)(threadIdx.x % WARP), warp = (int)(threadIdx.x / WARP);
    int own = (int)blockIdx.x * WARP, r = own + lane, before = 0;
    int token = r < s.rows ? token_row(x[r], s.tokens) : -1;
    for (int from = 0; from < own + WARP; from += THREADS) {
        int i = from + (int)threadIdx.x, at = from + warp * WARP;
        int mine = i < s.rows ? token_row(x[i], s.tokens) : -1;
        __syncthreads(); /* all threads have read the last ones */
        tokens[threadIdx.x] = mine;
        __syncthreads();
        int seen = at < own ? WARP : r - at;
        for (int k = 0; k < WARP; k++)
            before += k < seen && tokens[warp * WARP + k] == token;
    }
    sums[warp][lane] = before;
    __syncthreads();
    if (warp > 0 || token < 0)
        return;
    for (int w = 1; w < THREADS / WARP; w++)
        before += sums[w][lane];
    s.order[s.begins[token] + before] = r;
}

/* Adds the gradients of all rows of a token to its row of dW. Block x has a token, and blocks y
 * share its columns. */
template <typename V> __global__ void add_lists(const struct sorted s, const V *dy, float *dW)
{
    int list = (int)blockIdx.x, C = s.C;
    if (list >= s.counts[0])
        return;
    float *to = dW + (size_t)s.lists[list] * (size_t)C;
    size_t from = (size_t)s.begins[s.lists[list]];
    size_t end = (size_t)(list + 1 < s.counts[0] ? s.begins[s.lists[list + 1]] : s.counts[1]);
    auto get = [&](size_t i, int c, double *out) {
        *out = (double)(float)dy[(size_t)s.order[i] * (size_t)C + (size_t)c];
    };
    for (int at = (int)blockIdx.y * COLUMNS; at < C; at += (int)gridDim.y * COLUMNS) {
        int c = at + (int)threadIdx.x;
        double sum = 0;
        sum_lanes<1>(from, end, c, C, get, &sum);
        if (threadIdx.y == 0 && c < C)
            to[c] = (float)((double)to[c] + sum);
        __syncthreads();
    }
}

template <typename V>
static cudaError_t add_sorted(cudaStream_t s, const struct pp_embedding_backward_weight *a,
                              const struct sorted &sorted)
{
    int lists = a->V < sorted.rows ? a->V : sorted.rows, tiles = (a->C + COLUMNS - 1) / COLUMNS;
    int y = 16384 / lists < tiles ? 16384 / lists : tiles;
    PP_LAUNCH(count_tokens, 1, SORTERS, 0, s, sorted, a->x);
    PP_LAUNCH(order_rows, (unsigned)(sorted.rows + WARP - 1) / WARP, THREADS, 0, s, sorted, a->x);
    return PP_LAUNCHED(add_lists<V>, dim3((unsigned)lists, (unsigned)(y > 0 ? y : 1)),
                       dim3(COLUMNS, LANES), 0, s, sorted, (const V *)a->dy, a->dW);
}

/* Adds gradients as add_lists() does, if the scratch is too small for sorted rows. A block has one
 * row of dy. The block of a token's first row adds up all rows of the token in order: it searches
 * THREADS rows at a time, lists those of the token, and each thread adds its columns of them. */
template <typename V>
__global__ void add_tokens(int rows, int tokens, int C, const float *x, const V *dy, float *dW)
{
    __shared__ int found[THREADS], counts[THREADS / WARP];
    int r = (int)blockIdx.x, t = (int)threadIdx.x, warp = t / WARP, token = token_row(x[r], tokens);
    if (token < 0)
        return;
    for (int from = 0; from < r; from += THREADS)
        if (__syncthreads_or(from + t < r && token_row(x[from + t], tokens) == token))
            return;
    float *sums = dW + (size_t)token * (size_t)C;
    for (int from = r; from < rows; from += THREADS) {
        int i = from + t, before = 0, all = 0;
        bool hit = i < rows && token_row(x[i], tokens) == token;
        unsigned hits = __ballot_sync(ALL, hit);
        if (t % WARP == 0)
            counts[warp] = __popc(hits);
        __syncthreads();
        for (int w = 0; w < THREADS / WARP; w++) {
            before += w < warp ? counts[w] : 0;
            all += counts[w];
        }
        if (hit)
            found[before + __popc(hits & ((1u << t % WARP) - 1))] = i;
        __syncthreads();
        for (int c = t; c < C && all > 0; c += THREADS) {
            float sum = sums[c];
            for (int k = 0; k < all; k++)
                sum += dy[(size_t)found[k] * (size_t)C + (size_t)c];
            sums[c] = sum;
        }
        __syncthreads();
    }
}

KERNEL(embedding_backward_weight, pp_embedding_backward_weight)
{
    size_t positions = (size_t)a->T * (size_t)a->C;
    cudaError_t e = cudaSuccess;
    if (a->beta == 0)
        e = cudaMemsetAsync(a->dW, 0, (size_t)a->V * (size_t)a->C * sizeof(*a->dW), s);
    int rows = a->B * a->T, *ints = (int *)scratch;
    struct sorted sorted = {rows, a->V, a->C, ints + 2, ints + 2 + a->V, ints + 2 + a->V + rows,
                            ints};
    bool fits =
        (size_t)a->V + 2 * (size_t)rows + 2 <= CUDA_SCRATCH * sizeof(*scratch) / sizeof(*ints);
    if (e == cudaSuccess && rows > 0 && fits) {
        e = add_sorted<V>(s, a, sorted);
    } else if (e == cudaSuccess && rows > 0) {
        e = PP_LAUNCHED(add_tokens<V>, (unsigned)rows, THREADS, 0, s, rows, a->V, a->C, a->x,
                        (const V *)a->dy, a->dW);
    }
    if (e == cudaSuccess && a->padding > 0)
        e = cudaMemsetAsync(a->dW + (size_t)(a->padding - 1) * (size_t)a->C, 0,
                            (size_t)a->C * sizeof(*a->dW), s);
    if (e != cudaSuccess || !a->dP)
        return e;
    struct pp_embedding_backward_weight w = *a;
    const V *dy = (const V *)w.dy;
    return launch_each(s, positions,
                       [=] __device__(size_t i) { /* over all samples, in order */
                                                  float sum = w.beta != 0.0f ? w.dP[i] : 0.0f;
                                                  for (size_t b = 0; b < (size_t)w.B; b++)
                                                      sum += dy[b * positions + i];
                                                  w.dP[i] = sum;
                       });
}

/* ---- rotary */

/* Rotates pairs of elements. Block x has a position, whose angles it computes once for all samples
 * and heads; blocks y share the samples. The angles are in double, because a float would lose the
 * difference between far positions. */
template <typename V> __global__ void turn(struct pp_rotary a)
{
    const V *from = (const V *)a.x;
    V *to = (V *)a.y;
    int t = (int)blockIdx.x, half = a.width / 2, turned = a.heads * a.width;
    for (int j = (int)threadIdx.x; j < half; j += (int)blockDim.x) {
        double angle = (a.first + t) * rope_step(&a, j);
        float c = (float)cos(angle), s = (float)(a.back ? -sin(angle) : sin(angle));
        for (int b = (int)blockIdx.y; b < a.B; b += (int)gridDim.y) {
            size_t at = ((size_t)b * (size_t)a.T + (size_t)t) * (size_t)a.C + (size_t)j;
            for (int h = 0; h < a.heads; h++, at += (size_t)a.width) {
                float x = from[at], other = from[at + (size_t)half];
                put(to + at, a.add, x * c - other * s);
                put(to + at + half, a.add, other * c + x * s);
            }
        }
    }
    for (int b = (int)blockIdx.y; b < a.B; b += (int)gridDim.y) {
        size_t at = ((size_t)b * (size_t)a.T + (size_t)t) * (size_t)a.C;
        for (int k = turned + (int)threadIdx.x; k < a.C; k += (int)blockDim.x)
            put(to + at + k, a.add, from[at + (size_t)k]);
    }
}

KERNEL(rotary, pp_rotary)
{
    if (a->B == 0)
        return cudaSuccess;
    return PP_LAUNCHED(turn<V>, dim3((unsigned)a->T, (unsigned)(a->B < 32 ? a->B : 32)),
                       a->width > 64 ? 128 : 32, 0, s, *a);
}

/* ---- gates */

template <typename V, int N> static cudaError_t gates_by(cudaStream_t s, const struct pp_gated *a)
{
    typedef struct several<V, N> lanes;
    size_t width = (size_t)a->F / N;
    const lanes *x = (const lanes *)a->x;
    lanes *y = (lanes *)a->y;
    return launch_rows(s, (size_t)a->B, width, [=] __device__(size_t r, int f) {
        lanes gate = x[r * 2 * width + (size_t)f], up = x[(r * 2 + 1) * width + (size_t)f];
        for (int k = 0; k < N; k++)
            gate.at[k] = silu_value(gate.at[k]) * up.at[k];
        y[r * width + (size_t)f] = gate;
    });
}

KERNEL(gated_forward, pp_gated)
{
    bool fours = goes_by_fours((size_t)a->F, (const V *)a->x, (const V *)a->y);
    return fours ? gates_by<V, 4>(s, a) : gates_by<V, 1>(s, a);
}

template <typename V, int N>
static cudaError_t gates_back_by(cudaStream_t s, const struct pp_gated_backward *a)
{
    typedef struct several<V, N> lanes;
    size_t width = (size_t)a->F / N;
    const lanes *x = (const lanes *)a->x, *dy = (const lanes *)a->dy;
    lanes *dx = (lanes *)a->dx;
    bool add = a->add;
    return launch_rows(s, (size_t)a->B, width, [=] __device__(size_t r, int f) {
        size_t at = r * 2 * width + (size_t)f;
        lanes gate = x[at], up = x[at + width], d = dy[r * width + (size_t)f];
        lanes d_gate = add ? dx[at] : gate, d_up = add ? dx[at + width] : up;
        for (int k = 0; k < N; k++) {
            put(&d_gate.at[k], add, silu_back(gate.at[k], d.at[k] * up.at[k]));
            put(&d_up.at[k], add, d.at[k] * silu_value(gate.at[k]));
        }
        dx[at] = d_gate;
        dx[at + width] = d_up;
    });
}

KERNEL(gated_backward, pp_gated_backward)
{
    bool fours = goes_by_fours((size_t)a->F, (const V *)a->x, (const V *)a->dy, (const V *)a->dx);
    return fours ? gates_back_by<V, 4>(s, a) : gates_back_by<V, 1>(s, a);
}

/* ---- dropout */

template <typename V, int N>
static cudaError_t dropout_by(cudaStream_t s, const struct pp_dropout *a)
{
    typedef struct several<V, N> lanes;
    struct pp_dropout d = *a;
    size_t width = d.F / N;
    const lanes *x = (const lanes *)d.x;
    lanes *y = (lanes *)d.y;
    uint32_t limit = dropout_limit(d.p);
    float scale = (float)(1 / (1 - (double)d.p));
    return launch_rows(s, (size_t)d.B, width, [=] __device__(size_t r, int f) {
        uint64_t of = dropout_row(d.key, *d.step, d.first_row + (uint32_t)r);
        size_t at = r * width + (size_t)f;
        lanes v = x[at], to = d.add ? y[at] : v;
        for (int k = 0; k < N; k++) {
            bool drops = dropout_number(of, (uint32_t)(f * N + k)) < limit;
            put(&to.at[k], d.add, v.at[k] * (drops ? 0.0f : scale));
        }
        y[at] = to;
    });
}

KERNEL(dropout, pp_dropout)
{
    bool fours = goes_by_fours(a->F, (const V *)a->x, (const V *)a->y);
    return fours ? dropout_by<V, 4>(s, a) : dropout_by<V, 1>(s, a);
}
