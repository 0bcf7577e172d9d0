/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling, with vectors along the channels. Gradients are gathered: each pixel adds up the windows
 * that contain it, in their order, so that dx is written once. */
#include "kernels.h"
#include "../kernels.h"

#include <math.h>
#include <string.h>

/* channels at a time: their largest values and taps stay in the first-level cache */
#define TILE 256

/* The numbers from .. to - 1. */
struct range {
    int from, to;
};

/* Returns the range of taps of window `out` that lie inside the image, along one axis. */
static struct range find_taps(int out, int stride, int pad, int kernel, int size)
{
    int first = out * stride - pad;
    return (struct range){first < 0 ? -first : 0, first + kernel > size ? size - first : kernel};
}

/* Returns the range of windows that contain pixel `in`, along one axis. */
static struct range find_windows(int in, int stride, int pad, int kernel, int out)
{
    int beyond = in + pad - kernel, last = (in + pad) / stride;
    return (struct range){beyond < 0 ? 0 : beyond / stride + 1, last < out ? last + 1 : out};
}

/* Returns the offset of pixel (y, x) of sample r in [B][H][W][C]. */
static size_t offset_of(int H, int W, int C, int r, int y, int x)
{
    return (((size_t)r * (size_t)H + (size_t)y) * (size_t)W + (size_t)x) * (size_t)C;
}

static void take_largest(size_t width, const float *restrict x, int tap, float *restrict best,
                         int *restrict took)
{
    for (size_t c = 0; c < width; c++) {
        bool more = x[c] > best[c] || x[c] != x[c];
        best[c] = more ? x[c] : best[c];
        took[c] = more ? tap : took[c];
    }
}

/* Computes the largest element of one window for each channel, and which tap it came from. */
static void max_window(const struct pp_max_pool_forward *a, int r, int oy, int ox)
{
    const struct pp_conv *g = a->g;
    struct range ty = find_taps(oy, g->stride, g->pad_top, g->kh, g->H);
    struct range tx = find_taps(ox, g->stride, g->pad_left, g->kw, g->W);
    size_t C = (size_t)g->C, out = offset_of(g->OH, g->OW, g->C, r, oy, ox);
    int took[TILE];
    for (size_t at = 0, width; at < C; at += width) {
        width = C - at < TILE ? C - at : TILE;
        float *best = a->y + out + at;
        for (size_t c = 0; c < width; c++) {
            best[c] = -INFINITY;
            took[c] = ty.from * g->kw + tx.from;
        }
        for (int ky = ty.from; ky < ty.to; ky++) {
            for (int kx = tx.from; kx < tx.to; kx++) {
                size_t in = offset_of(g->H, g->W, g->C, r, oy * g->stride - g->pad_top + ky,
                                      ox * g->stride - g->pad_left + kx);
                take_largest(width, a->x + in + at, ky * g->kw + kx, best, took);
            }
        }
        for (size_t c = 0; a->taken && c < width; c++)
            a->taken[out + at + c] = (uint8_t)took[c];
    }
}

void CPU_LOOP(max_pool_forward)(const void *args, const struct pp_piece *w)
{
    const struct pp_max_pool_forward *a = args;
    int OH = a->g->OH;
    for (int i = (int)w->from; i < (int)w->to; i++)
        for (int ox = 0; ox < a->g->OW; ox++)
            max_window(a, i / OH, i % OH, ox);
}

/* Adds dy to dx for the channels whose maximum came from `tap`. Uses masks, because a branch on the
 * tap would often be predicted wrong. */
static void add_taken(size_t C, const uint8_t *restrict taken, uint8_t tap,
                      const float *restrict dy, float *restrict dx)
{
    for (size_t c = 0; c < C; c++) {
        union {
            float value;
            uint32_t bits;
        } part = {dy[c]};
        part.bits &= -(uint32_t)(taken[c] == tap);
        dx[c] += part.value;
    }
}

static void add_scaled(size_t C, const float *restrict x, float scale, float *restrict y)
{
    for (size_t c = 0; c < C; c++)
        y[c] += scale * x[c];
}

/* Returns the factor that turns the sum over a window into its average. */
static float window_scale(const struct pp_avg_pool *a, struct range ty, struct range tx)
{
    int taps = a->count_padding ? a->g->kh * a->g->kw : (ty.to - ty.from) * (tx.to - tx.from);
    return 1 / (float)taps;
}

/* Computes dx of one pixel from the windows that contain it: of a maximum if `taken` is not NULL,
 * else of an average. */
static void gather_pixel(const struct pp_conv *g, int r, int iy, int ix, const uint8_t *taken,
                         const struct pp_avg_pool *avg, const float *dy, bool add, float *dx)
{
    size_t C = (size_t)g->C;
    struct range wy = find_windows(iy, g->stride, g->pad_top, g->kh, g->OH);
    struct range wx = find_windows(ix, g->stride, g->pad_left, g->kw, g->OW);
    int rows = avg ? pp_length(avg->lengths, avg->index, r, g->H) : g->H;
    dx += offset_of(g->H, g->W, g->C, r, iy, ix);
    wy.to = iy < rows ? wy.to : wy.from;
    if (!add)
        memset(dx, 0, C * sizeof(*dx));
    for (int oy = wy.from; oy < wy.to; oy++) {
        struct range ty = find_taps(oy, g->stride, g->pad_top, g->kh, rows);
        int ky = iy + g->pad_top - oy * g->stride;
        for (int ox = wx.from; ox < wx.to; ox++) {
            int tap = ky * g->kw + ix + g->pad_left - ox * g->stride;
            size_t out = offset_of(g->OH, g->OW, g->C, r, oy, ox);
            if (!avg) {
                add_taken(C, taken + out, (uint8_t)tap, dy + out, dx);
            } else {
                struct range tx = find_taps(ox, g->stride, g->pad_left, g->kw, g->W);
                add_scaled(C, dy + out, window_scale(avg, ty, tx), dx);
            }
        }
    }
}

void CPU_LOOP(max_pool_backward)(const void *args, const struct pp_piece *w)
{
    const struct pp_max_pool_backward *a = args;
    int H = a->g->H;
    for (int i = (int)w->from; i < (int)w->to; i++)
        for (int ix = 0; ix < a->g->W; ix++)
            gather_pixel(a->g, i / H, i % H, ix, a->taken, NULL, a->dy, a->add, a->dx);
}

void CPU_LOOP(avg_pool_backward)(const void *args, const struct pp_piece *w)
{
    const struct pp_avg_pool *a = args;
    int H = a->g->H;
    for (int i = (int)w->from; i < (int)w->to; i++)
        for (int ix = 0; ix < a->g->W; ix++)
            gather_pixel(a->g, i / H, i % H, ix, NULL, a, a->x, a->add, a->y);
}

void CPU_LOOP(avg_pool_forward)(const void *args, const struct pp_piece *w)
{
    const struct pp_avg_pool *a = args;
    const struct pp_conv *g = a->g;
    size_t C = (size_t)g->C;
    for (int i = (int)w->from; i < (int)w->to; i++) {
        int r = i / g->OH, oy = i % g->OH, rows = pp_length(a->lengths, a->index, r, g->H);
        struct range ty = find_taps(oy, g->stride, g->pad_top, g->kh, rows);
        for (int ox = 0; ox < g->OW; ox++) {
            struct range tx = find_taps(ox, g->stride, g->pad_left, g->kw, g->W);
            float *y = a->y + offset_of(g->OH, g->OW, g->C, r, oy, ox);
            memset(y, 0, C * sizeof(*y));
            for (int ky = ty.from; ky < ty.to; ky++) {
                for (int kx = tx.from; kx < tx.to; kx++) {
                    size_t in = offset_of(g->H, g->W, g->C, r, oy * g->stride - g->pad_top + ky,
                                          ox * g->stride - g->pad_left + kx);
                    add_scaled(C, a->x + in, 1, y);
                }
            }
            float scale = window_scale(a, ty, tx);
            for (size_t c = 0; c < C; c++)
                y[c] *= scale;
        }
    }
}
