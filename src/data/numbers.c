/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of any type in files of arrays, as floats. */
#include <math.h>

#include "ppcli/base/base.h"
#include "ops.h"

#define PIECE 8192 /* numbers converted at a time */

static double decode_number(const struct pp_number_type *t, const uint8_t *p)
{
    union {
        uint64_t u64;
        uint32_t u32;
        double f64;
        float f32;
    } v = {0};
    uint64_t bits = 0;
    for (int i = 0; i < t->bytes; i++)
        bits |= (uint64_t)p[i] << 8 * (t->big ? t->bytes - 1 - i : i);
    if (t->kind == 'i') {
        uint64_t sign = (uint64_t)1 << (8 * t->bytes - 1);
        return (double)(int64_t)(bits & sign ? bits | ~(sign - 1) : bits);
    }
    if (t->kind != 'f')
        return (double)bits;
    if (t->bytes == 2)
        return pp_f16_value((uint16_t)bits);
    if (t->bytes == 4) {
        v.u32 = (uint32_t)bits;
        return v.f32;
    }
    v.u64 = bits;
    return v.f64;
}

int pp_numbers_read(struct pp_source *s, const char *path, const struct pp_number_type *t, size_t n,
                    float *out)
{
    uint8_t piece[PIECE * 8];
    for (size_t at = 0; at < n; at += PIECE) {
        size_t take = n - at < PIECE ? n - at : PIECE;
        PP_TRY(pp_source_pull(s, piece, take * (size_t)t->bytes, "data"));
        for (size_t i = 0; i < take; i++) {
            out[at + i] = (float)decode_number(t, piece + i * (size_t)t->bytes);
            if (!isfinite(out[at + i])) {
                return pp_fail(PP_EFORMAT, "%s: element %zu is not finite as a float (%g)", path,
                               at + i, decode_number(t, piece + i * (size_t)t->bytes));
            }
        }
    }
    return pp_source_finish(s);
}
