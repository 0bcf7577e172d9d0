/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes a picture by its first bytes, turns it upright, and converts between grey and colour. */
#include "raster.h"

#include <inttypes.h>
#include <string.h>

#include "ppcli/base/base.h"

void raster_fini(struct raster *r)
{
    pp_free(r->bytes);
    *r = (struct raster){0};
}

int raster_check_size(uint64_t h, uint64_t w, uint64_t n, uint64_t most)
{
    if (h == 0 || w == 0)
        return pp_fail(PP_EFORMAT, "a picture of %" PRIu64 " x %" PRIu64 " pixels", w, h);
    if (h * w > RASTER_PIXELS_MAX)
        return pp_fail(PP_EFORMAT,
                       "%" PRIu64 " x %" PRIu64 " pixels are too large: at most %" PRIu64
                       " pixels are read",
                       w, h, RASTER_PIXELS_MAX);
    if (h * w / most > n)
        return pp_fail(PP_EFORMAT,
                       "cut short: it announces %" PRIu64 " x %" PRIu64 " pixels in %" PRIu64
                       " bytes",
                       w, h, n);
    return 0;
}

/* ---- orientation */

static uint32_t read_tiff_number(const uint8_t *p, int bytes, bool big)
{
    uint32_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint32_t)p[i] << 8 * (big ? bytes - 1 - i : i);
    return v;
}

int raster_orientation(const uint8_t *data, size_t n)
{
    if (n < 14 || (memcmp(data, "II*\0", 4) != 0 && memcmp(data, "MM\0*", 4) != 0))
        return 1;
    bool big = data[0] == 'M';
    size_t at = read_tiff_number(data + 4, 4, big);
    if (at > n - 2)
        return 1;
    uint32_t entries = read_tiff_number(data + at, 2, big);
    for (at += 2; entries > 0 && at + 12 <= n; entries--, at += 12) {
        if (read_tiff_number(data + at, 2, big) != 0x0112)
            continue;
        uint32_t type = read_tiff_number(data + at + 2, 2, big),
                 v = read_tiff_number(data + at + 8, 2, big);
        return type == 3 && v >= 1 && v <= 8 ? (int)v : 1;
    }
    return 1;
}

/* Turns a picture as its orientation says. */
static int turn_upright(struct raster *r)
{
    const int o = r->orientation, H = r->h, W = r->w;
    const int h = o > 4 ? W : H, w = o > 4 ? H : W;
    const size_t c = (size_t)r->c;
    if (o <= 1)
        return 0;
    uint8_t *to;
    PP_ALLOC(to, (size_t)h * (size_t)w * c);
    for (int y = 0; y < h; y++) {
        for (int x = 0; x < w; x++) {
            int row = o == 3 || o == 4 ? H - 1 - y : o == 2 ? y : o == 6 || o == 7 ? H - 1 - x : x;
            int col = o == 2 || o == 3 ? W - 1 - x : o == 4 ? x : o == 7 || o == 8 ? W - 1 - y : y;
            memcpy(to + ((size_t)y * (size_t)w + (size_t)x) * c,
                   r->bytes + ((size_t)row * (size_t)W + (size_t)col) * c, c);
        }
    }
    pp_free(r->bytes);
    *r = (struct raster){.h = h, .w = w, .c = r->c, .orientation = 1, .bytes = to};
    return 0;
}

/* ---- channels */

int raster_convert(struct raster *r, int c)
{
    size_t pixels = (size_t)r->h * (size_t)r->w;
    uint8_t *to;
    if (r->c == c)
        return 0;
    PP_ALLOC(to, pixels * (size_t)c);
    for (size_t i = 0; c == 3 && i < pixels; i++)
        memset(to + 3 * i, r->bytes[i], 3);
    for (size_t i = 0; c == 1 && i < pixels; i++) {
        const uint8_t *p = r->bytes + 3 * i;
        to[i] = (uint8_t)((p[0] * 19595U + p[1] * 38470U + p[2] * 7471U + 0x8000U) >> 16);
    }
    pp_free(r->bytes);
    r->bytes = to;
    r->c = c;
    return 0;
}

/* ---- kinds of files */

static const struct {
    const char *begins;
    size_t n, at;
    const char *what;
} others[] = {
    {"RIFF", 4, 0, "a WebP picture"},
    {"GIF8", 4, 0, "a GIF picture"},
    {"BM", 2, 0, "a BMP picture"},
    {"II*\0", 4, 0, "a TIFF picture"},
    {"MM\0*", 4, 0, "a TIFF picture"},
    {"ftyp", 4, 4, "a HEIC or AVIF picture"},
    {"%PDF-", 5, 0, "a PDF file"},
    {"<svg", 4, 0, "an SVG drawing"},
    {"\0\0\1\0", 4, 0, "an icon"},
    {"8BPS", 4, 0, "a Photoshop file"},
    {"P5", 2, 0, "a PGM picture"},
    {"P6", 2, 0, "a PPM picture"},
    {"<!DOCTYPE", 9, 0, "a web page"},
    {"<html", 5, 0, "a web page"},
    {"version https://git-lfs", 23, 0, "a Git LFS pointer (run `git lfs pull`)"},
};

static int refuse_other(const uint8_t *data, size_t n)
{
    if (n == 0)
        return pp_fail(PP_EFORMAT, "an empty file");
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (n >= others[i].at + others[i].n &&
            memcmp(data + others[i].at, others[i].begins, others[i].n) == 0)
            return pp_fail(PP_EFORMAT, "%s; JPEG and PNG are read", others[i].what);
    return pp_fail(PP_EFORMAT, "not a JPEG or PNG picture");
}

int raster_decode(const uint8_t *data, size_t n, struct raster *out)
{
    struct raster r = {0};
    if (n >= 3 && memcmp(data, "\xff\xd8\xff", 3) == 0)
        PP_TRY(raster_decode_jpeg(data, n, &r));
    else if (n >= 4 && memcmp(data, "\x89PNG", 4) == 0)
        PP_TRY(raster_decode_png(data, n, &r));
    else
        return refuse_other(data, n);
    PP_TRY_UNDO(turn_upright(&r), raster_fini(&r));
    *out = r;
    return 0;
}
