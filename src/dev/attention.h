/* SPDX-License-Identifier: Apache-2.0 */
/* Block sizes of attention: how much of its scratch the CPU's version works on at a time. */
#ifndef PPCLI_DEV_ATTENTION_H
#define PPCLI_DEV_ATTENTION_H

#define ATTENTION_KEYS 64
#define ATTENTION_QUERIES 48
/* Floats after a row of scores, because rows 4 KiB apart share a set of the cache. */
#define ATTENTION_GAP 16

/* From this log-sum-exp on a float is too coarse for the probabilities; such rows, which no healthy
 * model has, are computed in double, score by score. */
#define ATTENTION_LARGE 16384

#endif
