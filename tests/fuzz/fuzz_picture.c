/* SPDX-License-Identifier: Apache-2.0 */
/* PNG and JPEG pictures: decoded and turned upright, or refused. */
#include "fuzz.h"
#include "ppcli/base/base.h"
#include "../../src/data/raster.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    PP_OWN(raster_fini) struct raster r = {0};
    int rc = raster_decode(data, size, &r);
    if (rc < 0) {
        if (rc != PP_ERESOURCE) /* without the library of the format */
            fuzz_refused(rc);
        return 0;
    }
    pp_assert(r.h > 0 && r.w > 0 && (r.c == 1 || r.c == 3));
    pp_assert(raster_convert(&r, 4 - r.c) == 0);
    return 0;
}
