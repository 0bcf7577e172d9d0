/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks of attention: what of its scratch the CPU's version works on at a time. */
#ifndef PPCLI_DEV_ATTENTION_H
#define PPCLI_DEV_ATTENTION_H

#define ATTENTION_KEYS 64
#define ATTENTION_QUERIES 48
/* Floats after a row of scores: rows 4 KiB apart share a set of the cache. */
#define ATTENTION_GAP 16

/* The log of the sum of a row, from which on its float says too little of a probability: such rows, which
 * no healthy model has, are computed in double, score by score. */
#define ATTENTION_LARGE 16384

#endif
