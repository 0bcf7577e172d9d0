/* SPDX-License-Identifier: Apache-2.0 */
/* A strict reader of IDX files. */
#include "ops.h"

#include <inttypes.h>

#include "ppcli/base/base.h"

int pp_array_count(const char *path, struct pp_array *a)
{
    uint64_t n = 1;
    for (int i = 0; i < a->n_dims; i++) {
        if (a->dims[i] < 1 || a->dims[i] > PP_ARRAY_DIM_MAX) {
            return pp_fail(PP_EFORMAT, "%s: dimension %d is %" PRIu32 ", expected 1 to %" PRIu32,
                           path, i, a->dims[i], PP_ARRAY_DIM_MAX);
        }
        n *= a->dims[i]; /* cannot overflow: at most 2^30 x 2^28 */
        if (n > PP_ARRAY_MAX) {
            return pp_fail(PP_EFORMAT,
                           "%s: its header announces %" PRIu64 " values or more, at most %" PRIu64
                           " are read",
                           path, n, PP_ARRAY_MAX);
        }
    }
    a->n = (size_t)n;
    return 0;
}

/* Finds the type of the elements by its code. */
static bool find_idx_type(uint8_t code, struct pp_number_type *out)
{
    static const struct {
        uint8_t code;
        struct pp_number_type type;
    } types[] = {{0x08, {'u', true, 1}}, {0x09, {'i', true, 1}}, {0x0b, {'i', true, 2}},
                 {0x0c, {'i', true, 4}}, {0x0d, {'f', true, 4}}, {0x0e, {'f', true, 8}}};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        *out = types[i].type;
        if (types[i].code == code)
            return true;
    }
    return false;
}

static int read_idx_header(struct pp_source *s, const char *path, struct pp_number_type *type,
                           struct pp_array *out)
{
    uint8_t b[4 * PP_ARRAY_DIMS_MAX] = {0};
    char head[64];
    PP_TRY(pp_source_pull(s, b, 4, "header"));
    if (b[0] != 0 || b[1] != 0) {
        PP_TRY(pp_source_foreign(s));
        return pp_fail(PP_EFORMAT,
                       "%s: not an IDX file (gzipped or plain): begins with %s, expected 00 00 08",
                       path, pp_source_head(s, head, sizeof(head)));
    }
    if (!find_idx_type(b[2], type) || b[3] < 1 || b[3] > PP_ARRAY_DIMS_MAX) {
        return pp_fail(
            PP_EFORMAT,
            "%s: magic 0x%02x%02x%02x%02x, expected 0x00000801 to 0x00000804: unsigned "
            "bytes in 1 to 4 dimensions; or 9, b, c, d, e in place of 8 for other numbers",
            path, b[0], b[1], b[2], b[3]);
    }
    struct pp_array idx = {.n_dims = b[3], .dims = {1, 1, 1, 1}, .pixels = b[2] == 0x08};
    PP_TRY(pp_source_pull(s, b, 4 * (size_t)idx.n_dims, "header"));
    for (int i = 0; i < idx.n_dims; i++) {
        const uint8_t *p = b + (size_t)4 * (size_t)i;
        idx.dims[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    }
    PP_TRY(pp_array_count(path, &idx));
    PP_TRY(
        pp_source_holds(s, 4 + 4 * (uint64_t)idx.n_dims + (uint64_t)idx.n * (uint64_t)type->bytes));
    *out = idx;
    return 0;
}

static int read_floats(struct pp_source *s, const char *path, const struct pp_number_type *type,
                       size_t n, void **out)
{
    PP_OWN_MEMORY float *values = pp_alloc(n, sizeof(*values));
    PP_TRY(values ? pp_numbers_read(s, path, type, n, values) : pp_error_context("%s", path));
    *out = values;
    values = NULL;
    return 0;
}

static int read_pixels(struct pp_source *s, const char *path, size_t bytes, void **out)
{
    PP_OWN_MEMORY uint8_t *data = pp_alloc(bytes, 1);
    if (!data)
        return pp_error_context("%s", path);
    PP_TRY(pp_source_pull(s, data, bytes, "data"));
    PP_TRY(pp_source_finish(s));
    *out = data;
    data = NULL;
    return 0;
}

int pp_idx_read(const char *path, struct pp_array *out, void **out_data)
{
    PP_OWN(pp_source_close) struct pp_source *s = NULL;
    struct pp_number_type type;
    struct pp_array idx = {0};
    PP_TRY(pp_source_open(path, PP_SOURCE_INFLATED, &s));
    PP_TRY(read_idx_header(s, path, &type, &idx));
    if (out_data)
        PP_TRY(idx.pixels ? read_pixels(s, path, idx.n, out_data)
                          : read_floats(s, path, &type, idx.n, out_data));
    *out = idx;
    return 0;
}
