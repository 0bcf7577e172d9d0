/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of a float matrix: rows in memory, or what the pixels of an image see of another image
 * through the taps of a convolution (0 outside). The latter are never all in memory.
 */
#ifndef PPCLI_DEV_CPU_PATCHES_H
#define PPCLI_DEV_CPU_PATCHES_H

#include <stdbool.h>
#include <string.h>

#include "ppcli/dev/kernels.h"

/* One axis of an image that is computed: its `n` pixels at, at + step, ... Pixel i sees tap t of
 * `taps` taps at from + i * stride + t * ahead in the other image, which has `other` pixels. */
struct view {
    int n, at, step;
    int from, stride, ahead;
    int taps, tap, tap_step; /* tap t is tap `tap` + t * tap_step of the kernel */
    int other;
};

struct rows {
    const float *x;
    size_t row;           /* floats between two rows, or between two pixels of the image */
    const struct view *y; /* NULL: the rows are in memory */
    const struct view *across;
    int C; /* channels of a tap */
};

/* Returns the view of a forward pass along one axis: the outputs from `at` to `end`, with all
 * taps. */
static inline struct view view_outputs(int at, int end, int kernel, int stride, int pad, int other)
{
    return (struct view){end - at, at, 1, at * stride - pad, stride, 1, kernel, 0, 1, other};
}

/* Returns the view of an input gradient along one axis: of the pixels from `at` to `end` those that
 * see the taps `tap`, `tap` + stride, ... of the kernel. They are the pixels whose position plus
 * `pad`, divided by the stride, leaves the remainder `tap`. */
static inline struct view view_inputs(int at, int end, int tap, int kernel, int stride, int pad,
                                      int other)
{
    int first = at + ((tap - pad - at) % stride + stride) % stride;
    int n = first < end ? (end - first + stride - 1) / stride : 0;
    int taps = tap < kernel ? (kernel - tap + stride - 1) / stride : 0;
    return (struct view){n,   first,  stride, (first + pad - tap) / stride, 1, -1, taps,
                         tap, stride, other};
}

/* The position of a row: its first value, or the image and the pixel (i, j) of y x across. */
struct row_at {
    const float *x;
    int i, j;
};

static inline struct row_at rows_at(const struct rows *s, size_t r)
{
    if (!s->y)
        return (struct row_at){.x = s->x + r * s->row};
    size_t n = (size_t)s->across->n, lines = (size_t)s->y->n, image = r / n / lines;
    return (struct row_at){s->x + image * (size_t)s->y->other * (size_t)s->across->other * s->row,
                           (int)(r / n % lines), (int)(r % n)};
}

static inline void rows_next(const struct rows *s, struct row_at *at)
{
    if (!s->y) {
        at->x += s->row;
    } else if (++at->j == s->across->n) {
        at->j = 0;
        if (++at->i == s->y->n) {
            at->i = 0;
            at->x += (size_t)s->y->other * (size_t)s->across->other * s->row;
        }
    }
}

/* Returns columns k .. k + n - 1 of a row, copied into `buffer` if they are not contiguous in
 * memory. */
static inline const float *rows_piece(const struct rows *s, const struct row_at *r, int k, int n,
                                      float *buffer)
{
    if (!s->y)
        return r->x + k;
    const struct view *vy = s->y, *vx = s->across;
    bool one_tap = n <= s->C - k % s->C;
    for (int at = 0, m; at < n; at += m, k += m) {
        int tap = k / s->C, c = k % s->C;
        int y = vy->from + r->i * vy->stride + tap / vx->taps * vy->ahead;
        int x = vx->from + r->j * vx->stride + tap % vx->taps * vx->ahead;
        m = n - at < s->C - c ? n - at : s->C - c;
        bool inside = y >= 0 && y < vy->other && x >= 0 && x < vx->other;
        const float *from =
            inside ? r->x + ((size_t)y * (size_t)vx->other + (size_t)x) * s->row + c : NULL;
        if (inside && one_tap)
            return from;
        if (inside)
            memcpy(buffer + at, from, (size_t)m * sizeof(*buffer));
        else
            memset(buffer + at, 0, (size_t)m * sizeof(*buffer));
    }
    return buffer;
}

#endif
