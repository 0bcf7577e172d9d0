/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes picture files. Each function gives the bytes that Pillow's Image.open() and convert()
 * give: convert("L") for a grey file, convert("RGB") for a colour file, so that alpha is dropped.
 * Of 16 bits a value the upper 8 are kept. The orientation tag is applied, as Pillow's
 * ImageOps.exif_transpose() does.
 */
#ifndef PPCLI_DATA_RASTER_H
#define PPCLI_DATA_RASTER_H

#include <stddef.h>
#include <stdint.h>

#define RASTER_PIXELS_MAX ((uint64_t)178956970) /* Pillow's limit */

struct raster {
    int h, w, c;     /* c: 1 (grey) or 3 */
    int orientation; /* EXIF tag 0x0112: 1 to 8 */
    uint8_t *bytes;  /* [h][w][c]; owned */
};

void raster_fini(struct raster *r);

/* Decodes a file that is in memory, by its first bytes, and turns it upright. `out` is filled only on
 * success. Errors: PP_EFORMAT (not a picture that is read, damaged, too large); PP_ERESOURCE (memory,
 * or this ppcli was built without the library). No text names the file. Local. */
int raster_decode(const uint8_t *data, size_t n, struct raster *out);

/* Converts a picture to c = 1 or 3 channels: Pillow's weights of red, green and blue, or grey
 * repeated. Errors: PP_ERESOURCE. */
int raster_convert(struct raster *r, int c);

/* The decoders of the two formats; they leave the picture as it lies in the file. */
int raster_decode_jpeg(const uint8_t *data, size_t n, struct raster *out);
int raster_decode_png(const uint8_t *data, size_t n, struct raster *out);

/* Returns the orientation that a block of EXIF data (a TIFF header and its entries) has; 1 if it has
 * none. */
int raster_orientation(const uint8_t *data, size_t n);

/* Refuses a picture whose sizes are 0, too large, or larger than n bytes of a file can hold, if each
 * byte is `most` pixels at most. Errors: PP_EFORMAT. */
int raster_check_size(uint64_t h, uint64_t w, uint64_t n, uint64_t most);

#endif
