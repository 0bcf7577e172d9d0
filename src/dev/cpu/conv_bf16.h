/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions with the tiles of gemm_bf16.c, which includes this file. F and I round each value of
 * a piece of the image once, into words with zeros around them; the rows of a tile are pixels in
 * these words. W pairs pixels when it needs them.
 */
#ifndef PPCLI_DEV_CPU_CONV_BF16_H
#define PPCLI_DEV_CPU_CONV_BF16_H

enum {
    IMAGE_WORDS = 128 * 1024, /* of the image at a time: half of a small L2 */
    IMAGE_DEPTH = 640         /* words of the summed index at a time: a panel of them fits L2 */
};

/* A product of one group: F, or I of a class of pixels that see taps (ky, kx), (ky, kx + stride),
 * ... The pixels of y x `across` sum over the taps that they see and `terms` channels of each. */
struct product {
    const struct pp_conv *g;
    struct view y, across;
    int terms, columns;       /* channels of the group that are summed over; channels of the
                                 result */
    bool back;                /* I: W[terms][taps][columns]; F: W[columns][taps][terms] */
    size_t pixel, to_pixel;   /* channels of all groups: of the image, of the result */
    size_t to_line, to_image; /* floats of the result */
    const float *W, *packed, *bias;
    bool relu, add;
    const float *from;
    float *to, *scratch; /* conv_scratch_floats() */
};

/* A piece of the rows of images of H rows: the rest of an image, whole images, or the beginning of
 * one: first image, number of images, rows of each. */
struct images {
    size_t b, n;
    int from, end;
};

static size_t images_next(size_t H, size_t at, size_t end, struct images *out)
{
    size_t b = at / H, first = at % H, whole = first ? 0 : (end - at) / H;
    size_t next = whole ? at + whole * H : end < (b + 1) * H ? end : (b + 1) * H;
    *out = (struct images){b, whole ? whole : 1, (int)first,
                           whole ? (int)H : (int)(first + next - at)};
    return next;
}

/* Describes the product of a forward pass (F), for the rows from .. end - 1 of its outputs or, with
 * `back`, of an input gradient (I), for those of its inputs that see the taps (ky, kx), (ky, kx +
 * stride), ... */
static struct product find_product(const struct pp_conv *g, bool back, int from, int end, int ky,
                                   int kx)
{
    int C = back ? g->O : g->C, to_C = back ? g->C : g->O;
    int to_H = back ? g->H : g->OH, to_W = back ? g->W : g->OW;
    struct product p = {.g = g,
                        .y = view_outputs(from, end, g->kh, g->stride, g->pad_top, g->H),
                        .across = view_outputs(0, to_W, g->kw, g->stride, g->pad_left, g->W),
                        .terms = C / g->groups,
                        .columns = to_C / g->groups,
                        .back = back,
                        .pixel = (size_t)C,
                        .to_pixel = (size_t)to_C,
                        .to_line = (size_t)(to_W * to_C),
                        .to_image = (size_t)(to_H * to_W) * (size_t)to_C};
    if (back) {
        p.y = view_inputs(from, end, ky, g->kh, g->stride, g->pad_top, g->OH);
        p.across = view_inputs(0, to_W, kx, g->kw, g->stride, g->pad_left, g->OW);
    }
    return p;
}

/* Returns the words (pairs of bf16) that each result sums over: whole words for each tap that a
 * pixel sees. */
INLINE int depth_of(const struct product *p)
{
    return p->y.taps * p->across.taps * count_words(p->terms);
}

INLINE size_t panels_of(const struct product *p)
{
    return packed_floats(p->columns, depth_of(p));
}

/* ---- weights as words */

/* Writes words k .. k + depth - 1 (pairs of bf16) of the panel of weights whose first column is
 * `column`. */
static void make_panel(const struct product *p, int k, int depth, int column, float *to)
{
    int words = count_words(p->terms), columns = least(WIDTH, p->columns - column);
    int width = panel_width(p->columns, column);
    size_t terms = (size_t)p->terms, all = (size_t)p->columns,
           taps = (size_t)p->g->kh * (size_t)p->g->kw;
    for (int end = k + depth, n; k < end; k += n) {
        int seen = k / words, w = k % words;
        n = least(words - w, end - k);
        size_t tap = (size_t)(p->y.tap + seen / p->across.taps * p->y.tap_step) * (size_t)p->g->kw +
                     (size_t)(p->across.tap + seen % p->across.taps * p->across.tap_step);
        if (!p->back) {
            size_t row = taps * terms;
            pack_words(least(2 * n, p->terms - 2 * w), row, columns, width,
                       p->W + (size_t)column * row + tap * terms + (size_t)(2 * w), to);
            to += (size_t)n * (size_t)width;
            continue;
        }
        for (int o = 2 * w; o < 2 * (w + n); o += 2, to += width) {
            const float *row = p->W + ((size_t)o * taps + tap) * all + column;
            bf16_zip(columns, row, o + 1 < p->terms ? row + taps * all : NULL, to);
        }
    }
}

static float *pack_product(const struct product *p, float *packed)
{
    int K = depth_of(p);
    for (int c = 0; c < p->columns; c += WIDTH) {
        make_panel(p, 0, K, c, packed);
        packed += (size_t)K * (size_t)panel_width(p->columns, c);
    }
    return packed;
}

/* Returns where the packed weights of an input gradient begin for the pixels that see tap (ky, kx).
 * They follow those of the forward pass and of lower taps; (stride, 0) gives the end. */
static size_t class_at(const struct pp_conv *g, int ky, int kx)
{
    struct product p = find_product(g, false, 0, g->OH, 0, 0);
    size_t at = panels_of(&p);
    for (int i = 0; i < ky * g->stride + kx; i++) {
        p = find_product(g, true, 0, g->H, i / g->stride, i % g->stride);
        at += panels_of(&p);
    }
    return at;
}

static size_t conv_packed_floats(const struct pp_conv *g)
{
    return (size_t)g->groups * class_at(g, g->stride, 0);
}

static void conv_pack(const struct pp_conv *g, const float *W, float *packed)
{
    for (int i = 0; i < g->groups; i++, W += weights_of_group(g)) {
        struct product p = find_product(g, false, 0, g->OH, 0, 0);
        p.W = W;
        packed = pack_product(&p, packed);
        for (int j = 0; j < g->stride * g->stride; j++) {
            p = find_product(g, true, 0, g->H, j / g->stride, j % g->stride);
            p.W = W;
            packed = pack_product(&p, packed);
        }
    }
}

/* ---- F and I */

/* Returns how many elements of an axis n neighbouring pixels see together. */
INLINE int view_span(const struct view *v, int n)
{
    return (n - 1) * v->stride + v->taps;
}

INLINE int view_first(const struct view *v, int i)
{
    return v->from + i * v->stride + (v->ahead < 0 ? 1 - v->taps : 0);
}

/* Rows at .. at + rows - 1 of y in some images. */
struct piece {
    size_t image, images;
    int at, rows;
};

/* Fills the scratch with the pixels that the piece sees, as words:
 * [images][lines][across][words]. */
static void fill_words(const struct product *p, const struct piece *s)
{
    const struct view *vy = &p->y, *vx = &p->across;
    int words = count_words(p->terms), lines = view_span(vy, s->rows), wide = view_span(vx, vx->n);
    int y0 = view_first(vy, s->at), x0 = view_first(vx, 0);
    float *to = p->scratch;
    for (size_t b = s->image; b < s->image + s->images; b++) {
        for (int y = y0; y < y0 + lines; y++) {
            bool inside = y >= 0 && y < vy->other;
            const float *line = inside ? p->from + (b * (size_t)vy->other + (size_t)y) *
                                                       (size_t)vx->other * p->pixel
                                       : NULL;
            for (int x = x0; x < x0 + wide; x++, to += words)
                if (inside && x >= 0 && x < vx->other)
                    bf16_pairs(p->terms, line + (size_t)x * p->pixel, to);
                else
                    memset(to, 0, (size_t)words * sizeof(*to));
        }
    }
}

/* Lists words k .. k + depth - 1 that the results sum over as segments, one for each tap; returns
 * their number. */
static int list_taps(const struct product *p, int k, int depth, const float *panel, int width,
                     struct segment *out)
{
    const struct view *vy = &p->y, *vx = &p->across;
    int words = count_words(p->terms), wide = view_span(vx, vx->n), have = 0;
    for (int i = k, n; i < k + depth; i += n) {
        int y = i / words / vx->taps, x = i / words % vx->taps;
        n = least(words - i % words, k + depth - i);
        y = vy->ahead < 0 ? vy->taps - 1 - y : y;
        x = vx->ahead < 0 ? vx->taps - 1 - x : x;
        out[have++] = (struct segment){
            .depth = n,
            .a = p->scratch + ((size_t)y * (size_t)wide + (size_t)x) * (size_t)words + i % words,
            .b = panel + (size_t)(i - k) * (size_t)width};
    }
    return have;
}

/* Computes the pixels of a piece for the columns of one panel of weights, tile by tile. */
static void piece_tiles(const struct product *p, const struct piece *s, int column, struct tile *t)
{
    const struct view *vy = &p->y, *vx = &p->across;
    size_t words = (size_t)count_words(p->terms), wide = (size_t)view_span(vx, vx->n);
    size_t lines = (size_t)view_span(vy, s->rows), b = 0;
    struct groups g = groups_of((int)s->images * s->rows * vx->n);
    for (int k = 0, i = 0, j = 0; k < g.n; k++) {
        int rows = g.size + (k < g.larger);
        for (int r = 0; r < rows; r++) {
            t->a_of[r] =
                ((b * lines + (size_t)(i * vy->stride)) * wide + (size_t)(j * vx->stride)) * words;
            t->c_of[r] = (s->image + b) * p->to_image +
                         (size_t)(vy->at + (s->at + i) * vy->step) * p->to_line +
                         (size_t)(vx->at + j * vx->step) * p->to_pixel;
            if (++j == vx->n) {
                j = 0;
                if (++i == s->rows) {
                    i = 0;
                    b++;
                }
            }
        }
        run_tile(&ROWS_LISTED_tiles, t, rows, least(WIDTH, p->columns - column));
    }
}

static void multiply_piece(const struct product *p, const struct piece *s)
{
    struct segment segments[SEGMENTS];
    float own[IMAGE_DEPTH * WIDTH];
    int K = depth_of(p), most = least(IMAGE_DEPTH, (SEGMENTS - 2) * count_words(p->terms));
    int pieces = K > 0 ? (K + most - 1) / most : 1, steps = (K + pieces - 1) / pieces;
    if (K > 0)
        fill_words(p, s);
    for (int c = 0; c < p->columns; c += WIDTH) {
        int k = 0, width = panel_width(p->columns, c);
        do {
            int depth = least(steps, K - k);
            const float *panel = own;
            if (p->packed)
                panel = p->packed + (size_t)c * (size_t)K + (size_t)k * (size_t)width;
            else
                make_panel(p, k, depth, c, own);
            bool last = k + depth == K;
            struct tile t = {.segments = segments,
                             .n_segments = list_taps(p, k, depth, panel, width, segments),
                             .b_step = (size_t)width,
                             .add = p->add || k > 0,
                             .c = p->to + c,
                             .bias = last && p->bias ? p->bias + c : NULL,
                             .relu = last && p->relu};
            piece_tiles(p, s, c, &t);
            k += depth;
        } while (k < K);
    }
}

/* Computes `images` images, as many lines at a time as fit in IMAGE_WORDS. */
static void multiply(const struct product *p, size_t images)
{
    const struct view *vy = &p->y, *vx = &p->across;
    if (vy->n == 0 || vx->n == 0 || (depth_of(p) == 0 && p->add))
        return;
    int line = view_span(vx, vx->n) * count_words(p->terms);
    int lines = line > 0 ? IMAGE_WORDS / line : IMAGE_WORDS;
    int rows = least(vy->n, lines < vy->taps ? 1 : (lines - vy->taps) / vy->stride + 1);
    size_t some = rows == vy->n ? (size_t)(lines / (vy->stride * rows + vy->taps)) : 0;
    struct piece s;
    for (s.image = 0; s.image < images; s.image += s.images) {
        s.images = some < 1 ? 1 : some < images - s.image ? some : images - s.image;
        for (s.at = 0; s.at < vy->n; s.at += s.rows) {
            s.rows = least(rows, vy->n - s.at);
            multiply_piece(p, &s);
        }
    }
}

/* Returns the floats of scratch that each thread of a rank needs: for a piece of the image, or for
 * one row of pixels if that needs more. */
static size_t conv_scratch_floats(const struct pp_conv *g, int B)
{
    size_t f = (size_t)((g->OW - 1) * g->stride + g->kw) * (size_t)count_words(g->C / g->groups);
    size_t i = (size_t)(g->W + g->kw) * (size_t)count_words(g->O / g->groups);
    size_t floats = ((f > i ? f : i) * (size_t)g->kh + 15) / 16 * 16;
    return floats > IMAGE_WORDS ? floats : IMAGE_WORDS;
}

static void multiply_groups(struct product *p, size_t images, const float *W, const float *packed,
                            const float *bias, const float *from, float *to)
{
    const struct pp_conv *g = p->g;
    size_t terms = (size_t)p->terms, columns = (size_t)p->columns;
    for (size_t i = 0; i < (size_t)g->groups; i++) {
        p->W = W + i * weights_of_group(g);
        p->packed = packed ? packed + i * class_at(g, g->stride, 0) : NULL;
        p->bias = bias ? bias + i * columns : NULL;
        p->from = from + i * terms;
        p->to = to + i * columns;
        multiply(p, images);
    }
}

static void conv_forward(const void *args, const struct pp_piece *w)
{
    const struct pp_conv_forward *a = args;
    const struct pp_conv *g = a->g;
    struct images m;
    for (size_t at = w->from; at < w->to;) {
        at = images_next((size_t)g->OH, at, w->to, &m);
        struct product p = find_product(g, false, m.from, m.end, 0, 0);
        p.relu = a->relu;
        p.scratch = a->scratch + (size_t)w->member * conv_scratch_floats(g, a->B);
        multiply_groups(&p, m.n, a->W, a->packed, a->b,
                        a->x + m.b * (size_t)(g->H * g->W) * p.pixel, a->y + m.b * p.to_image);
    }
}

static void conv_backward_input(const void *args, const struct pp_piece *w)
{
    const struct pp_conv_backward_input *a = args;
    const struct pp_conv *g = a->g;
    struct images m;
    for (size_t at = w->from; at < w->to;) {
        at = images_next((size_t)g->H, at, w->to, &m);
        for (int i = 0; i < g->stride * g->stride; i++) {
            int ky = i / g->stride, kx = i % g->stride;
            struct product p = find_product(g, true, m.from, m.end, ky, kx);
            p.add = a->add;
            p.scratch = a->scratch + (size_t)w->member * conv_scratch_floats(g, a->B);
            multiply_groups(&p, m.n, a->W, a->packed ? a->packed + class_at(g, ky, kx) : NULL, NULL,
                            a->dz + m.b * (size_t)(g->OH * g->OW) * p.pixel,
                            a->dx + m.b * p.to_image);
        }
    }
}

static void conv_backward_weight(const void *args, const struct pp_piece *w)
{
    const struct pp_conv_backward_weight *a = args;
    const struct pp_conv *g = a->g;
    int C = g->C / g->groups, O = g->O / g->groups, K = g->kh * g->kw * C;
    struct view y = view_outputs(0, g->OH, g->kh, g->stride, g->pad_top, g->H);
    struct view across = view_outputs(0, g->OW, g->kw, g->stride, g->pad_left, g->W);
    for (int o = (int)w->from, end; o < (int)w->to; o = end) {
        int i = o / O;
        end = least((i + 1) * O, (int)w->to);
        const struct cpu_block at = {o, end, 0, K};
        const struct weight to = {(size_t)g->O, (size_t)K, &at, a->dW};
        struct rows x[SEGMENTS];
        for (int k = 0, some; k < a->n; k += some) {
            some = least(SEGMENTS, a->n - k);
            for (int j = 0; j < some; j++)
                x[j] = (struct rows){a->parts[k + j].x + (size_t)i * (size_t)C, (size_t)g->C, &y,
                                     &across, C};
            add_parts(&to, some, a->parts + k, g->OH * g->OW, x, k > 0 || a->beta != 0);
        }
    }
}

static const struct cpu_conv conv_bf16 = {
    .packed_floats = conv_packed_floats,
    .pack = conv_pack,
    .scratch_floats = conv_scratch_floats,
    .forward = conv_forward,
    .backward_input = conv_backward_input,
    .backward_weight = conv_backward_weight,
};

#endif
