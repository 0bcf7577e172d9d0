/* SPDX-License-Identifier: Apache-2.0 */
#include "show.h"

#include <inttypes.h>
#include <stdio.h>

const char *show_size(uint64_t bytes, char out[SHOW_BYTES])
{
    static const char *const units[] = {"kB", "MB", "GB", "TB"};
    if (bytes < 1000) {
        snprintf(out, SHOW_BYTES, "%" PRIu64 " bytes", bytes);
        return out;
    }
    int u = 0;
    double v = (double)bytes / 1000;
    /* 999.95 would be printed as 1000.0 */
    while (v >= 999.95 && u < 3) {
        v /= 1000;
        u++;
    }
    snprintf(out, SHOW_BYTES, "%.1f %s", v, units[u]);
    return out;
}
