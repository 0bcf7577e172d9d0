/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the versions of attention: block sizes of the CPU's scratch, and strides. */
#ifndef PPCLI_DEV_ATTENTION_H
#define PPCLI_DEV_ATTENTION_H

#include "ppcli/dev/kernels.h"

/* Returns the strides of the gradient of an array. */
static inline struct pp_strides attention_gradient(struct pp_strides s)
{
    s.sequence = s.gradient > 0 ? s.gradient : s.sequence;
    return s;
}

#define ATTENTION_KEYS 64
#define ATTENTION_QUERIES 48
/* Floats after a row of scores, because rows 4 KiB apart share a set of the cache. */
#define ATTENTION_GAP 16

/* From this log-sum-exp on a float is too coarse for the probabilities; such rows, which no healthy
 * model has, are computed in double, score by score. */
#define ATTENTION_LARGE 16384

#endif
