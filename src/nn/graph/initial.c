/* SPDX-License-Identifier: Apache-2.0 */
/* Initial values: the weights of an archive as floats, in the order of its tensors. */
#include <math.h>
#include <string.h>

#include "graph.h"
#include "ppcli/base/base.h"

/* Returns a half-precision number. */
static float from_half(uint16_t h)
{
    int exponent = h >> 10 & 31;
    float mantissa = (float)(h & 1023);
    float x = exponent == 31 ? (mantissa > 0 ? NAN : INFINITY)
              : exponent > 0 ? ldexpf(mantissa + 1024, exponent - 25)
                             : ldexpf(mantissa, -24);
    return h & 0x8000 ? -x : x;
}

/* Returns element `at` of a storage, which is aligned to 1 byte only. */
static float read_element(const struct pt_weight *w, int64_t at)
{
    const size_t bytes = pt_dtype_bytes(w->dtype);
    const char *p = (const char *)w->data + (size_t)at * bytes;
    union {
        float f32;
        double f64;
        uint16_t u16;
        uint32_t u32;
        int64_t i64;
        int32_t i32;
        int16_t i16;
        int8_t i8;
        uint8_t u8;
    } x;
    memcpy(&x, p, bytes);
    switch (w->dtype) {
    case PT_F32:
        return x.f32;
    case PT_F64:
        return (float)x.f64;
    case PT_F16:
        return from_half(x.u16);
    case PT_BF16:
        x.u32 = (uint32_t)x.u16 << 16;
        return x.f32;
    case PT_I64:
        return (float)x.i64;
    case PT_I32:
        return (float)x.i32;
    case PT_I16:
        return (float)x.i16;
    case PT_I8:
        return (float)x.i8;
    default:
        return (float)x.u8;
    }
}

static int read_weight(const struct pp_given *g, size_t first, size_t n, float *out)
{
    const struct pt_weight *w = ((const struct graph_initial *)(const void *)g)->weight;
    for (size_t i = 0; i < n; i++) {
        int64_t at = w->offset, left = (int64_t)(first + i);
        for (int d = w->n_dims - 1; d >= 0; d--) {
            at += left % w->dims[d] * w->strides[d];
            left /= w->dims[d];
        }
        out[i] = read_element(w, at);
    }
    return 0;
}

int graph_initial_create(const struct pt_program *p, struct graph_initial **out)
{
    struct graph_initial *all = pp_alloc((size_t)p->n_weights, sizeof(*all));
    if (!all)
        return PP_ERESOURCE;
    for (int i = 0; i < p->n_weights; i++)
        all[i] = (struct graph_initial){.given = {read_weight}, .weight = &p->weights[i]};
    *out = all;
    return 0;
}
