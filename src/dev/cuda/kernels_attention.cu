/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention in blocks of TILE queries and TILE keys, whose scores never go to memory. 16 x 16
 * threads compute a tile: thread (x, y) has the scores of rows y + 16 i with columns x + 16 j. Of a
 * sum over keys or queries it has rows y + 16 i and columns 4 x .. 4 x + 3 of COLUMNS columns of a
 * head's width; a wider head takes more blocks, which compute the scores again. One thread makes
 * every sum, in order, so no bit depends on when a block runs. The backward pass computes
 * probabilities from the forward pass's logarithms of sums: by blocks of queries for dq, and by
 * blocks of keys for dk and dv. Sums use fused multiply-add in float. For bf16 and tf32 these
 * kernels compute only what mma_attention_fits() refuses, such as heads of more than 128.
 */
#include "attention_call.h"

#define TILE 64
#define SIDE 16            /* threads of a block: SIDE x SIDE */
#define EACH (TILE / SIDE) /* rows, and columns, of a thread */
#define TWO_BLOCKS                                                                                 \
    __launch_bounds__(SIDE *SIDE, 2) /* leave each block half the registers of a
                                                       multiprocessor */
/* of a product's factors that are loaded at a time */
#define DEPTH 32
#define COLUMNS TILE
#define LINE (DEPTH + 4) /* floats of a line of a tile: eight threads read eight lines at once */
#define WIDE (TILE + 4)

/* Two factors, or one of COLUMNS columns; never both at the same time. */
union factors {
    struct {
        struct float4_ left[TILE][LINE / 4], right[TILE][LINE / 4];
    };
    struct float4_ wide[TILE][WIDE / 4];
};

typedef float tile[EACH][EACH];

/* Loads rows from .. from + TILE - 1 and columns c .. c + n - 1 of x[rows][width] into to[TILE][n],
 * with 0 outside x. n is a multiple of 4; a line of `to` has `line` groups of four. */
template <typename V>
static __device__ void load_lines(const V *x, size_t step, int from, int rows, int c, int width,
                                  int n, int line, struct float4_ *to)
{
    typedef struct several<V, 4> four;
    int fours = n / 4;
    bool whole = width % 4 == 0 && step % 4 == 0 && (size_t)x % sizeof(four) == 0;
    for (int k = (int)threadIdx.x; k < TILE * fours; k += SIDE * SIDE) {
        int r = k / fours, f = k % fours, at = c + 4 * f;
        struct float4_ v = {{0.0f, 0.0f, 0.0f, 0.0f}};
        const V *p = x + (size_t)(from + r) * step + (size_t)at;
        if (from + r < rows && whole && at < width) {
            four all = *(const four *)p;
            for (int e = 0; e < 4; e++)
                v.at[e] = all.at[e];
        } else {
            for (int e = 0; e < 4 && from + r < rows; e++)
                v.at[e] = at + e < width ? (float)p[e] : 0.0f;
        }
        to[r * line + f] = v;
    }
}

/* Computes s as the products of rows of x with rows of z, summed over the width of a head. */
template <typename V>
static __device__ void compute_scores(union factors *f, int width, const V *x, size_t x_step,
                                      int x_from, int x_rows, const V *z, size_t z_step, int z_from,
                                      int z_rows, tile s)
{
    int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++)
            s[i][j] = 0.0f;
    for (int d = 0; d < width; d += DEPTH) {
        __syncthreads(); /* all threads have read the tile's last contents */
        load_lines(x, x_step, x_from, x_rows, d, width, DEPTH, LINE / 4, f->left[0]);
        load_lines(z, z_step, z_from, z_rows, d, width, DEPTH, LINE / 4, f->right[0]);
        __syncthreads();
        for (int k = 0; k < DEPTH / 4 && d + 4 * k < width; k++) {
            struct float4_ l[EACH], r[EACH];
            for (int i = 0; i < EACH; i++) {
                l[i] = f->left[ty + SIDE * i][k];
                r[i] = f->right[tx + SIDE * i][k];
            }
            for (int e = 0; e < 4; e++)
                for (int i = 0; i < EACH; i++)
                    for (int j = 0; j < EACH; j++)
                        s[i][j] = fmaf(l[i].at[e], r[j].at[e], s[i][j]);
        }
    }
}

/* Adds to `sum` the product of s[TILE][TILE], which the threads hold, with rows from .. from + TILE
 * - 1 and the columns from c on of a head of x. */
template <typename V>
static __device__ void add_products(union factors *f, struct float4_ shared[TILE][WIDE / 4],
                                    const tile s, int width, int c, const V *x, size_t step,
                                    int from, int rows, tile sum)
{
    int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
    __syncthreads();
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++)
            shared[ty + SIDE * i][(tx + SIDE * j) / 4].at[tx % 4] = s[i][j];
    load_lines(x, step, from, rows, c, width, COLUMNS, WIDE / 4, f->wide[0]);
    __syncthreads();
    for (int k = 0; k < TILE / 4 && from + 4 * k < rows; k++) {
        struct float4_ l[EACH], r[4];
        for (int i = 0; i < EACH; i++)
            l[i] = shared[ty + SIDE * i][k];
        for (int e = 0; e < 4; e++)
            r[e] = f->wide[4 * k + e][tx];
        for (int e = 0; e < 4; e++)
            for (int i = 0; i < EACH; i++)
                for (int j = 0; j < EACH; j++)
                    sum[i][j] = fmaf(l[i].at[e], r[e].at[j], sum[i][j]);
    }
}

/* Writes by[i] * sum to rows from + y + 16 i and columns c + 4 x + j of y[rows], for thread (x, y)
 * of the block, or adds it if `add`. */
template <typename V>
static __device__ void store_lines(const tile sum, const float *by, bool add, int from, int rows,
                                   int c, int width, V *y, size_t step)
{
    int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
    for (int i = 0; i < EACH; i++) {
        int r = from + ty + SIDE * i;
        V *to = y + (size_t)r * step + (size_t)(c + 4 * tx);
        for (int j = 0; j < EACH && r < rows; j++) {
            float v = by ? by[i] * sum[i][j] : sum[i][j];
            if (c + 4 * tx + j < width)
                put(to + j, add, v);
        }
    }
}

/* ---- forward; block (tile of queries, head, sequence * pieces + piece of the width) */

template <typename V>
__global__ void TWO_BLOCKS attend(struct call q, const int64_t *step, int pieces)
{
    __shared__ union factors f;
    __shared__ struct float4_ shared[TILE][WIDE / 4];
    const struct pp_attention *a = &q.a;
    int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
    int from = (int)blockIdx.x * TILE, h = (int)blockIdx.y, b = (int)blockIdx.z / pieces;
    int c = (int)blockIdx.z % pieces * COLUMNS, g = h / (a->heads / a->kv_heads);
    const V *of_q = (const V *)a->q + head_at(a, &a->q_at, b, h);
    const V *k = (const V *)a->k + head_at(a, &a->kv_at, b, g);
    const V *v = (const V *)a->v + head_at(a, &a->kv_at, b, g);
    drop_padding(&q.a, b);
    int last = from + TILE < a->queries ? from + TILE : a->queries, end = count_seen(a, last - 1);
    int64_t now = q.limit > 0 ? *step : 0;
    float most[EACH], all[EACH];
    tile s, sum = {};
    for (int i = 0; i < EACH; i++) {
        most[i] = -INFINITY;
        all[i] = 0.0f;
    }
    for (int at = 0; at < end; at += TILE) {
        compute_scores(&f, a->width, of_q, a->q_at.position, from, a->queries, k, a->kv_at.position,
                       at, a->keys, s);
        for (int i = 0; i < EACH; i++) {
            int r = from + ty + SIDE * i, keys = r < a->queries ? count_seen(a, r) : 0;
            float high = most[i], total = 0.0f;
            for (int j = 0; j < EACH; j++) {
                s[i][j] = at + tx + SIDE * j < keys ? s[i][j] * q.scale : -INFINITY;
                high = s[i][j] <= high ? high : s[i][j]; /* a NaN stays */
            }
            for (int half = SIDE / 2; half > 0; half /= 2) {
                float other = __shfl_xor_sync(ALL, high, half);
                high = other <= high ? high : other;
            }
            float zero = high == -INFINITY ? 0.0f : high; /* no key seen so far */
            float shrink = expf(most[i] - zero);
            for (int j = 0; j < EACH; j++) {
                s[i][j] = expf(s[i][j] - zero);
                total += s[i][j];
                s[i][j] *= dropout_factor(&q, now, b, h, r, at + tx + SIDE * j);
                sum[i][j] *= shrink;
            }
            for (int half = SIDE / 2; half > 0; half /= 2)
                total += __shfl_xor_sync(ALL, total, half);
            all[i] = all[i] * shrink + total;
            most[i] = high;
        }
        add_products(&f, shared, s, a->width, c, v, a->kv_at.position, at, a->keys, sum);
    }
    for (int i = 0; i < EACH; i++) {
        int r = from + ty + SIDE * i;
        if (a->lse && c == 0 && tx == 0 && r < a->queries)
            a->lse[((size_t)b * (size_t)a->queries + (size_t)r) * (size_t)a->heads + (size_t)h] =
                most[i] + logf(all[i]);
        all[i] = 1.0f / all[i];
    }
    store_lines(sum, all, false, from, a->queries, c, a->width,
                (V *)a->y + head_at(a, &a->y_at, b, h), a->y_at.position);
}

/* ---- backward */

/* Computes to[TILE], the products dy . y of the queries of a head from `from` on. Four threads
 * share a query. */
template <typename V>
static __device__ void row_dots(const struct pp_attention *a, int b, int h, int from, float *to)
{
    const V *dy = (const V *)a->dy, *y = (const V *)a->y;
    int r = (int)threadIdx.x / 4;
    size_t at = head_at(a, &a->y_at, b, h) + (size_t)(from + r) * a->y_at.position;
    float sum = 0.0f;
    for (int d = (int)threadIdx.x % 4; d < a->width && from + r < a->queries; d += 4)
        sum = fmaf((float)dy[at + (size_t)d], (float)y[at + (size_t)d], sum);
    sum += __shfl_xor_sync(ALL, sum, 1);
    sum += __shfl_xor_sync(ALL, sum, 2);
    if (threadIdx.x % 4 == 0)
        to[r] = sum;
}

static __device__ float lse_of(const struct pp_attention *a, int b, int h, int i)
{
    return a->lse[((size_t)b * (size_t)a->queries + (size_t)i) * (size_t)a->heads + (size_t)h];
}

/* Replaces the score *s by its probability after dropout, and *dp, the gradient of that
 * probability, by the gradient of q . k. */
static __device__ void finish_gradient(const struct call *q, int64_t step, int b, int h, int i,
                                       int j, float lse, float dot, float *s, float *dp)
{
    bool sees = i < q->a.queries && j < count_seen(&q->a, i);
    float far = *s * q->scale - lse; /* above 0 only by rounding */
    float p = sees ? expf(far > 0.0f ? 0.0f : far) : 0.0f,
          keep = dropout_factor(q, step, b, h, i, j);
    *dp = sees ? p * (*dp * keep - dot) * q->scale : 0.0f;
    *s = p * keep;
}

/* Computes dq. Blocks are as in the forward pass: (tile of queries, head, sequence * pieces +
 * piece). */
template <typename V>
__global__ void TWO_BLOCKS attend_back_queries(struct call q, const int64_t *step, int pieces)
{
    __shared__ union factors f;
    __shared__ struct float4_ shared[TILE][WIDE / 4];
    __shared__ float dots[TILE];
    const struct pp_attention *a = &q.a;
    int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
    int from = (int)blockIdx.x * TILE, h = (int)blockIdx.y, b = (int)blockIdx.z / pieces;
    int c = (int)blockIdx.z % pieces * COLUMNS, g = h / (a->heads / a->kv_heads);
    const V *of_q = (const V *)a->q + head_at(a, &a->q_at, b, h);
    const V *dy = (const V *)a->dy + head_at(a, &a->y_at, b, h);
    const V *k = (const V *)a->k + head_at(a, &a->kv_at, b, g);
    const V *v = (const V *)a->v + head_at(a, &a->kv_at, b, g);
    drop_padding(&q.a, b);
    int last = from + TILE < a->queries ? from + TILE : a->queries, end = count_seen(a, last - 1);
    int64_t now = q.limit > 0 ? *step : 0;
    tile s, dp, dq = {};
    row_dots<V>(a, b, h, from, dots);
    for (int at = 0; at < end; at += TILE) {
        compute_scores(&f, a->width, of_q, a->q_at.position, from, a->queries, k, a->kv_at.position,
                       at, a->keys, s);
        compute_scores(&f, a->width, dy, a->y_at.position, from, a->queries, v, a->kv_at.position,
                       at, a->keys, dp);
        for (int i = 0; i < EACH; i++) {
            int r = from + ty + SIDE * i;
            float lse = r < a->queries ? lse_of(a, b, h, r) : 0.0f;
            for (int j = 0; j < EACH; j++)
                finish_gradient(&q, now, b, h, r, at + tx + SIDE * j, lse, dots[ty + SIDE * i],
                                &s[i][j], &dp[i][j]);
        }
        add_products(&f, shared, dp, a->width, c, k, a->kv_at.position, at, a->keys, dq);
    }
    store_lines(dq, NULL, a->add, from, a->queries, c, a->width,
                (V *)a->dq + head_at(a, &a->q_at, b, h), a->q_at.position);
}

/* Computes dk and dv. A block is (tile of keys, head of keys, sequence * pieces + piece). */
template <typename V>
__global__ void TWO_BLOCKS attend_back_keys(struct call q, const int64_t *step, int pieces)
{
    __shared__ union factors f;
    __shared__ struct float4_ shared[TILE][WIDE / 4];
    __shared__ float dots[TILE];
    const struct pp_attention *a = &q.a;
    int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE, group = a->heads / a->kv_heads;
    int from = (int)blockIdx.x * TILE, g = (int)blockIdx.y, b = (int)blockIdx.z / pieces;
    int c = (int)blockIdx.z % pieces * COLUMNS;
    size_t at_kv = head_at(a, &a->kv_at, b, g), kv_step = a->kv_at.position;
    const V *k = (const V *)a->k + at_kv, *v = (const V *)a->v + at_kv;
    int64_t now = q.limit > 0 ? *step : 0;
    int all = a->keys;
    drop_padding(&q.a, b);
    /* the first query that sees key `from` */
    int first = a->causal ? from - (a->keys - a->queries) : 0;
    tile s, dp, dk = {}, dv = {};
    for (int h = g * group; h < (g + 1) * group; h++) {
        const V *of_q = (const V *)a->q + head_at(a, &a->q_at, b, h);
        const V *dy = (const V *)a->dy + head_at(a, &a->y_at, b, h);
        for (int at = first < 0 ? 0 : first / TILE * TILE; at < a->queries; at += TILE) {
            compute_scores(&f, a->width, k, kv_step, from, a->keys, of_q, a->q_at.position, at,
                           a->queries, s);
            row_dots<V>(a, b, h, at, dots); /* the others read them after the barriers of the next
                                               product */
            compute_scores(&f, a->width, v, kv_step, from, a->keys, dy, a->y_at.position, at,
                           a->queries, dp);
            for (int j = 0; j < EACH; j++) {
                int i = at + tx + SIDE * j;
                float lse = i < a->queries ? lse_of(a, b, h, i) : 0.0f;
                for (int r = 0; r < EACH; r++)
                    finish_gradient(&q, now, b, h, i, from + ty + SIDE * r, lse,
                                    dots[tx + SIDE * j], &s[r][j], &dp[r][j]);
            }
            add_products(&f, shared, s, a->width, c, dy, a->y_at.position, at, a->queries, dv);
            add_products(&f, shared, dp, a->width, c, of_q, a->q_at.position, at, a->queries, dk);
        }
    }
    store_lines(dk, NULL, a->add_kv, from, all, c, a->width, (V *)a->dk + at_kv, kv_step);
    store_lines(dv, NULL, a->add_kv, from, all, c, a->width, (V *)a->dv + at_kv, kv_step);
}

/* ---- launches */

static dim3 blocks_of(const struct pp_attention *a, int positions, int heads, int *pieces)
{
    *pieces = (a->width + COLUMNS - 1) / COLUMNS;
    return dim3(((unsigned)positions + TILE - 1) / TILE, (unsigned)heads,
                (unsigned)a->B * (unsigned)*pieces);
}

template <typename V> static cudaError_t forward_of(cudaStream_t s, const struct call *q)
{
    int pieces;
    dim3 blocks = blocks_of(&q->a, q->a.queries, q->a.heads, &pieces);
    return PP_LAUNCHED(attend<V>, blocks, SIDE * SIDE, 0, s, *q, q->a.step, pieces);
}

template <typename V> static cudaError_t backward_of(cudaStream_t s, const struct call *q)
{
    const struct pp_attention *a = &q->a;
    int pieces;
    cudaError_t e = cudaSuccess;
    if (a->dq && a->queries > 0) {
        dim3 blocks = blocks_of(a, a->queries, a->heads, &pieces);
        e = PP_LAUNCHED(attend_back_queries<V>, blocks, SIDE * SIDE, 0, s, *q, a->step, pieces);
    }
    if (e == cudaSuccess && a->dk && a->keys > 0) {
        dim3 blocks = blocks_of(a, a->keys, a->kv_heads, &pieces);
        e = PP_LAUNCHED(attend_back_keys<V>, blocks, SIDE * SIDE, 0, s, *q, a->step, pieces);
    }
    return e;
}

extern "C" cudaError_t kernels_attention_forward(cudaStream_t s, const struct pp_attention *a,
                                                 enum pp_precision precision, double *)
{
    bool half = precision == PP_PRECISION_BF16;
    struct call q = call_of(a);
    if (a->B == 0 || a->queries == 0)
        return cudaSuccess;
    if (precision != PP_PRECISION_F32 && mma_attention_fits(a))
        return mma_attention_forward(s, &q, half);
    return half ? forward_of<bf16>(s, &q) : forward_of<float>(s, &q);
}

extern "C" cudaError_t kernels_attention_backward(cudaStream_t s, const struct pp_attention *a,
                                                  enum pp_precision precision, double *scratch)
{
    bool half = precision == PP_PRECISION_BF16;
    struct call q = call_of(a);
    if (a->B == 0)
        return cudaSuccess;
    if (precision != PP_PRECISION_F32 && a->queries > 0 && mma_attention_fits(a))
        return mma_attention_backward(s, &q, half, scratch);
    return half ? backward_of<bf16>(s, &q) : backward_of<float>(s, &q);
}
