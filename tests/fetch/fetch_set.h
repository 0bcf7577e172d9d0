/* SPDX-License-Identifier: Apache-2.0 */
/* A small file set for the download tests: one label file of bytes that hardly compress. */
#ifndef PPCLI_TESTS_FETCH_SET_H
#define PPCLI_TESTS_FETCH_SET_H

#include "../unit/test_data_files.h"

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"
#include "../../src/data/fetch.h"

#define FETCH_NAME "small-labels-idx1-ubyte" /* .gz */
#define FETCH_BYTES 60008

struct fetch_set {
    struct blob idx, gz;
    char sha256[PP_SHA256_HEX];
    struct pp_pin pin;
    struct pp_fetch_set set;
};

static inline void sha256_hex(struct blob b, char hex[PP_SHA256_HEX])
{
    struct pp_sha256 s;
    uint8_t digest[PP_SHA256_BYTES];
    pp_sha256_init(&s);
    pp_sha256_update(&s, b.p, b.n);
    pp_sha256_final(&s, digest);
    pp_sha256_hex(digest, hex);
}

static inline void fetch_set_init(struct fetch_set *fs)
{
    const uint32_t n = FETCH_BYTES - 8;
    memset(fs, 0, sizeof(*fs));
    fs->idx = idx_bytes(1, &n, n, 256);
    uint32_t x = 1;
    for (size_t i = 8; i < fs->idx.n; i++) {
        x = x * 1664525u + 1013904223u;
        fs->idx.p[i] = (uint8_t)(x >> 24);
    }
    fs->gz = gzip(fs->idx.p, fs->idx.n, 9);
    sha256_hex(fs->idx, fs->sha256);
    fs->pin = (struct pp_pin){FETCH_NAME ".gz", FETCH_BYTES, fs->sha256};
    fs->set = (struct pp_fetch_set){.name = "small", .files = {fs->pin}};
}

static inline void fetch_set_fini(struct fetch_set *fs)
{
    blob_free(&fs->idx);
    blob_free(&fs->gz);
}

static inline void path_of(char out[PP_PATH_MAX], const char *dir, const char *suffix)
{
    snprintf(out, PP_PATH_MAX, "%.3900s/%s%s", dir, FETCH_NAME, suffix);
}

static inline bool has(const char *dir, const char *suffix)
{
    char path[PP_PATH_MAX];
    path_of(path, dir, suffix);
    return file_exists(path);
}

/* The right file under its final name, and no part. */
static inline void check_complete(const struct fetch_set *fs, const char *dir)
{
    char path[PP_PATH_MAX];
    bool gz;
    path_of(path, dir, has(dir, ".gz") ? ".gz" : "");
    CHECK_OK(pp_pin_check(path, &fs->pin, &gz));
    CHECK_INT_EQ(gz, has(dir, ".gz"));
    assert_false(has(dir, ".gz.part"));
}

static inline void check_nothing(const char *dir)
{
    assert_false(has(dir, ".gz"));
    assert_false(has(dir, ""));
}

#endif
