/* SPDX-License-Identifier: Apache-2.0 */
/* Files for the data tests: a temporary folder, IDX bytes, gzip in memory. */
#ifndef PPCLI_TESTS_DATA_FILES_H
#define PPCLI_TESTS_DATA_FILES_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include "test.h"

#include "ppcli/base/base.h"

/* The shape of a model that takes n values. */
#define FLAT(n) (&(const struct pp_shape){1, {(n), 1, 1}})

struct blob {
    uint8_t *p;
    size_t n;
};

static inline void blob_free(struct blob *b)
{
    free(b->p);
    b->p = NULL;
    b->n = 0;
}

static inline struct blob blob_of(size_t n)
{
    struct blob b = {calloc(1, n > 0 ? n : 1), n};
    assert_non_null(b.p);
    return b;
}

/* A folder of this test program; removed with everything in it by folder_remove(). */
static inline int folder_create(void **state)
{
    char name[] = "/tmp/ppcli-data-XXXXXX";
    assert_non_null(mkdtemp(name));
    *state = strdup(name);
    return 0;
}

static inline void folder_empty(const char *dir)
{
    DIR *d = opendir(dir);
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));) {
        char path[4096];
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        int n = snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        assert_true(n > 0 && n < (int)sizeof(path));
        if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
            (void)chmod(path, 0700);
            folder_empty(path);
            rmdir(path);
        } else {
            unlink(path);
        }
    }
    closedir(d);
}

static inline int folder_remove(void **state)
{
    folder_empty(*state);
    rmdir(*state);
    free(*state);
    return 0;
}

/* A test in a folder of its own, whose name is *state. */
#define TEST_IN_FOLDER(name) TEST_AROUND(name, folder_create, folder_remove)

static inline const char *in_folder(void **state, const char *name)
{
    static char path[4][4096]; /* four results live at a time */
    static int at;
    char *p = path[at++ % 4];
    snprintf(p, sizeof(path[0]), "%s/%s", (const char *)*state, name);
    return p;
}

static inline void file_write(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static inline struct blob file_read(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("cannot open %s", path);
    fseek(f, 0, SEEK_END);
    struct blob b = blob_of((size_t)ftell(f));
    rewind(f);
    assert_int_equal(fread(b.p, 1, b.n, f), b.n);
    fclose(f);
    return b;
}

static inline bool file_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

/* One gzip member, time 0. */
static inline struct blob gzip(const void *data, size_t n, int level)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, level, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    struct blob out = blob_of(deflateBound(&z, n) + 64);
    z.next_in = (Bytef *)(uintptr_t)data;
    z.avail_in = (uInt)n;
    z.next_out = out.p;
    z.avail_out = (uInt)out.n;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    out.n = z.total_out;
    deflateEnd(&z);
    return out;
}

static inline void put_u32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v >> 24);
    p[1] = (uint8_t)(v >> 16);
    p[2] = (uint8_t)(v >> 8);
    p[3] = (uint8_t)v;
}

/* An IDX file image: header with these dims, then `bytes` elements, element i = i mod modulus. */
static inline struct blob idx_bytes(int n_dims, const uint32_t *dims, size_t bytes, int modulus)
{
    size_t head = 4 + 4 * (size_t)n_dims;
    struct blob b = blob_of(head + bytes);
    b.p[2] = 8;
    b.p[3] = (uint8_t)n_dims;
    for (int i = 0; i < n_dims; i++)
        put_u32(b.p + 4 + 4 * i, dims[i]);
    for (size_t i = 0; i < bytes; i++)
        b.p[head + i] = (uint8_t)(i % (size_t)modulus);
    return b;
}

static inline struct blob joined(struct blob a, struct blob b)
{
    struct blob out = blob_of(a.n + b.n);
    memcpy(out.p, a.p, a.n);
    memcpy(out.p + a.n, b.p, b.n);
    return out;
}

static inline void file_write_gzip(const char *path, struct blob data)
{
    PP_OWN(blob_free) struct blob z = gzip(data.p, data.n, 9);
    file_write(path, z.p, z.n);
}

#endif
