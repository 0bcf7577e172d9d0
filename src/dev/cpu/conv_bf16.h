/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions by the products of gemm_bf16.c, which includes this. */
#ifndef PPCLI_DEV_CPU_CONV_BF16_H
#define PPCLI_DEV_CPU_CONV_BF16_H

INLINE size_t words_of_group(const struct pp_conv *g)
{
    return bf16_packed_floats(g->O / g->groups, g->kh * g->kw * (g->C / g->groups));
}

static size_t conv_packed_floats(const struct pp_conv *g)
{
    return (size_t)g->groups * words_of_group(g);
}

static void conv_pack(const struct pp_conv *g, const float *W, float *packed)
{
    for (int i = 0; i < g->groups; i++)
        bf16_pack(g->O / g->groups, g->kh * g->kw * (g->C / g->groups),
                  W + (size_t)i * weights_of_group(g), packed + (size_t)i * words_of_group(g));
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
                .packed = a->packed ? a->packed + (size_t)i * words_of_group(g) : NULL,
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

/* The pixels of dx that see taps (ky, kx), (ky, kx + stride), ... in some rows of some images. */
static void input_class(const struct pp_conv_backward_input *a, const struct images *m, int ky,
                        int kx)
{
    const struct pp_conv *g = a->g;
    int C = g->C / g->groups, O = g->O / g->groups;
    struct view y = view_inputs(m->from, m->end, ky, g->kh, g->stride, g->pad_top, g->OH);
    struct view across = view_inputs(0, g->W, kx, g->kw, g->stride, g->pad_left, g->OW);
    int K = y.taps * across.taps * O;
    if (y.n == 0 || across.n == 0 || (K == 0 && a->add))
        return;
    for (int i = 0; i < g->groups; i++) {
        const float *dz = a->dz + m->b * (size_t)(g->OH * g->OW * g->O) + (size_t)i * (size_t)O;
        const struct forward p = {
            .a = {dz, (size_t)g->O, &y, &across, O},
            .n_rows = m->n * (size_t)y.n * (size_t)across.n,
            .K = K,
            .columns = C,
            .b = {.x = a->W + (size_t)i * weights_of_group(g), .row = (size_t)C},
            .y = &y,
            .across = &across,
            .taps = (size_t)(g->kh * g->kw),
            .kernel_row = (size_t)g->kw,
            .add = a->add,
            .c = a->dx + m->b * (size_t)(g->H * g->W * g->C) + (size_t)i * (size_t)C,
            .c_row = (size_t)g->C,
            .to_y = &y,
            .to_across = &across,
            .to_line = (size_t)(g->W * g->C),
            .to_image = (size_t)(g->H * g->W * g->C)};
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
                input_class(a, &m, ky, kx);
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
