/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces png.c in a build without libpng: JPEG pictures still work. */
#include "raster.h"

#include "ppcli/base/base.h"

int raster_decode_png(const uint8_t *data, size_t n, struct raster *out)
{
    return pp_fail(PP_ERESOURCE, "a PNG picture, and this ppcli was built without libpng (Debian: "
                                 "libpng-dev)");
}
