/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011). There is no generator state: a number is a function of
 * (seed, stream, index), so nothing depends on stages, micro-batches, schedule or resume.
 *
 *   key     = (seed low 32 bits, seed high 32 bits)
 *   counter = (index/4 low, index/4 high, stream low, stream high); word = index mod 4
 *   stream  = FNV-1a 64 of the name's bytes followed by the 8 little-endian bytes of n
 */
#ifndef PPCLI_RNG_H
#define PPCLI_RNG_H

#include <stddef.h>
#include <stdint.h>

/* One block of the bijection, 10 rounds. */
void pp_philox4x32(const uint32_t key[2], const uint32_t ctr[4], uint32_t out[4]);

/* The stream for a purpose, e.g. ("init:layers.0.weight", 0) or ("shuffle", epoch). */
uint64_t pp_rng_stream(const char *name, uint64_t n);

/* Word number `index` of a stream, uniform over 32 bits. */
uint32_t pp_rng_u32(uint64_t seed, uint64_t stream, uint64_t index);

/* out[i] = lo + (hi - lo) * (u32(first + i) >> 8) * 2^-24, computed in float, i = 0..n-1. */
void pp_rng_uniform(uint64_t seed, uint64_t stream, uint64_t first, float lo, float hi, size_t n,
                    float *out);

/* out[i] = mean + deviation * z, z from N(0, 1): elements 2k and 2k + 1 are Box and Muller's pair of
 * words 2k and 2k + 1, computed in double without libm. |z| < 6.7. */
void pp_rng_normal(uint64_t seed, uint64_t stream, uint64_t first, float mean, float deviation,
                   size_t n, float *out);

/*
 * A permutation of 0..n-1 (Fisher-Yates from the end): for i = n-1..1 swap a[i] with a[j],
 * j = (u32(i) * (i+1)) >> 32, u32(i) being word i of the stream.
 */
void pp_rng_permutation(uint64_t seed, uint64_t stream, uint32_t n, uint32_t *out);

#endif
