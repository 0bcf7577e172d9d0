/* SPDX-License-Identifier: Apache-2.0 */
/* How the multiprocessors of one device are shared out; arithmetic only. */
#ifndef PPCLI_DEV_CUDA_PARTITION_H
#define PPCLI_DEV_CUDA_PARTITION_H

/*
 * The most multiprocessors that each of n equal pieces of `total` can have, when a piece has at
 * least `least` and a multiple of `unit` of them, as the driver asks (132 in 2 pieces of units of
 * 8: 64); 0 when there are no n such pieces. n >= 1, least and unit >= 1.
 */
int cuda_partition_size(int total, int least, int unit, int n);

#endif
