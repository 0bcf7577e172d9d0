/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens are whole numbers in f32, exact to 2^24. */
#ifndef PPCLI_DEV_TOKEN_H
#define PPCLI_DEV_TOKEN_H

#ifndef PP_DEVICE /* as in dropout.h */
#define PP_DEVICE
#endif

/* Its row of a table of V, -1: it is none. */
static PP_DEVICE inline int token_row(float x, int V)
{
    return x > -1.0f && x < (float)V ? (int)x : -1;
}

#endif
