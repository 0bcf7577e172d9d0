/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on pictures of bytes, [rows][columns][channels]: each function gives the bytes that
 * torchvision's function of that name gives for a PIL image. in and out do not overlap.
 */
#ifndef PPCLI_DATA_PICTURE_H
#define PPCLI_DATA_PICTURE_H

#include "ppcli/data/dataset.h"

/* Copies the rectangle of size `s` whose first pixel is (top, left); pixels outside of the picture
 * become 0. */
void picture_crop(const struct pp_shape *s, int top, int left, const uint8_t *in, uint8_t *out);

/* Mirrors a picture: left becomes right. */
void picture_flip(const struct pp_shape *s, const uint8_t *in, uint8_t *out);

/* The ops of AutoAugment, each with the magnitude that torchvision passes to it. */
enum picture_op {
    PICTURE_SHEAR_X, /* tangent */
    PICTURE_SHEAR_Y,
    PICTURE_TRANSLATE_X, /* pixels, rounded towards 0 */
    PICTURE_TRANSLATE_Y,
    PICTURE_ROTATE,     /* degrees */
    PICTURE_BRIGHTNESS, /* 0: unchanged; 3 channels, as the next three */
    PICTURE_COLOR,
    PICTURE_CONTRAST,
    PICTURE_SHARPNESS,
    PICTURE_POSTERIZE, /* number of bits kept */
    PICTURE_SOLARIZE,  /* least value that is inverted */
    PICTURE_AUTO_CONTRAST,
    PICTURE_EQUALIZE,
    PICTURE_INVERT
};

/* Applies an operation to a picture of 1 or 3 channels; PICTURE_COLOR and PICTURE_CONTRAST need
 * 3. */
void picture_op(enum picture_op op, double magnitude, const struct pp_shape *s, const uint8_t *in,
                uint8_t *out);

/* Bilinear resizing, with the antialiasing that PIL uses when it shrinks. These tables are computed
 * once: `from` pixels become `to`, first tap and taps of each; owned. */
struct picture_axis {
    int from, to, taps; /* taps: the most of any pixel */
    int *first, *n;     /* [to] */
    int32_t *weights;   /* [to][taps] times 2^22 */
};

int picture_axis_init(struct picture_axis *a, int from, int to); /* Errors: PP_ERESOURCE */
void picture_axis_fini(struct picture_axis *a);

/* Resizes a picture. `between` is memory for y->from rows of x->to pixels. */
void picture_resize(const struct picture_axis *y, const struct picture_axis *x, int channels,
                    const uint8_t *in, uint8_t *between, uint8_t *out);

/*
 * ---- augment.c
 *
 * Makes a picture as data.augment and data.resize define it. All random choices are functions of
 * (seed, epoch, number of the sample), so the bytes do not depend on which thread asks, when, or in
 * which order.
 */
struct augment {
    struct pp_shape from, to;
    uint64_t seed;
    struct pp_augments steps;
    struct picture_axis y, x; /* taps 0: no resizing */
    /* two pictures, and one half-way through resizing; the first is owned */
    uint8_t *spare[3];
};

/* Prepares the changes of pictures of shape `from`. The caller calls fini() in any case. Errors:
 * PP_ERESOURCE. */
int augment_init(struct augment *a, const struct pp_config *cfg, const struct pp_shape *from);
void augment_fini(struct augment *a);

/* Makes the bytes of shape `to` from the sample's bytes of shape `from`. `train`: data.augment is
 * applied. Allocates nothing. */
void augment_make(struct augment *a, bool train, uint64_t epoch, uint32_t sample, const uint8_t *in,
                  uint8_t *out);

/* Returns the crop and flip of augment_make() in the form of pp_move(). */
uint32_t augment_move(const struct pp_augments *steps, uint64_t seed, uint64_t epoch,
                      uint32_t sample);

/* Returns the magnitude that AutoAugment passes to op, level 0..9, for a picture of this shape. */
double augment_magnitude(enum picture_op op, int level, bool minus, const struct pp_shape *s);

#endif
