/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a safetensors file: from bytes to a checked list of tensors. */
#include "ppcli/safetensors.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/json_in.h"
#include "ppcli/mem.h"

#define LENGTH_BYTES 8
#define ITEMS_MAX ((size_t)1 << 18) /* commas: a tensor of a header needs 3 of them */
#define OWN_KEY "__metadata__"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    [PP_ST_F32] = {"F32", 4},   [PP_ST_F16] = {"F16", 2}, [PP_ST_BF16] = {"BF16", 2},
    [PP_ST_F64] = {"F64", 8},   [PP_ST_I64] = {"I64", 8}, [PP_ST_U8] = {"U8", 1},
    [PP_ST_BOOL] = {"BOOL", 1},
};

const char *pp_st_dtype_name(enum pp_st_dtype t)
{
    return dtypes[t].name;
}

size_t pp_st_dtype_bytes(enum pp_st_dtype t)
{
    return dtypes[t].bytes;
}

static bool name_is_good(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return n > 0 && n <= PP_ST_NAME_MAX && name[n] == '\0';
}

/* ---- one tensor */

static int read_dtype(const char *label, const char *name, const json_t *v, enum pp_st_dtype *out)
{
    const char *text = json_string_value(v);
    for (size_t i = 0; text && i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        if (strcmp(text, dtypes[i].name) == 0) {
            *out = (enum pp_st_dtype)i;
            return 0;
        }
    }
    char shown[PP_JSON_SHOWN];
    return pp_fail(PP_EFORMAT,
                   "%s: tensor %s: dtype %s is none of F32, F16, BF16, F64, I64, U8, BOOL", label,
                   name, text ? pp_json_shown(text, shown) : "(no string)");
}

static int read_shape(const char *label, const json_t *v, struct pp_st_tensor *t,
                      uint64_t *out_bytes)
{
    if (!json_is_array(v) || json_array_size(v) > PP_ST_DIMS_MAX) {
        return pp_fail(PP_EFORMAT, "%s: tensor %s: its shape is not a list of at most %d numbers",
                       label, t->name, PP_ST_DIMS_MAX);
    }
    t->n_dims = (int)json_array_size(v);
    t->elements = 1;
    bool fits = true;
    for (int i = 0; i < t->n_dims; i++) {
        const json_t *d = json_array_get(v, (size_t)i);
        if (!json_is_integer(d) || json_integer_value(d) < 0) {
            return pp_fail(PP_EFORMAT,
                           "%s: tensor %s: dimension %d is not a whole number from 0 on", label,
                           t->name, i);
        }
        t->dims[i] = json_integer_value(d);
        fits = fits && !__builtin_mul_overflow(t->elements, (uint64_t)t->dims[i], &t->elements);
    }
    if (!fits || __builtin_mul_overflow(t->elements, dtypes[t->dtype].bytes, out_bytes)) {
        return pp_fail(PP_EFORMAT, "%s: tensor %s: its shape is too large to be true", label,
                       t->name);
    }
    return 0;
}

static int read_offsets(const char *label, const json_t *v, uint64_t data_bytes, uint64_t bytes,
                        struct pp_st_tensor *t)
{
    const json_t *begin = json_array_get(v, 0), *end = json_array_get(v, 1);
    if (!json_is_array(v) || json_array_size(v) != 2 || !json_is_integer(begin) ||
        !json_is_integer(end) || json_integer_value(begin) < 0 ||
        json_integer_value(end) < json_integer_value(begin)) {
        return pp_fail(PP_EFORMAT, "%s: tensor %s: its data_offsets are not [begin, end]", label,
                       t->name);
    }
    t->begin = (uint64_t)json_integer_value(begin);
    t->end = (uint64_t)json_integer_value(end);
    if (t->end > data_bytes) {
        return pp_fail(PP_EFORMAT,
                       "%s: tensor %s ends at byte %" PRIu64 " of the data, which has %" PRIu64
                       " bytes: the file was cut short, or its header is wrong",
                       label, t->name, t->end, data_bytes);
    }
    if (t->end - t->begin != bytes) {
        return pp_fail(PP_EFORMAT,
                       "%s: tensor %s has %" PRIu64 " bytes of data, its shape needs %" PRIu64,
                       label, t->name, t->end - t->begin, bytes);
    }
    return 0;
}

static int read_tensor(const char *label, const char *name, const json_t *v, uint64_t data_bytes,
                       struct pp_st_tensor *t)
{
    char shown[PP_JSON_SHOWN];
    if (!name_is_good(name)) {
        return pp_fail(PP_EFORMAT,
                       "%s: tensor name '%s': 1 to %d of the characters A-Z a-z 0-9 . _ - are "
                       "expected",
                       label, pp_json_shown(name, shown), PP_ST_NAME_MAX);
    }
    memcpy(t->name, name, strlen(name) + 1);
    if (!json_is_object(v) || json_object_size(v) != 3 || !json_object_get(v, "dtype") ||
        !json_object_get(v, "shape") || !json_object_get(v, "data_offsets")) {
        return pp_fail(PP_EFORMAT,
                       "%s: tensor %s: exactly dtype, shape and data_offsets are expected", label,
                       name);
    }
    uint64_t bytes = 0;
    PP_TRY(read_dtype(label, name, json_object_get(v, "dtype"), &t->dtype));
    PP_TRY(read_shape(label, json_object_get(v, "shape"), t, &bytes));
    return read_offsets(label, json_object_get(v, "data_offsets"), data_bytes, bytes, t);
}

/* ---- the whole header */

static int by_place(const void *a, const void *b)
{
    const struct pp_st_tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Every byte of the data belongs to exactly one tensor. */
static int check_places(const char *label, const struct pp_st_header *h)
{
    uint64_t at = 0;
    for (int i = 0; i < h->n_tensors; i++) {
        const struct pp_st_tensor *t = &h->tensors[i];
        if (t->begin < at) {
            return pp_fail(PP_EFORMAT, "%s: tensors %s and %s overlap", label,
                           h->tensors[i - 1].name, t->name);
        }
        if (t->begin > at) {
            return pp_fail(PP_EFORMAT, "%s: %" PRIu64 " bytes before tensor %s belong to no tensor",
                           label, t->begin - at, t->name);
        }
        at = t->end;
    }
    if (at != h->data_bytes) {
        return pp_fail(PP_EFORMAT, "%s: %" PRIu64 " bytes after the last tensor%s%s", label,
                       h->data_bytes - at, h->n_tensors > 0 ? " " : "",
                       h->n_tensors > 0 ? h->tensors[h->n_tensors - 1].name : "");
    }
    return 0;
}

static int by_key(const void *a, const void *b)
{
    const struct pp_st_meta *x = a, *y = b;
    return strcmp(x->key, y->key);
}

static int read_meta(const char *label, json_t *v, struct pp_st_header *h)
{
    if (!json_is_object(v))
        return pp_fail(PP_EFORMAT, "%s: " OWN_KEY " is not an object", label);
    const char *key;
    json_t *value;
    size_t bytes = 0;
    json_object_foreach(v, key, value)
    {
        if (!json_is_string(value)) {
            char shown[PP_JSON_SHOWN];
            return pp_fail(PP_EFORMAT, "%s: " OWN_KEY ": the value of '%s' is not a string", label,
                           pp_json_shown(key, shown));
        }
        bytes += strlen(key) + strlen(json_string_value(value)) + 2;
    }
    h->meta = pp_alloc(json_object_size(v), sizeof(*h->meta));
    h->text = pp_alloc(bytes, 1);
    if (!h->meta || !h->text)
        return pp_error_context("%s", label);
    char *to = h->text;
    json_object_foreach(v, key, value)
    {
        struct pp_st_meta *m = &h->meta[h->n_meta++];
        m->key = to;
        to = stpcpy(to, key) + 1;
        m->value = to;
        to = stpcpy(to, json_string_value(value)) + 1;
    }
    qsort(h->meta, (size_t)h->n_meta, sizeof(*h->meta), by_key);
    return 0;
}

static int read_header(const char *label, json_t *root, struct pp_st_header *h)
{
    size_t n = json_object_size(root);
    h->tensors = pp_alloc(n, sizeof(*h->tensors));
    if (!h->tensors)
        return pp_error_context("%s", label);
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value)
    {
        if (strcmp(key, OWN_KEY) == 0) {
            PP_TRY(read_meta(label, value, h));
        } else {
            PP_TRY(read_tensor(label, key, value, h->data_bytes, &h->tensors[h->n_tensors]));
            h->n_tensors++;
        }
    }
    qsort(h->tensors, (size_t)h->n_tensors, sizeof(*h->tensors), by_place);
    return check_places(label, h);
}

/* Files of other kinds that have the names of weights, by their first eight bytes. */
static int check_kind(const char *label, const uint8_t *p)
{
#define TORCH                                                                                      \
    "a file of torch.save(): have Python write "                                                   \
    "safetensors.torch.save_file(torch.load(FILE), 'weights.safetensors')"
    static const struct {
        const char *begin;
        size_t bytes;
        const char *what;
    } kinds[] = {{"version ", 8, "a Git LFS pointer, not the file: run git lfs pull in its folder"},
                 {"PK\3\4", 4, TORCH},
                 {"\x80\2\x8a\n", 4, TORCH},
                 {"\x80\2", 2, TORCH},
                 {"\x80\3", 2, "a Python pickle: have Python write safetensors with its tensors"},
                 {"\x80\4", 2, "a Python pickle: have Python write safetensors with its tensors"},
                 {"\x80\5", 2, "a Python pickle: have Python write safetensors with its tensors"},
                 {"GGUF", 4, "a GGUF file: name the model's folder of safetensors"},
                 {"\x89HDF", 4, "an HDF5 file (Keras, TensorFlow): have Python write safetensors"},
                 {"\x93NUMPY", 6, "a NumPy array: have Python write safetensors"},
                 {"\x1f\x8b", 2, "compressed by gzip: unpack it with gunzip"},
                 {"<!", 2, "a web page: the download gave a page in place of the file"},
                 {"<html", 5, "a web page: the download gave a page in place of the file"}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (memcmp(p, kinds[i].begin, kinds[i].bytes) == 0)
            return pp_fail(PP_EFORMAT, "%s: not a safetensors file but %s", label, kinds[i].what);
    return 0;
}

int pp_st_parse(const char *label, const void *data, size_t bytes, uint64_t file_bytes,
                struct pp_st_header **out)
{
    const uint8_t *p = data;
    uint64_t length = 0;
    if (file_bytes < LENGTH_BYTES + 2 || bytes < LENGTH_BYTES + 2) {
        return pp_fail(PP_EFORMAT, "%s: %" PRIu64 " bytes, too short for a safetensors file", label,
                       file_bytes);
    }
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        length = length << 8 | p[i];
    PP_TRY(p[LENGTH_BYTES] != '{' || memcmp(p, "version ", 8) == 0 ? check_kind(label, p) : 0);
    if (p[LENGTH_BYTES] != '{' || length < 2 || length > PP_ST_HEADER_MAX) {
        return pp_fail(PP_EFORMAT,
                       "%s: not a safetensors file: it begins with a header length of %" PRIu64
                       " and byte 0x%02x, expected at most %" PRIu64 " and '{'",
                       label, length, p[LENGTH_BYTES], PP_ST_HEADER_MAX);
    }
    if (length > file_bytes - LENGTH_BYTES || length > bytes - LENGTH_BYTES) {
        return pp_fail(PP_EFORMAT,
                       "%s: cut short: its header has %" PRIu64 " bytes, the file %" PRIu64, label,
                       length, file_bytes);
    }
    static const struct pp_json_limits limits = {3, ITEMS_MAX, PP_ST_DIMS_MAX};
    json_t *root = NULL;
    PP_TRY(pp_json_read(label, (const char *)p + LENGTH_BYTES, (size_t)length, &limits, &root));
    int rc = PP_ERESOURCE;
    struct pp_st_header *h = pp_alloc(1, sizeof(*h));
    if (h) {
        h->data_begin = LENGTH_BYTES + length;
        h->data_bytes = file_bytes - h->data_begin;
        rc = read_header(label, root, h);
    }
    json_decref(root);
    PP_TRY_UNDO(rc, pp_st_header_free(&h));
    *out = h;
    return 0;
}

void pp_st_header_free(struct pp_st_header **h)
{
    if (*h) {
        pp_free((*h)->tensors);
        pp_free((*h)->meta);
        pp_free((*h)->text);
        pp_free(*h);
        *h = NULL;
    }
}

const char *pp_st_meta_value(const struct pp_st_header *h, const char *key)
{
    const struct pp_st_meta wanted = {key, NULL};
    const struct pp_st_meta *m =
        h->n_meta == 0 ? NULL
                       : bsearch(&wanted, h->meta, (size_t)h->n_meta, sizeof(*h->meta), by_key);
    return m ? m->value : NULL;
}
