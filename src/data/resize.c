/* SPDX-License-Identifier: Apache-2.0 */
/* Bilinear resizing as in PIL: along the rows, rounded to bytes, then along the columns, with
 * weights of 22 bits. (Pillow from 13 on begins with the columns if heights shrink most.) */
#include <math.h>

#include "ppcli/base/base.h"
#include "picture.h"

#define BITS 22
#define PIECE 256 /* bytes of a row at a time */

int picture_axis_init(struct picture_axis *a, int from, int to)
{
    double scale = (double)from / to, wide = scale < 1 ? 1 : scale; /* half width of the triangle */
    *a = (struct picture_axis){.from = from, .to = to, .taps = (int)ceil(wide) * 2 + 1};
    size_t n = (size_t)to, taps = (size_t)a->taps;
    double *w = pp_alloc(taps, sizeof(*w));
    a->first = pp_alloc(2 * n, sizeof(*a->first));
    a->weights = pp_alloc(n * taps, sizeof(*a->weights));
    a->n = a->first ? a->first + n : NULL;
    for (int i = 0; w && a->first && a->weights && i < to; i++) {
        double centre = (i + 0.5) * scale, sum = 0;
        int lo = (int)(centre - wide + 0.5), hi = (int)(centre + wide + 0.5);
        lo = lo < 0 ? 0 : lo;
        hi = hi > from ? from : hi;
        for (int k = 0; k < hi - lo; k++) {
            double at = fabs((k + lo - centre + 0.5) * (1.0 / wide));
            w[k] = at < 1 ? 1 - at : 0;
            sum += w[k];
        }
        a->first[i] = lo;
        a->n[i] = hi - lo;
        for (int k = 0; k < hi - lo; k++)
            a->weights[(size_t)i * taps + (size_t)k] =
                (int32_t)(0.5 + (sum != 0 ? w[k] / sum : 0) * (1 << BITS));
    }
    pp_free(w);
    return w && a->first && a->weights ? 0 : PP_ERESOURCE;
}

void picture_axis_fini(struct picture_axis *a)
{
    pp_free(a->first);
    pp_free(a->weights);
    *a = (struct picture_axis){0};
}

static uint8_t round_to_byte(int32_t sum)
{
    int32_t v = sum >> BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* Resizes one row from a->from to a->to pixels. */
static void along_row(const struct picture_axis *a, int channels, const uint8_t *in, uint8_t *out)
{
    for (int i = 0; i < a->to; i++) {
        const int32_t *w = a->weights + (size_t)i * (size_t)a->taps;
        const uint8_t *from = in + (size_t)a->first[i] * (size_t)channels;
        for (int c = 0; c < channels; c++) {
            int32_t sum = 1 << (BITS - 1);
            for (int k = 0; k < a->n[i]; k++)
                sum += from[k * channels + c] * w[k];
            *out++ = round_to_byte(sum);
        }
    }
}

/* Computes row i of the a->to rows of the resized picture as a weighted sum of rows of `in`. A row
 * has `bytes` bytes. */
static void along_columns(const struct picture_axis *a, int i, size_t bytes, const uint8_t *in,
                          uint8_t *restrict out)
{
    const int32_t *w = a->weights + (size_t)i * (size_t)a->taps;
    for (size_t at = 0; at < bytes; at += PIECE) {
        int32_t sum[PIECE];
        size_t n = bytes - at < PIECE ? bytes - at : PIECE;
        for (size_t b = 0; b < n; b++)
            sum[b] = 1 << (BITS - 1);
        for (int k = 0; k < a->n[i]; k++) {
            const uint8_t *from = in + (size_t)(a->first[i] + k) * bytes + at;
            for (size_t b = 0; b < n; b++)
                sum[b] += from[b] * w[k];
        }
        for (size_t b = 0; b < n; b++)
            out[at + b] = round_to_byte(sum[b]);
    }
}

void picture_resize(const struct picture_axis *y, const struct picture_axis *x, int channels,
                    const uint8_t *in, uint8_t *between, uint8_t *out)
{
    size_t from = (size_t)x->from * (size_t)channels, to = (size_t)x->to * (size_t)channels;
    for (int i = 0; i < y->from; i++)
        along_row(x, channels, in + (size_t)i * from, between + (size_t)i * to);
    for (int i = 0; i < y->to; i++)
        along_columns(y, i, to, between, out + (size_t)i * to);
}
