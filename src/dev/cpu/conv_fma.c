/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolution with the tiles of the products, without a copy of the image: F and I list the
 * addresses of a tile's rows, W those of its steps.
 *
 * Padding is never multiplied. F and I work on rectangles of pixels that see the same taps inside
 * the other image (for 3x3 over 4x4: four corners, four edges, the middle); the rows of a tile are
 * the pixels of one rectangle in all samples at hand. W lists the pixels of each tap that are
 * inside. So every element of a result is one chain of fused multiply-adds over the terms of the
 * formula, in its order (y: ky, kx, c; dx: ky, kx, o; dW: part, sample, oy, ox), and its bits
 * depend on the numbers alone: not on blocking, on other samples or, for dW, on how samples are
 * divided into parts.
 *
 * GFLOP/s of F, I, W on one core (Cascade Lake), 8 samples, padding counted as work; in the same
 * minute the products of 768x512x512 gave 122 101 92:
 *
 *   3x3 of  64 channels 32x32   140 133 111       3x3 stride 2,  64 to 128   125 109 106
 *   3x3 of 128 channels 16x16   138 131 126       3x3 stride 2, 128 to 256   130 117 111
 *   3x3 of 256 channels 8x8     147 144 136       3x3 stride 2, 256 to 512   129 115 109
 *   3x3 of 512 channels 4x4     155 153 146       3x3 of 3 channels 32x32     72  14  32
 *
 * One source, compiled for each instruction set.
 */

#include "conv_weight.h"
#include "gemm_pack.h"

DEFINE_TILES(ROWS_LISTED)

enum {
    DEPTH = 640,              /* of the summed index at a time: a panel of it fits L2 */
    FEW_DEPTH = 128,          /* as DEPTH, for a panel that is read in place */
    FEW_ROWS = 48,            /* I does not copy a panel for fewer rows */
    MANY_PIXELS = 16,         /* pixels per sample from which I uses packed weights, if they are
                                 large */
    SEGMENTS = 64,            /* most segments of a tile */
    BLOCK_FLOATS = 128 * 1024 /* of the image at a time: half of a small L2 */
};

/* One axis of the image that is computed (`to`) and of the other image (`from`). */
struct axis {
    int to, from, kernel, stride, pad;
    bool back; /* I: `to` is the input of the convolution */
};

/* The pixels at, at + step, ... (n pixels) see the taps k, k + k_step, ... (`taps` taps); the taps
 * of the first pixel read from, from + 1, ... (in I in descending order of k). */
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
    int end = at + x->pad; /* in I, of tap 0 */
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

/* Returns the longest range of pixels from `at` on, before `end`, that see the same taps. */
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

/* One group of F or I. Row k of the panel b is (ky * kw + kx) * depth + channel. */
struct product {
    struct axis y, x;
    int B;
    int depth, columns;  /* channels of the group that are summed over; channels of the result */
    size_t from_C, to_C; /* channels of a whole pixel */
    const float *from;   /* first channel of the group */
    const float *W;      /* I: W[depth][taps][columns]; F: W[columns][taps * depth] */
    const float *packed; /* F: panels, or NULL */
    float *scratch;      /* memory for a panel */
    const float *bias;   /* NULL: no bias */
    bool relu, add;
    float *to;
};

/* Rows k .. k + depth - 1 of some columns of b, b_step apart. */
struct panel {
    int column, columns, width;
    int k, depth;
    bool in_place; /* I: rows of one tap are read from W */
    const float *b;
    size_t b_step;
    const float *next; /* first row of the next panel, its rows next_step apart; NULL: unknown */
    size_t next_step;
};

/* Copies the rows of a panel for an input gradient, from row n->k on, out of W[channel of
 * dz][tap][column]. */
static void copy_panel(const struct product *p, const struct panel *n, float *to)
{
    size_t taps = (size_t)p->y.kernel * (size_t)p->x.kernel;
    int o = n->k % p->depth, tap = n->k / p->depth;
    for (int k = 0; k < n->depth; k++, to += n->width) {
        size_t row = (size_t)o * taps + (size_t)tap;
        copy_few(n->columns, p->W + row * (size_t)p->columns + n->column, to);
        if (++o == p->depth) {
            o = 0;
            tap++;
        }
    }
}

/* Sets the addresses of this panel of weights and of the next one. Copies the panel into the
 * scratch if it is neither packed nor read in place. */
static void find_panel(const struct product *p, struct panel *n)
{
    int taps = p->y.kernel * p->x.kernel;
    size_t K = (size_t)taps * (size_t)p->depth, row = (size_t)taps * (size_t)p->columns;
    n->width = panel_width(p->columns, n->column);
    n->b = p->scratch;
    n->b_step = n->next_step = (size_t)n->width;
    n->next = NULL;
    if (p->packed) {
        n->b = p->packed + (size_t)n->column * K + (size_t)n->k * (size_t)n->width;
        /* panels follow each other without a gap */
        n->next = n->b + (size_t)n->depth * (size_t)n->width;
        return;
    }
    if (!p->y.back) {
        pack_panel(n->depth, K, n->columns, n->width, p->W + (size_t)n->column * K + n->k,
                   p->scratch);
        return;
    }
    if (n->depth <= p->depth) {
        size_t k = ((size_t)n->k + (size_t)n->depth) % K, D = (size_t)p->depth;
        n->next = p->W + k % D * row + k / D * (size_t)p->columns + n->column + (k ? 0 : WIDTH);
        n->next_step = row;
    }
    if (n->in_place)
        n->b_step = row;
    else
        copy_panel(p, n, p->scratch);
}

/* Lists what the pixels of the rectangle y x x sum over in the panel as segments; returns their
 * number. */
static int list_segments(const struct product *p, const struct panel *n, const struct range *y,
                         const struct range *x, struct segment *out)
{
    const struct axis *ay = &p->y, *ax = &p->x;
    int have = 0, k_step = axis_step(ay), taps = ay->kernel * ax->kernel;
    /* in F the taps of a row are contiguous in image and panel, unless there are groups */
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
    int fetch; /* vectors of the next panel that each tile prefetches */
};

/* Computes the pixels of a rectangle in the samples of a piece, tile by tile. */
static void add_rectangle(const struct product *p, const struct piece *s, const struct range *y,
                          const struct range *x, const struct panel *n, int *fetched,
                          struct tile *t)
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
        bool more = n->next && *fetched < VECTORS;
        t->next = more ? n->next + LANE(*fetched) : NULL;
        t->fetch = more ? s->fetch : 0;
        *fetched += s->fetch;
        run_tile(&ROWS_LISTED_tiles, t, rows, n->columns);
    }
}

static void panel_of(const struct product *p, const struct piece *s, const struct panel *n)
{
    bool first = n->k == 0, last = n->k + n->depth == p->y.kernel * p->x.kernel * p->depth;
    struct segment segments[SEGMENTS];
    struct tile t = {.segments = segments,
                     .b_step = n->b_step,
                     .add = p->add || !first,
                     .c = p->to + n->column,
                     .bias = last && p->bias ? p->bias + n->column : NULL,
                     .relu = last && p->relu,
                     .next_step = n->next_step};
    int step = axis_step(&p->y), fetched = 0;
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
                        add_rectangle(p, s, &y, &x, n, &fetched, &t);
                }
            }
        }
    }
}

/* Returns how many rows the panel that begins at row k has, at most `most`: several whole taps if
 * at least two fit, else one tap or an equal part of one. */
static int depth_at(const struct product *p, int most, int k)
{
    int taps = p->y.kernel * p->x.kernel, n = least(most / p->depth, SEGMENTS);
    if (n > 1) {
        n = (taps + n - 1) / n; /* pieces */
        return least((taps + n - 1) / n, taps - k / p->depth) * p->depth;
    }
    n = (p->depth + most - 1) / most;
    return least((p->depth + n - 1) / n, p->depth - k % p->depth);
}

/* Computes rows from .. end - 1 of each of the p->B images, for one group of channels. */
static void multiply_rows(const struct product *p, int from, int end)
{
    int K = p->y.kernel * p->x.kernel * p->depth;
    int rows = BLOCK_FLOATS / p->depth / p->x.to; /* of images */
    struct piece s = {.samples = 1};
    if (rows >= end - from)
        s.samples = rows / (end - from);
    rows = least(rows < 1 ? 1 : rows, end - from);
    for (s.first = 0; s.first < p->B; s.first += s.samples) {
        s.samples = least(s.samples, p->B - s.first);
        for (s.from = from; s.from < end; s.from += rows) {
            s.end = least(s.from + rows, end);
            int pixels = s.samples * (s.end - s.from) * p->x.to;
            bool few = pixels / p->y.stride / p->x.stride < FEW_ROWS;
            s.fetch = vectors_a_tile(pixels / (2 * ROWS));
            for (int c = 0; c < p->columns; c += WIDTH) {
                struct panel n = {.column = c,
                                  .columns = least(WIDTH, p->columns - c),
                                  .in_place = few && p->y.back && !p->packed};
                for (n.k = 0; n.k < K; n.k += n.depth) {
                    n.depth = depth_at(p, n.in_place ? FEW_DEPTH : DEPTH, n.k);
                    find_panel(p, &n);
                    panel_of(p, &s, &n);
                }
            }
        }
    }
}

/* Computes a piece of the rows of all images, which may be the rest of an image, whole images and
 * the beginning of an image. */
static void multiply(const struct product *whole, const struct pp_piece *w)
{
    size_t H = (size_t)whole->y.to;
    for (size_t r = w->from, next; r < w->to; r = next) {
        struct product p = *whole;
        size_t b = r / H, first = r % H, images = first ? 0 : (w->to - r) / H;
        next = images ? r + images * H : w->to < (b + 1) * H ? w->to : (b + 1) * H;
        p.B = images ? (int)images : 1;
        p.from += b * (size_t)p.y.from * (size_t)p.x.from * p.from_C;
        p.to += b * H * (size_t)p.x.to * p.to_C;
        multiply_rows(&p, (int)first, images ? (int)H : (int)(first + next - r));
    }
}

/* ---- the three kernels */

/* Returns whether the input gradient has its own packed copy of the weights: if they are larger
 * than a cache and serve many pixels. Otherwise it copies a panel whenever it needs one. */
INLINE bool packs_input(const struct pp_conv *g)
{
    return weights_of_group(g) >= (size_t)2 * BLOCK_FLOATS && g->H * g->W >= MANY_PIXELS;
}

/* Returns the floats of the packed weights of one group for the forward pass. */
INLINE size_t floats_of_group(const struct pp_conv *g)
{
    return packed_floats(g->O / g->groups, g->kh * g->kw * (g->C / g->groups));
}

/* Returns the floats of the packed weights of one group for the input gradient. */
INLINE size_t input_floats_of_group(const struct pp_conv *g)
{
    return packed_floats(g->C / g->groups, g->kh * g->kw * (g->O / g->groups));
}

static size_t conv_packed_floats(const struct pp_conv *g)
{
    size_t input = packs_input(g) ? input_floats_of_group(g) : 0;
    return (size_t)g->groups * (floats_of_group(g) + input);
}

static void conv_pack(const struct pp_conv *g, const float *W, float *packed)
{
    int C = g->C / g->groups, O = g->O / g->groups, K = g->kh * g->kw * C;
    for (int i = 0; i < g->groups; i++, packed += floats_of_group(g))
        pack(O, K, W + (size_t)i * weights_of_group(g), packed);
    for (int i = 0; packs_input(g) && i < g->groups; i++) {
        struct product p = {.y.kernel = g->kh,
                            .x.kernel = g->kw,
                            .depth = O,
                            .columns = C,
                            .W = W + (size_t)i * weights_of_group(g)};
        for (int c = 0; c < C; c += WIDTH) {
            struct panel n = {.column = c,
                              .columns = least(WIDTH, C - c),
                              .width = panel_width(C, c),
                              .depth = g->kh * g->kw * O};
            copy_panel(&p, &n, packed);
            packed += (size_t)n.depth * (size_t)n.width;
        }
    }
}

/* Returns the floats of scratch that each thread of a rank needs. */
static size_t conv_scratch_floats(const struct pp_conv *g, int B)
{
    size_t lists = (place_lists(g, NULL, NULL) + 15) / 16 * 16, panel = (size_t)DEPTH * WIDTH;
    return lists > panel ? lists : panel;
}

static void conv_forward(const void *args, const struct pp_piece *w)
{
    const struct pp_conv_forward *a = args;
    const struct pp_conv *g = a->g;
    int C = g->C / g->groups, O = g->O / g->groups;
    struct product p = {.y = {g->OH, g->H, g->kh, g->stride, g->pad_top, false},
                        .x = {g->OW, g->W, g->kw, g->stride, g->pad_left, false},
                        .depth = C,
                        .columns = O,
                        .from_C = (size_t)g->C,
                        .to_C = (size_t)g->O,
                        .scratch = a->scratch + (size_t)w->member * conv_scratch_floats(g, a->B),
                        .relu = a->relu};
    for (int i = 0; i < g->groups; i++) {
        p.from = a->x + (size_t)i * (size_t)C;
        p.to = a->y + (size_t)i * (size_t)O;
        p.W = a->W + (size_t)i * weights_of_group(g);
        p.packed = a->packed ? a->packed + (size_t)i * floats_of_group(g) : NULL;
        p.bias = a->b ? a->b + (size_t)i * (size_t)O : NULL;
        multiply(&p, w);
    }
}

static void conv_backward_input(const void *args, const struct pp_piece *w)
{
    const struct pp_conv_backward_input *a = args;
    const struct pp_conv *g = a->g;
    int C = g->C / g->groups, O = g->O / g->groups;
    struct product p = {.y = {g->H, g->OH, g->kh, g->stride, g->pad_top, true},
                        .x = {g->W, g->OW, g->kw, g->stride, g->pad_left, true},
                        .depth = O,
                        .columns = C,
                        .from_C = (size_t)g->O,
                        .to_C = (size_t)g->C,
                        .scratch = a->scratch + (size_t)w->member * conv_scratch_floats(g, a->B),
                        .add = a->add};
    for (int i = 0; i < g->groups; i++) {
        if (a->packed && packs_input(g)) {
            p.packed = a->packed + (size_t)g->groups * floats_of_group(g) +
                       (size_t)i * input_floats_of_group(g);
        }
        p.from = a->dz + (size_t)i * (size_t)O;
        p.to = a->dx + (size_t)i * (size_t)C;
        p.W = a->W + (size_t)i * weights_of_group(g);
        multiply(&p, w);
    }
}

static void conv_backward_weight(const void *args, const struct pp_piece *w)
{
    const struct pp_conv_backward_weight *a = args;
    add_pixels(a, a->scratch + (size_t)w->member * conv_scratch_floats(a->g, 0), w);
}

const struct cpu_conv CPU_LOOP(conv) = {
    .packed_floats = conv_packed_floats,
    .pack = conv_pack,
    .scratch_floats = conv_scratch_floats,
    .forward = conv_forward,
    .backward_input = conv_backward_input,
    .backward_weight = conv_backward_weight,
};
