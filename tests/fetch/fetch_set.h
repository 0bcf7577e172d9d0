/* SPDX-License-Identifier: Apache-2.0 */
/* A small file set for the download tests: one label file of bytes that hardly compress. */
#ifndef PPCLI_TESTS_FETCH_SET_H
#define PPCLI_TESTS_FETCH_SET_H

#include "../unit/test_data_files.h"

#include "ppcli/sha256.h"
#include "../../src/data/fetch.h"

#define FETCH_NAME "small-labels-idx1-ubyte"
#define FETCH_BYTES 60008

struct fetch_set {
    struct blob idx, gz;
    char sha256[PP_SHA256_HEX], sha256_gz[PP_SHA256_HEX];
    const char *mirrors[9];
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
    sha256_hex(fs->gz, fs->sha256_gz);
    fs->pin = (struct pp_pin){FETCH_NAME, FETCH_BYTES, fs->sha256, NULL};
    fs->set = (struct pp_fetch_set){"small", fs->mirrors, &fs->pin, 1};
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

/* Exactly the right file under its final name, and nothing else. */
static inline void check_complete(const struct fetch_set *fs, const char *dir)
{
    char path[PP_PATH_MAX];
    bool gz;
    path_of(path, dir, has(dir, ".gz") ? ".gz" : "");
    CHECK_OK(pp_verify_file(path, &fs->pin, &gz));
    CHECK_INT_EQ(gz, has(dir, ".gz"));
    assert_false(has(dir, ".gz.part"));
    assert_false(has(dir, ".gz.part.etag"));
    snprintf(path, sizeof(path), "%.3900s/.ppcli-download.lock", dir);
    assert_false(file_exists(path));
}

static inline void check_nothing(const char *dir)
{
    assert_false(has(dir, ".gz"));
    assert_false(has(dir, ""));
}

#endif
