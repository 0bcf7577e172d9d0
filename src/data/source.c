/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gzread() is not used on purpose: it reads files that lack their last bytes without an error,
 * passes on files that are not gzip, and ignores trailing garbage.
 */
#include "ops.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"

#define IN_BYTES 65536
#define HEAD_BYTES 32
#define DEFLATE_RATIO_MAX 1032 /* the limit of deflate: 258 bytes from 2 bits */
#define GZIP_WINDOW (15 + 16)  /* largest window, gzip wrapper only */

struct pp_source {
    const char *path;
    int fd;
    uint64_t file_bytes, out_bytes; /* file_bytes: size on disk; out_bytes: bytes returned so far */
    bool gz, z_open, end;
    z_stream z;          /* next_in and avail_in are used for plain files too */
    const uint8_t *rest; /* bytes in memory that were not taken yet; NULL: a file */
    uint64_t n_rest;
    size_t n_head;
    uint8_t head[HEAD_BYTES], in[IN_BYTES];
};

/* Reads more input if the buffer is empty; *out_more is false at the end of the file. */
static int fill_input(struct pp_source *s, bool *out_more)
{
    ssize_t n;
    *out_more = true;
    if (s->z.avail_in > 0)
        return 0;
    if (s->rest) {
        s->z.avail_in = (uInt)(s->n_rest < (1u << 30) ? s->n_rest : 1u << 30);
        s->z.next_in = (Bytef *)(uintptr_t)s->rest; /* only read */
        s->rest += s->z.avail_in;
        s->n_rest -= s->z.avail_in;
        *out_more = s->z.avail_in > 0;
        return 0;
    }
    do {
        n = read(s->fd, s->in, sizeof(s->in));
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return pp_fail_errno(0, "cannot read %s", s->path);
    s->z.next_in = s->in;
    s->z.avail_in = (uInt)n;
    *out_more = n > 0;
    return 0;
}

static bool is_gzip(const uint8_t *b, size_t n)
{
    return n >= 2 && b[0] == 0x1f && b[1] == 0x8b;
}

bool pp_source_is_gzip(const struct pp_source *s)
{
    return is_gzip(s->head, sizeof(s->head));
}

static int begin_source(struct pp_source *s, enum pp_source_kind kind)
{
    bool has_more = false;
    PP_TRY(pp_open_regular(s->path, &s->fd, &s->file_bytes));
    PP_TRY(fill_input(s, &has_more));
    if (!has_more)
        return pp_fail(PP_EFORMAT, "%s: empty file", s->path);
    s->n_head = s->z.avail_in < HEAD_BYTES ? s->z.avail_in : HEAD_BYTES;
    memcpy(s->head, s->in, s->n_head);
    PP_TRY(pp_data_foreign(s->path, s->head, s->n_head, PP_FOREIGN_ANY));
    s->gz = kind == PP_SOURCE_INFLATED && pp_source_is_gzip(s);
    s->z_open = s->gz && inflateInit2(&s->z, GZIP_WINDOW) == Z_OK;
    return s->gz && !s->z_open ? pp_fail(PP_ERESOURCE, "%s: out of memory for inflating", s->path)
                               : 0;
}

int pp_source_open(const char *path, enum pp_source_kind kind, struct pp_source **out)
{
    struct pp_source *s;
    PP_ALLOC(s, 1);
    s->path = path;
    s->fd = -1;
    PP_TRY_UNDO(begin_source(s, kind), pp_source_close(&s));
    *out = s;
    return 0;
}

int pp_source_of_bytes(const char *path, const uint8_t *data, uint64_t n, uint64_t whole,
                       struct pp_source **out)
{
    struct pp_source *s;
    PP_ALLOC(s, 1);
    *s = (struct pp_source){.path = path, .fd = -1, .file_bytes = whole, .rest = data, .n_rest = n};
    s->n_head = n < HEAD_BYTES ? (size_t)n : HEAD_BYTES;
    memcpy(s->head, data, s->n_head);
    *out = s;
    return 0;
}

void pp_source_close(struct pp_source **s)
{
    if (!*s)
        return;
    if ((*s)->z_open)
        inflateEnd(&(*s)->z);
    if ((*s)->fd >= 0)
        close((*s)->fd);
    pp_free(*s);
    *s = NULL;
}

static int fail_cut_short(const struct pp_source *s, const char *what)
{
    return pp_fail(PP_EFORMAT,
                   "%s: cut short: the file ends after %" PRIu64 " bytes, inside its %s", s->path,
                   s->file_bytes, what);
}

/* Begins the next member of a gzip file after the end of one. The file may also end here; other
 * bytes are refused. */
static int next_member(struct pp_source *s)
{
    bool has_more;
    PP_TRY(fill_input(s, &has_more));
    s->end = !has_more;
    if (s->end)
        return 0;
    /* The second byte may be in the next buffer: inflate() refuses a wrong one. */
    if (s->z.next_in[0] != 0x1f || (s->z.avail_in > 1 && !is_gzip(s->z.next_in, 2)))
        return pp_fail(PP_EFORMAT, "%s: trailing bytes after the gzip stream", s->path);
    return inflateReset(&s->z) == Z_OK ? 0 : pp_fail(PP_EINTERNAL, "%s: inflateReset", s->path);
}

static int inflate_some(struct pp_source *s, uint8_t *out, size_t n, size_t *out_made)
{
    bool has_more;
    PP_TRY(fill_input(s, &has_more));
    if (!has_more)
        return fail_cut_short(s, "gzip stream");
    uInt most = n < (1u << 30) ? (uInt)n : 1u << 30;
    s->z.next_out = out;
    s->z.avail_out = most;
    int z = inflate(&s->z, Z_NO_FLUSH);
    *out_made = most - s->z.avail_out;
    if (z == Z_STREAM_END)
        return next_member(s);
    if (z == Z_MEM_ERROR)
        return pp_fail(PP_ERESOURCE, "%s: out of memory for inflating", s->path);
    if (z != Z_OK && z != Z_BUF_ERROR) {
        return pp_fail(PP_EFORMAT, "%s: damaged gzip data after %" PRIu64 " inflated bytes (%s)",
                       s->path, s->out_bytes + *out_made,
                       s->z.msg ? s->z.msg : "needs a dictionary");
    }
    return 0;
}

static int take_some(struct pp_source *s, uint8_t *out, size_t n, size_t *out_made)
{
    bool has_more;
    PP_TRY(fill_input(s, &has_more));
    s->end = !has_more;
    *out_made = n < s->z.avail_in ? n : s->z.avail_in;
    memcpy(out, s->z.next_in, *out_made);
    s->z.next_in += *out_made;
    s->z.avail_in -= (uInt)*out_made;
    return 0;
}

int pp_source_read(struct pp_source *s, void *out, size_t n, size_t *out_got)
{
    size_t got = 0, made = 0;
    while (got < n && !s->end) {
        uint8_t *to = (uint8_t *)out + got;
        PP_TRY(s->gz ? inflate_some(s, to, n - got, &made) : take_some(s, to, n - got, &made));
        got += made;
        s->out_bytes += made;
    }
    *out_got = got;
    return 0;
}

int pp_source_pull(struct pp_source *s, void *out, size_t n, const char *what)
{
    size_t got = 0;
    PP_TRY(pp_source_read(s, out, n, &got));
    if (got == n)
        return 0;
    return !s->gz ? fail_cut_short(s, what)
                  : pp_fail(PP_EFORMAT,
                            "%s: the gzip stream holds %" PRIu64 " bytes, expected %" PRIu64,
                            s->path, s->out_bytes, s->out_bytes + (n - got));
}

int pp_source_finish(struct pp_source *s)
{
    uint8_t spare;
    size_t got = 0;
    uint64_t expected = s->out_bytes;
    PP_TRY(pp_source_read(s, &spare, 1, &got));
    return got == 0 ? 0
                    : pp_fail(PP_EFORMAT,
                              "%s: holds more than the %" PRIu64 " bytes its header announces",
                              s->path, expected);
}

int pp_source_holds(const struct pp_source *s, uint64_t bytes)
{
    if (!s->gz && bytes != s->file_bytes) {
        return pp_fail(PP_EFORMAT,
                       "%s: file of %" PRIu64 " bytes, but its header announces %" PRIu64, s->path,
                       s->file_bytes, bytes);
    }
    if (s->gz && bytes / DEFLATE_RATIO_MAX > s->file_bytes) {
        return pp_fail(PP_EFORMAT,
                       "%s: its header announces %" PRIu64
                       " bytes, more than a gzip file of %" PRIu64 " bytes can hold",
                       s->path, bytes, s->file_bytes);
    }
    return 0;
}

int pp_source_foreign(const struct pp_source *s)
{
    return pp_data_foreign(s->path, s->head, s->n_head, PP_FOREIGN_DATA);
}

const char *pp_source_head(const struct pp_source *s, char *out, size_t bytes)
{
    size_t n = s->file_bytes < 4 ? (size_t)s->file_bytes : 4;
    const uint8_t *b = s->head;
    out[0] = '\0';
    for (size_t i = 0; i < n; i++)
        pp_text_add(out, bytes, "%s%02x", i > 0 ? " " : "", b[i]);
    while (n > 0 && (*b == ' ' || *b == '\n' || *b == '\r' || *b == '\t')) {
        b++;
        n--;
    }
    if (n > 0 && *b == '<')
        pp_text_add(out, bytes, " (a web page?)");
    return out;
}

#define TEXT_MAX ((size_t)1 << 30)

int pp_source_text(const char *path, char **out, size_t *out_bytes)
{
    struct pp_source *s = NULL;
    size_t used = 0, capacity = 1 << 16, got = 1;
    char *text = pp_alloc(capacity, 1);
    if (!text)
        return pp_error_context("%s", path);
    int rc = pp_source_open(path, PP_SOURCE_INFLATED, &s);
    for (; rc == 0 && got > 0; used += got) {
        char *grown = used + 1 < capacity ? text : pp_realloc(text, capacity *= 2, 1);
        text = grown ? grown : text;
        rc = !grown ? pp_error_context("%s", path)
                    : pp_source_read(s, text + used, capacity - used - 1, &got);
        if (rc == 0 && used + got > TEXT_MAX)
            rc = pp_fail(PP_EFORMAT, "%s: more than %zu bytes", path, TEXT_MAX);
    }
    pp_source_close(&s);
    PP_TRY_UNDO(rc, pp_free(text));
    text[used] = '\0';
    *out = text;
    *out_bytes = used;
    return 0;
}

int pp_source_lines(const char *path, char **out, size_t *out_bytes)
{
    PP_TRY(pp_source_text(path, out, out_bytes));
    PP_TRY(pp_data_foreign(path, *out, *out_bytes,
                           PP_FOREIGN_ANY | PP_FOREIGN_DATA | PP_FOREIGN_TEXT));
    size_t bom = pp_text_bom(*out);
    memmove(*out, *out + bom, (*out_bytes -= bom) + 1);
    /* line ends of old Macs and some spreadsheets */
    bool returns = !memchr(*out, '\n', *out_bytes);
    for (size_t i = 0; returns && i < *out_bytes; i++)
        (*out)[i] = (*out)[i] == '\r' ? '\n' : (*out)[i];
    return 0;
}
