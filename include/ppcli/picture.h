/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pictures for documents as SVG: lanes of actions over time, and curves. White paper, and kinds that
 * differ in lightness, hatching, markers and dashes, so that a grey print shows them too.
 */
#ifndef PPCLI_PICTURE_H
#define PPCLI_PICTURE_H

#include <stdbool.h>
#include <stdio.h>

struct pp_look {       /* how the user wants a picture */
    const char *title; /* NULL: the picture's own; "": no title and no words below it */
    int width;         /* pixels; 0: the picture's own */
};
/* Errors: PP_EUSAGE for a width that is too small or too large. */
int pp_look_check(const struct pp_look *look);

#define PP_CELL_LABEL 32 /* room for "1023F65534" */
struct pp_lane_cell {
    double start, end;
    char letter;               /* of PP_OP_LETTERS, or any other: work that is not an op */
    int shade;                 /* number of the chunk on its rank */
    int half;                  /* 1: upper half of the lane, 2: lower; 0: all of it */
    char label[PP_CELL_LABEL]; /* "5F3": shown as F3, or 3, where it is too wide */
};
struct pp_lane {
    char name[PP_CELL_LABEL], note[PP_CELL_LABEL]; /* before and after it */
    int n;                                         /* cells; -1: it is only a heading */
};
struct pp_lanes {                                /* nothing is owned */
    const char *title, *figures, *labels, *time; /* labels: their meaning; time: of the axis */
    double span, wanted;              /* the axis is 0 .. span; its pixels at which labels fit */
    int n, shades;                    /* shades: most chunks of a lane */
    const struct pp_lane *lanes;      /* [n] */
    const struct pp_lane_cell *cells; /* of the first lane, of the second, ... */
};
/* Errors: PP_EIO. Local. */
int pp_picture_lanes(const struct pp_lanes *p, const struct pp_look *look, FILE *f);

#define PP_CURVE_NAME 128
struct pp_curve {
    char name[PP_CURVE_NAME];
    double *x, *y; /* [n] y NAN: no point */
    int n;
};
struct pp_curves { /* nothing is owned */
    const char *title, *figures, *x_name, *y_name;
    const char (*names)[PP_CELL_LABEL]; /* [n_names] of x = 0, 1, ...; NULL: x is a number */
    int n_names, n;
    bool bars;
    const struct pp_curve *curves; /* [n] */
};
/* Errors: PP_EIO. Local. */
int pp_picture_curves(const struct pp_curves *p, const struct pp_look *look, FILE *f);

/*
 * Write what draw() draws as SVG to a file, as svg, pdf or png; the last two by rsvg-convert. path: NULL
 * for standard output. format: NULL takes the ending of path. Errors: PP_EUSAGE (an unknown ending),
 * PP_ERESOURCE (no rsvg-convert), PP_EIO, those of draw(). Local.
 */
int pp_picture_write(const char *path, const char *format, int (*draw)(const void *ctx, FILE *f),
                     const void *ctx);

#endif
