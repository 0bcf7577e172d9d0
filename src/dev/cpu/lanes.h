/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of a row, in an order that does not depend on the width of vectors. */
#ifndef PPCLI_DEV_CPU_LANES_H
#define PPCLI_DEV_CPU_LANES_H

#include <stddef.h>

/* Element c of a row goes to lane c mod LANES at every vector width. */
#define LANES 32

/* Returns the sum of the lanes. It is unrolled because a loop over the halves took longer than the
 * row. */
static inline float sum_lanes(float *lane)
{
    for (int l = 0; l < 16; l++)
        lane[l] += lane[l + 16];
    for (int l = 0; l < 8; l++)
        lane[l] += lane[l + 8];
    for (int l = 0; l < 4; l++)
        lane[l] += lane[l + 4];
    return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

static inline float sum_row(size_t C, const float *x)
{
    float s[LANES] = {0};
    size_t c = 0;
    for (; c + LANES <= C; c += LANES)
        for (int l = 0; l < LANES; l++)
            s[l] += x[c + l];
    for (int l = 0; c < C; c++, l++)
        s[l] += x[c];
    return sum_lanes(s);
}

#endif
