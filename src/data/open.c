/* SPDX-License-Identifier: Apache-2.0 */
#include "open.h"

#include <stdio.h>

enum pp_magic pp_magic_of(const uint8_t *b, size_t n)
{
    if (n >= 2 && b[0] == 0x1f && b[1] == 0x8b) {
        return PP_MAGIC_GZIP;
    }
    if (n >= 2 && b[0] == 0 && b[1] == 0) {
        return PP_MAGIC_IDX;
    }
    size_t i = 0;
    while (i < n && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t')) {
        i++;
    }
    return i < n && b[i] == '<' ? PP_MAGIC_MARKUP : PP_MAGIC_OTHER;
}

const char *pp_magic_text(const uint8_t *b, size_t n, char *out, size_t bytes)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < n && i < 4 && used + 4 < bytes; i++) {
        used += (size_t)snprintf(out + used, bytes - used, "%s%02x", i > 0 ? " " : "", b[i]);
    }
    if (pp_magic_of(b, n) == PP_MAGIC_MARKUP) {
        snprintf(out + used, bytes - used, " (a web page?)");
    }
    return out;
}
