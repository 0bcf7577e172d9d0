/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Formulas that every backend uses: the rows of tokens, and the random numbers of dropout. A number
 * is a function of (key, step, row of the step's batch, element), so a mask depends on no cut,
 * schedule or restart and is computed again instead of kept. Numbers are 32 bits wide and need no
 * state, so that loops over elements become vectors.
 */
#ifndef PPCLI_DEV_NUMBERS_H
#define PPCLI_DEV_NUMBERS_H

#include <math.h>
#include <stdint.h>

#include "ppcli/dev/kernels.h"

#ifndef PP_DEVICE /* marks functions that kernels call */
#define PP_DEVICE
#endif

/* Returns the pixel that pp_move() moves to (y, x); -1: it is outside the picture. */
static PP_DEVICE inline int moved_from(uint32_t move, int H, int W, int y, int x)
{
    int row = y + (int)(move & 255) - PP_MOVE_MAX;
    int column = (move >> 16 ? W - 1 - x : x) + (int)(move >> 8 & 255) - PP_MOVE_MAX;
    return row >= 0 && row < H && column >= 0 && column < W ? row * W + column : -1;
}

/* Returns the part of the random numbers that is the same for a whole row. */
static PP_DEVICE inline uint64_t dropout_row(uint64_t key, int64_t step, uint32_t row)
{
    uint64_t h = key + 0x9E3779B97F4A7C15u * ((uint64_t)step + 1);
    h = (h ^ (h >> 31)) * 0xD2511F53CD9E8D57u + row;
    h = (h ^ (h >> 29)) * 0x9E3779B97F4A7C15u;
    return h ^ (h >> 32);
}

/* Returns a random number that is uniform over 0 .. 2^24 - 1, for an element of the row whose part
 * is `of` (dropout_row()). Multiplies and folds twice, each time with one half of `of`. */
static PP_DEVICE inline uint32_t dropout_number(uint64_t of, uint32_t element)
{
    uint32_t h = element * 0x9E3779B1u ^ (uint32_t)of;
    h = (h ^ (h >> 16)) * 0x85EBCA77u + (uint32_t)(of >> 32);
    h = (h ^ (h >> 15)) * 0xC2B2AE3Du;
    return (h ^ (h >> 16)) >> 8;
}

/* Returns the limit for dropout with probability p, 0 <= p < 1: an element whose random number is
 * below the limit is dropped. */
static PP_DEVICE inline uint32_t dropout_limit(float p)
{
    return (uint32_t)((double)p * 0x1p24 + 0.5);
}

/* Returns the angle by which pair j rotates per position. The scaling is that of Llama 3
 * (transformers' modeling_rope_utils): waves longer than context / low are stretched, waves shorter
 * than context / high are not, and waves between use a mean of both. */
static PP_DEVICE inline double rope_step(const struct pp_rotary *a, int j)
{
    const struct pp_rope_scaling *s = &a->scaling;
    double step = pow((double)a->base, -2.0 * j / a->width);
    if (!(s->factor > 0))
        return step;
    double waves = (double)s->context * step / 6.283185307179586; /* waves per context */
    double share = s->high > s->low ? (waves - s->low) / ((double)s->high - s->low) : 0;
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    return (1 - share) * step / s->factor + share * step;
}

/* Returns the row of a token in a table of V rows; -1 if x is not a token. A token is a whole
 * number in f32, which is exact up to 2^24. */
static PP_DEVICE inline int token_row(float x, int V)
{
    return x > -1.0f && x < (float)V ? (int)x : -1;
}

#endif
