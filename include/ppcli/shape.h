/* SPDX-License-Identifier: Apache-2.0 */
/* The shape of one sample of a value: C, or TC (positions, channels), or HWC (rows and columns of
 * pixels, channels). Channels lie next to each other in memory, samples one after the other. */
#ifndef PPCLI_SHAPE_H
#define PPCLI_SHAPE_H

#include <stddef.h>

struct pp_shape {
    int n, dims[3]; /* 1..3 dims, each at least 1 */
};

static inline struct pp_shape pp_shape_flat(int c)
{
    return (struct pp_shape){1, {c, 1, 1}};
}

static inline struct pp_shape pp_shape_image(int h, int w, int c)
{
    return (struct pp_shape){3, {h, w, c}};
}

/* What the data say about the samples of a model. */
struct pp_data_input {
    struct pp_shape shape; /* n 0: not known, or whatever the model reads */
    int classes;           /* 0: not known */
    int vocabulary;        /* of texts: different tokens; 0: not known, or no texts */
    int targets;           /* of a sample: 1, or one for each position; 0: not known */
};

/* Floats of one sample. */
static inline size_t pp_shape_floats(const struct pp_shape *s)
{
    size_t floats = 1;
    for (int i = 0; i < s->n; i++)
        floats *= (size_t)s->dims[i];
    return floats;
}

static inline int pp_shape_channels(const struct pp_shape *s)
{
    return s->dims[s->n - 1];
}

/* "32 x 32 x 3"; as long as snprintf would make it. */
int pp_shape_text(const struct pp_shape *s, char *out, size_t bytes);

#endif
