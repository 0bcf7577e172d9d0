/* SPDX-License-Identifier: Apache-2.0 */
/* Order statistics of measurements. */
#ifndef PPCLI_MEDIAN_H
#define PPCLI_MEDIAN_H

#include <stdint.h>

void pp_sort_doubles(double *values, int64_t n); /* ascending; none is a NaN */

/* Of sorted[n], n >= 1, 0 <= q <= 1, linear between two values. */
double pp_quantile(const double *sorted, int64_t n, double q);

double pp_median(double *values, int64_t n); /* sorts them; n >= 1 */

#endif
