/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the header of a safetensors file: from bytes to a checked list of tensors. */
#include "safetensors.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"

#define LENGTH_BYTES 8
#define ITEMS_MAX ((size_t)1 << 19) /* commas: a tensor of a header needs about 5 */
#define DEPTH_MAX 32                /* nesting of brackets: 3, and what other writers add */
#define OWN_KEY "__metadata__"

/* A header that is being read, and where its next name and its next dimension are stored. */
struct reading {
    const char *label;
    struct pp_st_header *h;
    char *text;
    int64_t *dims;
};

static const struct {
    const char *name;
    int bits;
} dtypes[] = {
    [PP_ST_F32] = {"F32", 32},        [PP_ST_F16] = {"F16", 16},
    [PP_ST_BF16] = {"BF16", 16},      [PP_ST_F64] = {"F64", 64},
    [PP_ST_I64] = {"I64", 64},        [PP_ST_U8] = {"U8", 8},
    [PP_ST_U16] = {"U16", 16},        [PP_ST_U32] = {"U32", 32},
    [PP_ST_U64] = {"U64", 64},        [PP_ST_I8] = {"I8", 8},
    [PP_ST_I16] = {"I16", 16},        [PP_ST_I32] = {"I32", 32},
    [PP_ST_BOOL] = {"BOOL", 8},       [PP_ST_F4] = {"F4", 4},
    [PP_ST_F6_E2M3] = {"F6_E2M3", 6}, [PP_ST_F6_E3M2] = {"F6_E3M2", 6},
    [PP_ST_F8_E4M3] = {"F8_E4M3", 8}, [PP_ST_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
    [PP_ST_F8_E5M2] = {"F8_E5M2", 8}, [PP_ST_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [PP_ST_F8_E8M0] = {"F8_E8M0", 8}, [PP_ST_C64] = {"C64", 64},
};

const char *pp_st_dtype_name(enum pp_st_dtype t)
{
    return dtypes[t].name;
}

int pp_st_dtype_bits(enum pp_st_dtype t)
{
    return dtypes[t].bits;
}

static const char *copy_text(struct reading *r, const char *text)
{
    const char *kept = r->text;
    r->text = stpcpy(r->text, text) + 1;
    return kept;
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
                   "%s: tensor %s: dtype %s is not known; safetensors have F32, BF16, I64 and such",
                   label, name, text ? pp_json_shown(text, shown) : "(no string)");
}

static int read_shape(struct reading *r, const json_t *v, struct pp_st_tensor *t,
                      uint64_t *out_bytes)
{
    if (!json_is_array(v) || json_array_size(v) > PP_ST_DIMS_MAX) {
        return pp_fail(PP_EFORMAT, "%s: tensor %s: its shape is not a list of at most %d numbers",
                       r->label, t->name, PP_ST_DIMS_MAX);
    }
    t->n_dims = (int)json_array_size(v);
    t->elements = 1;
    t->dims = r->dims;
    bool fits = true;
    for (int i = 0; i < t->n_dims; i++) {
        const json_t *d = json_array_get(v, (size_t)i);
        if (!json_is_integer(d) || json_integer_value(d) < 0) {
            return pp_fail(PP_EFORMAT,
                           "%s: tensor %s: dimension %d is not a whole number from 0 on", r->label,
                           t->name, i);
        }
        *r->dims = json_integer_value(d);
        fits = fits && !__builtin_mul_overflow(t->elements, (uint64_t)*r->dims++, &t->elements);
    }
    uint64_t bits = 0;
    if (!fits || __builtin_mul_overflow(t->elements, (uint64_t)dtypes[t->dtype].bits, &bits)) {
        return pp_fail(PP_EFORMAT, "%s: tensor %s: its shape is too large to be true", r->label,
                       t->name);
    }
    if (bits % 8 != 0) {
        return pp_fail(PP_EFORMAT, "%s: tensor %s: %" PRIu64 " values of type %s end within a byte",
                       r->label, t->name, t->elements, dtypes[t->dtype].name);
    }
    *out_bytes = bits / 8;
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

static int read_tensor(struct reading *r, const char *name, const json_t *v)
{
    const char *label = r->label;
    struct pp_st_tensor *t = &r->h->tensors[r->h->n_tensors++];
    uint64_t bytes = 0;
    t->name = copy_text(r, name);
    if (!json_is_object(v) || !json_object_get(v, "dtype") || !json_object_get(v, "shape") ||
        !json_object_get(v, "data_offsets")) {
        return pp_fail(PP_EFORMAT, "%s: tensor %s: dtype, shape and data_offsets are expected",
                       label, name);
    }
    PP_TRY(read_dtype(label, name, json_object_get(v, "dtype"), &t->dtype));
    PP_TRY(read_shape(r, json_object_get(v, "shape"), t, &bytes));
    return read_offsets(label, json_object_get(v, "data_offsets"), r->h->data_bytes, bytes, t);
}

/* ---- the whole header */

static int compare_offsets(const void *a, const void *b)
{
    const struct pp_st_tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Checks that every byte of the data belongs to exactly one tensor. */
static int check_coverage(const char *label, const struct pp_st_header *h)
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

static int compare_keys(const void *a, const void *b)
{
    const struct pp_st_meta *x = a, *y = b;
    return strcmp(x->key, y->key);
}

static int read_meta(struct reading *r, json_t *v)
{
    const char *key;
    json_t *value;
    if (json_is_null(v))
        return 0;
    if (!json_is_object(v))
        return pp_fail(PP_EFORMAT, "%s: " OWN_KEY " is not an object", r->label);
    r->h->meta = pp_alloc(json_object_size(v), sizeof(*r->h->meta));
    if (!r->h->meta)
        return pp_error_context("%s", r->label);
    json_object_foreach(v, key, value)
    {
        if (!json_is_string(value)) {
            char shown[PP_JSON_SHOWN];
            return pp_fail(PP_EFORMAT, "%s: " OWN_KEY ": the value of '%s' is not a string",
                           r->label, pp_json_shown(key, shown));
        }
        const char *kept = copy_text(r, key);
        r->h->meta[r->h->n_meta++] =
            (struct pp_st_meta){.key = kept, .value = copy_text(r, json_string_value(value))};
    }
    qsort(r->h->meta, (size_t)r->h->n_meta, sizeof(*r->h->meta), compare_keys);
    return 0;
}

/* Computes how much memory the parsed header needs: the bytes of its names and metadata, and the
 * number of dimensions. Neither is more than the bytes of the text. */
static void measure_header(json_t *root, size_t *bytes, size_t *dims)
{
    const char *key, *of;
    json_t *value, *text;
    *bytes = *dims = 1;
    json_object_foreach(root, key, value)
    {
        *bytes += strlen(key) + 1;
        *dims += json_array_size(json_object_get(value, "shape"));
        if (strcmp(key, OWN_KEY) != 0)
            continue;
        json_object_foreach(value, of, text)
        {
            *bytes += strlen(of) + 1 + json_string_length(text) + 1;
        }
    }
}

static int parse_header(const char *label, json_t *root, struct pp_st_header *h)
{
    size_t bytes = 0, dims = 0;
    measure_header(root, &bytes, &dims);
    h->tensors = pp_alloc(json_object_size(root), sizeof(*h->tensors));
    h->text = pp_alloc(bytes, 1);
    h->dims = pp_alloc(dims, sizeof(*h->dims));
    if (!h->tensors || !h->text || !h->dims)
        return pp_error_context("%s", label);
    struct reading r = {.label = label, .h = h, .text = h->text, .dims = h->dims};
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value)
    {
        PP_TRY(strcmp(key, OWN_KEY) == 0 ? read_meta(&r, value) : read_tensor(&r, key, value));
    }
    qsort(h->tensors, (size_t)h->n_tensors, sizeof(*h->tensors), compare_offsets);
    return check_coverage(label, h);
}

/* Recognizes files of other kinds that may hold weights by their first eight bytes, and refuses
 * them with advice. */
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
    static const struct pp_json_limits limits = {DEPTH_MAX, ITEMS_MAX, PP_ST_DIMS_MAX};
    json_t *root = NULL;
    PP_TRY(pp_json_read(label, (const char *)p + LENGTH_BYTES, (size_t)length, &limits, &root));
    int rc = PP_ERESOURCE;
    struct pp_st_header *h = pp_alloc(1, sizeof(*h));
    if (h) {
        h->data_begin = LENGTH_BYTES + length;
        h->data_bytes = file_bytes - h->data_begin;
        rc = parse_header(label, root, h);
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
        pp_free((*h)->dims);
        pp_free(*h);
        *h = NULL;
    }
}

const char *pp_st_meta_value(const struct pp_st_header *h, const char *key)
{
    const struct pp_st_meta wanted = {key, NULL};
    const struct pp_st_meta *m = h->n_meta == 0 ? NULL
                                                : bsearch(&wanted, h->meta, (size_t)h->n_meta,
                                                          sizeof(*h->meta), compare_keys);
    return m ? m->value : NULL;
}
