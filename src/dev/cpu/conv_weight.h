/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The weight gradient of a convolution, PIXELS output pixels at a time: each tap lists the pixels
 * that it sees inside the image, and a tile's steps are such a list. The columns of dz that a group
 * of rows reads repeatedly are copied next to each other meanwhile. Included once per instruction
 * set.
 *
 * A chain over 131,072 pixels (batch 128, 32x32) is off by 4e-6 of the gradient's norm, one over
 * 8,192 by 1e-6: no partial sums are needed.
 */
#ifndef PPCLI_DEV_CPU_CONV_WEIGHT_H
#define PPCLI_DEV_CPU_CONV_WEIGHT_H

#include <string.h>

#include "gemm.h"
#include "gemm_tile.h"

DEFINE_TILES(STEPS_LISTED)

enum {
    PIXELS = 256, /* of the summed index at a time */
    LIST = PIXELS + AHEAD,
    NARROW = 16,   /* fewer channels are copied for all taps next to each other */
    MANY_TILES = 4 /* tiles of a group of rows from which its columns of dz are copied */
};

/* An output pixel: its gradient, and the address of its first tap in the image (perhaps
 * outside). */
struct pixel {
    const float *dz, *image;
    int y, x;
};

/* An output pixel of a part, numbered over all its samples. */
struct place {
    const struct pp_weight_part *part, *end;
    size_t pixel;
};

/* Copies the next output pixels, at most PIXELS, to `out` and moves *at past them; returns their
 * number. */
static int take_pixels(const struct pp_conv *g, struct place *at, struct pixel *out)
{
    int have = 0;
    size_t H = (size_t)g->H, W = (size_t)g->W, OH = (size_t)g->OH, OW = (size_t)g->OW;
    while (have < PIXELS && at->part < at->end) {
        const struct pp_weight_part *p = at->part;
        if (at->pixel == (size_t)p->B * OH * OW) {
            at->part++;
            at->pixel = 0;
            continue;
        }
        size_t row = at->pixel / OW;
        int x = (int)(at->pixel % OW), n = least(g->OW - x, PIXELS - have);
        struct pixel first = {.dz = p->dz + at->pixel * (size_t)g->O,
                              .image = p->x + row / OH * H * W * (size_t)g->C,
                              .y = (int)(row % OH) * g->stride - g->pad_top,
                              .x = x * g->stride - g->pad_left};
        for (int i = 0; i < n; i++) {
            out[have] = first;
            out[have].dz += (size_t)i * (size_t)g->O;
            out[have++].x += i * g->stride;
        }
        at->pixel += (size_t)n;
    }
    return have;
}

static void repeat_last(int n, struct step *list)
{
    for (int i = n; n > 0 && i < n + AHEAD; i++)
        list[i] = list[n - 1];
}

/* Lists the pixels that see tap (ky, kx) inside the image; returns their number. If `copied` is not
 * NULL, their columns of dz are read from there. */
static int list_steps(const struct pp_conv *g, int n, const struct pixel *pixels, int ky, int kx,
                      const float *copied, struct step *out)
{
    int have = 0;
    for (int i = 0; i < n; i++) {
        int y = pixels[i].y + ky, x = pixels[i].x + kx;
        if (y < 0 || y >= g->H || x < 0 || x >= g->W)
            continue;
        out[have++] = (struct step){.a = copied ? copied + (size_t)i * ROWS : pixels[i].dz,
                                    .b = pixels[i].image +
                                         ((size_t)y * (size_t)g->W + (size_t)x) * (size_t)g->C};
    }
    repeat_last(have, out);
    return have;
}

/* Copies from[n] to to[n], or writes zeros if `from` is NULL. A call of memcpy() costs more for so
 * few floats. */
INLINE void copy_few(int n, const float *from, float *to)
{
    for (int i = 0; i < n; i += LANES) {
        mask lanes = first_lanes(least(LANES, n - i));
        STORE_PART(lanes, to + i, from ? LOAD_PART(lanes, from + i) : SET1(0.0f));
    }
}

/* Copies the pixels that output pixel p sees to to[kh][kw][C], with 0 outside the image. */
static void copy_patch(const struct pp_conv *g, const struct pixel *p, float *to)
{
    int line = g->kw * g->C, from = p->x < 0 ? least(-p->x, g->kw) : 0;
    int end = least(g->kw, g->W - p->x);
    for (int y = p->y; y < p->y + g->kh; y++, to += line) {
        bool inside = y >= 0 && y < g->H && end > from;
        if (!inside || end - from < g->kw)
            copy_few(line, NULL, to);
        if (inside) {
            size_t at = (size_t)y * (size_t)g->W + (size_t)(p->x + from);
            copy_few((end - from) * g->C, p->image + at * (size_t)g->C,
                     to + (size_t)from * (size_t)g->C);
        }
    }
}

/* The scratch of a block of pixels: a list per tap, or one list and the copied patches. */
struct lists {
    int n; /* number of lists; each has `columns` columns of dW */
    int columns;
    struct step *steps; /* [n][LIST] */
    int *length;        /* [n] */
    float *patches;     /* [PIXELS][columns]; NULL: not copied */
};

static size_t place_lists(const struct pp_conv *g, float *scratch, struct lists *out)
{
    int taps = g->kh * g->kw, C = g->C / g->groups;
    bool copies = g->groups == 1 && C < NARROW && taps > 1;
    size_t n = copies ? 1 : (size_t)taps, floats = sizeof(struct step) / sizeof(float);
    size_t patches = copies ? (size_t)PIXELS * (size_t)(taps * C) : 0;
    if (out) {
        *out = (struct lists){.n = (int)n,
                              .columns = copies ? taps * C : C,
                              .steps = (struct step *)(void *)scratch,
                              .patches = copies ? scratch + n * LIST * floats : NULL,
                              .length = (int *)(void *)(scratch + n * LIST * floats + patches)};
    }
    return n * LIST * floats + patches + n;
}

static void fill_lists(const struct pp_conv *g, int n, const struct pixel *pixels,
                       const float *copied, struct lists *l)
{
    for (int t = 0; t < l->n && !l->patches; t++) {
        l->length[t] =
            list_steps(g, n, pixels, t / g->kw, t % g->kw, copied, l->steps + (size_t)t * LIST);
    }
    if (l->patches) {
        l->length[0] = n;
        for (int i = 0; i < n; i++) {
            float *patch = l->patches + (size_t)i * (size_t)l->columns;
            copy_patch(g, &pixels[i], patch);
            l->steps[i] = (struct step){copied ? copied + (size_t)i * ROWS : pixels[i].dz, patch};
        }
    }
}

/* Computes `rows` rows of dW, those of outputs o, o + 1, ... of group `group`: the sum over the
 * listed pixels, which is added to dW if `add`. */
static void add_lists(const struct pp_conv *g, const struct lists *l, int group, int rows, size_t o,
                      bool add, float *dW)
{
    size_t K = (size_t)l->n * (size_t)l->columns;
    struct segment depth = {0};
    struct tile t = {.segments = &depth, .n_segments = 1, .c_row = K, .add = add, .a_at = o};
    for (int k = 0; k < l->n; k++) {
        depth.depth = l->length[k];
        t.steps = l->steps + (size_t)k * LIST;
        for (int i = 0; i < l->columns; i += WIDTH) {
            t.b_at = l->patches ? (size_t)i : (size_t)(group * l->columns + i);
            t.c = dW + (size_t)k * (size_t)l->columns + i;
            run_tile(&STEPS_LISTED_tiles, &t, rows, least(WIDTH, l->columns - i));
        }
    }
}

/* Computes the rows w->from .. w->to - 1 of dW from all output pixels. */
static void add_pixels(const struct pp_conv_backward_weight *a, float *scratch,
                       const struct pp_piece *w)
{
    const struct pp_conv *g = a->g;
    int O = g->O / g->groups, end = (int)w->to;
    struct pixel pixels[PIXELS];
    float copied[PIXELS * ROWS];
    struct place at = {.part = a->parts, .end = a->parts + a->n};
    struct lists l;
    place_lists(g, scratch, &l);
    size_t K = (size_t)l.n * (size_t)l.columns;
    bool copy = l.n * ((l.columns + WIDTH - 1) / WIDTH) >= MANY_TILES, add = a->beta != 0;
    for (int n; (n = take_pixels(g, &at, pixels)) > 0 || !add; add = true) {
        fill_lists(g, n, pixels, copy ? copied : NULL, &l);
        for (int o = (int)w->from, o_end; o < end; o = o_end) {
            o_end = least((o / O + 1) * O, end); /* of the group */
            struct groups rows = groups_of(o_end - o);
            for (int k = 0; k < rows.n; k++) {
                int r = rows.size + (k < rows.larger);
                mask lanes = first_lanes(least(r, LANES));
                for (int i = 0; copy && i < n; i++) {
                    float *to = copied + (size_t)i * ROWS;
                    STORE_PART(lanes, to, LOAD_PART(lanes, pixels[i].dz + o));
                    if (ROWS > LANES && r > LANES) {
                        mask rest = first_lanes(least(r - LANES, LANES));
                        STORE_PART(rest, to + LANES, LOAD_PART(rest, pixels[i].dz + o + LANES));
                    }
                }
                add_lists(g, &l, o / O, r, copy ? 0 : (size_t)o, add, a->dW + (size_t)o * K);
                o += r;
            }
        }
    }
}

#endif
