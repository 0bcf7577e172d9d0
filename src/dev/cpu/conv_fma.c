/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolution with the tiles of the products, without a copy of the image: F and I list the places
 * of a tile's rows, W those of its steps.
 *
 * Padding is never multiplied. F and I go over rectangles of pixels that see the same taps inside
 * the other image (for 3x3 over 4x4: four corners, four edges, the middle), and the rows of a tile
 * are the pixels of one rectangle in all samples at hand. W lists the pixels of each tap that are
 * inside. So every element of a result is one chain of fused multiply-adds over what the formula
 * sums, in its order (y: ky, kx, c; dx: ky, kx, o; dW: part, sample, oy, ox), and its bits depend on
 * the numbers alone: not on blocking, other samples or, for dW, on how samples are spread over
 * parts.
 *
 * One source, compiled for each instruction set.
 */
#include "conv.h"

#include <string.h>

#include "ppcli/err.h"
#include "gemm_pack.h"
#include "gemm_tile.h"

DEFINE_TILES(ROWS_LISTED)
DEFINE_TILES(STEPS_LISTED)

enum {
    DEPTH = 640,   /* of the summed index at a time, in F and I: a panel of it is in L2 */
    PIXELS = 256,  /* the same in W */
    SEGMENTS = 64, /* of a tile at most */
    FEW_ROWS = 48, /* I does not copy a panel for fewer */
    NARROW = 16,   /* channels; W copies fewer beside each other */
    BLOCK_FLOATS = 128 * 1024 /* of the image at a time: half of a small L2 */
};

/* One axis of the image that is computed (`to`), from the other. */
struct axis {
    int to, from, kernel, stride, pad;
    bool back; /* I: to is the input of the convolution */
};

/* The pixels at, at + step, ... (n of them) see the taps k, k + k_step, ... (taps of them); the
 * first pixel's are from, from + 1, ... (in I in descending order of k). */
struct range {
    int at, n, k, taps, from;
};

INLINE int axis_step(const struct axis *x)
{
    return x->back ? x->stride : 1;
}

static struct range seen_at(const struct axis *x, int at)
{
    struct range r = {.at = at, .n = 1};
    int end = at + x->pad; /* of a tap 0 in I */
    if (x->back) {
        int late = end - x->stride * (x->from - 1);
        r.k = late > end % x->stride ? late : end % x->stride;
        int last = least(x->kernel - 1, end);
        r.taps = last < r.k ? 0 : (last - r.k) / x->stride + 1;
        r.from = (end - r.k) / x->stride - (r.taps - 1);
    } else {
        int first = at * x->stride - x->pad;
        r.k = first < 0 ? -first : 0;
        int n = least(x->kernel, x->from - first) - r.k;
        r.taps = n < 0 ? 0 : n;
        r.from = first + r.k;
    }
    return r;
}

/* The longest range from `at` on, before `end`. */
static struct range range_at(const struct axis *x, int at, int end)
{
    struct range r = seen_at(x, at);
    for (at += axis_step(x); at < end; at += axis_step(x), r.n++) {
        struct range next = seen_at(x, at);
        if (next.taps != r.taps || (r.taps > 0 && next.k != r.k))
            break;
    }
    return r;
}

/* One group of F or I. Row k = (ky * kw + kx) * depth + channel of the panel b. */
struct product {
    struct axis y, x;
    int B;
    int depth, columns;  /* channels of the group that are summed over; that come out */
    size_t from_C, to_C; /* of a whole pixel */
    const float *from;   /* first channel of the group */
    const float *W;      /* I: W[depth][taps][columns]; F: W[columns][taps * depth] */
    const float *packed; /* F: panels, or NULL */
    float *scratch;      /* room for a panel */
    const float *bias;   /* NULL: none */
    bool relu, add;
    float *to;
};

/* Rows k, k + 1, ... of a panel, `width` apart. */
struct panel {
    int column, columns, width;
    int k, depth;
    bool in_place; /* in I: rows of one tap are in W */
    const float *b;
};

static void fill_panel(const struct product *p, bool few, struct panel *n)
{
    int taps = p->y.kernel * p->x.kernel;
    size_t K = (size_t)taps * (size_t)p->depth;
    n->width = panel_width(p->columns, n->column);
    n->b = p->scratch;
    if (p->packed) {
        n->b = p->packed + (size_t)n->column * K + (size_t)n->k * (size_t)n->width;
    } else if (!p->y.back) {
        pack_panel(n->depth, K, n->columns, n->width, p->W + (size_t)n->column * K + n->k,
                   p->scratch);
    } else if (few) {
        n->in_place = true;
    } else {
        int tap = n->k / p->depth, o = n->k % p->depth;
        size_t bytes = (size_t)n->columns * sizeof(float);
        for (int k = 0; k < n->depth; k++) {
            memcpy(p->scratch + (size_t)k * (size_t)n->width,
                   p->W + ((size_t)o * (size_t)taps + (size_t)tap) * (size_t)p->columns + n->column,
                   bytes);
            if (++o == p->depth) {
                o = 0;
                tap++;
            }
        }
    }
}

/* What the pixels of y x x sum over in the panel. */
static int list_segments(const struct product *p, const struct panel *n, const struct range *y,
                         const struct range *x, struct segment *out)
{
    const struct axis *ay = &p->y, *ax = &p->x;
    int have = 0, k_step = axis_step(ay), taps = ay->kernel * ax->kernel;
    /* in F the taps of a row lie beside each other in image and panel, unless groups do */
    int together = !ay->back && p->from_C == (size_t)p->depth ? x->taps : 1;
    for (int i = 0; i < y->taps; i++) {
        for (int j = 0; j < x->taps; j += together) {
            int tap = (y->k + i * k_step) * ax->kernel + x->k + j * k_step;
            int row = ay->back ? y->taps - 1 - i : i, column = ay->back ? x->taps - 1 - j : j;
            int first = tap * p->depth, k = first < n->k ? n->k : first;
            int end = least(first + together * p->depth, n->k + n->depth);
            if (k >= end)
                continue;
            pp_assert(have < SEGMENTS);
            out[have++] = (struct segment){
                .depth = end - k,
                .a = p->from + ((size_t)row * (size_t)ax->from + (size_t)column) * p->from_C +
                     (k - first),
                .b = n->in_place ? p->W +
                                       ((size_t)(k - first) * (size_t)taps + (size_t)tap) *
                                           (size_t)p->columns +
                                       n->column
                                 : n->b + (size_t)(k - n->k) * (size_t)n->width};
        }
    }
    return have;
}

/* Pixels of samples first .. first + samples - 1 in rows from .. end - 1 of the image. */
struct piece {
    int first, samples, from, end;
};

/* The tiles of a rectangle in the samples of a piece. */
static void rectangle(const struct product *p, const struct piece *s, const struct range *y,
                      const struct range *x, int columns, struct tile *t)
{
    const struct axis *ay = &p->y, *ax = &p->x;
    size_t step = (size_t)axis_step(ay), stride = ay->back ? 1 : (size_t)ay->stride;
    struct groups g = groups_of(s->samples * y->n * x->n);
    int b = s->first, i = 0, j = 0;
    for (int k = 0; k < g.n; k++) {
        int rows = g.size + (k < g.larger);
        for (int r = 0; r < rows; r++) {
            size_t from_y = (size_t)b * (size_t)ay->from + (size_t)y->from + (size_t)i * stride;
            size_t to_y = (size_t)b * (size_t)ay->to + (size_t)y->at + (size_t)i * step;
            t->a_of[r] =
                (from_y * (size_t)ax->from + (size_t)x->from + (size_t)j * stride) * p->from_C;
            t->c_of[r] = (to_y * (size_t)ax->to + (size_t)x->at + (size_t)j * step) * p->to_C;
            if (++j == x->n) {
                j = 0;
                if (++i == y->n) {
                    i = 0;
                    b++;
                }
            }
        }
        run_tile(&ROWS_LISTED_tiles, t, rows, columns);
    }
}

static void panel_of(const struct product *p, const struct piece *s, const struct panel *n)
{
    bool first = n->k == 0, last = n->k + n->depth == p->y.kernel * p->x.kernel * p->depth;
    struct segment segments[SEGMENTS];
    struct tile t = {.segments = segments,
                     .b_step = n->in_place
                                   ? (size_t)(p->y.kernel * p->x.kernel) * (size_t)p->columns
                                   : (size_t)n->width,
                     .add = p->add || !first,
                     .c = p->to + n->column,
                     .bias = last && p->bias ? p->bias + n->column : NULL,
                     .relu = last && p->relu};
    int step = axis_step(&p->y);
    for (int py = 0; py < step; py++) {
        struct range y;
        for (int iy = s->from + py; iy < s->end; iy += y.n * step) {
            y = range_at(&p->y, iy, s->end);
            for (int px = 0; px < step; px++) {
                struct range x;
                for (int ix = px; ix < p->x.to; ix += x.n * step) {
                    x = range_at(&p->x, ix, p->x.to);
                    t.n_segments = list_segments(p, n, &y, &x, segments);
                    if (t.n_segments > 0 || !t.add || t.bias || t.relu)
                        rectangle(p, s, &y, &x, n->columns, &t);
                }
            }
        }
    }
}

/* The summed index in pieces, as equal as can be, of few enough segments. */
static int depth_of(const struct product *p)
{
    int K = p->y.kernel * p->x.kernel * p->depth, pieces = (K + DEPTH - 1) / DEPTH;
    int even = (K + pieces - 1) / pieces, tap = p->depth;
    return least(even, (SEGMENTS - 2) * tap);
}

static void multiply(const struct product *p)
{
    int K = p->y.kernel * p->x.kernel * p->depth, depth = depth_of(p);
    int rows = BLOCK_FLOATS / p->depth / p->x.to; /* of images */
    struct piece s = {.samples = 1};
    if (rows >= p->y.to)
        s.samples = rows / p->y.to;
    rows = least(rows < 1 ? 1 : rows, p->y.to);
    for (s.first = 0; s.first < p->B; s.first += s.samples) {
        s.samples = least(s.samples, p->B - s.first);
        for (s.from = 0; s.from < p->y.to; s.from += rows) {
            s.end = least(s.from + rows, p->y.to);
            bool few = s.samples * (s.end - s.from) * p->x.to < FEW_ROWS;
            for (int c = 0; c < p->columns; c += WIDTH) {
                for (int k = 0; k < K; k += depth) {
                    struct panel n = {.column = c,
                                      .columns = least(WIDTH, p->columns - c),
                                      .k = k,
                                      .depth = least(depth, K - k)};
                    fill_panel(p, few, &n);
                    panel_of(p, &s, &n);
                }
            }
        }
    }
}

/* ---- the three kernels */

INLINE size_t weights_of_group(const struct pp_conv *g)
{
    return (size_t)(g->O / g->groups) * (size_t)(g->kh * g->kw) * (size_t)(g->C / g->groups);
}

static size_t conv_packed_floats(const struct pp_conv *g)
{
    return (size_t)g->groups * packed_floats(g->O / g->groups, g->kh * g->kw * (g->C / g->groups));
}

static void conv_pack(const struct pp_conv *g, const float *W, float *packed)
{
    int O = g->O / g->groups, K = g->kh * g->kw * (g->C / g->groups);
    for (int i = 0; i < g->groups; i++)
        pack(O, K, W + (size_t)i * weights_of_group(g), packed + (size_t)i * packed_floats(O, K));
}

/* W of few channels copies the pixels that each output sees beside each other. */
static bool copies(const struct pp_conv *g)
{
    return g->groups == 1 && g->C < NARROW && g->kh * g->kw > 1;
}

static size_t conv_scratch_floats(const struct pp_conv *g, int B)
{
    size_t K = (size_t)(g->kh * g->kw) * (size_t)(g->C / g->groups);
    size_t copy = copies(g) ? PIXELS * K : 0, panel = (size_t)DEPTH * WIDTH;
    return copy > panel ? copy : panel;
}

static void conv_forward(const struct pp_conv_forward *a)
{
    const struct pp_conv *g = a->g;
    int C = g->C / g->groups, O = g->O / g->groups;
    struct product p = {.y = {g->OH, g->H, g->kh, g->stride, g->pad_top, false},
                        .x = {g->OW, g->W, g->kw, g->stride, g->pad_left, false},
                        .B = a->B,
                        .depth = C,
                        .columns = O,
                        .from_C = (size_t)g->C,
                        .to_C = (size_t)g->O,
                        .scratch = a->scratch,
                        .relu = a->relu};
    for (int i = 0; i < g->groups; i++) {
        p.from = a->x + (size_t)i * (size_t)C;
        p.to = a->y + (size_t)i * (size_t)O;
        p.W = a->W + (size_t)i * weights_of_group(g);
        p.packed = a->packed ? a->packed + (size_t)i * packed_floats(O, g->kh * g->kw * C) : NULL;
        p.bias = a->b ? a->b + (size_t)i * (size_t)O : NULL;
        multiply(&p);
    }
}

static void conv_backward_input(const struct pp_conv_backward_input *a)
{
    const struct pp_conv *g = a->g;
    int C = g->C / g->groups, O = g->O / g->groups;
    struct product p = {.y = {g->H, g->OH, g->kh, g->stride, g->pad_top, true},
                        .x = {g->W, g->OW, g->kw, g->stride, g->pad_left, true},
                        .B = a->B,
                        .depth = O,
                        .columns = C,
                        .from_C = (size_t)g->O,
                        .to_C = (size_t)g->C,
                        .scratch = a->scratch,
                        .add = a->add};
    for (int i = 0; i < g->groups; i++) {
        p.from = a->dz + (size_t)i * (size_t)O;
        p.to = a->dx + (size_t)i * (size_t)C;
        p.W = a->W + (size_t)i * weights_of_group(g);
        multiply(&p);
    }
}

/* Output pixel `pixel` (over all samples) of a part. */
struct place {
    const struct pp_weight_part *part, *end;
    size_t pixel;
};

/* The run of output pixels of one image row from *at on, at most n: how many, which row of which
 * sample; *at becomes what follows. 0: there are no more. */
static int next_run(const struct pp_conv *g, struct place *at, int n, size_t *row, int *ox)
{
    size_t rows = (size_t)g->OH;
    while (at->part < at->end && at->pixel == (size_t)at->part->B * rows * (size_t)g->OW) {
        at->part++;
        at->pixel = 0;
    }
    if (at->part == at->end)
        return 0;
    *row = at->pixel / (size_t)g->OW;
    *ox = (int)(at->pixel % (size_t)g->OW);
    n = least(n, g->OW - *ox);
    at->pixel += (size_t)n;
    return n;
}

/* Those of the next PIXELS pixels that see tap (ky, kx) inside the image. */
static int list_steps(const struct pp_conv *g, struct place at, int ky, int kx, struct step *out)
{
    int have = 0, ox;
    size_t row;
    const struct pp_weight_part *part;
    for (int left = PIXELS, n; left > 0; left -= n) {
        n = next_run(g, &at, left, &row, &ox);
        if (n == 0)
            break;
        part = at.part;
        int iy = (int)(row % (size_t)g->OH) * g->stride + ky - g->pad_top;
        if (iy < 0 || iy >= g->H)
            continue;
        const float *x = part->x + (row / (size_t)g->OH * (size_t)g->H + (size_t)iy) *
                                       (size_t)g->W * (size_t)g->C;
        const float *dz = part->dz + row * (size_t)g->OW * (size_t)g->O;
        for (int o = ox; o < ox + n; o++) {
            int ix = o * g->stride + kx - g->pad_left;
            if (ix >= 0 && ix < g->W)
                out[have++] = (struct step){.a = dz + (size_t)o * (size_t)g->O,
                                            .b = x + (size_t)ix * (size_t)g->C};
        }
    }
    return have;
}

/* The same for all taps at once: copy[pixel][ky][kx][c], 0 outside. */
static int copy_steps(const struct pp_conv *g, struct place at, float *copy, struct step *out)
{
    int have = 0, ox;
    size_t row, C = (size_t)g->C, K = (size_t)(g->kh * g->kw) * C;
    for (int left = PIXELS, n; left > 0; left -= n) {
        n = next_run(g, &at, left, &row, &ox);
        if (n == 0)
            break;
        int top = (int)(row % (size_t)g->OH) * g->stride - g->pad_top;
        const float *image = at.part->x + row / (size_t)g->OH * (size_t)(g->H * g->W) * C;
        for (int o = ox; o < ox + n; o++, copy += K) {
            int left_x = o * g->stride - g->pad_left;
            int from = left_x < 0 ? least(-left_x, g->kw) : 0;
            int to = least(g->kw, g->W - left_x);
            for (int ky = 0; ky < g->kh; ky++) {
                float *line = copy + (size_t)(ky * g->kw) * C;
                int iy = top + ky;
                if (iy < 0 || iy >= g->H || to <= from) {
                    memset(line, 0, (size_t)g->kw * C * sizeof(*line));
                    continue;
                }
                memset(line, 0, (size_t)from * C * sizeof(*line));
                memcpy(line + (size_t)from * C,
                       image + ((size_t)iy * (size_t)g->W + (size_t)(left_x + from)) * C,
                       (size_t)(to - from) * C * sizeof(*line));
                memset(line + (size_t)to * C, 0, (size_t)(g->kw - to) * C * sizeof(*line));
            }
            out[have++] = (struct step){
                .a = at.part->dz + (row * (size_t)g->OW + (size_t)o) * (size_t)g->O, .b = copy};
        }
    }
    return have;
}

/* dW[O][..] (rows c_row apart, `columns` of each) = (add ? dW : 0) + the steps */
static void add_steps(int n, const struct step *steps, int O, int columns, size_t c_row, bool add,
                      size_t a_at, size_t b_at, float *dW)
{
    struct segment depth = {.depth = n};
    struct groups g = groups_of(O);
    struct tile t = {
        .segments = &depth, .n_segments = 1, .steps = steps, .c_row = c_row, .add = add};
    for (int o = 0, k = 0; k < g.n; k++) {
        int rows = g.size + (k < g.larger);
        t.a_at = a_at + (size_t)o;
        for (int i = 0; i < columns; i += WIDTH) {
            t.b_at = b_at + (size_t)i;
            t.c = dW + (size_t)o * c_row + i;
            run_tile(&STEPS_LISTED_tiles, &t, rows, least(WIDTH, columns - i));
        }
        o += rows;
    }
}

static void conv_backward_weight(const struct pp_conv_backward_weight *a)
{
    const struct pp_conv *g = a->g;
    int C = g->C / g->groups, O = g->O / g->groups, taps = g->kh * g->kw;
    struct step steps[PIXELS];
    struct place at = {.part = a->parts, .end = a->parts + a->n};
    bool add = a->beta != 0;
    size_t row;
    for (int ox, left = PIXELS;;) {
        struct place block = at;
        for (int n; left > 0; left -= n) {
            n = next_run(g, &at, left, &row, &ox);
            if (n == 0)
                break;
        }
        if (left == PIXELS && add)
            break;
        if (copies(g)) {
            int n = copy_steps(g, block, a->scratch, steps);
            add_steps(n, steps, O, taps * C, (size_t)(taps * C), add, 0, 0, a->dW);
        }
        for (int t = 0; t < (copies(g) ? 0 : taps); t++) {
            int n = list_steps(g, block, t / g->kw, t % g->kw, steps);
            for (int i = 0; i < g->groups; i++) {
                add_steps(n, steps, O, C, (size_t)(taps * C), add, (size_t)(i * O), (size_t)(i * C),
                          a->dW + (size_t)i * weights_of_group(g) + (size_t)(t * C));
            }
        }
        add = true;
        left = PIXELS;
    }
}

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

/* PPCLI_ISA is avx2 or avx512: set on the compiler's command line. */
const struct cpu_conv JOIN(cpu_conv_, PPCLI_ISA) = {
    .packed_floats = conv_packed_floats,
    .pack = conv_pack,
    .scratch_floats = conv_scratch_floats,
    .forward = conv_forward,
    .backward_input = conv_backward_input,
    .backward_weight = conv_backward_weight,
};
