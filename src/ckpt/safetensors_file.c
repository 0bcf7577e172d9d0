/* SPDX-License-Identifier: Apache-2.0 */
/* Opens safetensors files, reads and checks their data. */
#include <string.h>
#include <unistd.h>

#include <zlib.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"
#include "safetensors.h"

#define HEAD_BYTES 16 /* bytes of the length and the first byte of the header */
#define PIECE_BYTES ((size_t)1 << 20)

/* Reads and parses the header. Its text is read only if the file is as long as the header
 * claims. */
static int read_st_header(struct pp_st_file *f)
{
    uint8_t head[HEAD_BYTES];
    size_t n = f->bytes < sizeof(head) ? (size_t)f->bytes : sizeof(head);
    PP_TRY(pp_fd_read_at(f->fd, f->path, 0, head, n));
    uint64_t length = 0;
    for (int i = 7; i >= 0 && n >= 8; i--)
        length = length << 8 | head[i];
    if (n < sizeof(head) || length > PP_ST_HEADER_MAX || length > f->bytes - 8)
        return pp_st_parse(f->path, head, n, f->bytes, &f->header);
    size_t bytes = (size_t)length + 8;
    PP_OWN_MEMORY char *text = pp_alloc(bytes, 1);
    if (!text)
        return pp_error_context("%s", f->path);
    PP_TRY(pp_fd_read_at(f->fd, f->path, 0, text, bytes));
    return pp_st_parse(f->path, text, bytes, f->bytes, &f->header);
}

int pp_st_open_fd(const char *label, int fd, uint64_t bytes, struct pp_st_file **out)
{
    struct pp_st_file *f = pp_alloc(1, sizeof(*f));
    PP_TRY_UNDO(f ? 0 : PP_ERESOURCE, close(fd));
    f->fd = fd;
    f->bytes = bytes;
    f->path = pp_strdup(label);
    PP_TRY_UNDO(f->path ? read_st_header(f) : PP_ERESOURCE, pp_st_close(&f));
    *out = f;
    return 0;
}

int pp_st_open(const char *path, struct pp_st_file **out)
{
    int fd = -1;
    uint64_t bytes = 0;
    PP_TRY(pp_open_regular(path, &fd, &bytes));
    return pp_st_open_fd(path, fd, bytes, out);
}

void pp_st_close(struct pp_st_file **f)
{
    if (*f) {
        close((*f)->fd);
        pp_st_header_free(&(*f)->header);
        pp_free((*f)->path);
        pp_free(*f);
        *f = NULL;
    }
}

int pp_st_read(const struct pp_st_file *f, const struct pp_st_tensor *t, uint64_t offset, void *dst,
               size_t bytes)
{
    pp_assert(offset <= t->end - t->begin && bytes <= t->end - t->begin - offset);
    return pp_fd_read_at(f->fd, f->path, f->header->data_begin + t->begin + offset, dst, bytes);
}

static int check_tensor_crc(const struct pp_st_file *f, const struct pp_st_tensor *t,
                            const char *expected, uint8_t *piece)
{
    uLong crc = crc32(0, NULL, 0);
    for (uint64_t at = 0; at < t->end - t->begin;) {
        uint64_t left = t->end - t->begin - at;
        size_t n = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
        PP_TRY(pp_st_read(f, t, at, piece, n));
        crc = crc32(crc, piece, (uInt)n);
        at += n;
    }
    char found[16];
    snprintf(found, sizeof(found), "%08lx", crc);
    if (strcmp(found, expected) != 0) {
        char shown[PP_JSON_SHOWN];
        return pp_fail(PP_EFORMAT,
                       "%s: tensor %s is damaged: its bytes have CRC-32 %s, %s was written",
                       f->path, t->name, found, pp_json_shown(expected, shown));
    }
    return 0;
}

int pp_st_check_data(const struct pp_st_file *f, int *out_checked)
{
    PP_OWN_MEMORY uint8_t *piece = pp_alloc(PIECE_BYTES, 1);
    if (!piece)
        return pp_error_context("%s", f->path);
    int checked = 0;
    for (int i = 0; i < f->header->n_tensors; i++) {
        const struct pp_st_tensor *t = &f->header->tensors[i];
        char key[sizeof(PP_ST_CRC_KEY) + PP_ST_NAME_MAX];
        bool fits = snprintf(key, sizeof(key), PP_ST_CRC_KEY "%s", t->name) < (int)sizeof(key);
        const char *expected = fits ? pp_st_meta_value(f->header, key) : NULL;
        if (expected) {
            PP_TRY(check_tensor_crc(f, t, expected, piece));
            checked++;
        }
    }
    *out_checked = checked;
    return 0;
}
