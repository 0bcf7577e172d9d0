/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkops compares every kernel of every backend with the plain version, which is the oracle, and
 * can time it. A sample is one call: arguments with arrays of the host, made at random (samples*.c).
 * A target is a backend, opened in one way (targets.c). An instance is a sample in a target's memory
 * (instance.c). How far apart results may be follows from the arithmetic (tolerance.c).
 *
 * A new kernel needs make_NAME() and bound_NAME() here; without them this program does not compile.
 */
#ifndef PPCLI_TESTS_CHECKOPS_H
#define PPCLI_TESTS_CHECKOPS_H

#include <float.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ppcli/dev/backend.h"

#define ROUNDINGS 16
#define EPS ((double)FLT_EPSILON)
#define ARRAYS_MAX 16
#define OUTPUTS_MAX 6
#define EXACT -1.0

struct pp_largest { /* an entry that takes no struct */
    size_t n;
    const float *x;
    float *io;
};

/* ---- a sample */

#define PARTS_MAX 3

/* The arguments of one call, and what they point to beside arrays. */
struct image {
    union {
#define PP_KERNEL(name, type) struct type name;
#include "kernels.def"
    } a;
    struct pp_conv g;
    struct pp_expr expr;
    struct pp_weight_part parts[PARTS_MAX];
};

/* An array, and up to three pointers into it: `at` bytes behind the start of the image. */
struct array {
    const char *name;
    int n_places;
    struct {
        size_t at, element;
    } places[3];
    size_t n, size; /* elements, bytes of one */
    bool is_value;  /* of the precision of the backend */
    void *data;     /* owned */
};

struct sample {
    struct image image;
    struct pp_backend *plain;
    uint64_t seed, drawn;
    bool large; /* the largest shape: something to time */
    int n;
    struct array arrays[ARRAYS_MAX];
    /* Made by each target: offsets of the pointers in the image; 0: none (no kernel begins with it). */
    size_t scratch_at, packed_at, W_at, b_at;
    size_t scratch_floats; /* of a member, where it is no convolution */
    int B, O, I;           /* samples of a convolution; or the size of a linear layer's W */
};

/* 0 .. n-1 */
uint32_t draw(struct sample *s, uint32_t n);
static inline bool flip(struct sample *s)
{
    return draw(s, 2) == 1;
}
/* 1 .. most, often one of those that are no multiple of anything, or one off. */
int odd(struct sample *s, int most);
/* The same, now and then 0. */
int some_rows(struct sample *s, int most);

/* Of a part of a weight gradient, whose samples have `each` rows: up to 3,000 rows, often so many that a
 * device cuts them into slices. */
int part_rows(struct sample *s, int each);

enum content {
    NOISE,   /* in [-1, 1) */
    UNSET,   /* NaN */
    CLEARED, /* 0 bytes: for the caller to fill */
};
/* A new array for the pointer at `field` in the image. */
void *give(struct sample *s, const char *name, const void *field, size_t n, size_t size,
           bool is_value, enum content content);
/* The last array: also for this pointer, from `element` on. */
void *give_also(struct sample *s, const void *field, size_t element);
/* pointer of the image = target in the image */
void point_inside(struct sample *s, const void *field, const void *target);
void sample_fini(struct sample *s);
/* Pointers of `image`, a copy of that at `from`, that point into that: into the copy. */
void image_move(struct image *image, const struct image *from);

#define GIVE(field, n, is_value, content)                                                          \
    give(s, #field, &a->field, (size_t)(n), sizeof(*a->field), is_value, content)
#define FLOATS(field, n) GIVE(field, n, false, NOISE)
#define VALUES(field, n) GIVE(field, n, true, NOISE)
#define BYTES(field, n) GIVE(field, n, false, CLEARED)
/* A result; `add`: to what is there. */
#define RESULT(field, n, add) GIVE(field, n, false, (add) ? NOISE : UNSET)
#define VALUE_RESULT(field, n, add) GIVE(field, n, true, (add) ? NOISE : UNSET)
#define OFFSET(field) ((size_t)((const char *)&a->field - (const char *)&s->image))

/* ---- a target */

struct target {
    char name[64];
    struct pp_backend *be;
    bool is_own;   /* the bits are those of every other own target ... */
    bool is_fused; /* ... also of what multiplies and adds at once */
    double part;   /* of the largest element that results may be off; 0: as the arithmetic says */
};

/* All that run here whose name contains `only`, at most `max`; -> how many. */
int targets_open(struct target *t, int max, const char *only);
void targets_close(struct target *t, int n);
/* What products want of their memory there. */
size_t target_scratch(const struct target *t, const struct sample *s);
size_t target_packed(const struct target *t, const struct sample *s);

/* ---- an instance */

struct instance {
    struct image image; /* pointers to memory of the target */
    void *blocks[ARRAYS_MAX + 2];
    size_t bytes[ARRAYS_MAX + 2];
    size_t sizes[ARRAYS_MAX];  /* of an element there */
    size_t before[ARRAYS_MAX]; /* bytes of a block before its array */
    int n;
};

/* shift: floats behind a boundary that arrays begin at. */
int instance_create(struct instance *in, const struct sample *s, const struct target *t, int shift);
void instance_destroy(struct instance *in, const struct target *t);
/* The arrays as they are now, as f32, in `out`: a copy of s with an image of its own. */
int instance_fetch(const struct instance *in, const struct sample *s, const struct target *t,
                   struct sample *out);
/* Round the sample's values to what the target can hold. */
void sample_round(struct sample *s, const struct target *t);
int sample_copy(const struct sample *s, struct sample *out);

/* ---- what a kernel writes, and how far off that may be */

struct output {
    const char *name;
    void *at;       /* the pointer to it in the kernel's arguments */
    size_t n, size; /* elements and bytes of one; of one byte: must be equal */
    size_t columns; /* for the message */
    double scale; /* of the terms: allowed are ROUNDINGS of it and of the result; EXACT: nothing */
    /* Of an array with gaps: these rows of `columns` are written, by sequence, position and head. n
     * counts all up to the last. */
    int rows[3];
    struct pp_strides step;
    double loss;    /* of loss sums: what they begin with */
    double typical; /* size of a sum whose terms cancel, where products round their factors */
};

struct outputs {
    int n;
    struct output of[OUTPUTS_MAX];
};

/* ---- the kernels */

#define PP_KERNEL(name, type)                                                                      \
    void make_##name(struct sample *s, struct type *a);                                            \
    void bound_##name(struct type *a, struct outputs *o);
#include "kernels.def"

/* check.c: 0, or PP_ECHECK and what differs. o was made before the call that gave `want`. */
int check_outputs(const char *kernel, const struct sample *want, const struct sample *got,
                  const struct outputs *o, double part);
double greatest_of(size_t n, const float *a);
double longest_of(int count, int length, size_t vs, size_t ks, const float *a);

#endif
