/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/ckpt/safetensors.h that only this module uses. */
#ifndef PPCLI_SRC_CKPT_SAFETENSORS_H
#define PPCLI_SRC_CKPT_SAFETENSORS_H

#include "ppcli/ckpt/safetensors.h"

int pp_st_dtype_bits(enum pp_st_dtype t); /* bits of an element */

struct pp_st_meta {
    const char *key, *value;
};

/* The content of a header; immutable. */
struct pp_st_header {
    struct pp_st_tensor *tensors; /* [n_tensors] in the order of their data */
    int n_tensors;
    struct pp_st_meta *meta; /* [n_meta] __metadata__, sorted by key */
    int n_meta;
    uint64_t data_begin; /* offset of the data in the file */
    uint64_t data_bytes;
    char *text;    /* owned: names of tensors, strings of meta */
    int64_t *dims; /* owned: dims of all tensors */
};

/* Parses the header from the first `bytes` bytes of a file of `file_bytes` bytes, which must hold
 * all of it. `label` is the file's name in messages. The caller owns *out. Errors: PP_EFORMAT
 * naming file and tensor, PP_ERESOURCE. Local, as all functions here. */
int pp_st_parse(const char *label, const void *data, size_t bytes, uint64_t file_bytes,
                struct pp_st_header **out);
void pp_st_header_free(struct pp_st_header **h);

/* Returns the value of a key of the metadata; NULL if there is no such key. */
const char *pp_st_meta_value(const struct pp_st_header *h, const char *key);

/* An open file: immutable, may be read by several threads at once. */
struct pp_st_file {
    char *path; /* owned, for messages */
    int fd;
    uint64_t bytes;
    struct pp_st_header *header;
};

/* Opens a file, which must be a regular file, and parses its header. Errors: PP_ENOINPUT, PP_EPERM,
 * PP_EIO, PP_EFORMAT, PP_ERESOURCE. */
int pp_st_open(const char *path, struct pp_st_file **out);
/* Opens a file of `bytes` bytes from a descriptor, as pp_st_open() does. Takes the descriptor over,
 * also on failure. */
int pp_st_open_fd(const char *label, int fd, uint64_t bytes, struct pp_st_file **out);
void pp_st_close(struct pp_st_file **f);

/* Reads `bytes` bytes of a tensor from `offset` on, without converting them. Errors: PP_EIO,
 * PP_EFORMAT (the file became shorter). */
int pp_st_read(const struct pp_st_file *f, const struct pp_st_tensor *t, uint64_t offset, void *dst,
               size_t bytes);

/* Compares each tensor that has a CRC-32 in the metadata with it. *out_checked is how many had one.
 * Errors: PP_EFORMAT naming the first tensor that differs. */
int pp_st_check_data(const struct pp_st_file *f, int *out_checked);

/* Writes a file under a temporary name in its folder, flushes and renames it. Items of 8 bytes an
 * element come first, then those of 4, each in their order. `out_digest` gets the SHA-256 of the
 * file. The name is durable after pp_io_sync_dir() of its folder. On failure `path` is unchanged.
 * Errors: those of pp_io_*() and of read(); PP_EINTERNAL when a tensor changed meanwhile. */
int pp_st_write(const struct pp_io *io, const char *path, const struct pp_st_item *items, int n,
                const struct pp_st_meta *meta, int n_meta, uint64_t *out_bytes,
                uint8_t out_digest[PP_SHA256_BYTES]);

#endif
