/* SPDX-License-Identifier: Apache-2.0 */
/* Writes safetensors files: the header from a pass over all tensors, then the tensors. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"
#include "safetensors.h"

#define ALIGN 8 /* the format requires this alignment of the header's length */
#define PIECE_BYTES ((size_t)1 << 20)

struct entry {
    const struct pp_st_item *item;
    uint64_t begin, bytes;
    uint32_t crc;
};

struct writer {
    const char *path;
    struct entry *entries; /* [n] in the order of their data */
    int n;
    uint8_t *piece; /* [PIECE_BYTES] */
    struct pp_io_file file;
    char *head; /* made by open_memstream */
    size_t head_bytes;
};

static int order_items(struct writer *w, const struct pp_st_item *items, int n)
{
    /* Wide types first, so that every tensor is aligned to its type. */
    static const size_t widths[] = {8, 4};
    uint64_t at = 0;
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < n; i++) {
            const struct pp_st_item *item = &items[i];
            pp_assert(item->dtype == PP_ST_F32 || item->dtype == PP_ST_I64);
            if ((size_t)pp_st_dtype_bits(item->dtype) != 8 * widths[k])
                continue;
            uint64_t bytes = widths[k];
            bool fits = true;
            for (int d = 0; d < item->n_dims; d++) {
                pp_assert(item->dims[d] >= 0);
                fits = fits && !__builtin_mul_overflow(bytes, (uint64_t)item->dims[d], &bytes);
            }
            struct entry *e = &w->entries[w->n++];
            *e = (struct entry){.item = item, .begin = at, .bytes = bytes};
            if (!fits || __builtin_add_overflow(at, bytes, &at) || at > INT64_MAX)
                return pp_fail(PP_ECONFIG, "%s: tensor %s is too large", w->path, item->name);
        }
    }
    return 0;
}

/* Computes the CRC of a tensor's bytes; if `out` is set, also writes them to the file. */
static int pass_tensor(struct writer *w, const struct entry *e, bool out, uint32_t *out_crc)
{
    uLong crc = crc32(0, NULL, 0);
    for (uint64_t at = 0; at < e->bytes;) {
        uint64_t left = e->bytes - at;
        size_t n = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
        const void *from = w->piece;
        if (e->item->data)
            from = (const uint8_t *)e->item->data + at;
        else
            PP_TRY(e->item->read(e->item->ctx, at, w->piece, n));
        crc = crc32(crc, from, (uInt)n);
        if (out)
            PP_TRY(pp_io_write(&w->file, from, n));
        at += n;
    }
    *out_crc = (uint32_t)crc;
    return 0;
}

static void print_header(const struct writer *w, const struct pp_st_meta *meta, int n_meta,
                         struct pp_json *j)
{
    pp_json_object(j, "__metadata__");
    for (int i = 0; i < n_meta; i++)
        pp_json_str(j, meta[i].key, meta[i].value);
    for (int i = 0; i < w->n; i++) {
        char key[sizeof(PP_ST_CRC_KEY) + PP_ST_NAME_MAX], crc[16];
        snprintf(key, sizeof(key), PP_ST_CRC_KEY "%s", w->entries[i].item->name);
        snprintf(crc, sizeof(crc), "%08" PRIx32, w->entries[i].crc);
        pp_json_str(j, key, crc);
    }
    pp_json_end(j);
    for (int i = 0; i < w->n; i++) {
        const struct entry *e = &w->entries[i];
        pp_json_object(j, e->item->name);
        pp_json_str(j, "dtype", pp_st_dtype_name(e->item->dtype));
        pp_json_array(j, "shape");
        for (int d = 0; d < e->item->n_dims; d++)
            pp_json_int(j, NULL, e->item->dims[d]);
        pp_json_end(j);
        pp_json_array(j, "data_offsets");
        pp_json_uint(j, NULL, e->begin);
        pp_json_uint(j, NULL, e->begin + e->bytes);
        pp_json_end(j);
        pp_json_end(j);
    }
    pp_json_end(j);
}

static int make_header(struct writer *w, const struct pp_st_meta *meta, int n_meta)
{
    FILE *f = open_memstream(&w->head, &w->head_bytes);
    if (!f)
        return pp_fail(PP_ERESOURCE, "%s: out of memory for its header", w->path);
    struct pp_json j = pp_json_begin(f, 0);
    print_header(w, meta, n_meta, &j);
    for (long at = ftell(f); at % ALIGN != 0; at++)
        fputc(' ', f);
    PP_TRY(pp_text_close(f, &w->head, w->path));
    /* The only line break is at the end; readers in other languages expect blanks. */
    *strchr(w->head, '\n') = ' ';
    if (w->head_bytes > PP_ST_HEADER_MAX) {
        return pp_fail(PP_ECONFIG, "%s: its header has %zu bytes, at most %" PRIu64 " can be read",
                       w->path, w->head_bytes, PP_ST_HEADER_MAX);
    }
    return 0;
}

static int write_all(struct writer *w)
{
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)w->head_bytes >> 8 * i);
    PP_TRY(pp_io_write(&w->file, length, sizeof(length)));
    PP_TRY(pp_io_write(&w->file, w->head, w->head_bytes));
    for (int i = 0; i < w->n; i++) {
        uint32_t crc = 0;
        PP_TRY(pass_tensor(w, &w->entries[i], true, &crc));
        if (crc != w->entries[i].crc) {
            return pp_fail(PP_EINTERNAL, "%s: tensor %s changed while it was saved", w->path,
                           w->entries[i].item->name);
        }
    }
    return 0;
}

static int write_items(struct writer *w, const struct pp_io *io, const struct pp_st_item *items,
                       int n, const struct pp_st_meta *meta, int n_meta)
{
    w->entries = pp_alloc((size_t)n, sizeof(*w->entries));
    w->piece = pp_alloc(PIECE_BYTES, 1);
    if (!w->entries || !w->piece)
        return pp_error_context("%s", w->path);
    PP_TRY(order_items(w, items, n));
    for (int i = 0; i < w->n; i++)
        PP_TRY(pass_tensor(w, &w->entries[i], false, &w->entries[i].crc));
    PP_TRY(make_header(w, meta, n_meta));
    PP_TRY(pp_io_create(io, w->path, &w->file));
    return write_all(w);
}

int pp_st_write(const struct pp_io *io, const char *path, const struct pp_st_item *items, int n,
                const struct pp_st_meta *meta, int n_meta, uint64_t *out_bytes,
                uint8_t out_digest[PP_SHA256_BYTES])
{
    PP_OWN_MEMORY struct writer *w = pp_alloc(1, sizeof(*w));
    if (!w)
        return pp_error_context("%s", path);
    w->path = path;
    int rc = write_items(w, io, items, n, meta, n_meta);
    if (rc == 0) {
        uint64_t bytes = w->file.bytes;
        rc = pp_io_commit(&w->file, out_digest);
        if (rc == 0)
            *out_bytes = bytes;
    }
    pp_io_abandon(&w->file);
    pp_free(w->entries);
    pp_free(w->piece);
    free(w->head);
    return rc;
}
