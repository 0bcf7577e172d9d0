/* SPDX-License-Identifier: Apache-2.0 */
/* How the programs of struct pp_expr_run address their arrays. */
#ifndef PPCLI_DEV_EXPR_H
#define PPCLI_DEV_EXPR_H

#include "ppcli/dev/kernels.h"

#ifndef PP_DEVICE /* marks functions that kernels call */
#define PP_DEVICE
#endif

#define EXPR_BLOCK 1024 /* elements that the CPU computes at once, at most */

/* Returns what index i of an axis adds to the address of an element. */
static PP_DEVICE inline ptrdiff_t expr_offset(const struct pp_expr_array *v, const int32_t *tables,
                                              int axis, int i)
{
    ptrdiff_t at = axis == v->table_axis ? tables[v->table + (size_t)i] : i;
    return at * v->stride[axis];
}

/* Returns whether an output adds up over an axis. */
static PP_DEVICE inline bool expr_sums(const struct pp_expr *e, const struct pp_expr_array *out,
                                       int axis)
{
    return out->stride[axis] == 0 && e->size[axis] > 1;
}

#endif
