/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict IDX reader. gzread() is not used on purpose: it reads files that lack their last bytes
 * without an error, passes files through that are no gzip at all, ignores trailing garbage and
 * appends further members. inflate() with the exact size, Z_STREAM_END and no byte left over is the
 * only reading that refuses all of those.
 */
#include "idx.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

#include "ppcli/err.h"
#include "ppcli/file.h"
#include "ppcli/mem.h"
#include "open.h"

#define IN_BYTES 65536
#define DEFLATE_RATIO_MAX 1032 /* 258 bytes from 2 bits is the most deflate can say */
#define GZIP_WINDOW (15 + 16)  /* largest window, gzip wrapper only */

struct source {
    const char *path;
    int fd;
    uint64_t file_bytes;
    bool gz;
    bool z_open, z_end;
    z_stream z; /* next_in/avail_in serve the plain file too */
    uint64_t out_bytes;
    uint8_t in[IN_BYTES];
};

/* More input; *out_more false at the end of the file. */
static int fill(struct source *s, bool *out_more)
{
    ssize_t n;
    do {
        n = read(s->fd, s->in, sizeof(s->in));
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return pp_fail_errno(0, "cannot read %s", s->path);
    }
    s->z.next_in = s->in;
    s->z.avail_in = (uInt)n;
    *out_more = n > 0;
    return 0;
}

static int cut_short(const struct source *s)
{
    return pp_fail(PP_EFORMAT,
                   "%s: cut short: the file ends after %" PRIu64 " bytes, inside its %s", s->path,
                   s->file_bytes, s->gz ? "gzip stream" : "data");
}

static int source_open(const char *path, struct source *s)
{
    s->path = path;
    s->fd = -1;
    PP_TRY(pp_open_regular(path, &s->fd, &s->file_bytes));
    if (s->file_bytes > PP_IDX_BYTES_MAX + 16) {
        return pp_fail(PP_EFORMAT, "%s: file of %" PRIu64 " bytes, at most %" PRIu64 " are read",
                       path, s->file_bytes, PP_IDX_BYTES_MAX + 16);
    }
    bool more = false;
    PP_TRY(fill(s, &more));
    if (!more) {
        return pp_fail(PP_EFORMAT, "%s: empty file, expected gzipped or plain IDX", path);
    }
    enum pp_magic magic = pp_magic_of(s->in, s->z.avail_in);
    if (magic != PP_MAGIC_GZIP && magic != PP_MAGIC_IDX) {
        char found[64];
        return pp_fail(PP_EFORMAT,
                       "%s: neither gzip nor IDX: begins with %s, expected 1f 8b or 00 00 08", path,
                       pp_magic_text(s->in, s->z.avail_in, found, sizeof(found)));
    }
    s->gz = magic == PP_MAGIC_GZIP;
    if (s->gz) {
        if (inflateInit2(&s->z, GZIP_WINDOW) != Z_OK) {
            return pp_fail(PP_ERESOURCE, "%s: out of memory for inflating", path);
        }
        s->z_open = true;
    }
    return 0;
}

static void source_close(struct source *s)
{
    if (s->z_open) {
        inflateEnd(&s->z);
    }
    if (s->fd >= 0) {
        close(s->fd);
    }
}

/* Inflate until the `n` bytes at out are full or the stream ends; *out_got says how many came. */
static int inflate_some(struct source *s, uint8_t *out, size_t n, size_t *out_got)
{
    size_t got = 0;
    while (got < n && !s->z_end) {
        if (s->z.avail_in == 0) {
            bool more = false;
            PP_TRY(fill(s, &more));
            if (!more) {
                return cut_short(s);
            }
        }
        size_t room = n - got < (1u << 30) ? n - got : (1u << 30);
        s->z.next_out = out + got;
        s->z.avail_out = (uInt)room;
        int z = inflate(&s->z, Z_NO_FLUSH);
        size_t made = room - s->z.avail_out;
        got += made;
        s->out_bytes += made;
        if (z == Z_STREAM_END) {
            s->z_end = true;
        } else if (z == Z_MEM_ERROR) {
            return pp_fail(PP_ERESOURCE, "%s: out of memory for inflating", s->path);
        } else if (z != Z_OK && z != Z_BUF_ERROR) {
            return pp_fail(PP_EFORMAT,
                           "%s: damaged gzip data after %" PRIu64 " inflated bytes (%s)", s->path,
                           s->out_bytes, s->z.msg ? s->z.msg : "needs a dictionary");
        }
    }
    *out_got = got;
    return 0;
}

/* Exactly n bytes. */
static int pull(struct source *s, void *out, size_t n)
{
    uint8_t *to = out;
    if (s->gz) {
        size_t got = 0;
        PP_TRY(inflate_some(s, to, n, &got));
        if (got < n) {
            return pp_fail(PP_EFORMAT,
                           "%s: the gzip stream holds %" PRIu64 " bytes, expected %" PRIu64,
                           s->path, s->out_bytes, s->out_bytes + (n - got));
        }
        return 0;
    }
    while (n > 0) {
        if (s->z.avail_in == 0) {
            bool more = false;
            PP_TRY(fill(s, &more));
            if (!more) {
                return cut_short(s);
            }
        }
        size_t take = n < s->z.avail_in ? n : s->z.avail_in;
        memcpy(to, s->z.next_in, take);
        s->z.next_in += take;
        s->z.avail_in -= (uInt)take;
        s->out_bytes += take;
        to += take;
        n -= take;
    }
    return 0;
}

/* Nothing may follow: neither inflated bytes, nor a second member, nor anything after it. The gzip
 * checksum and length are only looked at by inflate() when it comes to the end of the stream. */
static int finish(struct source *s)
{
    if (s->gz) {
        uint8_t spare;
        size_t got = 0;
        uint64_t expected = s->out_bytes;
        PP_TRY(inflate_some(s, &spare, 1, &got));
        if (got > 0) {
            return pp_fail(PP_EFORMAT,
                           "%s: the gzip stream holds more than the %" PRIu64
                           " bytes its IDX header announces",
                           s->path, expected);
        }
    }
    if (s->z.avail_in == 0) {
        bool more = false;
        PP_TRY(fill(s, &more));
        if (!more) {
            return 0;
        }
    }
    if (s->gz && pp_magic_of(s->z.next_in, s->z.avail_in) == PP_MAGIC_GZIP) {
        return pp_fail(PP_EFORMAT, "%s: a second gzip member follows the data", s->path);
    }
    return pp_fail(PP_EFORMAT, "%s: trailing bytes after the %s", s->path,
                   s->gz ? "gzip stream" : "data");
}

static int read_header(struct source *s, struct pp_idx *out)
{
    uint8_t b[12] = {0};
    PP_TRY(pull(s, b, 4));
    if (b[0] != 0 || b[1] != 0 || b[2] != 0x08 || b[3] < 1 || b[3] > 3) {
        return pp_fail(PP_EFORMAT,
                       "%s: magic 0x%02x%02x%02x%02x, expected 0x00000801 (labels) to 0x00000803 "
                       "(images): unsigned bytes in 1 to 3 dimensions",
                       s->path, b[0], b[1], b[2], b[3]);
    }
    struct pp_idx idx = {.n_dims = b[3], .dims = {1, 1, 1}};
    PP_TRY(pull(s, b, 4 * (size_t)idx.n_dims));
    uint64_t bytes = 1;
    for (int i = 0; i < idx.n_dims; i++) {
        const uint8_t *p = b + (size_t)4 * (size_t)i;
        uint32_t d = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
        if (d < 1 || d > PP_IDX_DIM_MAX) {
            return pp_fail(PP_EFORMAT, "%s: dimension %d is %" PRIu32 ", expected 1 to %" PRIu32,
                           s->path, i, d, PP_IDX_DIM_MAX);
        }
        idx.dims[i] = d;
        /* No overflow: bytes is at most the cap before each of the three steps. */
        bytes *= d;
        if (bytes > PP_IDX_BYTES_MAX) {
            return pp_fail(PP_EFORMAT,
                           "%s: its header announces %" PRIu64 " bytes or more, at most %" PRIu64
                           " are read",
                           s->path, bytes, PP_IDX_BYTES_MAX);
        }
    }
    uint64_t whole = 4 + 4 * (uint64_t)idx.n_dims + bytes;
    if (s->gz && whole > s->file_bytes * DEFLATE_RATIO_MAX) {
        return pp_fail(PP_EFORMAT,
                       "%s: its header announces %" PRIu64
                       " bytes, more than a gzip file of %" PRIu64 " bytes can hold",
                       s->path, whole, s->file_bytes);
    }
    if (!s->gz && whole != s->file_bytes) {
        return pp_fail(PP_EFORMAT,
                       "%s: file of %" PRIu64 " bytes, but its header announces %" PRIu64, s->path,
                       s->file_bytes, whole);
    }
    idx.bytes = (size_t)bytes;
    *out = idx;
    return 0;
}

static int read_all(struct source *s, const char *path, struct pp_idx *out, uint8_t **out_data)
{
    struct pp_idx idx = {0};
    PP_TRY(source_open(path, s));
    PP_TRY(read_header(s, &idx));
    uint8_t *data = NULL;
    if (out_data) {
        data = pp_alloc(idx.bytes, 1);
        if (!data) {
            return pp_error_context("%s", path);
        }
        int rc = pull(s, data, idx.bytes);
        if (rc == 0) {
            rc = finish(s);
        }
        if (rc < 0) {
            pp_free(data);
            return rc;
        }
        *out_data = data;
    }
    *out = idx;
    return 0;
}

/* out_data NULL: header only. */
static int read_file(const char *path, struct pp_idx *out, uint8_t **out_data)
{
    struct source *s = pp_alloc(1, sizeof(*s));
    if (!s) {
        return PP_ERESOURCE;
    }
    int rc = read_all(s, path, out, out_data);
    source_close(s);
    pp_free(s);
    return rc;
}

int pp_idx_read_header(const char *path, struct pp_idx *out)
{
    return read_file(path, out, NULL);
}

int pp_idx_read(const char *path, struct pp_idx *out, uint8_t **out_data)
{
    return read_file(path, out, out_data);
}
