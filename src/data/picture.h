/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is done to pictures of bytes, [rows][columns][channels]: each function gives the bytes that
 * torchvision's function of that name gives for a PIL image. in and out do not overlap.
 */
#ifndef PPCLI_DATA_PICTURE_H
#define PPCLI_DATA_PICTURE_H

#include "ppcli/data/dataset.h"

/* The rectangle of this size whose first pixel is (top, left); zeros outside of the picture. */
void picture_crop(const struct pp_shape *s, int top, int left, const uint8_t *in, uint8_t *out);

/* Left becomes right. */
void picture_flip(const struct pp_shape *s, const uint8_t *in, uint8_t *out);

/* The ops of AutoAugment, each with the magnitude that torchvision passes to it. */
enum picture_op {
    PICTURE_SHEAR_X, /* tangent */
    PICTURE_SHEAR_Y,
    PICTURE_TRANSLATE_X, /* pixels, rounded towards 0 */
    PICTURE_TRANSLATE_Y,
    PICTURE_ROTATE,     /* degrees */
    PICTURE_BRIGHTNESS, /* 0: as it is; 3 channels, as the next three */
    PICTURE_COLOR,
    PICTURE_CONTRAST,
    PICTURE_SHARPNESS,
    PICTURE_POSTERIZE, /* bits that stay */
    PICTURE_SOLARIZE,  /* least value that is inverted */
    PICTURE_AUTO_CONTRAST,
    PICTURE_EQUALIZE,
    PICTURE_INVERT
};

/* Pictures of 1 or 3 channels; COLOR and CONTRAST: 3. */
void picture_op(enum picture_op op, double magnitude, const struct pp_shape *s, const uint8_t *in,
                uint8_t *out);

/* Bilinear, with the antialiasing that PIL always does when it makes smaller. The numbers of it are
 * made once: `from` pixels become `to`, first tap and taps of each; owned. */
struct picture_axis {
    int from, to, taps; /* the most of one */
    int *first, *n;     /* [to] */
    int32_t *weights;   /* [to][taps] times 2^22 */
};

int picture_axis_init(struct picture_axis *a, int from, int to); /* PP_ERESOURCE */
void picture_axis_fini(struct picture_axis *a);

/* between: bytes of y->from rows of x->to pixels. */
void picture_resize(const struct picture_axis *y, const struct picture_axis *x, int channels,
                    const uint8_t *in, uint8_t *between, uint8_t *out);

/*
 * ---- augment.c
 *
 * What data.augment and data.resize make of a picture. Everything random is a function of (seed,
 * epoch, number of the sample), so the bytes do not depend on who asks, when, or in which order.
 */
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

/* The same of crop and flip, as pp_move() says it. */
uint32_t augment_move(const struct pp_augments *steps, uint64_t seed, uint64_t epoch,
                      uint32_t sample);

/* The magnitude that AutoAugment passes to op, level 0..9, for a picture of this shape. */
double augment_magnitude(enum picture_op op, int level, bool minus, const struct pp_shape *s);

#endif
