/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling: windows of one channel. Gradients go from the windows, in order, to the pixels. */
#include "plain.h"
#include "../kernels.h"

#include <math.h>
#include <string.h>

/* Sets *at to the offset in x[B][H][W][C] of the pixel that a tap of a window reads. Returns false
 * if the pixel is outside the first `rows` rows of the image. */
static bool find_pixel(const struct pp_conv *g, int rows, size_t window, int tap, size_t *at)
{
    int oy = (int)(window / g->OW) % g->OH, ox = (int)(window % g->OW);
    int y = oy * g->stride - g->pad_top + tap / g->kw;
    int x = ox * g->stride - g->pad_left + tap % g->kw;
    *at = ((window / g->OW / g->OH * g->H + y) * g->W + x) * (size_t)g->C;
    return y >= 0 && y < rows && x >= 0 && x < g->W;
}

int plain_max_pool_forward(struct pp_backend *be, const struct pp_max_pool_forward *a)
{
    const struct pp_conv *g = a->g;
    size_t at, windows = (size_t)a->B * g->OH * g->OW, C = g->C;
    for (size_t i = 0; i < windows * C; i++) {
        int best = -1;
        for (int tap = 0; tap < g->kh * g->kw; tap++) {
            if (!find_pixel(g, g->H, i / C, tap, &at))
                continue;
            float x = a->x[at + i % C];
            if (best < 0 || x > a->y[i] || isnan(x)) {
                best = tap;
                a->y[i] = x;
            }
        }
        if (a->taken)
            a->taken[i] = (uint8_t)best;
    }
    return 0;
}

int plain_max_pool_backward(struct pp_backend *be, const struct pp_max_pool_backward *a)
{
    const struct pp_conv *g = a->g;
    size_t at, windows = (size_t)a->B * g->OH * g->OW, C = g->C;
    if (!a->add && a->B > 0)
        memset(a->dx, 0, (size_t)a->B * g->H * g->W * C * sizeof(*a->dx));
    for (size_t i = 0; i < windows * C; i++)
        if (find_pixel(g, g->H, i / C, a->taken[i], &at))
            a->dx[at + i % C] = (float)((double)a->dx[at + i % C] + a->dy[i]);
    return 0;
}

/* Returns how many rows the sample of the window has before its padding. */
static int rows_of_sample(const struct pp_avg_pool *a, size_t window)
{
    int r = (int)(window / (size_t)(a->g->OH * a->g->OW));
    return pp_length(a->lengths, a->index, r, a->g->H);
}

/* Returns the number by which the sum over a window is divided. */
static int window_divisor(const struct pp_avg_pool *a, size_t window)
{
    int inside = 0, taps = a->g->kh * a->g->kw;
    size_t at;
    for (int tap = 0; tap < taps && !a->count_padding; tap++)
        inside += find_pixel(a->g, rows_of_sample(a, window), window, tap, &at);
    return a->count_padding ? taps : inside;
}

int plain_avg_pool_forward(struct pp_backend *be, const struct pp_avg_pool *a)
{
    const struct pp_conv *g = a->g;
    size_t at, windows = (size_t)a->B * g->OH * g->OW, C = g->C;
    for (size_t i = 0; i < windows * C; i++) {
        double sum = 0;
        for (int tap = 0; tap < g->kh * g->kw; tap++)
            sum += find_pixel(g, rows_of_sample(a, i / C), i / C, tap, &at) ? a->x[at + i % C] : 0;
        a->y[i] = (float)(sum / window_divisor(a, i / C));
    }
    return 0;
}

int plain_avg_pool_backward(struct pp_backend *be, const struct pp_avg_pool *a)
{
    const struct pp_conv *g = a->g;
    size_t at, windows = (size_t)a->B * g->OH * g->OW, C = g->C;
    if (!a->add && a->B > 0)
        memset(a->y, 0, (size_t)a->B * g->H * g->W * C * sizeof(*a->y));
    for (size_t i = 0; i < windows * C; i++) {
        double dy = (double)a->x[i] / window_divisor(a, i / C);
        for (int tap = 0; tap < g->kh * g->kw; tap++)
            if (find_pixel(g, rows_of_sample(a, i / C), i / C, tap, &at))
                a->y[at + i % C] = (float)((double)a->y[at + i % C] + dy);
    }
    return 0;
}
