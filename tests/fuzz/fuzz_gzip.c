/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gzipped IDX. The first byte says how the rest becomes a file: 0, as it is; 1, gzipped, so that
 * IDX is reached through inflate(); 2, the rest is the data of an IDX file that is gzipped, and
 * then damaged as the next four bytes say: refused, or exactly the data.
 */
#include "fuzz.h"
#include "ppcli/base/base.h"
#include "../../src/data/ops.h"

#include <zlib.h>

#define DATA_MAX 4096

static struct fuzz_file file = {-1, ""};

static size_t gzip(const uint8_t *from, size_t n, uint8_t *to, size_t room)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)from, .avail_in = (uInt)n};
    z.next_out = to;
    z.avail_out = (uInt)room;
    pp_assert(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    int rc = deflate(&z, Z_FINISH);
    pp_assert(rc == Z_STREAM_END);
    size_t made = room - z.avail_out;
    deflateEnd(&z);
    return made;
}

/* Reads it; the data when it was accepted. */
static uint8_t *try(const void *bytes, size_t n, struct pp_array *out)
{
    uint8_t *got = NULL;
    int rc = pp_idx_read(fuzz_file(&file, bytes, n), out, (void **)&got);
    if (rc < 0)
        fuzz_refused(rc);
    return got;
}

static void damaged(const uint8_t *how, const uint8_t *data, size_t n)
{
    uint8_t plain[8 + DATA_MAX] = {0, 0, 8, 1, 0, 0, (uint8_t)(n >> 8), (uint8_t)n};
    uint8_t gz[2 * DATA_MAX];
    struct pp_array idx = {0};
    memcpy(plain + 8, data, n);
    size_t bytes = gzip(plain, 8 + n, gz, sizeof(gz));
    size_t at = (how[1] << 8 | how[2]) % bytes;
    if (how[0] & 1)
        gz[at] ^= (uint8_t)(how[3] | 1);
    else
        bytes = at;
    PP_OWN_MEMORY uint8_t *got = try(gz, bytes, &idx);
    pp_assert(!got || ((how[0] & 1) && idx.n == n && memcmp(got, data, n) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t gz[2 * DATA_MAX];
    struct pp_array idx = {0};
    if (size < 1 || size > DATA_MAX)
        return 0;
    switch (data[0] % 3) {
    case 0:
        pp_free(try(data + 1, size - 1, &idx));
        break;
    case 1: {
        uint8_t *got = try(gz, gzip(data + 1, size - 1, gz, sizeof(gz)), &idx);
        size_t begin = 4 + 4 * (size_t)idx.n_dims;
        pp_assert(!got || (size - 1 == begin + idx.n && memcmp(got, data + 1 + begin, idx.n) == 0));
        pp_free(got);
        break;
    }
    default:
        if (size > 5)
            damaged(data + 1, data + 5, size - 5);
    }
    return 0;
}
