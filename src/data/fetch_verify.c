/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a file is the pinned one. The strict IDX reader does the inflating, so that cut files,
 * trailing bytes and bombs need no second treatment here. */
#include "fetch.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "ppcli/err.h"
#include "ppcli/mem.h"
#include "ppcli/sha256.h"
#include "idx.h"
#include "open.h"

static void finish_hex(struct pp_sha256 *s, char hex[PP_SHA256_HEX])
{
    uint8_t digest[PP_SHA256_BYTES];
    pp_sha256_final(s, digest);
    pp_sha256_hex(digest, hex);
}

/* Digest of the file as it is, and whether it begins like gzip. */
static int digest_raw(const char *path, int fd, char hex[PP_SHA256_HEX], bool *out_gz)
{
    uint8_t buffer[16384];
    struct pp_sha256 s;
    bool first = true, gz = false;
    pp_sha256_init(&s);
    for (;;) {
        ssize_t n = read(fd, buffer, sizeof(buffer));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return pp_fail_errno(0, "cannot read %s", path);
        }
        if (n == 0) {
            break;
        }
        gz = first ? pp_magic_of(buffer, (size_t)n) == PP_MAGIC_GZIP : gz;
        first = false;
        pp_sha256_update(&s, buffer, (size_t)n);
    }
    finish_hex(&s, hex);
    *out_gz = gz;
    return 0;
}

/* Digest of the inflated file. Its header follows from what the reader says about it. */
static int digest_idx(const char *path, const struct pp_pin *pin, char hex[PP_SHA256_HEX])
{
    struct pp_idx idx = {0};
    uint8_t *data = NULL;
    PP_TRY(pp_idx_read_header(path, &idx));
    uint64_t whole = 4 + 4 * (uint64_t)idx.n_dims + idx.bytes;
    if (whole != pin->bytes) {
        return pp_fail(PP_EFORMAT, "%s: its header announces %" PRIu64 " bytes, expected %" PRIu64,
                       path, whole, pin->bytes);
    }
    PP_TRY(pp_idx_read(path, &idx, &data));
    uint8_t head[16] = {0, 0, 8, (uint8_t)idx.n_dims};
    for (int i = 0; i < idx.n_dims; i++) {
        for (int k = 0; k < 4; k++) {
            head[4 + 4 * i + k] = (uint8_t)(idx.dims[i] >> (24 - 8 * k));
        }
    }
    struct pp_sha256 s;
    pp_sha256_init(&s);
    pp_sha256_update(&s, head, 4 + 4 * (size_t)idx.n_dims);
    pp_sha256_update(&s, data, idx.bytes);
    pp_free(data);
    finish_hex(&s, hex);
    return 0;
}

int pp_verify_file(const char *path, const struct pp_pin *pin, bool *out_gz)
{
    int fd = -1;
    uint64_t bytes = 0;
    char hex[PP_SHA256_HEX];
    bool gz = false;
    PP_TRY(pp_open_regular(path, &fd, &bytes));
    if (bytes > pp_store_bytes_max(pin)) {
        close(fd);
        return pp_fail(PP_EFORMAT, "%s: %" PRIu64 " bytes, expected at most %" PRIu64, path, bytes,
                       pp_store_bytes_max(pin));
    }
    int rc = digest_raw(path, fd, hex, &gz);
    close(fd);
    PP_TRY(rc);
    if (!pin->sha256_gz || strcmp(hex, pin->sha256_gz) != 0) {
        PP_TRY(digest_idx(path, pin, hex));
        if (strcmp(hex, pin->sha256) != 0) {
            return pp_fail(PP_EFORMAT,
                           "%s: sha256 of the inflated bytes is %.16s..., expected %.16s...", path,
                           hex, pin->sha256);
        }
    }
    *out_gz = gz;
    return 0;
}
