/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NumPy's npy: magic, version, length of the header, the header (a Python dict as text), elements;
 * alone or in a zip archive (npz). All element types but pixels become floats, because the model
 * computes with floats.
 */
#include "ops.h"

#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "ppcli/base/base.h"
#include "ppcli/base/files.h"

#define HEADER_MAX 4096

/* Returns the start of a key's value in the text of a dict; NULL if the key does not occur. */
static const char *find_value(const char *dict, const char *key)
{
    const char *p = strstr(dict, key);
    p = p ? p + strlen(key) : "";
    p += strspn(p, " ");
    return *p == ':' ? p + 1 + strspn(p + 1, " ") : NULL;
}

static int parse_type(const char *path, const char *p, struct pp_number_type *out)
{
    char order = p[0] == '\'' ? p[1] : '\0';
    *out = (struct pp_number_type){.big = order == '>'};
    if (order && strchr("<>|=", order) && p[2]) {
        out->kind = p[2];
        out->bytes = atoi(p + 3);
    }
    int b = out->bytes;
    bool whole = strchr("iu", out->kind) && (b == 1 || b == 2 || b == 4 || b == 8);
    if (out->kind && (whole || (out->kind == 'f' && (b == 2 || b == 4 || b == 8)) ||
                      (out->kind == 'b' && b == 1)))
        return 0;
    return pp_fail(PP_EFORMAT,
                   "%s: elements of type %.*s; expected whole numbers, float16, float32 or float64 "
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

static int read_npy_header(struct pp_source *s, const char *path, struct pp_number_type *type,
                           bool *out_fortran, struct pp_array *a)
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
    *out_fortran = strncmp(fortran, "False", 5) != 0;
    PP_TRY(parse_type(path, descr, type));
    PP_TRY(parse_shape(path, shape, a));
    a->pixels = type->kind == 'u' && type->bytes == 1;
    return pp_source_holds(s, 8 + wide + n + (uint64_t)a->n * (uint64_t)type->bytes);
}

/* ---- Fortran order */

/* Brings elements of `each` bytes from Fortran order, the first index moving fastest, to C order. */
static int reorder_elements(const struct pp_array *a, size_t each, uint8_t **data)
{
    size_t strides[PP_ARRAY_DIMS_MAX], at[PP_ARRAY_DIMS_MAX] = {0}, from = 0;
    size_t stride = 1;
    if (a->n_dims < 2)
        return 0;
    for (int d = 0; d < a->n_dims; d++) {
        strides[d] = stride;
        stride *= a->dims[d];
    }
    uint8_t *to;
    PP_ALLOC(to, a->n * each);
    for (size_t i = 0; i < a->n; i++) {
        memcpy(to + i * each, *data + from * each, each);
        for (int d = a->n_dims - 1; d >= 0; d--) {
            from += strides[d];
            if (++at[d] < a->dims[d])
                break;
            from -= at[d] * strides[d];
            at[d] = 0;
        }
    }
    pp_free(*data);
    *data = to;
    return 0;
}

/* ---- archives of arrays */

static int inflate_entry(const char *path, const struct pp_zip_entry *e, size_t want, uint8_t *out)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)e->data, .next_out = out}; /* next_in: only read */
    if (inflateInit2(&z, -MAX_WBITS) != Z_OK)
        return pp_fail(PP_ERESOURCE, "%s: out of memory for inflating", path);
    size_t left = e->stored, made = 0;
    int rc = Z_OK;
    while (rc == Z_OK && made < want) {
        if (z.avail_in == 0) {
            z.avail_in = (uInt)PP_MIN(left, (size_t)1 << 30);
            left -= z.avail_in;
        }
        uInt most = (uInt)PP_MIN(want - made, (size_t)1 << 30);
        z.avail_out = most;
        rc = inflate(&z, Z_NO_FLUSH);
        made += most - z.avail_out;
    }
    inflateEnd(&z);
    bool whole = made == want && (want < e->bytes || crc32_z(0, out, want) == e->crc);
    return whole ? 0 : pp_fail(PP_EFORMAT, "%s: its deflated data are damaged", path);
}

/* Finds the array that `name` names in an archive; "": the only one. */
static int find_array(const struct pp_zip *z, const char *path, const char *name,
                      const struct pp_zip_entry **out)
{
    char list[256] = "", file[PP_NAME_MAX + 8];
    snprintf(file, sizeof(file), "%.*s.npy", PP_NAME_MAX, name);
    bool is_only = !name[0] && z->n == 1;
    *out = is_only ? z->entries : name[0] ? pp_zip_find(z, file) : NULL;
    if (*out || is_only)
        return 0;
    for (int i = 0; i < z->n; i++)
        pp_text_add(list, sizeof(list), "%s%.*s", i > 0 ? ", " : "",
                    (int)strcspn(z->entries[i].name, "."), z->entries[i].name);
    return pp_fail(PP_EFORMAT, "%s: %s: it holds %s; name one as %.*s:%.*s", path,
                   name[0] ? "no such array" : "an archive of arrays", list, (int)strlen(z->path),
                   z->path, z->n > 0 ? (int)strcspn(z->entries[0].name, ".") : 4,
                   z->n > 0 ? z->entries[0].name : "NAME");
}

#define HEADER_BYTES 8192 /* enough for a header */

/* Reads an array of an archive into memory; *out is owned. whole: all of it, else its beginning. */
static int open_archive(const char *path, const char *end, bool whole, uint8_t **out,
                        struct pp_source **out_source)
{
    char file[PP_PATH_MAX];
    PP_OWN(pp_zip_close) struct pp_zip *z = NULL;
    const struct pp_zip_entry *e = NULL;
    PP_TRY(pp_path_format(file, "%.*s", (int)(end - path), path));
    int rc = pp_zip_open(file, &z);
    if (rc == PP_EFORMAT) {
        char why[256];
        snprintf(why, sizeof(why), "%.255s", pp_error_get()->text);
        return pp_fail(rc, "%s (an npz? numpy.savez() writes one)", why);
    }
    PP_TRY(rc);
    PP_TRY(find_array(z, path, *end == ':' ? end + 1 : "", &e));
    if ((e->method != 0 && e->method != 8) || e->bytes / 1100 > e->stored)
        return pp_fail(PP_EFORMAT, "%s: packed by an unknown method (%d), or damaged", path,
                       e->method);
    size_t want = whole ? e->bytes : PP_MIN(e->bytes, (size_t)HEADER_BYTES);
    PP_OWN_MEMORY uint8_t *data = pp_alloc(want, 1);
    if (!data)
        return pp_error_context("%s", path);
    if (e->method == 8)
        PP_TRY(inflate_entry(path, e, want, data));
    else
        memcpy(data, e->data, want);
    PP_TRY(e->method == 0 && whole ? pp_zip_check(z, e) : 0);
    PP_TRY(pp_source_of_bytes(path, data, want, e->bytes, out_source));
    *out = data;
    data = NULL;
    return 0;
}

/* Opens a file or FILE.npz:NAME. *out_memory is owned, and must outlive the source. */
static int open_npy(const char *path, bool whole, uint8_t **out_memory, struct pp_source **out)
{
    const char *npz = strstr(path, ".npz:");
    if (npz || pp_text_ends(path, ".npz"))
        return open_archive(path, npz ? npz + 4 : path + strlen(path), whole, out_memory, out);
    return pp_source_open(path, PP_SOURCE_INFLATED, out);
}

int pp_npy_read(const char *path, struct pp_array *out, void **out_data)
{
    PP_OWN_MEMORY uint8_t *memory = NULL;
    PP_OWN(pp_source_close) struct pp_source *s = NULL;
    struct pp_number_type type;
    struct pp_array a;
    bool fortran = false;
    PP_TRY(open_npy(path, out_data != NULL, &memory, &s));
    PP_TRY(read_npy_header(s, path, &type, &fortran, &a));
    if (out_data && a.pixels) {
        PP_OWN_MEMORY uint8_t *bytes = pp_alloc(a.n, 1);
        PP_TRY(bytes ? pp_source_pull(s, bytes, a.n, "data") : pp_error_context("%s", path));
        PP_TRY(pp_source_finish(s));
        PP_TRY(fortran ? reorder_elements(&a, 1, &bytes) : 0);
        *out_data = bytes;
        bytes = NULL;
    } else if (out_data) {
        PP_OWN_MEMORY uint8_t *values = pp_alloc(a.n, sizeof(float));
        PP_TRY(values ? pp_numbers_read(s, path, &type, a.n, (float *)(void *)values)
                      : pp_error_context("%s", path));
        PP_TRY(fortran ? reorder_elements(&a, sizeof(float), &values) : 0);
        *out_data = values;
        values = NULL;
    }
    *out = a;
    return 0;
}
