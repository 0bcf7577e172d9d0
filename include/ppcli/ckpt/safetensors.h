/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors files: 8 bytes of little-endian header length, a JSON header, the data. The reader
 * takes nothing that is not exactly what it claims: no holes, overlaps, duplicates or bytes after
 * the last tensor, and nothing is allocated for a size that the file does not have. The writer
 * streams, and puts a CRC-32 of every tensor into the header, so that damage can be located.
 */
#ifndef PPCLI_CKPT_SAFETENSORS_H
#define PPCLI_CKPT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "ppcli/base/files.h"

#define PP_ST_HEADER_MAX ((uint64_t)16 << 20) /* bytes */
#define PP_ST_NAME_MAX 128                    /* bytes of the names that ppcli gives */
#define PP_ST_DIMS_MAX 64                     /* NumPy and PyTorch have no more */
#define PP_ST_ITEM_DIMS 8                     /* of what is written */
#define PP_ST_CRC_KEY "crc32." /* metadata "crc32.<tensor>": eight hex digits, of its bytes */

enum pp_st_dtype {
    PP_ST_F32,
    PP_ST_F16,
    PP_ST_BF16,
    PP_ST_F64,
    PP_ST_I64,
    PP_ST_U8, /* from here on only shown: no parameter is read from them */
    PP_ST_U16,
    PP_ST_U32,
    PP_ST_U64,
    PP_ST_I8,
    PP_ST_I16,
    PP_ST_I32,
    PP_ST_BOOL,
    PP_ST_F4,
    PP_ST_F6_E2M3,
    PP_ST_F6_E3M2,
    PP_ST_F8_E4M3,
    PP_ST_F8_E4M3FNUZ,
    PP_ST_F8_E5M2,
    PP_ST_F8_E5M2FNUZ,
    PP_ST_F8_E8M0,
    PP_ST_C64
};

const char *pp_st_dtype_name(enum pp_st_dtype t); /* "F32" */
int pp_st_dtype_bits(enum pp_st_dtype t);         /* of an element */

/* "[784,10]"; returns out. */
#define PP_ST_SHAPE_BYTES (PP_ST_DIMS_MAX * 20 + 3)
const char *pp_st_shape(int n, const int64_t *dims, char out[PP_ST_SHAPE_BYTES]);

struct pp_st_tensor {
    const char *name; /* any valid UTF-8: control characters and blanks too, or nothing */
    enum pp_st_dtype dtype;
    int n_dims; /* 0: a scalar */
    const int64_t *dims;
    uint64_t elements;
    uint64_t begin, end; /* bytes, from the start of the data */
};

struct pp_st_meta {
    const char *key, *value;
};

/* What a header says; immutable. */
struct pp_st_header {
    struct pp_st_tensor *tensors; /* [n_tensors] in the order of their data */
    int n_tensors;
    struct pp_st_meta *meta; /* [n_meta] __metadata__, sorted by key */
    int n_meta;
    uint64_t data_begin; /* offset of the data in the file */
    uint64_t data_bytes;
    char *text;    /* owned: names of tensors, strings of meta */
    int64_t *dims; /* owned: those of all tensors */
};

/*
 * Check the first `bytes` bytes of a file of `file_bytes` bytes; they must hold the whole header.
 * `label` is the file's name in messages. Caller owns *out.
 * Errors: PP_EFORMAT naming file and tensor, PP_ERESOURCE. Local, as everything here.
 */
int pp_st_parse(const char *label, const void *data, size_t bytes, uint64_t file_bytes,
                struct pp_st_header **out);
void pp_st_header_free(struct pp_st_header **h);

/* NULL when there is none. */
const char *pp_st_meta_value(const struct pp_st_header *h, const char *key);

/* An open file: immutable, may be read by several threads at once. */
struct pp_st_file {
    char *path; /* owned, for messages */
    int fd;
    uint64_t bytes;
    struct pp_st_header *header;
};

/* Regular files only. Errors: PP_ENOINPUT, PP_EPERM, PP_EIO, PP_EFORMAT, PP_ERESOURCE. */
int pp_st_open(const char *path, struct pp_st_file **out);
/* The same from a descriptor of `bytes` bytes, which becomes the file's, also on failure. */
int pp_st_open_fd(const char *label, int fd, uint64_t bytes, struct pp_st_file **out);
void pp_st_close(struct pp_st_file **f);

/* `bytes` bytes of a tensor from `offset` on, as they lie in the file. Errors: PP_EIO, PP_EFORMAT
 * (the file became shorter). */
int pp_st_read(const struct pp_st_file *f, const struct pp_st_tensor *t, uint64_t offset, void *dst,
               size_t bytes);

/*
 * Read all tensors that have a CRC-32 in the metadata and compare. *out_checked: how many had one.
 * Errors: PP_EFORMAT naming the first tensor that differs.
 */
int pp_st_check_data(const struct pp_st_file *f, int *out_checked);

/* A tensor to write. */
struct pp_st_item {
    const char *name;
    enum pp_st_dtype dtype; /* PP_ST_F32 or PP_ST_I64 */
    int n_dims;
    int64_t dims[PP_ST_ITEM_DIMS];
    const void *data; /* host memory; NULL: ask read() */
    /* Gives `bytes` bytes from `offset` on. All of the tensor is asked for twice, in ascending
     * pieces: its CRC comes first. It must not change in between. */
    int (*read)(void *ctx, uint64_t offset, void *dst, size_t bytes);
    void *ctx;
};

/*
 * Write a file: to a temporary name beside it, fsync, rename. Items of 8 bytes come first, then
 * those of 4, else in their order. `out_digest`: SHA-256 of the file. The name is durable after
 * pp_io_sync_dir() of its folder. On failure nothing of it is left under `path`.
 * Errors: those of pp_io.h and of read(); PP_EINTERNAL when a tensor changed meanwhile.
 */
int pp_st_write(const struct pp_io *io, const char *path, const struct pp_st_item *items, int n,
                const struct pp_st_meta *meta, int n_meta, uint64_t *out_bytes,
                uint8_t out_digest[PP_SHA256_BYTES]);

#endif
