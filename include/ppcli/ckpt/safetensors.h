/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors files: 8 bytes of little-endian header length, a JSON header, the data. The reader
 * accepts only files that are exactly what they claim to be: no holes, overlaps, duplicates or
 * bytes after the last tensor, and nothing is allocated for a size that the file does not have. The
 * writer streams, and puts a CRC-32 of every tensor into the header, so that damage can be located.
 */
#ifndef PPCLI_CKPT_SAFETENSORS_H
#define PPCLI_CKPT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "ppcli/base/files.h"

#define PP_ST_HEADER_MAX ((uint64_t)16 << 20) /* bytes */
#define PP_ST_NAME_MAX 320                    /* bytes of the names that ppcli uses */
#define PP_ST_DIMS_MAX 64                     /* NumPy and PyTorch do not support more */
#define PP_ST_ITEM_DIMS 8                     /* of written tensors */
#define PP_ST_CRC_KEY "crc32." /* metadata "crc32.<tensor>": eight hex digits, of its bytes */

enum pp_st_dtype {
    PP_ST_F32,
    PP_ST_F16,
    PP_ST_BF16,
    PP_ST_F64,
    PP_ST_I64,
    PP_ST_U8, /* types from here on are only shown: no parameter is read from them */
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

/* Formats a shape as "[784,10]" in `out` and returns it. */
#define PP_ST_SHAPE_BYTES (PP_ST_DIMS_MAX * 20 + 3)
const char *pp_st_shape(int n, const int64_t *dims, char out[PP_ST_SHAPE_BYTES]);

struct pp_st_tensor {
    const char *name; /* any valid UTF-8, even control characters, blanks or "" */
    enum pp_st_dtype dtype;
    int n_dims; /* 0: a scalar */
    const int64_t *dims;
    uint64_t elements;
    uint64_t begin, end; /* bytes from the start of the data */
};

/* A tensor to write. */
struct pp_st_item {
    const char *name;
    enum pp_st_dtype dtype; /* PP_ST_F32 or PP_ST_I64 */
    int n_dims;
    int64_t dims[PP_ST_ITEM_DIMS];
    const void *data; /* in host memory; NULL: call read() */
    /* Copies `bytes` bytes from `offset` on. The whole tensor is requested twice, in ascending
     * pieces, first for its CRC; it must not change in between. */
    int (*read)(void *ctx, uint64_t offset, void *dst, size_t bytes);
    void *ctx;
};

#endif
