/* SPDX-License-Identifier: Apache-2.0 */
/* The weights of an archive as floats, in the order of its tensors: as initial values, and back. */
#include <string.h>

#include "graph.h"
#include "ppcli/base/base.h"
#include "ppcli/nn/archive.h"

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
        return pp_f16_value(x.u16);
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

/* ---- back */

struct new_weights {
    int (*read)(void *ctx, const char *name, int n_dims, const int64_t *dims, float *values);
    void *ctx;
};

/* Returns whether training may change a tensor: of whole numbers only a count. */
static bool may_change(const struct pt_weight *w)
{
    return w->persistent && (w->dtype < PT_I64 || (w->dtype == PT_I64 && w->n_dims == 0));
}

/* Writes value i of a tensor. */
static void write_element(enum pt_dtype dtype, float value, size_t i, void *values)
{
    switch (dtype) {
    case PT_F32:
        ((float *)values)[i] = value;
        break;
    case PT_F64:
        ((double *)values)[i] = (double)value;
        break;
    case PT_F16:
        ((uint16_t *)values)[i] = pp_f16_round(value);
        break;
    case PT_BF16:
        ((uint16_t *)values)[i] = pp_bf16_round(value);
        break;
    case PT_I64:
        ((int64_t *)values)[i] = (int64_t)value;
        break;
    default:
        break;
    }
}

static int fill_weight(void *ctx, const struct pt_weight *w, void *values)
{
    const struct new_weights *s = ctx;
    size_t n = 1;
    for (int d = 0; d < w->n_dims; d++)
        n *= (size_t)w->dims[d];
    if (!may_change(w))
        return 0;
    PP_OWN_MEMORY float *floats = pp_alloc(n, sizeof(*floats));
    if (!floats)
        return PP_ERESOURCE;
    PP_TRY(s->read(s->ctx, w->name, w->n_dims, w->dims, floats));
    for (size_t i = 0; i < n; i++)
        write_element(w->dtype, floats[i], i, values);
    return 0;
}

int pp_archive_write(const char *file, const char *path,
                     int (*read)(void *ctx, const char *name, int n_dims, const int64_t *dims,
                                 float *values),
                     void *ctx)
{
    PP_OWN(pt_program_destroy) struct pt_program *p = NULL;
    struct new_weights s = {read, ctx};
    PP_TRY(pt_program_read(file, &p));
    return pt_program_write(p, path, fill_weight, &s);
}
