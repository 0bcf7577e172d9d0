/* SPDX-License-Identifier: Apache-2.0 */
/* The operations on pictures except resizing. Sums and roundings are those of PIL, operation by
 * operation, so that the bytes are the same. */
#include "picture.h"

#include <math.h>
#include <string.h>

#define BANDS_MAX 3

static size_t count_sample_bytes(const struct pp_shape *s)
{
    return pp_shape_floats(s);
}

/* ---- moving pixels */

void picture_crop(const struct pp_shape *s, int top, int left, const uint8_t *in, uint8_t *out)
{
    int h = s->dims[0], w = s->dims[1];
    size_t c = (size_t)s->dims[2], row = (size_t)w * c;
    int skip = left < 0 ? -left : 0; /* pixels of a row left of the picture */
    int n = w - skip - (left > 0 ? left : 0);
    memset(out, 0, count_sample_bytes(s));
    for (int y = 0; y < h; y++) {
        int from = y + top;
        if (from >= 0 && from < h && n > 0) {
            memcpy(out + (size_t)y * row + (size_t)skip * c,
                   in + (size_t)from * row + (size_t)(left + skip) * c, (size_t)n * c);
        }
    }
}

void picture_flip(const struct pp_shape *s, const uint8_t *in, uint8_t *out)
{
    int h = s->dims[0], w = s->dims[1], c = s->dims[2];
    for (int y = 0; y < h; y++, in += (size_t)w * (size_t)c)
        for (int x = w - 1; x >= 0; x--)
            for (int b = 0; b < c; b++)
                *out++ = in[x * c + b];
}

/* Applies an affine map: pixel (x, y) of `out` is the pixel of `in` nearest to (m0 x + m1 y + m2,
 * m3 x + m4 y + m5), or 0 if that point is outside. Computes in fixed point with 16 bits of
 * fraction. */
static void apply_affine(const double m[6], const struct pp_shape *s, const uint8_t *in,
                         uint8_t *out)
{
    int h = s->dims[0], w = s->dims[1];
    size_t c = (size_t)s->dims[2];
    int64_t f[6];
    const double start[6] = {m[0], m[1], m[2] + m[0] * 0.5 + m[1] * 0.5,
                             m[3], m[4], m[5] + m[3] * 0.5 + m[4] * 0.5};
    for (int i = 0; i < 6; i++)
        f[i] = (int64_t)floor(start[i] * 65536.0 + 0.5);
    memset(out, 0, count_sample_bytes(s));
    for (int y = 0; y < h; y++) {
        for (int x = 0; x < w; x++, out += c) {
            int64_t fx = (f[0] * x + f[1] * y + f[2]) >> 16,
                    fy = (f[3] * x + f[4] * y + f[5]) >> 16;
            if (fx >= 0 && fx < w && fy >= 0 && fy < h)
                memcpy(out, in + ((size_t)fy * (size_t)w + (size_t)fx) * c, c);
        }
    }
}

static double to_radians(double degrees)
{
    return degrees * (M_PI / 180.0);
}

/* Rounds to 15 decimals, as Python's round() does. */
static double round_to_15(double v)
{
    return rint(v * 1e15) / 1e15;
}

static void rotate_picture(double degrees, const struct pp_shape *s, const uint8_t *in,
                           uint8_t *out)
{
    double turned = degrees - 360.0 * floor(degrees / 360.0), a = -to_radians(turned);
    double cx = s->dims[1] / 2.0, cy = s->dims[0] / 2.0;
    double m[6] = {round_to_15(cos(a)),  round_to_15(sin(a)), 0,
                   round_to_15(-sin(a)), round_to_15(cos(a)), 0};
    m[2] = m[0] * -cx + m[1] * -cy + cx;
    m[5] = m[3] * -cx + m[4] * -cy + cy;
    apply_affine(m, s, in, out);
}

/* ---- operations on single values */

typedef uint8_t table[BANDS_MAX][256];

static void map_values(const table t, const struct pp_shape *s, const uint8_t *in, uint8_t *out)
{
    size_t bands = (size_t)s->dims[2], n = count_sample_bytes(s);
    for (size_t i = 0; i < n; i += bands)
        for (size_t b = 0; b < bands; b++)
            out[i + b] = t[b][in[i + b]];
}

static void count_pixel_values(const struct pp_shape *s, const uint8_t *in,
                               uint32_t h[BANDS_MAX][256])
{
    size_t bands = (size_t)s->dims[2], n = count_sample_bytes(s);
    memset(h, 0, BANDS_MAX * sizeof(h[0]));
    for (size_t i = 0; i < n; i += bands)
        for (size_t b = 0; b < bands; b++)
            h[b][in[i + b]]++;
}

/* Fills the table t, which maps the darkest value of the histogram h to 0 and the lightest to
 * 255. */
static void stretch_values(const uint32_t h[256], uint8_t t[256])
{
    int lo = 0, hi = 255;
    while (lo < 255 && h[lo] == 0)
        lo++;
    while (hi > 0 && h[hi] == 0)
        hi--;
    double scale = hi > lo ? 255.0 / (hi - lo) : 1, offset = hi > lo ? -lo * scale : 0;
    for (int i = 0; i < 256; i++) {
        int v = (int)(i * scale + offset);
        t[i] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
    }
}

/* Fills the table t, which maps values so that each occurs about equally often; h is their
 * histogram. */
static void equalize_values(const uint32_t h[256], uint8_t t[256])
{
    uint32_t sum = 0, last = 0;
    for (int i = 0; i < 256; i++) {
        sum += h[i];
        last = h[i] > 0 ? h[i] : last;
    }
    uint32_t step = (sum - last) / 255, n = step / 2;
    for (int i = 0; i < 256; i++) {
        uint32_t v = step > 0 ? n / step : (uint32_t)i;
        t[i] = (uint8_t)(v > 255 ? 255 : v);
        n += h[i];
    }
}

static void change_values(enum picture_op op, double magnitude, const struct pp_shape *s,
                          const uint8_t *in, uint8_t *out)
{
    table t;
    uint32_t h[BANDS_MAX][256];
    if (op == PICTURE_AUTO_CONTRAST || op == PICTURE_EQUALIZE)
        count_pixel_values(s, in, h);
    for (int b = 0; b < s->dims[2]; b++) {
        if (op == PICTURE_AUTO_CONTRAST)
            stretch_values(h[b], t[b]);
        if (op == PICTURE_EQUALIZE)
            equalize_values(h[b], t[b]);
        for (int i = 0; i < 256 && op == PICTURE_INVERT; i++)
            t[b][i] = (uint8_t)(255 - i);
        for (int i = 0; i < 256 && op == PICTURE_SOLARIZE; i++)
            t[b][i] = (uint8_t)(i < magnitude ? i : 255 - i);
        for (int i = 0; i < 256 && op == PICTURE_POSTERIZE; i++)
            t[b][i] = (uint8_t)(i & ~((1 << (8 - (int)magnitude)) - 1));
    }
    map_values(t, s, in, out);
}

/* ---- mixing with a simpler picture */

/* Mixes two pictures: `out`, which holds the simpler one, becomes out + factor * (in - out). */
static void blend_pictures(float factor, const struct pp_shape *s, const uint8_t *in, uint8_t *out)
{
    size_t n = count_sample_bytes(s);
    for (size_t i = 0; i < n; i++) {
        float v = (float)out[i] + factor * (float)(in[i] - out[i]);
        out[i] = (uint8_t)(v <= 0 ? 0 : v >= 255 ? 255 : v);
    }
}

static uint8_t pixel_luma(const uint8_t *p)
{
    return (uint8_t)((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16);
}

static void make_grey(const struct pp_shape *s, const uint8_t *in, uint8_t *out)
{
    size_t n = count_sample_bytes(s);
    for (size_t i = 0; i < n; i += 3)
        out[i] = out[i + 1] = out[i + 2] = pixel_luma(in + i);
}

static void make_mean(const struct pp_shape *s, const uint8_t *in, uint8_t *out)
{
    size_t n = count_sample_bytes(s), pixels = n / 3;
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i += 3)
        sum += pixel_luma(in + i);
    memset(out, (int)((double)sum / (double)pixels + 0.5), n);
}

/* Smooths a picture: a pixel becomes 5/13 of itself and 1/13 of each of its 8 neighbours; the
 * border is unchanged. */
static void make_smooth(const struct pp_shape *s, const uint8_t *in, uint8_t *out)
{
    const float k = 1.0f / 13.0f, mid = 5.0f / 13.0f;
    int h = s->dims[0], w = s->dims[1], c = s->dims[2];
    ptrdiff_t row = (ptrdiff_t)w * c;
    memcpy(out, in, count_sample_bytes(s));
    for (int y = 1; y < h - 1; y++) {
        const uint8_t *p = in + y * row;
        for (ptrdiff_t x = c; x < row - c; x++) {
            const uint8_t *below = p + row + x, *at = p + x, *above = p - row + x;
            float v = 0.5f;
            v += (float)below[-c] * k + (float)below[0] * k + (float)below[c] * k;
            v += (float)at[-c] * k + (float)at[0] * mid + (float)at[c] * k;
            v += (float)above[-c] * k + (float)above[0] * k + (float)above[c] * k;
            out[y * row + x] = (uint8_t)(v <= 0 ? 0 : v >= 255 ? 255 : v);
        }
    }
}

void picture_op(enum picture_op op, double magnitude, const struct pp_shape *s, const uint8_t *in,
                uint8_t *out)
{
    double m[6] = {1, 0, 0, 0, 1, 0};
    switch (op) {
    case PICTURE_SHEAR_X:
    case PICTURE_SHEAR_Y:
        m[op == PICTURE_SHEAR_X ? 1 : 3] = magnitude;
        apply_affine(m, s, in, out);
        return;
    case PICTURE_TRANSLATE_X:
    case PICTURE_TRANSLATE_Y:
        m[op == PICTURE_TRANSLATE_X ? 2 : 5] = -trunc(magnitude);
        apply_affine(m, s, in, out);
        return;
    case PICTURE_ROTATE:
        rotate_picture(magnitude, s, in, out);
        return;
    case PICTURE_BRIGHTNESS:
        memset(out, 0, count_sample_bytes(s));
        break;
    case PICTURE_COLOR:
        make_grey(s, in, out);
        break;
    case PICTURE_CONTRAST:
        make_mean(s, in, out);
        break;
    case PICTURE_SHARPNESS:
        make_smooth(s, in, out);
        break;
    default:
        change_values(op, magnitude, s, in, out);
        return;
    }
    blend_pictures((float)(1.0 + magnitude), s, in, out);
}
