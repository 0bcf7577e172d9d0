/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What data.augment and data.resize make of a picture. Everything random is a function of (seed,
 * epoch, number of the sample), so the bytes do not depend on who asks, when, or in which order.
 */
#ifndef PPCLI_DATA_AUGMENT_H
#define PPCLI_DATA_AUGMENT_H

#include "ppcli/dataset.h"
#include "picture.h"

struct augment {
    struct pp_shape from, to;
    uint64_t seed;
    struct pp_augments steps;
    struct picture_axis y, x; /* taps 0: no resizing */
    uint8_t *spare[3];        /* two pictures, one of half the way of resizing; the first owned */
};

/* Errors: PP_ERESOURCE; fini() in any case. */
int augment_init(struct augment *a, const struct pp_config *cfg, const struct pp_shape *from);
void augment_fini(struct augment *a);

/* The sample's bytes of `from` become bytes of `to`. train: with data.augment. Allocates nothing. */
void augment_make(struct augment *a, bool train, uint64_t epoch, uint32_t sample, const uint8_t *in,
                  uint8_t *out);

/* The magnitude that AutoAugment passes to op, level 0..9, for a picture of this shape. */
double augment_magnitude(enum picture_op op, int level, bool minus, const struct pp_shape *s);

#endif
