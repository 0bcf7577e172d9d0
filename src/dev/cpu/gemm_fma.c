/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products with fused multiply-add, made for the few rows of a micro-batch. Every element of
 * a result is one chain of fused multiply-adds in ascending order of the summed index, and starts
 * from 0 or from the number that is there. So its bits depend on the operands alone: not on
 * addresses, on the vector width, on the blocking, or on the other rows; and bits of a weight
 * gradient do not depend on how the rows are spread over calls.
 *
 * Libraries are slow at 8 to 64 rows, because each call copies W into another order or walks it
 * with large strides. Here the weights of the forward product are already in order (pack). The
 * other two products read their operands in place, or from copies of blocks when there are many
 * rows. While a tile is computed, the data of the next tile is prefetched, one line at a time. The
 * table has GFLOP/s of the forward product, the input gradient and the weight gradient on one core
 * of a Xeon (Sapphire Rapids, peak 138), with 32 rows and the weights of eight layers in turn:
 *
 *                                 127x126        512x512
 *   this file                  122 118 107    102 104  99
 *   OpenBLAS 0.3.21 SkylakeX    54 108 109     61  62 104
 *   OpenBLAS 0.3.21 Haswell     46  53  64     43  50  61
 *   oneDNN 2.6                  70 113 112     60  94  75
 *   libxsmm 1.17               130 124 115     82  67  71
 *
 * libxsmm is 6 % faster where everything fits the second-level cache, but it writes code at run
 * time, needs blocking around it, and its sums are not chains.
 *
 * The file is compiled once for each instruction set.
 */
#include "gemm.h"

#include "gemm_pack.h"

DEFINE_TILES(STRIDED)

enum {
    DEPTH = 128,      /* length of the summed index at a time, so that data read with strides stays
                         in L1 */
    LONG_DEPTH = 512, /* the same for packed panels, which are contiguous */
    COPY_DEPTH = 256, /* the same for copied blocks */
    COPY_COLUMNS = 256,
    COPY_ROWS = 16 * ROWS, /* rows from which on copies pay */
    SEGMENTS = 32,
    BLOCK_FLOATS = 128 * 1024, /* of the left operand at a time: half of a small L2 */
};

/* Computes the tiles of one block of at most WIDTH columns. Each tile prefetches a little of the
 * block at `next`, unless that is NULL: prefetching all of it at once would wait for memory. */
INLINE void compute_column_block(struct tile *t, int rows, int columns, const float *next)
{
    struct groups g = groups_of(rows);
    int fetch = vectors_a_tile(g.n);
    for (int i = 0; i < g.n; i++) {
        int n = g.size + (i < g.larger);
        bool more = next && i * fetch < VECTORS;
        t->next = more ? next + LANE(i * fetch) : NULL;
        t->next_step = t->b_step;
        t->fetch = more ? fetch : 0;
        run_tile(&STRIDED_tiles, t, n, columns);
        t->c += (size_t)n * t->c_row;
        t->a_at += (size_t)n * t->a_row;
    }
}

/* Returns how many rows of a left operand with K columns to multiply with the whole right operand
 * before the next rows, so that they stay in the second-level cache. */
INLINE int rows_at_a_time(int K)
{
    int n = BLOCK_FLOATS / K;
    return n < 8 * ROWS ? 8 * ROWS : n;
}

/* ---- the products */

static void gemm_forward(int B, int I, int O, size_t y_row, const float *x, const float *W,
                         const float *packed, const float *b, bool relu, float *y)
{
    float own[DEPTH * WIDTH]; /* the present part of a panel, when weights are not packed */
    int rows = rows_at_a_time(I), depth = packed ? LONG_DEPTH : DEPTH;
    for (int r = 0; r < B; r += rows) {
        for (int o = 0; o < O; o += WIDTH) {
            int columns = least(WIDTH, O - o), width = panel_width(O, o);
            const float *panel = packed ? packed + (size_t)o * (size_t)I : NULL;
            for (int k = 0; k < I; k += depth) {
                struct segment s = {.depth = least(depth, I - k),
                                    .a = x + (size_t)r * (size_t)I + k,
                                    .b = panel ? panel + (size_t)k * (size_t)width : own};
                bool last = k + depth >= I;
                if (!packed) {
                    pack_panel(s.depth, (size_t)I, columns, width, W + (size_t)o * (size_t)I + k,
                               own);
                }
                struct tile t = {.segments = &s,
                                 .n_segments = 1,
                                 .a_row = (size_t)I,
                                 .a_step = 1,
                                 .b_step = (size_t)width,
                                 .c_row = y_row,
                                 .add = k > 0,
                                 .c = y + (size_t)r * y_row + o,
                                 .bias = last && b ? b + o : NULL,
                                 .relu = relu && last && b};
                /* the panels follow each other without a gap */
                compute_column_block(&t, least(rows, B - r), columns,
                                     packed ? s.b + (size_t)s.depth * (size_t)width : NULL);
            }
        }
    }
}

/* Copies to[rows][to_row] = from[rows][from_row], the first `columns` of each row. */
INLINE void copy_rows(int rows, int columns, const float *from, size_t from_row, float *to,
                      size_t to_row)
{
    int whole = columns / LANES * LANES;
    mask rest = first_lanes(columns - whole);
    for (int r = 0; r < rows; r++, from += from_row, to += to_row) {
        for (int c = 0; c < whole; c += LANES)
            STORE(to + c, LOAD(from + c));
        if (whole < columns)
            STORE_PART(rest, to + whole, LOAD_PART(rest, from + whole));
    }
}

/* Copies of operands whose rows lie so far apart that they share a few sets of the caches: b as
 * panels [depth][WIDTH], and a few rows of the left operand. */
struct copies {
    _Alignas(64) float a[COPY_ROWS * COPY_DEPTH], b[COPY_DEPTH * COPY_COLUMNS];
};

/* Copies columns at .. at + columns - 1 of n segments of b, whose rows are `row` apart, into
 * panels. */
INLINE void copy_panels(struct copies *c, int n, const struct segment *segments, int at,
                        int columns, size_t row)
{
    float *to = c->b;
    for (int i = 0; i < columns; i += WIDTH) {
        for (int s = 0; s < n; to += (size_t)segments[s++].depth * WIDTH)
            copy_rows(segments[s].depth, least(WIDTH, columns - i), segments[s].b + at + i, row, to,
                      WIDTH);
    }
}

/* Computes t->c[rows][columns] from the panels into which copy_panels() copied b. */
INLINE void compute_copied_tiles(struct tile *t, const struct segment *s, int rows, int columns)
{
    struct groups g = groups_of(rows);
    float *c = t->c, *next = c;
    t->segments = s;
    t->n_segments = 1;
    t->b_step = WIDTH;
    for (int k = 0; k < g.n; k++) {
        int n = g.size + (k < g.larger);
        next += (size_t)n * t->c_row;
        for (int i = 0; i < columns; i += WIDTH) {
            t->b_at = (size_t)i * (size_t)s->depth;
            t->c = c + i;
            /* prefetch as many elements as this tile has, one group of rows ahead in memory */
            t->next = next + (size_t)i * (size_t)n;
            run_tile(&STRIDED_tiles, t, n, least(WIDTH, columns - i));
        }
        t->a_at += (size_t)n * t->a_row;
        c += (size_t)n * t->c_row;
    }
}

static void multiply_by_copies(int B, int I, int O, size_t row, const float *dz, const float *W,
                               float *dx)
{
    struct copies copies;
    int at_a_time = rows_at_a_time(O);
    at_a_time = at_a_time < 2 * COPY_ROWS ? 2 * COPY_ROWS : at_a_time;
    for (int r = 0, rows; r < B; r += rows) {
        rows = least(at_a_time, B - r);
        for (int k = 0; k < O; k += COPY_DEPTH) {
            int depth = least(COPY_DEPTH, O - k);
            const struct segment w = {.depth = depth, .b = W + (size_t)k * row},
                                 s = {.depth = depth,
                                      .a = dz + (size_t)r * (size_t)O + k,
                                      .b = copies.b};
            for (int i = 0; i < I; i += COPY_COLUMNS) {
                int columns = least(COPY_COLUMNS, I - i);
                struct tile t = {.a_row = (size_t)O,
                                 .a_step = 1,
                                 .c_row = row,
                                 .add = k > 0,
                                 .c = dx + (size_t)r * row + i};
                copy_panels(&copies, 1, &w, i, columns, row);
                compute_copied_tiles(&t, &s, rows, columns);
            }
        }
    }
}

static void backward_input(int B, int I, int O, size_t row, const float *dz, const float *W,
                           float *dx)
{
    if (B >= COPY_ROWS) {
        multiply_by_copies(B, I, O, row, dz, W, dx);
        return;
    }
    int rows = rows_at_a_time(O);
    /* With few rows the time goes into reading W, and rows of W that are 4 KiB apart share a few
     * sets of the cache. */
    int depth = row >= 1024 && B <= 64 ? DEPTH / 2 : DEPTH;
    for (int r = 0; r < B; r += rows) {
        for (int k = 0; k < O; k += depth) {
            for (int i = 0; i < I; i += WIDTH) {
                struct segment s = {.depth = least(depth, O - k),
                                    .a = dz + (size_t)r * (size_t)O + k,
                                    .b = W + (size_t)k * row + i};
                struct tile t = {.segments = &s,
                                 .n_segments = 1,
                                 .a_row = (size_t)O,
                                 .a_step = 1,
                                 .b_step = row,
                                 .c_row = row,
                                 .add = k > 0,
                                 .c = dx + (size_t)r * row + i};
                compute_column_block(&t, least(rows, B - r), least(WIDTH, I - i), s.b + WIDTH);
            }
        }
    }
}

/* Computes a block of dW[O][I] as the sum of the products of n segments, `depth` rows in all; adds
 * it to dW if `add`. */
static void add_segments(int n, const struct segment *segments, int depth, int I, int O,
                         const struct cpu_block *at, bool add, float *dW)
{
    struct groups g = groups_of(at->o_end - at->o);
    /* columns of x to use with all outputs before the next ones, so that they stay in the
     * second-level cache */
    int columns = BLOCK_FLOATS / depth / WIDTH * WIDTH;
    int fetch = depth >= ROWS * VECTORS ? 1 : 2 * depth >= ROWS * VECTORS ? 2 : 4;
    for (int from = at->i; from < at->i_end; from += columns) {
        int to = least(at->i_end, from + columns);
        struct tile t = {.segments = segments,
                         .n_segments = n,
                         .a_row = 1,
                         .a_step = (size_t)O,
                         .b_step = (size_t)I,
                         .c_row = (size_t)I,
                         .add = add,
                         .next_step = (size_t)(LANES * fetch),
                         .fetch = add ? fetch : 0};
        for (int o = at->o, k = 0; k < g.n; k++) {
            int rows = g.size + (k < g.larger);
            t.a_at = (size_t)o;
            for (int i = from; i < to; i += WIDTH) {
                t.b_at = (size_t)i;
                t.c = dW + (size_t)o * (size_t)I + i;
                /* prefetch as many elements as this tile has, one group of rows ahead in memory */
                t.next =
                    dW + (size_t)(o + rows) * (size_t)I + from + (size_t)(i - from) * (size_t)rows;
                run_tile(&STRIDED_tiles, &t, rows, least(WIDTH, to - i));
            }
            o += rows;
        }
    }
}

/* Computes a block of dW as add_segments() does, but from copies of the operands. */
static void add_copied(int n, const struct segment *segments, int depth, int I, int O,
                       const struct cpu_block *at, bool add, float *dW)
{
    struct copies copies;
    const struct segment s = {.depth = depth, .a = copies.a, .b = copies.b};
    int fetch = depth >= ROWS * VECTORS ? 1 : 2 * depth >= ROWS * VECTORS ? 2 : 4;
    for (int i = at->i; i < at->i_end; i += COPY_COLUMNS) {
        int columns = least(COPY_COLUMNS, at->i_end - i);
        copy_panels(&copies, n, segments, i, columns, (size_t)I);
        for (int o = at->o; o < at->o_end; o += COPY_ROWS) {
            int rows = least(COPY_ROWS, at->o_end - o);
            float *to = copies.a;
            for (int k = 0; k < n; to += (size_t)segments[k++].depth * COPY_ROWS)
                copy_rows(segments[k].depth, rows, segments[k].a + o, (size_t)O, to, COPY_ROWS);
            struct tile t = {.a_row = 1,
                             .a_step = COPY_ROWS,
                             .c_row = (size_t)I,
                             .add = add,
                             .c = dW + (size_t)o * (size_t)I + i,
                             .next_step = (size_t)(LANES * fetch),
                             .fetch = add ? fetch : 0};
            compute_copied_tiles(&t, &s, rows, columns);
        }
    }
}

static void backward_weight(int n, const struct pp_weight_part *parts, int I, int O,
                            const struct cpu_block *at, float beta, float *dW)
{
    struct segment s[SEGMENTS];
    int have = 0, depth = 0, rows = 0;
    for (int i = 0; i < n; i++)
        rows += parts[i].B;
    bool add = beta != 0, copy = rows > COPY_ROWS && O > 128;
    for (const struct pp_weight_part *p = parts; p < parts + n; p++) {
        for (int r = 0, take; r < p->B; r += take) {
            take = least((copy ? COPY_DEPTH : DEPTH) - depth, p->B - r);
            s[have++] = (struct segment){.depth = take,
                                         .a = p->dz + (size_t)r * (size_t)O,
                                         .b = p->x + (size_t)r * (size_t)I};
            depth += take;
            rows -= take;
            if (rows == 0 || depth == (copy ? COPY_DEPTH : DEPTH) || have == SEGMENTS) {
                (copy ? add_copied : add_segments)(have, s, depth, I, O, at, add, dW);
                add = true;
                have = depth = 0;
            }
        }
    }
}

const struct cpu_gemm CPU_LOOP(gemm) = {
    .name = CPU_ISA,
    .packed_floats = packed_floats,
    .pack = pack,
    .fuses = true,
    .forward = gemm_forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
    .conv = &CPU_LOOP(conv),
};
