/* SPDX-License-Identifier: Apache-2.0 */
#include "ppcli/base/base.h"

#include <stdlib.h>

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void pp_sort_doubles(double *values, int64_t n)
{
    qsort(values, (size_t)n, sizeof(*values), compare_doubles);
}

double pp_quantile(const double *sorted, int64_t n, double q)
{
    double at = q * (double)(n - 1);
    int64_t below = (int64_t)at;
    int64_t above = below + 1 < n ? below + 1 : below;
    return sorted[below] + (at - (double)below) * (sorted[above] - sorted[below]);
}

double pp_median(double *values, int64_t n)
{
    pp_sort_doubles(values, n);
    return pp_quantile(values, n, 0.5);
}
