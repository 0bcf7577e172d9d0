/* SPDX-License-Identifier: Apache-2.0 */
/* Zip archives for tests, as torch writes them: stored, CRC and sizes after the data, data at
 * multiples of 64 bytes. */
#ifndef PPCLI_TESTS_ZIP_H
#define PPCLI_TESTS_ZIP_H

#include "../../src/base/zip.h"
#include "test_data_files.h"

struct made {
    const char *name;
    const void *data;
    size_t bytes;
    int method, flags; /* of the headers; CRC_AFTER is added */
};

#define CRC_AFTER 8
#define ENTRY(name, text) ((struct made){name, text, sizeof(text) - 1, 0, 0})

/* What is special about an archive. */
enum {
    ZIP_PLAIN,
    ZIP_64 = 1,
    ZIP_CRC_FIRST = 2
};

static inline void put_entry(struct pp_bytes *b, uint32_t mark, const struct made *e, uint32_t crc,
                             int kind, bool after)
{
    bool zip64 = (kind & ZIP_64) != 0 && !after;
    uint32_t size = zip64 ? UINT32_MAX : after ? 0 : (uint32_t)e->bytes;
    pp_bytes_little(b, mark, 4);
    if (mark == 0x02014b50)
        pp_bytes_little(b, 20, 2);
    pp_bytes_little(b, 20, 2);
    pp_bytes_little(b, (uint64_t)(e->flags | (kind & ZIP_CRC_FIRST ? 0 : CRC_AFTER)), 2);
    pp_bytes_little(b, (uint64_t)e->method, 2);
    pp_bytes_little(b, 0, 4);
    pp_bytes_little(b, after ? 0 : crc, 4);
    pp_bytes_little(b, size, 4);
    pp_bytes_little(b, size, 4);
    pp_bytes_little(b, strlen(e->name), 2);
}

/* Makes an archive of n entries. */
static inline struct blob zip_of(const struct made *entries, int n, int kind)
{
    struct pp_bytes b = {0}, d = {0};
    for (int i = 0; i < n; i++) {
        const struct made *e = &entries[i];
        bool first = (kind & ZIP_CRC_FIRST) != 0;
        uint32_t crc = (uint32_t)crc32(0, e->data, (uInt)e->bytes);
        size_t at = b.n, head = 30 + strlen(e->name), gap = (64 - (at + head) % 64) % 64;
        put_entry(&b, 0x04034b50, e, crc, kind & ~ZIP_64, !first);
        pp_bytes_little(&b, gap, 2);
        pp_bytes_put(&b, e->name, strlen(e->name));
        for (size_t k = 0; k < gap; k++)
            pp_bytes_put(&b, "Z", 1);
        pp_bytes_put(&b, e->data, e->bytes);
        pp_bytes_little(&b, 0x08074b50, first ? 0 : 4);
        pp_bytes_little(&b, crc, first ? 0 : 4);
        pp_bytes_little(&b, e->bytes, first ? 0 : 4);
        pp_bytes_little(&b, e->bytes, first ? 0 : 4);
        bool zip64 = (kind & ZIP_64) != 0;
        put_entry(&d, 0x02014b50, e, crc, kind, false);
        pp_bytes_little(&d, zip64 ? 4 + 5 + 28 : 0, 2);
        pp_bytes_little(&d, 0, 4); /* no comment, the first part */
        pp_bytes_little(&d, 0, 6); /* no attributes */
        pp_bytes_little(&d, zip64 ? UINT32_MAX : at, 4);
        pp_bytes_put(&d, e->name, strlen(e->name));
        pp_bytes_put(&d, "UT\1\0x", zip64 ? 5 : 0); /* a field of another kind before */
        pp_bytes_little(&d, 1, zip64 ? 2 : 0);
        pp_bytes_little(&d, 24, zip64 ? 2 : 0);
        pp_bytes_little(&d, e->bytes, zip64 ? 8 : 0);
        pp_bytes_little(&d, e->bytes, zip64 ? 8 : 0);
        pp_bytes_little(&d, at, zip64 ? 8 : 0);
        pp_bytes_little(&d, 0, zip64 ? 4 : 0); /* and what is not needed */
    }
    size_t begin = b.n;
    pp_bytes_put(&b, d.at, d.n);
    if (kind & ZIP_64) {
        size_t end = b.n;
        pp_bytes_little(&b, 0x06064b50, 4);
        pp_bytes_little(&b, 44, 8);
        pp_bytes_little(&b, 45 | 45 << 16, 4);
        pp_bytes_little(&b, 0, 8);
        pp_bytes_little(&b, (uint64_t)n, 8);
        pp_bytes_little(&b, (uint64_t)n, 8);
        pp_bytes_little(&b, d.n, 8);
        pp_bytes_little(&b, begin, 8);
        pp_bytes_little(&b, 0x07064b50, 4);
        pp_bytes_little(&b, 0, 4);
        pp_bytes_little(&b, end, 8);
        pp_bytes_little(&b, 1, 4);
    }
    pp_bytes_little(&b, 0x06054b50, 4);
    pp_bytes_little(&b, 0, 4);
    pp_bytes_little(&b, (uint64_t)n, 2);
    pp_bytes_little(&b, (uint64_t)n, 2);
    pp_bytes_little(&b, kind & ZIP_64 ? UINT32_MAX : d.n, 4);
    pp_bytes_little(&b, kind & ZIP_64 ? UINT32_MAX : begin, 4);
    pp_bytes_little(&b, 0, 2);
    struct blob out = blob_of(b.n);
    assert_false(b.lost || d.lost);
    memcpy(out.p, b.at, b.n);
    pp_bytes_fini(&b);
    pp_bytes_fini(&d);
    return out;
}

#endif
