/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/dev/kernels.h that only this module uses. */
#ifndef PPCLI_SRC_DEV_KERNELS_H
#define PPCLI_SRC_DEV_KERNELS_H

#include "ppcli/dev/kernels.h"

/* Returns how many of the `all` positions of sample r come before its padding. Reads `lengths` and
 * `index` in host memory; NULL: there is no padding. */
static inline int pp_length(const uint32_t *lengths, const uint32_t *index, int r, int all)
{
    return lengths ? (int)lengths[index[r]] : all;
}

#endif
