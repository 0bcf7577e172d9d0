/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions by the products of gemm_bf16.c, which includes this. */
#ifndef PPCLI_DEV_CPU_CONV_BF16_H
#define PPCLI_DEV_CPU_CONV_BF16_H

INLINE size_t words_of_group(const struct pp_conv *g)
{
    return bf16_packed_floats(g->O / g->groups, g->kh * g->kw * (g->C / g->groups));
}

/* I's rows of a class: the pixels of dx that see taps (ky, kx), (ky, kx + stride), ... */
struct input_class {
    struct view y, across;
    int K;
};

/* Of rows from .. end - 1. */
static struct input_class find_class(const struct pp_conv *g, int from, int end, int ky, int kx)
{
    struct input_class c = {.y = view_inputs(from, end, ky, g->kh, g->stride, g->pad_top, g->OH),
                            .across =
                                view_inputs(0, g->W, kx, g->kw, g->stride, g->pad_left, g->OW)};
    c.K = c.y.taps * c.across.taps * (g->O / g->groups);
    return c;
}

static struct forward class_weights(const struct pp_conv *g, const struct input_class *c,
                                    const float *W)
{
    return (struct forward){.a.C = g->O / g->groups,
                            .K = c->K,
                            .columns = g->C / g->groups,
                            .b = {.x = W, .row = (size_t)(g->C / g->groups)},
                            .y = &c->y,
                            .across = &c->across,
                            .taps = (size_t)(g->kh * g->kw),
                            .kernel_row = (size_t)g->kw};
}

/* Where the words of a class begin among those of a group, F's first; of class `stride`, 0: the end. */
static size_t class_at(const struct pp_conv *g, int ky, int kx)
{
    size_t at = words_of_group(g);
    for (int i = 0; i < ky * g->stride + kx; i++) {
        struct input_class c = find_class(g, 0, g->H, i / g->stride, i % g->stride);
        at += bf16_packed_floats(g->C / g->groups, c.K);
    }
    return at;
}

static size_t conv_packed_floats(const struct pp_conv *g)
{
    return (size_t)g->groups * class_at(g, g->stride, 0);
}

static void conv_pack(const struct pp_conv *g, const float *W, float *packed)
{
    int C = g->C / g->groups;
    for (int i = 0; i < g->groups; i++, W += weights_of_group(g)) {
        bf16_pack(g->O / g->groups, g->kh * g->kw * C, W, packed);
        packed += words_of_group(g);
        for (int j = 0; j < g->stride * g->stride; j++) {
            struct input_class class = find_class(g, 0, g->H, j / g->stride, j % g->stride);
            const struct forward p = class_weights(g, &class, W);
            for (int c = 0; c < C; c += WIDTH) {
                int width = panel_width(C, c);
                zip_weights(&p, 0, p.K, c, width, packed);
                packed += (size_t)words_of(p.K) * (size_t)width;
            }
        }
    }
}

static size_t conv_scratch_floats(const struct pp_conv *g, int B)
{
    return 16;
}

/* Goes over a piece of the rows of images of H rows: the rest of one, whole ones, the beginning of
 * one: first image, how many, rows of each. */
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

static void conv_forward(const void *args, const struct pp_piece *w)
{
    const struct pp_conv_forward *a = args;
    const struct pp_conv *g = a->g;
    int C = g->C / g->groups, O = g->O / g->groups;
    struct images m;
    for (size_t at = w->from; at < w->to;) {
        at = images_next((size_t)g->OH, at, w->to, &m);
        struct view y = view_outputs(m.from, m.end, g->kh, g->stride, g->pad_top, g->H);
        struct view across = view_outputs(0, g->OW, g->kw, g->stride, g->pad_left, g->W);
        for (int i = 0; i < g->groups; i++) {
            const float *x = a->x + m.b * (size_t)(g->H * g->W * g->C) + (size_t)i * (size_t)C;
            const struct forward p = {
                .a = {x, (size_t)g->C, &y, &across, C},
                .n_rows = m.n * (size_t)y.n * (size_t)g->OW,
                .K = g->kh * g->kw * C,
                .columns = O,
                .W = a->W + (size_t)i * weights_of_group(g),
                .packed = a->packed ? a->packed + (size_t)i * class_at(g, g->stride, 0) : NULL,
                .bias = a->b ? a->b + (size_t)i * (size_t)O : NULL,
                .relu = a->relu,
                .c = a->y + m.b * (size_t)(g->OH * g->OW * g->O) + (size_t)i * (size_t)O,
                .c_row = (size_t)g->O,
                .to_y = &y,
                .to_across = &across,
                .to_line = (size_t)(g->OW * g->O),
                .to_image = (size_t)(g->OH * g->OW * g->O)};
            multiply_rows(&p);
        }
    }
}

/* The pixels of a class in some rows of some images. */
static void multiply_class(const struct pp_conv_backward_input *a, const struct images *m, int ky,
                           int kx)
{
    const struct pp_conv *g = a->g;
    int C = g->C / g->groups, O = g->O / g->groups;
    struct input_class class = find_class(g, m->from, m->end, ky, kx);
    if (class.y.n == 0 || class.across.n == 0 || (class.K == 0 && a->add))
        return;
    for (int i = 0; i < g->groups; i++) {
        struct forward p = class_weights(g, &class, a->W + (size_t)i * weights_of_group(g));
        p.a = (struct rows){a->dz + m->b * (size_t)(g->OH * g->OW * g->O) + (size_t)i * (size_t)O,
                            (size_t)g->O, &class.y, &class.across, O};
        p.n_rows = m->n * (size_t) class.y.n * (size_t) class.across.n;
        if (a->packed)
            p.packed = a->packed + (size_t)i * class_at(g, g->stride, 0) + class_at(g, ky, kx);
        p.add = a->add;
        p.c = a->dx + m->b * (size_t)(g->H * g->W * g->C) + (size_t)i * (size_t)C;
        p.c_row = (size_t)g->C;
        p.to_y = &class.y;
        p.to_across = &class.across;
        p.to_line = (size_t)g->W * (size_t)g->C;
        p.to_image = (size_t)g->H * p.to_line;
        multiply_rows(&p);
    }
}

static void conv_backward_input(const void *args, const struct pp_piece *w)
{
    const struct pp_conv_backward_input *a = args;
    struct images m;
    for (size_t at = w->from; at < w->to;) {
        at = images_next((size_t)a->g->H, at, w->to, &m);
        for (int ky = 0; ky < a->g->stride; ky++)
            for (int kx = 0; kx < a->g->stride; kx++)
                multiply_class(a, &m, ky, kx);
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
