/* SPDX-License-Identifier: Apache-2.0 */
/*
 * IDX, the file format of MNIST: two zero bytes, element type, number of dimensions, the dimensions
 * as big-endian 32-bit numbers, then the elements. Here: unsigned bytes, 1 to 4 dimensions, gzipped
 * or plain. A file that is not exactly what its header announces is refused, and nothing is
 * allocated before the announced size was held against the caps and the file's size.
 */
#ifndef PPCLI_DATA_IDX_H
#define PPCLI_DATA_IDX_H

#include <stddef.h>
#include <stdint.h>

#define PP_IDX_DIMS_MAX 4
#define PP_IDX_DIM_MAX ((uint32_t)1 << 28)
#define PP_IDX_BYTES_MAX ((uint64_t)1 << 30)

struct pp_idx {
    int n_dims;                     /* 1..4 */
    uint32_t dims[PP_IDX_DIMS_MAX]; /* those beyond n_dims are 1 */
    size_t bytes;                   /* product of dims */
};

/*
 * The header and, where out_data is not NULL, all elements with every check passed: *out_data is
 * the caller's, pp_free(). (A header alone does not see a damaged gzip stream.)
 * Errors: those of pp_source_open(); the text begins with the path. Local.
 */
int pp_idx_read(const char *path, struct pp_idx *out, uint8_t **out_data);

#endif
