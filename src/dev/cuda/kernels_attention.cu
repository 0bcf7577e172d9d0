/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention in blocks of TILE queries and TILE keys, whose scores never go to memory. 16 x 16
 * threads compute a tile: thread (x, y) has the scores of rows y + 16 i with columns x + 16 j. Of a
 * sum over keys or queries it has rows y + 16 i and columns 4 x .. 4 x + 3 of COLUMNS columns of a
 * head's width; a wider head takes more blocks, which compute the scores again. One thread makes
 * every sum, in order, so no bit depends on when a block runs. The backward pass computes
 * probabilities from the forward pass's logarithms of sums: by blocks of queries for dq, and by
 * blocks of keys for dk and dv. Sums use fused multiply-add in float. For bf16 and tf32 these
 * kernels compute only what mma_attention_fits() refuses, such as a mask, or heads of more than 128.
 */
#include "attention_call.h"

#include "../attention.h"

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

/* Returns the score of query i and key j, of their product s; mask is that of the head. */
template <typename V, bool MASKED>
static __device__ inline float finish_score(const struct call *q, const V *mask, int i, int j,
                                            float s)
{
    float x = s * q->scale;
    return MASKED ? x + (float)mask[(size_t)i * q->a.mask_at.position + (size_t)j * q->a.mask_key]
                  : x;
}

/* ---- forward; block (tile of queries, head, sequence * pieces + piece of the width) */

template <typename V, bool MASKED>
__global__ void TWO_BLOCKS attend(struct call q, const int64_t *step, int pieces)
{
    __shared__ union factors f;
    __shared__ struct float4_ shared[TILE][WIDE / 4];
    const struct pp_attention *a = &q.a;
    int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
    int from = (int)blockIdx.x * TILE, h = (int)blockIdx.y, b = (int)blockIdx.z / pieces;
    int c = (int)blockIdx.z % pieces * COLUMNS, g = h / (a->heads / a->kv_heads);
    const V *of_q = (const V *)a->q + head_at(&a->q_at, b, h);
    const V *k = (const V *)a->k + head_at(&a->k_at, b, g);
    const V *v = (const V *)a->v + head_at(&a->v_at, b, g);
    const V *mask = MASKED ? (const V *)a->mask + head_at(&a->mask_at, b, h) : NULL;
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
        compute_scores(&f, a->width, of_q, a->q_at.position, from, a->queries, k, a->k_at.position,
                       at, a->keys, s);
        for (int i = 0; i < EACH; i++) {
            int r = from + ty + SIDE * i, keys = r < a->queries ? count_seen(a, r) : 0;
            float high = most[i], total = 0.0f;
            for (int j = 0; j < EACH; j++) {
                int key = at + tx + SIDE * j;
                s[i][j] =
                    key < keys ? finish_score<V, MASKED>(&q, mask, r, key, s[i][j]) : -INFINITY;
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
        add_products(&f, shared, s, a->width, c, v, a->v_at.position, at, a->keys, sum);
    }
    for (int i = 0; i < EACH; i++) {
        int r = from + ty + SIDE * i;
        if (MASKED && all[i] == 0.0f) { /* the query sees no key */
            most[i] = INFINITY;
            all[i] = 1.0f;
        }
        if (a->lse && c == 0 && tx == 0 && r < a->queries)
            a->lse[((size_t)b * (size_t)a->queries + (size_t)r) * (size_t)a->heads + (size_t)h] =
                most[i] + logf(all[i]);
        all[i] = 1.0f / all[i];
    }
    store_lines(sum, all, false, from, a->queries, c, a->width, (V *)a->y + head_at(&a->y_at, b, h),
                a->y_at.position);
}

/* ---- backward */

/* Numbers of a query that its backward pass needs: p = by * exp(score - base), and dy . y. */
struct query {
    float base, by, dot;
};

/* Replaces the logarithm of a query's sum, in which a float loses the sum if a mask made all scores
 * large, by the largest score, and sets `by`. Four threads share a query. */
template <typename V>
static __device__ void find_sum(const struct call *q, const V *mask, int b, int h, int i,
                                struct query *to)
{
    const struct pp_attention *a = &q->a;
    bool large = isfinite(to->base) && fabsf(to->base) >= ATTENTION_LARGE;
    const V *x = (const V *)a->q + head_at(&a->q_at, b, h) + (size_t)i * a->q_at.position;
    const V *k = (const V *)a->k + head_at(&a->k_at, b, h / (a->heads / a->kv_heads));
    float most = -INFINITY, sum = 0.0f;
    for (int j = (int)threadIdx.x % 4; large && j < count_seen(a, i); j += 4) {
        float s = 0.0f;
        for (int d = 0; d < a->width; d++)
            s = fmaf((float)x[d], (float)k[(size_t)j * a->k_at.position + (size_t)d], s);
        s = finish_score<V, true>(q, mask, i, j, s);
        sum = s > most ? sum * expf(most - s) + 1.0f : s > -INFINITY ? sum + expf(s - most) : sum;
        most = s > most ? s : most;
    }
    for (int half = 1; half < 4; half *= 2) {
        float other = __shfl_xor_sync(ALL, most, half), more = __shfl_xor_sync(ALL, sum, half);
        float high = other > most ? other : most;
        sum = (most < high ? sum * expf(most - high) : sum) +
              (other < high ? more * expf(other - high) : more);
        most = high;
    }
    if (large)
        *to = {most, 1.0f / sum, to->dot};
}

/* Fills to[TILE] with the queries of a head from `from` on. Four threads share a query. */
template <typename V, bool MASKED>
static __device__ void find_queries(const struct call *q, const V *mask, int b, int h, int from,
                                    struct query *to)
{
    const struct pp_attention *a = &q->a;
    const V *dy = (const V *)a->dy, *y = (const V *)a->y;
    int r = (int)threadIdx.x / 4, i = from + r;
    size_t at = head_at(&a->y_at, b, h) + (size_t)i * a->y_at.position;
    struct query now = {0.0f, 1.0f, 0.0f};
    for (int d = (int)threadIdx.x % 4; d < a->width && i < a->queries; d += 4)
        now.dot = fmaf((float)dy[at + (size_t)d], (float)y[at + (size_t)d], now.dot);
    now.dot += __shfl_xor_sync(ALL, now.dot, 1);
    now.dot += __shfl_xor_sync(ALL, now.dot, 2);
    if (i < a->queries)
        now.base =
            a->lse[((size_t)b * (size_t)a->queries + (size_t)i) * (size_t)a->heads + (size_t)h];
    if (MASKED)
        find_sum<V>(q, mask, b, h, i, &now);
    if (threadIdx.x % 4 == 0)
        to[r] = now;
}

/* Replaces the product *s by its probability after dropout, and *dp, the gradient of that
 * probability, by the gradient of the score times `scale`. */
template <typename V, bool MASKED>
static __device__ void finish_gradient(const struct call *q, const V *mask, int64_t step, int b,
                                       int h, int i, int j, const struct query *of, float scale,
                                       float *s, float *dp)
{
    bool sees = i < q->a.queries && j < count_seen(&q->a, i);
    /* above 0 only by rounding */
    float far = sees ? finish_score<V, MASKED>(q, mask, i, j, *s) - of->base : 0.0f;
    float p = sees ? expf(far > 0.0f ? 0.0f : far) : 0.0f,
          keep = dropout_factor(q, step, b, h, i, j);
    if (MASKED)
        p *= of->by;
    *dp = sees ? p * (*dp * keep - of->dot) * scale : 0.0f;
    *s = p * keep;
}

/* Computes dq. Blocks are as in the forward pass: (tile of queries, head, sequence * pieces +
 * piece). */
template <typename V, bool MASKED>
__global__ void TWO_BLOCKS attend_back_queries(struct call q, const int64_t *step, int pieces)
{
    __shared__ union factors f;
    __shared__ struct float4_ shared[TILE][WIDE / 4];
    __shared__ struct query rows[TILE];
    const struct pp_attention *a = &q.a;
    int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
    int from = (int)blockIdx.x * TILE, h = (int)blockIdx.y, b = (int)blockIdx.z / pieces;
    int c = (int)blockIdx.z % pieces * COLUMNS, g = h / (a->heads / a->kv_heads);
    const V *of_q = (const V *)a->q + head_at(&a->q_at, b, h);
    const V *dy = (const V *)a->dy + head_at(&a->y_at, b, h);
    const V *k = (const V *)a->k + head_at(&a->k_at, b, g);
    const V *v = (const V *)a->v + head_at(&a->v_at, b, g);
    const V *mask = MASKED ? (const V *)a->mask + head_at(&a->mask_at, b, h) : NULL;
    drop_padding(&q.a, b);
    int last = from + TILE < a->queries ? from + TILE : a->queries, end = count_seen(a, last - 1);
    int64_t now = q.limit > 0 ? *step : 0;
    tile s, dp, dq = {};
    find_queries<V, MASKED>(&q, mask, b, h, from, rows);
    for (int at = 0; at < end; at += TILE) {
        compute_scores(&f, a->width, of_q, a->q_at.position, from, a->queries, k, a->k_at.position,
                       at, a->keys, s);
        compute_scores(&f, a->width, dy, a->y_at.position, from, a->queries, v, a->v_at.position,
                       at, a->keys, dp);
        for (int i = 0; i < EACH; i++) {
            int r = from + ty + SIDE * i;
            for (int j = 0; j < EACH; j++)
                finish_gradient<V, MASKED>(&q, mask, now, b, h, r, at + tx + SIDE * j,
                                           &rows[ty + SIDE * i], q.scale, &s[i][j], &dp[i][j]);
        }
        add_products(&f, shared, dp, a->width, c, k, a->k_at.position, at, a->keys, dq);
    }
    store_lines(dq, NULL, a->add, from, a->queries, c, a->width,
                (V *)a->dq + gradient_at(&a->q_at, b, h), a->q_at.position);
}

/* Computes dk and dv. A block is (tile of keys, head of keys, sequence * pieces + piece). */
template <typename V, bool MASKED>
__global__ void TWO_BLOCKS attend_back_keys(struct call q, const int64_t *step, int pieces)
{
    __shared__ union factors f;
    __shared__ struct float4_ shared[TILE][WIDE / 4];
    __shared__ struct query rows[TILE];
    const struct pp_attention *a = &q.a;
    int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE, group = a->heads / a->kv_heads;
    int from = (int)blockIdx.x * TILE, g = (int)blockIdx.y, b = (int)blockIdx.z / pieces;
    int c = (int)blockIdx.z % pieces * COLUMNS;
    const V *k = (const V *)a->k + head_at(&a->k_at, b, g);
    const V *v = (const V *)a->v + head_at(&a->v_at, b, g);
    int64_t now = q.limit > 0 ? *step : 0;
    int all = a->keys;
    drop_padding(&q.a, b);
    /* the first query that sees key `from` */
    int first = a->causal ? from - (a->keys - a->queries) : 0;
    tile s, dp, dk = {}, dv = {};
    for (int h = g * group; h < (g + 1) * group; h++) {
        const V *of_q = (const V *)a->q + head_at(&a->q_at, b, h);
        const V *dy = (const V *)a->dy + head_at(&a->y_at, b, h);
        const V *mask = MASKED ? (const V *)a->mask + head_at(&a->mask_at, b, h) : NULL;
        for (int at = first < 0 ? 0 : first / TILE * TILE; at < a->queries; at += TILE) {
            compute_scores(&f, a->width, k, a->k_at.position, from, a->keys, of_q, a->q_at.position,
                           at, a->queries, s);
            /* the others read them after the barriers of the next product */
            find_queries<V, MASKED>(&q, mask, b, h, at, rows);
            compute_scores(&f, a->width, v, a->v_at.position, from, a->keys, dy, a->y_at.position,
                           at, a->queries, dp);
            for (int j = 0; j < EACH; j++) {
                int i = at + tx + SIDE * j;
                for (int r = 0; r < EACH; r++)
                    finish_gradient<V, MASKED>(&q, mask, now, b, h, i, from + ty + SIDE * r,
                                               &rows[tx + SIDE * j], q.scale, &s[r][j], &dp[r][j]);
            }
            add_products(&f, shared, s, a->width, c, dy, a->y_at.position, at, a->queries, dv);
            add_products(&f, shared, dp, a->width, c, of_q, a->q_at.position, at, a->queries, dk);
        }
    }
    if (a->dk)
        store_lines(dk, NULL, a->add_k, from, all, c, a->width,
                    (V *)a->dk + gradient_at(&a->k_at, b, g), a->k_at.position);
    if (a->dv)
        store_lines(dv, NULL, a->add_v, from, all, c, a->width,
                    (V *)a->dv + gradient_at(&a->v_at, b, g), a->v_at.position);
}

/* Computes dmask. A block is (tile of keys and queries, head, sequence), or all of those that share
 * a number of the mask. */
template <typename V>
__global__ void TWO_BLOCKS attend_back_mask(struct call q, const int64_t *step, int key_tiles)
{
    __shared__ union factors f;
    __shared__ struct query rows[TILE];
    __shared__ float ds[TILE][WIDE];
    const struct pp_attention *a = &q.a;
    int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE, group = a->heads / a->kv_heads;
    int i = (int)blockIdx.x / key_tiles * TILE, j = (int)blockIdx.x % key_tiles * TILE;
    int h = (int)blockIdx.y, b = (int)blockIdx.z, keys = a->keys;
    bool each_i = a->mask_at.position > 0, each_j = a->mask_key > 0;
    int end_i = each_i ? i + 1 : a->queries, end_j = each_j ? j + 1 : keys;
    int end_h = a->mask_at.head > 0 ? h + 1 : a->heads;
    int64_t now = q.limit > 0 ? *step : 0;
    drop_padding(&q.a, b);
    tile s, dp, sum = {};
    for (int of_h = h; of_h < end_h; of_h++) {
        const V *of_q = (const V *)a->q + head_at(&a->q_at, b, of_h);
        const V *dy = (const V *)a->dy + head_at(&a->y_at, b, of_h);
        const V *k = (const V *)a->k + head_at(&a->k_at, b, of_h / group);
        const V *v = (const V *)a->v + head_at(&a->v_at, b, of_h / group);
        const V *mask = (const V *)a->mask + head_at(&a->mask_at, b, of_h);
        for (int at = i; at < end_i; at += TILE) {
            for (int to = j; to < end_j; to += TILE) {
                compute_scores(&f, a->width, of_q, a->q_at.position, at, a->queries, k,
                               a->k_at.position, to, a->keys, s);
                find_queries<V, true>(&q, mask, b, of_h, at, rows);
                compute_scores(&f, a->width, dy, a->y_at.position, at, a->queries, v,
                               a->v_at.position, to, a->keys, dp);
                for (int r = 0; r < EACH; r++) {
                    for (int c = 0; c < EACH; c++) {
                        finish_gradient<V, true>(&q, mask, now, b, of_h, at + ty + SIDE * r,
                                                 to + tx + SIDE * c, &rows[ty + SIDE * r], 1.0f,
                                                 &s[r][c], &dp[r][c]);
                        sum[r][c] += dp[r][c];
                    }
                }
            }
        }
    }
    for (int r = 0; r < EACH; r++)
        for (int c = 0; c < EACH; c++)
            ds[ty + SIDE * r][tx + SIDE * c] = sum[r][c];
    __syncthreads();
    V *to = (V *)a->dmask + gradient_at(&a->mask_at, b, h);
    int lines = each_i ? TILE : 1, columns = each_j ? TILE : 1;
    for (int e = (int)threadIdx.x; e < lines * columns; e += SIDE * SIDE) {
        int r = e / columns, c = e % columns;
        float all = 0.0f;
        for (int of_r = r; of_r < (each_i ? r + 1 : TILE); of_r++)
            for (int of_c = c; of_c < (each_j ? c + 1 : TILE); of_c++)
                all += ds[of_r][of_c];
        if (i + r < a->queries && j + c < keys)
            put(to + (size_t)(i + r) * a->mask_at.position + (size_t)(j + c) * a->mask_key,
                a->add_mask, all);
    }
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
    auto kernel = q->a.mask ? attend<V, true> : attend<V, false>;
    return PP_LAUNCHED(kernel, blocks, SIDE * SIDE, 0, s, *q, q->a.step, pieces);
}

template <typename V> static cudaError_t mask_gradient_of(cudaStream_t s, const struct call *q)
{
    const struct pp_attention *a = &q->a;
    unsigned keys = a->mask_key > 0 ? ((unsigned)a->keys + TILE - 1) / TILE : 1;
    unsigned queries = a->mask_at.position > 0 ? ((unsigned)a->queries + TILE - 1) / TILE : 1;
    dim3 blocks(keys * queries, a->mask_at.head > 0 ? (unsigned)a->heads : 1, (unsigned)a->B);
    return PP_LAUNCHED(attend_back_mask<V>, blocks, SIDE * SIDE, 0, s, *q, a->step, (int)keys);
}

template <typename V> static cudaError_t backward_of(cudaStream_t s, const struct call *q)
{
    const struct pp_attention *a = &q->a;
    int pieces;
    cudaError_t e = cudaSuccess;
    if (a->dq && a->queries > 0) {
        dim3 blocks = blocks_of(a, a->queries, a->heads, &pieces);
        auto kernel = a->mask ? attend_back_queries<V, true> : attend_back_queries<V, false>;
        e = PP_LAUNCHED(kernel, blocks, SIDE * SIDE, 0, s, *q, a->step, pieces);
    }
    if (e == cudaSuccess && (a->dk || a->dv) && a->keys > 0) {
        dim3 blocks = blocks_of(a, a->keys, a->kv_heads, &pieces);
        auto kernel = a->mask ? attend_back_keys<V, true> : attend_back_keys<V, false>;
        e = PP_LAUNCHED(kernel, blocks, SIDE * SIDE, 0, s, *q, a->step, pieces);
    }
    if (e == cudaSuccess && a->dmask && a->queries > 0 && a->keys > 0)
        e = mask_gradient_of<V>(s, q);
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
