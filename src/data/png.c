/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PNG by libpng, without gamma, as Pillow reads it. Palettes become colours, or grey if all of their
 * entries are grey. Errors of libpng leave by longjmp(), so everything that a decoder owns is in one
 * struct.
 */
#include "raster.h"

#include <png.h>
#include <setjmp.h>
#include <string.h>

#include "ppcli/base/base.h"

#define DEFLATE_RATIO_MAX 1032U /* deflate writes at most 258 bytes from 2 bits */

struct decoder {
    png_structp png;
    png_infop info;
    const uint8_t *data;
    size_t n, at;
    char text[128]; /* what was wrong */
    png_bytepp rows;
    struct raster r;
};

static void on_error(png_structp png, png_const_charp text)
{
    struct decoder *d = png_get_error_ptr(png);
    snprintf(d->text, sizeof(d->text), "%s", text);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static void on_read(png_structp png, png_bytep out, size_t n)
{
    struct decoder *d = png_get_io_ptr(png);
    if (n > d->n - d->at)
        png_error(png, "cut short");
    memcpy(out, d->data + d->at, n);
    d->at += n;
}

static bool is_palette_grey(const struct decoder *d)
{
    png_colorp colors = NULL;
    int n = 0;
    png_get_PLTE(d->png, d->info, &colors, &n);
    for (int i = 0; i < n; i++)
        if (colors[i].red != colors[i].green || colors[i].red != colors[i].blue)
            return false;
    return n > 0;
}

/* Reads the header, says how pixels are converted, and takes memory for them. */
static int begin_picture(struct decoder *d, bool *out_grey_palette)
{
    png_set_read_fn(d->png, d, on_read);
    png_set_user_limits(d->png, 0x7fffffff, 0x7fffffff); /* checked here, with a better message */
    png_read_info(d->png, d->info);
    png_uint_32 h = png_get_image_height(d->png, d->info), w = png_get_image_width(d->png, d->info);
    int type = png_get_color_type(d->png, d->info), bits = png_get_bit_depth(d->png, d->info);
    PP_TRY(raster_check_size(h, w, d->n, (uint64_t)DEFLATE_RATIO_MAX * 8));
    *out_grey_palette = type == PNG_COLOR_TYPE_PALETTE && is_palette_grey(d);
    if (type == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(d->png);
    if (type == PNG_COLOR_TYPE_GRAY && bits < 8)
        png_set_expand_gray_1_2_4_to_8(d->png);
    if (bits == 16)
        png_set_strip_16(d->png);
    png_set_strip_alpha(d->png);
    png_set_interlace_handling(d->png);
    png_read_update_info(d->png, d->info);
    d->r = (struct raster){.h = (int)h, .w = (int)w, .orientation = 1};
    d->r.c = png_get_channels(d->png, d->info);
    size_t row = png_get_rowbytes(d->png, d->info);
    if (row != (size_t)w * (size_t)d->r.c || (d->r.c != 1 && d->r.c != 3))
        return pp_fail(PP_EINTERNAL, "a PNG picture of %d channels", d->r.c);
    d->r.bytes = pp_alloc(h, row);
    d->rows = pp_alloc(h, sizeof(*d->rows));
    for (png_uint_32 y = 0; d->r.bytes && d->rows && y < h; y++)
        d->rows[y] = d->r.bytes + y * row;
    return d->r.bytes && d->rows ? 0 : PP_ERESOURCE;
}

static void keep_grey(struct raster *r)
{
    size_t pixels = (size_t)r->h * (size_t)r->w;
    for (size_t i = 0; i < pixels; i++)
        r->bytes[i] = r->bytes[3 * i];
    r->c = 1;
}

static int read_picture(struct decoder *d)
{
    bool grey_palette = false;
    if (setjmp(png_jmpbuf(d->png)))
        return pp_fail(PP_EFORMAT, "a damaged PNG picture (%s)", d->text);
    d->info = png_create_info_struct(d->png);
    if (!d->info)
        return pp_fail(PP_ERESOURCE, "out of memory for a PNG picture");
    PP_TRY(begin_picture(d, &grey_palette));
    png_read_image(d->png, d->rows);
    png_read_end(d->png, d->info);
    if (grey_palette)
        keep_grey(&d->r);
#ifdef PNG_eXIf_SUPPORTED
    png_uint_32 n = 0;
    png_bytep exif = NULL;
    if (png_get_eXIf_1(d->png, d->info, &n, &exif) && exif)
        d->r.orientation = raster_orientation(exif, n);
#endif
    return 0;
}

int raster_decode_png(const uint8_t *data, size_t n, struct raster *out)
{
    struct decoder *d;
    PP_ALLOC(d, 1);
    d->data = data;
    d->n = n;
    d->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, d, on_error, on_warning);
    int rc = d->png ? read_picture(d) : pp_fail(PP_ERESOURCE, "libpng cannot be used");
    png_destroy_read_struct(&d->png, &d->info, NULL);
    pp_free(d->rows);
    if (rc == 0)
        *out = d->r;
    else
        raster_fini(&d->r);
    pp_free(d);
    return rc;
}
