/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NumPy's npy: magic, version, length of the header, the header (a Python dict as text), elements.
 * All element types but pixels become floats, because the model computes with floats.
 */
#include "ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"

#define HEADER_MAX 4096
#define PIECE 8192 /* elements converted at a time */

struct type {
    char kind;  /* 'f', 'i', 'u', 'b' */
    char order; /* '>': big-endian */
    int bytes;
};

/* Returns the start of a key's value in the text of a dict; NULL if the key does not occur. */
static const char *find_value(const char *dict, const char *key)
{
    const char *p = strstr(dict, key);
    p = p ? p + strlen(key) : "";
    p += strspn(p, " ");
    return *p == ':' ? p + 1 + strspn(p + 1, " ") : NULL;
}

static int parse_type(const char *path, const char *p, struct type *out)
{
    *out = (struct type){.order = p[0] == '\'' ? p[1] : '\0'};
    if (out->order && strchr("<>|=", out->order) && p[2]) {
        out->kind = p[2];
        out->bytes = atoi(p + 3);
    }
    int b = out->bytes;
    bool whole = strchr("iu", out->kind) && (b == 1 || b == 2 || b == 4 || b == 8);
    if (out->kind &&
        (whole || (out->kind == 'f' && (b == 4 || b == 8)) || (out->kind == 'b' && b == 1)))
        return 0;
    return pp_fail(PP_EFORMAT,
                   "%s: elements of type %.*s; expected whole numbers, float32 or float64 "
                   "(x.astype('float32'))",
                   path, (int)(p[0] == '\'' ? strcspn(p + 1, "'") + 2 : strcspn(p, "]") + 1), p);
}

static int parse_shape(const char *path, const char *p, struct pp_array *a)
{
    *a = (struct pp_array){.dims = {1, 1, 1, 1}};
    for (p += *p == '('; *p >= '0' && *p <= '9'; p += strspn(p, ", L")) {
        char *end;
        unsigned long long d = strtoull(p, &end, 10);
        if (a->n_dims == PP_ARRAY_DIMS_MAX) {
            a->n_dims++;
            break;
        }
        a->dims[a->n_dims++] = d > UINT32_MAX ? UINT32_MAX : (uint32_t)d;
        p = end;
    }
    if (a->n_dims < 1 || a->n_dims > PP_ARRAY_DIMS_MAX) {
        return pp_fail(PP_EFORMAT, "%s: %s dimensions, expected 1 to %d", path,
                       a->n_dims < 1 ? "no" : "more than 4", PP_ARRAY_DIMS_MAX);
    }
    return pp_array_count(path, a);
}

static int read_npy_header(struct pp_source *s, const char *path, struct type *type,
                           struct pp_array *a)
{
    uint8_t b[12] = {0};
    char head[64], dict[HEADER_MAX + 1] = "";
    PP_TRY(pp_source_pull(s, b, 8, "header"));
    if (memcmp(b, "\x93NUMPY", 6) != 0 || b[6] < 1 || b[6] > 3) {
        PP_TRY(pp_source_foreign(s));
        return pp_fail(PP_EFORMAT, "%s: not an npy file: begins with %s", path,
                       pp_source_head(s, head, sizeof(head)));
    }
    size_t wide = b[6] == 1 ? 2 : 4;
    PP_TRY(pp_source_pull(s, b + 8, wide, "header"));
    size_t n = (size_t)b[8] | (size_t)b[9] << 8 | (size_t)b[10] << 16 | (size_t)b[11] << 24;
    if (n > HEADER_MAX) {
        return pp_fail(PP_EFORMAT, "%s: header of %zu bytes, at most %d are read", path, n,
                       HEADER_MAX);
    }
    PP_TRY(pp_source_pull(s, dict, n, "header"));
    const char *descr = find_value(dict, "'descr'"), *shape = find_value(dict, "'shape'"),
               *fortran = find_value(dict, "'fortran_order'");
    if (!descr || !shape || !fortran)
        return pp_fail(PP_EFORMAT, "%s: its header lacks descr, fortran_order or shape", path);
    if (strncmp(fortran, "False", 5) != 0) {
        return pp_fail(PP_EFORMAT, "%s: in Fortran order; save numpy.ascontiguousarray(x) instead",
                       path);
    }
    PP_TRY(parse_type(path, descr, type));
    PP_TRY(parse_shape(path, shape, a));
    a->pixels = type->kind == 'u' && type->bytes == 1;
    return pp_source_holds(s, 8 + wide + n + (uint64_t)a->n * (uint64_t)type->bytes);
}

static double read_element(const struct type *t, const uint8_t *p)
{
    union {
        uint64_t u64;
        uint32_t u32;
        double f64;
        float f32;
    } v = {0};
    uint64_t bits = 0;
    for (int i = 0; i < t->bytes; i++)
        bits |= (uint64_t)p[i] << 8 * (t->order == '>' ? t->bytes - 1 - i : i);
    if (t->kind == 'i') {
        uint64_t sign = (uint64_t)1 << (8 * t->bytes - 1);
        return (double)(int64_t)(bits & sign ? bits | ~(sign - 1) : bits);
    }
    if (t->kind != 'f')
        return (double)bits;
    if (t->bytes == 4) {
        v.u32 = (uint32_t)bits;
        return v.f32;
    }
    v.u64 = bits;
    return v.f64;
}

static int read_elements(struct pp_source *s, const char *path, const struct type *t, size_t n,
                         float *out)
{
    uint8_t piece[PIECE * 8];
    for (size_t at = 0; at < n; at += PIECE) {
        size_t take = n - at < PIECE ? n - at : PIECE;
        PP_TRY(pp_source_pull(s, piece, take * (size_t)t->bytes, "data"));
        for (size_t i = 0; i < take; i++) {
            out[at + i] = (float)read_element(t, piece + i * (size_t)t->bytes);
            if (!isfinite(out[at + i])) {
                return pp_fail(PP_EFORMAT, "%s: element %zu is not finite as a float (%g)", path,
                               at + i, read_element(t, piece + i * (size_t)t->bytes));
            }
        }
    }
    return pp_source_finish(s);
}

int pp_npy_read(const char *path, struct pp_array *out, void **out_data)
{
    PP_OWN(pp_source_close) struct pp_source *s = NULL;
    struct type type;
    struct pp_array a;
    PP_TRY(pp_source_open(path, PP_SOURCE_INFLATED, &s));
    PP_TRY(read_npy_header(s, path, &type, &a));
    if (out_data && a.pixels) {
        PP_OWN_MEMORY uint8_t *bytes = pp_alloc(a.n, 1);
        PP_TRY(bytes ? pp_source_pull(s, bytes, a.n, "data") : pp_error_context("%s", path));
        PP_TRY(pp_source_finish(s));
        *out_data = bytes;
        bytes = NULL;
    } else if (out_data) {
        PP_OWN_MEMORY float *values = pp_alloc(a.n, sizeof(*values));
        PP_TRY(values ? read_elements(s, path, &type, a.n, values) : pp_error_context("%s", path));
        *out_data = values;
        values = NULL;
    }
    *out = a;
    return 0;
}
