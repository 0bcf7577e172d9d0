/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JPEG by libjpeg-turbo, with its default transform and upsampling, which Pillow uses too. A picture
 * whose data end early or do not decode is refused, where libjpeg fills in grey and warns. Errors of
 * libjpeg leave by longjmp(), so everything that a decoder owns is in one struct.
 */
#include "raster.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "ppcli/base/base.h"

#define SCANS_MAX 500          /* of a progressive picture: damaged ones have thousands */
#define PIXELS_OF_A_BYTE 1024U /* at most: a block of 64 pixels takes a bit or more */

struct decoder {
    struct jpeg_decompress_struct j;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf leave;
    char text[JMSG_LENGTH_MAX]; /* what was wrong */
    int code;
    struct raster r;
};

static void leave_decoder(struct decoder *d, int code)
{
    d->code = code;
    longjmp(d->leave, 1);
}

static void on_error(j_common_ptr j)
{
    struct decoder *d = j->client_data;
    j->err->format_message(j, d->text);
    leave_decoder(d, j->err->msg_code == JERR_OUT_OF_MEMORY ? PP_ERESOURCE : PP_EFORMAT);
}

/* Called for warnings (level -1) and traces. Some warnings mean that pixels are made up. */
static void on_message(j_common_ptr j, int level)
{
    struct decoder *d = j->client_data;
    int code = j->err->msg_code;
    if (level >= 0 || (code != JWRN_HIT_MARKER && code != JWRN_HUFF_BAD_CODE &&
                       code != JWRN_ARITH_BAD_CODE && code != JWRN_MUST_RESYNC))
        return;
    j->err->format_message(j, d->text);
    leave_decoder(d, PP_EFORMAT);
}

static void on_progress(j_common_ptr j)
{
    struct decoder *d = j->client_data;
    if (d->j.input_scan_number <= SCANS_MAX)
        return;
    snprintf(d->text, sizeof(d->text), "more than %d scans", SCANS_MAX);
    leave_decoder(d, PP_EFORMAT);
}

static void find_orientation(struct decoder *d)
{
    d->r.orientation = 1;
    for (jpeg_saved_marker_ptr m = d->j.marker_list; m; m = m->next) {
        if (m->marker == JPEG_APP0 + 1 && m->data_length > 6 && memcmp(m->data, "Exif\0", 6) == 0) {
            d->r.orientation = raster_orientation(m->data + 6, m->data_length - 6);
            return;
        }
    }
}

/* Reads the header and takes memory for the pixels. */
static int begin_picture(struct decoder *d, const uint8_t *data, size_t n)
{
    jpeg_mem_src(&d->j, data, n);
    jpeg_save_markers(&d->j, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(&d->j, TRUE);
    find_orientation(d);
    J_COLOR_SPACE space = d->j.jpeg_color_space;
    if (space == JCS_CMYK || space == JCS_YCCK)
        return pp_fail(PP_EFORMAT, "a JPEG picture in CMYK, the colours of print; save it as RGB");
    if (space != JCS_GRAYSCALE && space != JCS_YCbCr && space != JCS_RGB)
        return pp_fail(PP_EFORMAT, "a JPEG picture of %d channels; grey and RGB are read",
                       d->j.num_components);
    PP_TRY(raster_check_size(d->j.image_height, d->j.image_width, n, PIXELS_OF_A_BYTE));
    d->r.h = (int)d->j.image_height;
    d->r.w = (int)d->j.image_width;
    d->r.c = space == JCS_GRAYSCALE ? 1 : 3;
    d->j.out_color_space = d->r.c == 1 ? JCS_GRAYSCALE : JCS_RGB;
    d->r.bytes = pp_alloc((size_t)d->r.h * (size_t)d->r.w, (size_t)d->r.c);
    return d->r.bytes ? 0 : PP_ERESOURCE;
}

static int read_picture(struct decoder *d, const uint8_t *data, size_t n)
{
    if (setjmp(d->leave))
        return pp_fail(d->code == PP_ERESOURCE ? PP_ERESOURCE : PP_EFORMAT,
                       "a damaged JPEG picture (%s)", d->text);
    jpeg_create_decompress(&d->j);
    d->progress.progress_monitor = on_progress;
    d->j.progress = &d->progress;
    PP_TRY(begin_picture(d, data, n));
    jpeg_start_decompress(&d->j);
    size_t row = (size_t)d->r.w * (size_t)d->r.c;
    while (d->j.output_scanline < d->j.output_height) {
        JSAMPROW at = d->r.bytes + d->j.output_scanline * row;
        jpeg_read_scanlines(&d->j, &at, 1);
    }
    return 0; /* what follows the last row does not matter */
}

int raster_decode_jpeg(const uint8_t *data, size_t n, struct raster *out)
{
    struct decoder *d;
    PP_ALLOC(d, 1);
    d->j.err = jpeg_std_error(&d->errors);
    d->j.client_data = d;
    d->errors.error_exit = on_error;
    d->errors.emit_message = on_message;
    int rc = read_picture(d, data, n);
    jpeg_destroy_decompress(&d->j);
    if (rc == 0)
        *out = d->r;
    else
        raster_fini(&d->r);
    pp_free(d);
    return rc;
}
