/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention on tensor cores, for bf16, and for tf32 with values in float. After Dao,
 * "FlashAttention-2", 2023: a warp has 16 queries and walks over all their keys. Scores, their
 * running maximum and sum, and the output stay in registers, and probabilities leave one product in
 * the form of left factors of the next. Meanwhile the next keys and values are copied. The backward
 * pass computes probabilities from the forward pass's logarithms of sums, by blocks of queries for
 * dq and by blocks of keys for dk and dv. No two blocks share a sum, so the shape alone decides the
 * order of every sum. A unit is the heads of one sequence that share keys.
 */
#include "attention_call.h"
#include "attention_tiles.h"

#define WARPS 4 /* of a block of queries */
#define TILE (WARPS * ROWS)
#define BLOCK (WARPS * WARP)
#define LOG2_E 1.44269504088896340736f
#define MOST_UNITS 65535u

/* What the backward pass knows of a query: the base-2 logarithm of its sum, and dy . y. */
struct alignas(8) line {
    float lse, dot;
};

/* The part of the problem that a block works on. */
struct place {
    int b, g, h; /* sequence, head of keys, head */
    int warp, lane;
};

static __device__ inline struct place place_of(const struct call *q, int unit)
{
    int heads = q->a.kv_heads, group = q->a.heads / heads;
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    return {unit / heads, unit % heads, unit % heads * group + (int)blockIdx.y, warp, lane};
}

template <typename T, typename V = typename T::value>
static __device__ inline struct rows<V> queries_of(const struct pp_attention *a, const float *x,
                                                   const struct pp_strides *s, int b, int h) {
    return rows_of<V>(x, head_at(s, b, h), s->position, a->queries, a->width);
}

template <typename T, typename V = typename T::value>
static __device__ inline struct rows<V> keys_of(const struct pp_attention *a, const float *x,
                                                const struct pp_strides *s, int b, int g) {
    return rows_of<V>(x, head_at(s, b, g), s->position, a->keys, a->width);
}

/* Loads the left factors of the queries of a block, which then stay in registers. */
template <typename T, int D>
static __device__ inline void keep_left(const struct rows<typename T::value> &x, int from,
                                        const struct place *at, char *tile, uint32_t (*left)[4])
{
    typedef struct tiles<T, D> S;
    load_tile<T, D, TILE, BLOCK>(x, from, tile);
    wait_for_copies();
    round_tile<T, D, TILE, BLOCK>(tile);
    __syncthreads();
    UNROLL
    for (int k = 0; k < S::STEPS; k++)
        left_of<T, D>(tile + at->warp * ROWS * S::LINE, at->lane, k, left[k]);
    __syncthreads();
}

/* Starts loading a tile of keys from `from` on, and the tile of their values after it. */
template <typename T, int D>
static __device__ inline void load_keys(const struct rows<typename T::value> &k,
                                        const struct rows<typename T::value> &v, int from,
                                        char *tile)
{
    typedef struct tiles<T, D> S;
    load_tile<T, D, S::KEYS, BLOCK>(k, from, tile);
    load_tile<T, D, S::KEYS, BLOCK>(v, from, tile + S::KEYS * S::LINE);
}

/* Returns the rows of the gradient of n positions of q, k or v. */
template <typename T, typename V = typename T::value>
static __device__ inline struct rows<V> gradients_of(const struct pp_attention *a, const float *x,
                                                     const struct pp_strides *s, int n, int b,
                                                     int h) {
    return rows_of<V>(x, gradient_at(s, b, h), s->position, n, a->width);
}

template <typename T, int D, int COUNT, int THREADS_OF_BLOCK>
static __device__ inline void finish_pair(char *tile)
{
    wait_for_copies();
    round_tile<T, D, COUNT, THREADS_OF_BLOCK>(tile);
    round_tile<T, D, COUNT, THREADS_OF_BLOCK>(tile + COUNT * tiles<T, D>::LINE);
    __syncthreads();
}

/* Calls do_it(e) for every element that a lane holds of N tiles; e is element e % 4 of tile e /
 * 4. */
template <int N, typename Do> static __device__ inline void each_score(Do do_it)
{
    UNROLL
    for (int e = 0; e < 4 * N; e++)
        do_it(e);
}

/* Sets scores to -infinity where the query does not see the key, for rows i and i + 8 and keys from
 * j on. */
template <int N>
static __device__ inline void hide_keys(const struct pp_attention *a, int i, int j, float (*s)[4])
{
    each_score<N>([&](int e) {
        int keys = count_seen(a, i + e % 4 / 2 * 8);
        if (j + e / 4 * 8 + e % 2 >= (keys < a->keys ? keys : a->keys))
            s[e / 4][e % 4] = -INFINITY;
    });
}

/* ---- forward; block (tile of queries, head of the unit, unit) */

/* Raises the maxima of two rows to the largest of the scores of N tiles, and sets the factors by
 * which earlier sums shrink. */
template <int N>
static __device__ inline void raise_most(const float (*s)[4], float by, float *most, float *shrink)
{
    UNROLL
    for (int r = 0; r < 2; r++) {
        float high = most[r];
        UNROLL
        for (int e = 0; e < 2 * N; e++)
            high = fmaxf(high, s[e / 2][2 * r + e % 2]);
        for (int half = 1; half < LANES; half *= 2)
            high = fmaxf(high, __shfl_xor_sync(ALL, high, half));
        shrink[r] = exp2_near(fmaf(most[r], by, -(high * by)));
        most[r] = high;
    }
}

template <typename T, int D>
__global__ void __launch_bounds__(BLOCK, tiles<T, D>::BLOCKS)
    mma_attend(struct call q, const int64_t *step, int first_unit)
{
    typedef struct tiles<T, D> S;
    const int N = S::KEYS / 8, PAIR = 2 * S::KEYS * S::LINE;
    alignas(PART) __shared__ char tile[2 * PAIR];
    static_assert(2 * PAIR >= TILE * S::LINE, "queries come through the same memory");
    const struct pp_attention *a = &q.a;
    struct place p = place_of(&q, first_unit + (int)blockIdx.z);
    int from = (int)(gridDim.x - 1 - blockIdx.x) * TILE; /* blocks with most keys run first */
    int row = from + p.warp * ROWS + p.lane / LANES, column = 2 * (p.lane % LANES);
    float by = q.scale * LOG2_E, most[2] = {-INFINITY, -INFINITY}, all[2] = {0.0f, 0.0f};
    float s[N][4], sum[D / 8][4] = {};
    uint32_t left[S::STEPS][4];
    drop_padding(&q.a, p.b);
    struct rows<typename T::value> k = keys_of<T>(a, a->k, &a->k_at, p.b, p.g);
    struct rows<typename T::value> v = keys_of<T>(a, a->v, &a->v_at, p.b, p.g);
    int last = from + TILE < a->queries ? from + TILE : a->queries, end = count_seen(a, last - 1);
    keep_left<T, D>(queries_of<T>(a, a->q, &a->q_at, p.b, p.h), from, &p, tile, left);
    load_keys<T, D>(k, v, 0, tile);
    for (int at = 0, buffer = 0; at < end; at += S::KEYS, buffer ^= 1) {
        char *now = tile + buffer * PAIR;
        finish_pair<T, D, S::KEYS, BLOCK>(now);
        if (at + S::KEYS < end)
            load_keys<T, D>(k, v, at + S::KEYS, tile + (buffer ^ 1) * PAIR);
        multiply_rows<T, D, N>(
            [&](int step_of, uint32_t *to) {
                for (int i = 0; i < 4; i++)
                    to[i] = left[step_of][i];
            },
            now, p.lane, s);
        if (at + S::KEYS > a->keys || at + S::KEYS > count_seen(a, from + p.warp * ROWS))
            hide_keys<N>(a, computed_here(row), at + column, s);
        float shrink[2];
        raise_most<N>(s, by, most, shrink);
        UNROLL
        for (int r = 0; r < 2; r++) {
            float base = most[r] * by, total = 0.0f;
            UNROLL
            for (int e = 0; e < 2 * N; e++) {
                float *x = &s[e / 2][2 * r + e % 2];
                *x = exp2_near(fmaf(*x, by, -base));
                total += *x;
            }
            all[r] = fmaf(all[r], shrink[r], total);
            UNROLL
            for (int e = 0; e < D / 4; e++)
                sum[e / 2][2 * r + e % 2] *= shrink[r];
        }
        if (q.limit > 0) {
            int i = computed_here(row), j = computed_here(at + column);
            each_score<N>([&](int e) {
                s[e / 4][e % 4] *=
                    dropout_factor(&q, *step, p.b, p.h, i + e % 4 / 2 * 8, j + e / 4 * 8 + e % 2);
            });
        }
        add_product<T, D, N>(s, now + S::KEYS * S::LINE, p.lane, sum);
    }
    UNROLL
    for (int r = 0; r < 2; r++) {
        int i = row + 8 * r;
        for (int half = 1; half < LANES; half *= 2)
            all[r] += __shfl_xor_sync(ALL, all[r], half);
        if (a->lse && column == 0 && i < a->queries)
            a->lse[((size_t)p.b * (size_t)a->queries + (size_t)i) * (size_t)a->heads +
                   (size_t)p.h] = fmaf(most[r], q.scale, logf(all[r]));
        all[r] = 1.0f / all[r];
    }
    store_rows<typename T::value, D>(sum, all, false, row, p.lane,
                                     queries_of<T>(a, a->y, &a->y_at, p.b, p.h));
}

/* ---- backward */

/* Writes the line of query i, its logarithm and dy . y, to `to`, or zeros if i is in the padding of
 * the last tile. A whole warp calls it. */
template <typename T>
static __device__ inline void make_line(const struct pp_attention *a, const struct place *p, int i,
                                        struct line *to)
{
    struct line line = {0.0f, 0.0f};
    if (i < a->queries) {
        struct rows<typename T::value> y = queries_of<T>(a, a->y, &a->y_at, p->b, p->h);
        struct rows<typename T::value> dy = queries_of<T>(a, a->dy, &a->y_at, p->b, p->h);
        for (int d = p->lane; d < a->width; d += WARP)
            line.dot = fmaf((float)dy.row(i)[d], (float)y.row(i)[d], line.dot);
        line.lse =
            LOG2_E * a->lse[((size_t)p->b * (size_t)a->queries + (size_t)i) * (size_t)a->heads +
                            (size_t)p->h];
    }
    line.dot = warp_sum(line.dot);
    if (p->lane == 0)
        to[i] = line;
}

/* Makes the lines of all queries, for a call without dq; otherwise the kernel of dq makes them. A
 * block is (queries, head of the unit, unit). */
template <typename T>
__global__ void make_lines(struct call q, int first_unit, int padded, struct line *lines)
{
    struct place p = place_of(&q, first_unit + (int)blockIdx.z);
    lines += ((size_t)blockIdx.z * gridDim.y + blockIdx.y) * (size_t)padded;
    make_line<T>(&q.a, &p, (int)blockIdx.x * WARPS + p.warp, lines);
}

/* Replaces scores by probabilities after dropout, and gradients of probabilities by those of q .
 * k without their scale. of(e) is the line of the query of element e, and keep(e) its dropout
 * factor. */
template <int N, typename Of, typename Keep>
static __device__ inline void make_gradients(const struct call *q, float by, Of of, Keep keep,
                                             float (*s)[4], float (*dp)[4])
{
    each_score<N>([&](int e) {
        float far = fmaf(s[e / 4][e % 4], by, -of(e).lse); /* above 0 only by rounding */
        s[e / 4][e % 4] = exp2_near(far > 0.0f ? 0.0f : far);
    });
    if (q->limit == 0)
        each_score<N>(
            [&](int e) { dp[e / 4][e % 4] = s[e / 4][e % 4] * (dp[e / 4][e % 4] - of(e).dot); });
    else
        each_score<N>([&](int e) {
            float p = s[e / 4][e % 4], by_dropout = keep(e);
            dp[e / 4][e % 4] = p * (dp[e / 4][e % 4] * by_dropout - of(e).dot);
            s[e / 4][e % 4] = p * by_dropout;
        });
}

/* Computes dq, and lines[unit][head][padded] for the next kernel. A block is as in the forward
 * pass. */
template <typename T, int D>
__global__ void __launch_bounds__(BLOCK)
    mma_back_queries(struct call q, const int64_t *step, int first_unit, int padded,
                     struct line *lines)
{
    typedef struct tiles<T, D> S;
    const int N = S::KEYS / 8, PAIR = 2 * S::KEYS * S::LINE;
    alignas(PART) __shared__ char tile[2 * PAIR];
    const struct pp_attention *a = &q.a;
    struct place p = place_of(&q, first_unit + (int)blockIdx.z);
    int from = (int)(gridDim.x - 1 - blockIdx.x) * TILE;
    int row = from + p.warp * ROWS + p.lane / LANES, column = 2 * (p.lane % LANES);
    float by = q.scale * LOG2_E, scales[2] = {q.scale, q.scale};
    float s[N][4], dp[N][4], sum[D / 8][4] = {};
    uint32_t left[2][S::STEPS][4];
    drop_padding(&q.a, p.b);
    struct rows<typename T::value> k = keys_of<T>(a, a->k, &a->k_at, p.b, p.g), v = k;
    k.whole = v.whole = k.whole && keys_of<T>(a, a->v, &a->v_at, p.b, p.g).whole;
    /* an offset, so that one address stays in registers */
    v.at += (const char *)a->v - (const char *)a->k;
    int last = from + TILE < a->queries ? from + TILE : a->queries, end = count_seen(a, last - 1);
    lines += ((size_t)blockIdx.z * gridDim.y + blockIdx.y) * (size_t)padded;
    for (int i = from + p.warp * ROWS; i < from + p.warp * ROWS + ROWS; i++)
        make_line<T>(a, &p, i, lines);
    __syncwarp();
    struct line of[2] = {lines[row], lines[row + 8]};
    keep_left<T, D>(queries_of<T>(a, a->q, &a->q_at, p.b, p.h), from, &p, tile, left[0]);
    keep_left<T, D>(queries_of<T>(a, a->dy, &a->y_at, p.b, p.h), from, &p, tile, left[1]);
    load_keys<T, D>(k, v, 0, tile);
    for (int at = 0, buffer = 0; at < end; at += S::KEYS, buffer ^= 1) {
        char *now = tile + buffer * PAIR;
        finish_pair<T, D, S::KEYS, BLOCK>(now);
        if (at + S::KEYS < end)
            load_keys<T, D>(k, v, at + S::KEYS, tile + (buffer ^ 1) * PAIR);
        UNROLL
        for (int f = 0; f < 2; f++)
            multiply_rows<T, D, N>(
                [&](int step_of, uint32_t *to) {
                    for (int i = 0; i < 4; i++)
                        to[i] = left[f][step_of][i];
                },
                now + f * S::KEYS * S::LINE, p.lane, f ? dp : s);
        if (at + S::KEYS > a->keys || at + S::KEYS > count_seen(a, from + p.warp * ROWS))
            hide_keys<N>(a, computed_here(row), at + column, s);
        int i = computed_here(row), j = computed_here(at + column);
        make_gradients<N>(
            &q, by, [&](int e) { return of[e % 4 / 2]; },
            [&](int e) {
                return dropout_factor(&q, *step, p.b, p.h, i + e % 4 / 2 * 8,
                                      j + e / 4 * 8 + e % 2);
            },
            s, dp);
        add_product<T, D, N>(dp, now, p.lane, sum);
    }
    store_rows<typename T::value, D>(sum, scales, a->add, row, p.lane,
                                     gradients_of<T>(a, a->dq, &a->q_at, a->queries, p.b, p.h));
}

/* Starts loading the queries that mma_back_keys() takes at a time: q and dy of a head from query
 * `at` on. */
template <typename T, int D>
static __device__ inline void load_queries(const struct rows<typename T::value> &q,
                                           const struct rows<typename T::value> &dy, int at,
                                           char *tile)
{
    typedef struct tiles<T, D> S;
    load_tile<T, D, S::QUERIES, S::KEY_WARPS * WARP>(q, at, tile);
    load_tile<T, D, S::QUERIES, S::KEY_WARPS * WARP>(dy, at, tile + S::QUERIES * S::LINE);
}

/* Computes dk and dv. A block is (tile of keys, 1, unit); its rows are keys and its columns
 * queries. */
template <typename T, int D>
__global__ void __launch_bounds__(tiles<T, D>::KEY_WARPS *WARP, tiles<T, D>::KEY_BLOCKS)
    mma_back_keys(struct call q, const int64_t *step, int first_unit, int padded,
                  const struct line *lines)
{
    typedef struct tiles<T, D> S;
    const int N = S::QUERIES / 8, OWN = S::KEY_WARPS * ROWS, ALL_OF = S::KEY_WARPS * WARP;
    const int PAIR = 2 * S::QUERIES * S::LINE;
    alignas(PART) __shared__ char own[2 * OWN * S::LINE];
    alignas(PART) __shared__ char tile[S::BUFFERS * PAIR];
    const struct pp_attention *a = &q.a;
    struct place p = place_of(&q, first_unit + (int)blockIdx.z);
    int from = (int)blockIdx.x * OWN, key = from + p.warp * ROWS, column = 2 * (p.lane % LANES);
    int row = key + p.lane / LANES, end = p.h + a->heads / a->kv_heads;
    float by = q.scale * LOG2_E, scales[2] = {q.scale, q.scale}, ones[2] = {1.0f, 1.0f};
    float s[N][4], dp[N][4], dk[D / 8][4] = {}, dv[D / 8][4] = {};
    struct rows<typename T::value> out_k = gradients_of<T>(a, a->dk, &a->k_at, a->keys, p.b, p.g);
    struct rows<typename T::value> out_v = gradients_of<T>(a, a->dv, &a->v_at, a->keys, p.b, p.g);
    out_v.step = out_k.step; /* saves a register */
    drop_padding(&q.a, p.b);
    struct rows<typename T::value> of_q = queries_of<T>(a, a->q, &a->q_at, p.b, p.h);
    struct rows<typename T::value> dy = queries_of<T>(a, a->dy, &a->y_at, p.b, p.h);
    int more = a->keys - a->queries; /* query i sees the keys up to i + more */
    int start = a->causal && from > more ? (from - more) / S::QUERIES * S::QUERIES : 0;
    lines += (size_t)blockIdx.z * (size_t)(end - p.h) * (size_t)padded + (size_t)column;
    load_tile<T, D, OWN, ALL_OF>(keys_of<T>(a, a->k, &a->k_at, p.b, p.g), from, own);
    load_tile<T, D, OWN, ALL_OF>(keys_of<T>(a, a->v, &a->v_at, p.b, p.g), from,
                                 own + OWN * S::LINE);
    finish_pair<T, D, OWN, ALL_OF>(own);
    if (from < a->keys)
        load_queries<T, D>(of_q, dy, start, tile);
    for (int at = start, buffer = 0; from < a->keys && p.h < end;) {
        char *now = tile + buffer * PAIR;
        struct line of[N][2];
        UNROLL
        for (int n = 0; n < 2 * N; n++)
            of[n / 2][n % 2] = lines[at + n / 2 * 8 + n % 2];
        finish_pair<T, D, S::QUERIES, ALL_OF>(now);
        bool ends = at + S::QUERIES >= a->queries; /* the head ends here */
        int next = ends ? start : at + S::QUERIES, h = p.h;
        if (ends) {
            p.h++;
            lines += padded;
            of_q.at += a->q_at.head * sizeof(typename T::value);
            dy.at += a->y_at.head * sizeof(typename T::value);
        }
        buffer ^= S::BUFFERS - 1;
        if (S::BUFFERS == 2 && p.h < end)
            load_queries<T, D>(of_q, dy, next, tile + buffer * PAIR);
        UNROLL
        for (int f = 0; f < 2; f++)
            multiply_rows<T, D, N>(
                [&](int k, uint32_t *to) {
                    left_of<T, D>(own + (f * OWN + p.warp * ROWS) * S::LINE, p.lane, k, to);
                },
                now + f * S::QUERIES * S::LINE, p.lane, f ? dp : s);
        if (key + ROWS > a->keys || (a->causal && key + ROWS - 1 > at + more))
            each_score<N>([&](int e) {
                int j = row + e % 4 / 2 * 8, keys = count_seen(a, at + column + e / 4 * 8 + e % 2);
                if (j >= (keys < a->keys ? keys : a->keys))
                    s[e / 4][e % 4] = -INFINITY;
            });
        int i = computed_here(at + column), j = computed_here(row);
        make_gradients<N>(
            &q, by, [&](int e) { return of[e / 4][e % 2]; },
            [&](int e) {
                return dropout_factor(&q, *step, p.b, h, i + e / 4 * 8 + e % 2, j + e % 4 / 2 * 8);
            },
            s, dp);
        add_product<T, D, N>(s, now + S::QUERIES * S::LINE, p.lane, dv);
        add_product<T, D, N>(dp, now, p.lane, dk);
        if (S::BUFFERS == 1) {
            __syncthreads(); /* all have read the only buffer */
            if (p.h < end)
                load_queries<T, D>(of_q, dy, next, tile);
        }
        at = next;
    }
    if (a->dk)
        store_rows<typename T::value, D>(dk, scales, a->add_k, row, p.lane, out_k);
    if (a->dv)
        store_rows<typename T::value, D>(dv, ones, a->add_v, row, p.lane, out_v);
}

/* ---- launches */

static int padded_queries(const struct pp_attention *a)
{
    return (a->queries + TILE - 1) / TILE * TILE;
}

bool mma_attention_fits(const struct pp_attention *a)
{
    size_t lines = (size_t)(a->heads / a->kv_heads) * (size_t)padded_queries(a);
    const struct pp_strides *k = &a->k_at, *v = &a->v_at;
    size_t most = a->q_at.position | k->position | v->position | a->y_at.position;
    bool alike = k->sequence == v->sequence && k->position == v->position && k->head == v->head;
    return !a->mask && alike && a->width <= 128 && lines <= CUDA_SCRATCH && most < (1u << 28);
}

/* Launches the units first .. first + n - 1. `lines` is scratch. */
template <typename T, int D> struct launches {
    static cudaError_t forward(cudaStream_t s, const struct call *q, unsigned first, unsigned n,
                               struct line *)
    {
        const struct pp_attention *a = &q->a;
        dim3 grid((unsigned)(padded_queries(a) / TILE), (unsigned)(a->heads / a->kv_heads), n);
        auto kernel = mma_attend<T, D>;
        return PP_LAUNCHED(kernel, grid, BLOCK, 0, s, *q, a->step, (int)first);
    }

    static cudaError_t backward(cudaStream_t s, const struct call *q, unsigned first, unsigned n,
                                struct line *lines)
    {
        typedef struct tiles<T, D> S;
        const struct pp_attention *a = &q->a;
        const unsigned own = S::KEY_WARPS * ROWS;
        int padded = padded_queries(a);
        unsigned group = (unsigned)(a->heads / a->kv_heads);
        auto of_lines = make_lines<T>;
        auto of_queries = mma_back_queries<T, D>;
        auto of_keys = mma_back_keys<T, D>;
        cudaError_t e = a->dq ? PP_LAUNCHED(of_queries, dim3((unsigned)padded / TILE, group, n),
                                            BLOCK, 0, s, *q, a->step, (int)first, padded, lines)
                              : PP_LAUNCHED(of_lines, dim3((unsigned)padded / WARPS, group, n),
                                            BLOCK, 0, s, *q, (int)first, padded, lines);
        if (e == cudaSuccess && (a->dk || a->dv) && a->keys > 0)
            e = PP_LAUNCHED(of_keys, dim3(((unsigned)a->keys + own - 1) / own, 1, n),
                            S::KEY_WARPS * WARP, 0, s, *q, a->step, (int)first, padded,
                            (const struct line *)lines);
        return e;
    }
};

typedef cudaError_t launch(cudaStream_t s, const struct call *q, unsigned first, unsigned n,
                           struct line *lines);

/* Launches the kernel for all units (a sequence and a head of keys) in as few launches as the
 * scratch and the size of a grid allow. */
static cudaError_t launch_units(launch *of, cudaStream_t s, const struct call *q, double *scratch)
{
    const struct pp_attention *a = &q->a;
    static_assert(sizeof(struct line) == sizeof(*scratch), "a line is a double of scratch");
    unsigned units = (unsigned)a->B * (unsigned)a->kv_heads, most = MOST_UNITS;
    if (scratch) {
        size_t lines = (size_t)(a->heads / a->kv_heads) * (size_t)padded_queries(a);
        most = CUDA_SCRATCH / lines < most ? (unsigned)(CUDA_SCRATCH / lines) : most;
    }
    cudaError_t e = cudaSuccess;
    for (unsigned first = 0; first < units && e == cudaSuccess; first += most)
        e = of(s, q, first, units - first < most ? units - first : most, (struct line *)scratch);
    return e;
}

#define OF_WIDTH(T, which, width)                                                                  \
    ((width) <= 32   ? launches<T, 32>::which                                                      \
     : (width) <= 64 ? launches<T, 64>::which                                                      \
     : (width) <= 96 ? launches<T, 96>::which                                                      \
                     : launches<T, 128>::which)

cudaError_t mma_attention_forward(cudaStream_t s, const struct call *q, bool bf16)
{
    launch *of =
        bf16 ? OF_WIDTH(of_bf16, forward, q->a.width) : OF_WIDTH(of_tf32, forward, q->a.width);
    return launch_units(of, s, q, NULL);
}

cudaError_t mma_attention_backward(cudaStream_t s, const struct call *q, bool bf16, double *scratch)
{
    launch *of =
        bf16 ? OF_WIDTH(of_bf16, backward, q->a.width) : OF_WIDTH(of_tf32, backward, q->a.width);
    return launch_units(of, s, q, scratch);
}
