/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that hold one array: IDX (MNIST's format) and npy (NumPy's), gzipped or plain. A file that
 * is not exactly what its header announces is refused, and nothing is allocated before the
 * announced size was held against the caps and the file's size.
 */
#ifndef PPCLI_DATA_ARRAY_H
#define PPCLI_DATA_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PP_ARRAY_DIMS_MAX 4
#define PP_ARRAY_DIM_MAX ((uint32_t)1 << 28)
#define PP_ARRAY_MAX ((uint64_t)1 << 30) /* elements */

struct pp_array {
    int n_dims;                       /* 1..4 */
    uint32_t dims[PP_ARRAY_DIMS_MAX]; /* those beyond n_dims are 1 */
    size_t n;                         /* elements: product of dims */
    bool pixels;                      /* the file holds unsigned bytes */
};

/*
 * The header and, where out_data is not NULL, all elements with every check passed: *out_data is
 * the caller's, pp_free(). (A header alone does not see a damaged gzip stream.)
 * Errors: those of pp_source_open(); the text begins with the path. Local.
 */
typedef int pp_array_read(const char *path, struct pp_array *out, void **out_data);

/* Unsigned bytes only; elements as uint8_t. */
pp_array_read pp_idx_read;

/* Versions 1 to 3, C order, whole numbers, float32, float64, bool, of either byte order; elements
 * as float, which must be finite. */
pp_array_read pp_npy_read;

/* Product of n dims into out->n, within the caps; PP_EFORMAT. For the two readers. */
int pp_array_count(const char *path, struct pp_array *a);

#endif
