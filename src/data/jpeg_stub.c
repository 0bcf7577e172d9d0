/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces jpeg.c in a build without libjpeg: PNG pictures still work. */
#include "raster.h"

#include "ppcli/base/base.h"

int raster_decode_jpeg(const uint8_t *data, size_t n, struct raster *out)
{
    return pp_fail(PP_ERESOURCE,
                   "a JPEG picture, and this ppcli was built without libjpeg (Debian: "
                   "libjpeg62-turbo-dev)");
}
