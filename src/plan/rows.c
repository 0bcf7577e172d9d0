/* SPDX-License-Identifier: Apache-2.0 */
/* The list of rows that a search fills. */
#include "search.h"

#include "ppcli/base/base.h"

int rows_add(struct pp_best *rows, const struct pp_candidate *c)
{
    PP_RESERVE(rows->items, rows->n, rows->room);
    rows->items[rows->n++] = *c;
    return 0;
}

void rows_add_too_large(struct pp_best *rows, const struct pp_candidate *c, long count)
{
    if (rows->smallest.d.stages == 0 || c->peak_bytes < rows->smallest.peak_bytes)
        rows->smallest = *c;
    rows->too_large += count;
}

int rows_by_estimate(const void *a, const void *b)
{
    const struct pp_candidate *x = a, *y = b;
    return (x->estimate > y->estimate) - (x->estimate < y->estimate);
}
