/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the compare backend share; tests put a broken backend into it. */
#ifndef PPCLI_DEV_COMPARE_H
#define PPCLI_DEV_COMPARE_H

#include <float.h>

#include "ppcli/backend.h"

#define ROUNDINGS 16
#define EPS ((double)FLT_EPSILON)

struct compare {
    struct pp_backend *fast, *plain;
    float *scratch; /* owned */
    size_t floats;
};

/* Fill be->impl, caps and description: every op runs on `fast` and on the plain defaults. */
int compare_open_with(struct pp_backend *be, const struct pp_backend_ops *fast, int threads);

/* `floats` of scratch in *out, content lost. */
int compare_scratch(struct compare *c, size_t floats, float **out);

/* Allowed: |a - b| <= absolute + relative * |b|; NaN only against NaN. The text names op, shape and
 * array for the message, e.g. "add 10: g"; columns: of the array. */
int compare_same(size_t n, const float *fast, const float *plain, double absolute, double relative,
                 size_t columns, const char *text, ...) __attribute__((format(printf, 7, 8)));

/* The largest |a[i]|; 0 for a == NULL. */
double compare_greatest(size_t n, const float *a);

/* The longest of `count` vectors of `length` elements: element k of vector v is a[v*vs + k*ks]. */
double compare_longest(int count, int length, size_t vs, size_t ks, const float *a);

/* compare_kernels.c */
#define PP_KERNEL(name, type) int compare_##name(struct pp_backend *be, const struct type *a);
#include "ppcli/kernels.def"

#endif
