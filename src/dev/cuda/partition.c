/* SPDX-License-Identifier: Apache-2.0 */
#include "partition.h"

#include "ppcli/err.h"

int cuda_partition_size(int total, int least, int unit, int n)
{
    pp_assert(n >= 1 && least >= 1 && unit >= 1);
    int each = total / n / unit * unit;
    return each >= least ? each : 0;
}
