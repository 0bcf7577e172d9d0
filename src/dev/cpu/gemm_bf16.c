/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products and convolutions of operands rounded to bfloat16, summed in float (run.precision
 * = bf16).
 *
 * One VDPBF16PS is two fused multiply-adds, one after the other, that treat denormals as zero. So
 * every result is still one chain of multiply-adds in ascending order of the summed index, however
 * the pairs are cut. It has the bits that gemm_fma.c and conv_fma.c give for operands that were
 * rounded before, and tests/unit/test_dev_bf16.c compares the two. On a processor without the
 * instruction the same file multiplies the two halves of a word one after the other.
 *
 * AMX is not used: TDPBF16PS sums even and odd terms separately, which gives other bits.
 *
 * Blocks of the left operand and panels of the right one are copied. The forward product of a
 * convolution sums over what a pixel sees, the weight gradient over pixels, and the input gradient
 * over the taps that a class of pixels sees, so that a stride costs nothing. The file is compiled
 * once for each instruction set.
 */
#define PPCLI_BF16
#include "gemm.h"
#include "gemm_pack.h"

#include "bf16.h"
#include "patches.h"

DEFINE_TILES(STRIDED)
DEFINE_TILES(ROWS_LISTED)

enum {
    DEPTH = 256,  /* words of the summed index at a time */
    HEIGHT = 192, /* rows of the left operand at a time */
    SEGMENTS = 64
};

struct copies {
    _Alignas(64) float a[HEIGHT * DEPTH], b[DEPTH * WIDTH], first[WIDTH], second[WIDTH];
};

INLINE int count_words(int n)
{
    return (n + 1) / 2;
}

/* Rounds n rows of the right operand, from row k on, to bf16 and writes them as pairs of rows;
 * takes `columns` elements of each row from `column` on. */
INLINE void zip_rows(const struct rows *b, size_t k, int n, int column, int columns,
                     struct copies *c, float *to, size_t to_row)
{
    struct row_at at = rows_at(b, k);
    for (int i = 0; i < n; i += 2, to += to_row) {
        const float *first = rows_piece(b, &at, column, columns, c->first), *second = NULL;
        rows_next(b, &at);
        if (i + 1 < n) {
            second = rows_piece(b, &at, column, columns, c->second);
            rows_next(b, &at);
        }
        bf16_zip(columns, first, second, to);
    }
}

/* ---- packed weights: panels as in gemm_pack.h, but of words */

/* Rounds columns k .. k + n - 1 of W[outputs][I] to bf16 and packs them as [words][width]. */
static void pack_words(int n, size_t I, int outputs, int width, const float *W, float *to)
{
    float words[8 * DEPTH];
    for (int k = 0; k < n; k += 2 * DEPTH) {
        int depth = count_words(least(2 * DEPTH, n - k));
        for (int o = 0; o < width; o += 8) {
            int have = outputs - o < 8 ? outputs - o : 8;
            for (int r = 0; r < have; r++)
                bf16_pairs(least(2 * DEPTH, n - k), W + (size_t)(o + r) * I + k,
                           words + (size_t)r * (size_t)depth);
            pack_block(depth, (size_t)depth, have, width, words, to + o);
        }
        to += (size_t)depth * (size_t)width;
    }
}

static size_t bf16_packed_floats(int O, int I)
{
    return packed_floats(O, count_words(I));
}

static void bf16_pack(int O, int I, const float *W, float *packed)
{
    for (int o = 0; o < O; o += WIDTH) {
        pack_words(I, (size_t)I, least(O - o, WIDTH), panel_width(O, o), W + (size_t)o * (size_t)I,
                   packed + (size_t)o * (size_t)count_words(I));
    }
}

/* ---- c[rows][columns] (+)= a b, where a sums along its rows: forward and input gradient */

/* The forward product reads a panel of W along its rows, the input gradient across them. */
struct forward {
    const float *a;
    size_t n_rows;
    int K, columns;
    const float *W, *packed; /* forward: W[columns][K] or packed; input gradient: W[K][row] */
    size_t row;              /* floats between two rows of W; 0 in the forward product */
    const float *bias;
    bool relu;
    float *c;
    size_t c_row;
};

/* Returns the panel of words for `n` terms of the sums from term k on: packed weights, or else a
 * copy that it makes in `copies`. */
static const float *find_words(const struct forward *p, int k, int n, int column, int width,
                               struct copies *copies)
{
    int columns = least(WIDTH, p->columns - column);
    if (p->packed)
        return p->packed + (size_t)column * (size_t)count_words(p->K) +
               (size_t)(k / 2) * (size_t)width;
    if (p->row == 0) {
        pack_words(n, (size_t)p->K, columns, width, p->W + (size_t)column * (size_t)p->K + k,
                   copies->b);
        return copies->b;
    }
    const struct rows b = {.x = p->W, .row = p->row};
    zip_rows(&b, (size_t)k, n, column, columns, copies, copies->b, (size_t)width);
    return copies->b;
}

static void block_tiles(const struct forward *p, const struct segment *s, size_t first, int rows,
                        int column, int width, bool add, bool last)
{
    struct groups g = groups_of(rows);
    struct tile t = {.segments = s,
                     .n_segments = 1,
                     .b_step = (size_t)width,
                     .add = add,
                     .c = p->c + column,
                     .bias = last && p->bias ? p->bias + column : NULL,
                     .relu = last && p->relu};
    for (int i = 0, r = 0, n; i < g.n; i++, r += n) {
        n = g.size + (i < g.larger);
        for (int j = 0; j < n; j++) {
            t.a_of[j] = (size_t)(r + j) * (size_t)s->depth;
            t.c_of[j] = (first + (size_t)(r + j)) * p->c_row;
        }
        run_tile(&ROWS_LISTED_tiles, &t, n, least(WIDTH, p->columns - column));
    }
}

static void multiply_rows(const struct forward *p)
{
    struct copies copies;
    int steps = 2 * DEPTH;
    for (size_t r = 0; r < p->n_rows; r += HEIGHT) {
        int rows = p->n_rows - r < HEIGHT ? (int)(p->n_rows - r) : HEIGHT;
        for (int k = 0; k < p->K || k == 0; k += steps) {
            int n = least(steps, p->K - k);
            struct segment s = {.depth = count_words(n), .a = copies.a};
            for (int i = 0; i < rows; i++)
                bf16_pairs(n, p->a + (r + (size_t)i) * (size_t)p->K + k,
                           copies.a + (size_t)i * (size_t)s.depth);
            for (int c = 0; c < p->columns; c += WIDTH) {
                int width = panel_width(p->columns, c);
                s.b = find_words(p, k, n, c, width, &copies);
                block_tiles(p, &s, r, rows, c, width, k > 0, k + n >= p->K);
            }
        }
    }
}

static void bf16_forward(int B, int I, int O, size_t y_row, const float *x, const float *W,
                         const float *packed, const float *b, bool relu, float *y)
{
    const struct forward p = {.a = x,
                              .n_rows = (size_t)B,
                              .K = I,
                              .columns = O,
                              .W = W,
                              .packed = packed,
                              .bias = b,
                              .relu = relu && b,
                              .c = y,
                              .c_row = y_row};
    multiply_rows(&p);
}

static void bf16_backward_input(int B, int I, int O, size_t dx_row, const float *dz, const float *W,
                                float *dx)
{
    const struct forward p = {.a = dz,
                              .n_rows = (size_t)B,
                              .K = O,
                              .columns = I,
                              .W = W,
                              .row = dx_row,
                              .c = dx,
                              .c_row = dx_row};
    multiply_rows(&p);
}

/* ---- weight gradients: both operands sum across their rows */

/* Consecutive rows of one part. */
struct run {
    const float *dz;
    const struct rows *x;
    size_t first;
    int n;
};

struct weight {
    size_t dz_row, dW_row;
    const struct cpu_block *at;
    float *dW;
};

/* Computes a block of dW as the sum over the runs of rows, `depth` words in all; adds it to dW if
 * `add`. */
static void add_runs(const struct weight *w, int n, const struct run *runs, int depth, bool add)
{
    struct copies copies;
    const struct segment s = {.depth = depth, .a = copies.a, .b = copies.b};
    for (int o = w->at->o; o < w->at->o_end; o += HEIGHT) {
        int rows = least(HEIGHT, w->at->o_end - o);
        float *to = copies.a;
        for (const struct run *u = runs; u < runs + n; u++) {
            const struct rows dz = {.x = u->dz, .row = w->dz_row};
            zip_rows(&dz, u->first, u->n, o, rows, &copies, to, HEIGHT);
            to += (size_t)count_words(u->n) * HEIGHT;
        }
        for (int i = w->at->i; i < w->at->i_end; i += WIDTH) {
            int columns = least(WIDTH, w->at->i_end - i);
            to = copies.b;
            for (const struct run *u = runs; u < runs + n; u++) {
                zip_rows(u->x, u->first, u->n, i, columns, &copies, to, WIDTH);
                to += (size_t)count_words(u->n) * WIDTH;
            }
            struct groups g = groups_of(rows);
            struct tile t = {.segments = &s,
                             .n_segments = 1,
                             .a_row = 1,
                             .a_step = HEIGHT,
                             .b_step = WIDTH,
                             .c_row = w->dW_row,
                             .add = add};
            for (int k = 0, r = 0, m; k < g.n; k++, r += m) {
                m = g.size + (k < g.larger);
                t.a_at = (size_t)r;
                t.c = w->dW + (size_t)(o + r) * w->dW_row + i;
                run_tile(&STRIDED_tiles, &t, m, columns);
            }
        }
    }
}

/* Adds what all parts contribute to a block of dW. x[k] has the rows of part k, `pixels` rows for
 * each of its B samples. */
static void add_parts(const struct weight *w, int n, const struct pp_weight_part *parts, int pixels,
                      const struct rows *x, bool add)
{
    struct run runs[SEGMENTS];
    int have = 0, depth = 0;
    for (int k = 0; k < n; k++) {
        size_t all = (size_t)parts[k].B * (size_t)pixels;
        for (size_t r = 0; r < all; r += (size_t)runs[have - 1].n) {
            if (have == SEGMENTS || depth == DEPTH) {
                add_runs(w, have, runs, depth, add);
                add = true;
                have = depth = 0;
            }
            int most = 2 * (DEPTH - depth);
            int take = all - r < (size_t)most ? (int)(all - r) : most;
            runs[have++] = (struct run){parts[k].dz, &x[k], r, take};
            depth += count_words(take);
        }
    }
    if (have > 0 || !add)
        add_runs(w, have, runs, depth, add);
}

static void bf16_backward_weight(int n, const struct pp_weight_part *parts, int I, int O,
                                 const struct cpu_block *at, float beta, float *dW)
{
    struct rows x[SEGMENTS];
    const struct weight w = {(size_t)O, (size_t)I, at, dW};
    for (int k = 0, some; k < n; k += some) {
        some = least(SEGMENTS, n - k);
        for (int i = 0; i < some; i++)
            x[i] = (struct rows){.x = parts[k + i].x, .row = (size_t)I};
        add_parts(&w, some, parts + k, 1, x, k > 0 || beta != 0);
    }
}

#include "conv_bf16.h"

const struct cpu_gemm CPU_LOOP(bf16) = {
    .name = CPU_ISA,
    .packed_floats = bf16_packed_floats,
    .pack = bf16_pack,
    .fuses = true,
    .forward = bf16_forward,
    .backward_input = bf16_backward_input,
    .backward_weight = bf16_backward_weight,
    .conv = &conv_bf16,
};
