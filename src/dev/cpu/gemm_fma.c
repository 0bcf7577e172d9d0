/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products with fused multiply-add, for the few rows of a micro-batch. Every element of a
 * result is one chain of fused multiply-adds over the summed index in ascending order, starting
 * from 0 or from what is there. So its bits depend on the numbers alone: not on addresses, vector
 * width, blocking or the other rows, nor, for weight gradients, on how rows are spread over calls.
 *
 * Libraries lose at 8 to 64 rows: they copy W into their own order in every call, or walk it with
 * large strides. Here the weights for the forward product lie in that order already (pack), the
 * other two products read what they need in place, and what the next tile needs is fetched a line
 * at a time while this one is computed. GFLOP/s of F, I, W on one core of a Xeon (Sapphire Rapids,
 * peak 138) with 32 rows and the weights of eight layers in turn:
 *
 *                                 127x126        512x512
 *   these                      122 118 107    102 104  99
 *   OpenBLAS 0.3.21 SkylakeX    54 108 109     61  62 104
 *   OpenBLAS 0.3.21 Haswell     46  53  64     43  50  61
 *   oneDNN 2.6                  70 113 112     60  94  75
 *   libxsmm 1.17               130 124 115     82  67  71
 *
 * libxsmm is 6 % ahead where all fits the second-level cache, but it writes code at run time, needs
 * blocking on top, and its sums are not chains.
 *
 * One source, compiled for each instruction set.
 */
#include "gemm.h"

#include "gemm_pack.h"
#include "gemm_tile.h"

DEFINE_TILES(STRIDED)

enum {
    DEPTH = 128,      /* of the summed index at a time: what is read with strides stays in L1 */
    LONG_DEPTH = 512, /* the same for packed panels, which lie in a row */
    SEGMENTS = 32,
    BLOCK_FLOATS = 128 * 1024, /* of the left operand at a time: half of a small L2 */
};

/* The tiles of one column block of at most WIDTH columns. Between them they fetch the block at
 * next (NULL: nothing), a little each: all at once would wait for memory. */
INLINE void column_block(struct tile *t, int rows, int columns, const float *next)
{
    struct groups g = groups_of(rows);
    int fetch = g.n >= VECTORS ? 1 : g.n >= 2 ? 2 : VECTORS;
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

/* Rows of a left operand with K columns to go through all of b with. */
INLINE int rows_at_a_time(int K)
{
    int n = BLOCK_FLOATS / K;
    return n < 8 * ROWS ? 8 * ROWS : n;
}

/* --- the products
 * -------------------------------------------------------------------------------*/

static void gemm_forward(int B, int I, int O, const float *x, const float *W, const float *packed,
                         const float *b, bool relu, float *y)
{
    float own[DEPTH * WIDTH]; /* the piece of a panel at hand, when nobody packed them */
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
                                 .c_row = (size_t)O,
                                 .add = k > 0,
                                 .c = y + (size_t)r * (size_t)O + o,
                                 .bias = last && b ? b + o : NULL,
                                 .relu = relu && last && b};
                /* panels follow each other without a gap */
                column_block(&t, least(rows, B - r), columns,
                             packed ? s.b + (size_t)s.depth * (size_t)width : NULL);
            }
        }
    }
}

static void backward_input(int B, int I, int O, const float *dz, const float *W, float *dx)
{
    int rows = rows_at_a_time(O);
    /* Few rows wait for W, and rows of it that are 4 KiB apart share a few sets of the cache. */
    int depth = I >= 1024 && B <= 64 ? DEPTH / 2 : DEPTH;
    for (int r = 0; r < B; r += rows) {
        for (int k = 0; k < O; k += depth) {
            for (int i = 0; i < I; i += WIDTH) {
                struct segment s = {.depth = least(depth, O - k),
                                    .a = dz + (size_t)r * (size_t)O + k,
                                    .b = W + (size_t)k * (size_t)I + i};
                struct tile t = {.segments = &s,
                                 .n_segments = 1,
                                 .a_row = (size_t)O,
                                 .a_step = 1,
                                 .b_step = (size_t)I,
                                 .c_row = (size_t)I,
                                 .add = k > 0,
                                 .c = dx + (size_t)r * (size_t)I + i};
                column_block(&t, least(rows, B - r), least(WIDTH, I - i), s.b + WIDTH);
            }
        }
    }
}

/* dW[O][I] = (add ? dW : 0) + the products of the segments */
static void add_segments(int n, const struct segment *segments, int I, int O, bool add, float *dW)
{
    struct groups g = groups_of(O);
    int depth = 0;
    for (int s = 0; s < n; s++)
        depth += segments[s].depth;
    /* columns of x to go through all outputs with: they stay in the second-level cache */
    int columns = BLOCK_FLOATS / depth / WIDTH * WIDTH;
    int fetch = depth >= ROWS * VECTORS ? 1 : 2 * depth >= ROWS * VECTORS ? 2 : 4;
    for (int from = 0; from < I; from += columns) {
        int to = least(I, from + columns);
        struct tile t = {.segments = segments,
                         .n_segments = n,
                         .a_row = 1,
                         .a_step = (size_t)O,
                         .b_step = (size_t)I,
                         .c_row = (size_t)I,
                         .add = add,
                         .next_step = (size_t)(LANES * fetch),
                         .fetch = add ? fetch : 0};
        for (int o = 0, k = 0; k < g.n; k++) {
            int rows = g.size + (k < g.larger);
            t.a_at = (size_t)o;
            for (int i = from; i < to; i += WIDTH) {
                t.b_at = (size_t)i;
                t.c = dW + (size_t)o * (size_t)I + i;
                /* as many elements on in memory order as this tile has, a group of rows ahead */
                t.next =
                    dW + (size_t)(o + rows) * (size_t)I + from + (size_t)(i - from) * (size_t)rows;
                run_tile(&STRIDED_tiles, &t, rows, least(WIDTH, to - i));
            }
            o += rows;
        }
    }
}

static void backward_weight(int n, const struct pp_weight_part *parts, int I, int O, float beta,
                            float *dW)
{
    struct segment s[SEGMENTS];
    bool add = beta != 0;
    int have = 0, depth = 0;
    for (const struct pp_weight_part *p = parts; p < parts + n; p++) {
        for (int r = 0; r < p->B; r += DEPTH) {
            s[have++] = (struct segment){.depth = least(DEPTH, p->B - r),
                                         .a = p->dz + (size_t)r * (size_t)O,
                                         .b = p->x + (size_t)r * (size_t)I};
            depth += s[have - 1].depth;
            if (depth >= DEPTH || have == SEGMENTS) {
                add_segments(have, s, I, O, add, dW);
                add = true;
                have = depth = 0;
            }
        }
    }
    if (have > 0)
        add_segments(have, s, I, O, add, dW);
}

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define STRING_(x) #x
#define STRING(x) STRING_(x)

/* PPCLI_ISA is avx2 or avx512: set on the compiler's command line. */
const struct cpu_gemm JOIN(cpu_gemm_, PPCLI_ISA) = {
    .name = STRING(PPCLI_ISA),
    .packed_floats = packed_floats,
    .pack = pack,
    .fuses = true,
    .forward = gemm_forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
    .conv = &JOIN(cpu_conv_, PPCLI_ISA),
};
