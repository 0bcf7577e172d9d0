/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of plans and runs. */
#ifndef PPCLI_SHOW_DRAW_H
#define PPCLI_SHOW_DRAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "ppcli/sim/trace.h"

/* ---- picture */

/*
 * Pictures for documents as SVG: lanes of actions over time, and curves. White paper, and kinds that
 * differ in lightness, hatching, markers and dashes, so that a grey print shows them too.
 */

struct pp_look {       /* how the user wants a picture */
    const char *title; /* NULL: the picture's own; "": no title and no words below it */
    int width;         /* pixels; 0: the picture's own */
};
/* Errors: PP_EUSAGE for a width that is too small or too large. */
int pp_look_check(const struct pp_look *look);

#define PP_CELL_LABEL 32 /* room for "1023F65534" */

#define PP_CURVE_NAME 128

/*
 * Write what draw() draws as SVG to a file, as svg, pdf or png; the last two by rsvg-convert. path: NULL
 * for standard output. format: NULL takes the ending of path. Errors: PP_EUSAGE (an unknown ending),
 * PP_ERESOURCE (no rsvg-convert), PP_EIO, those of draw(). Local.
 */
int pp_picture_write(const char *path, const char *format, int (*draw)(const void *ctx, FILE *f),
                     const void *ctx);

/* ---- draw */

/*
 * A simulated plan for people and for other programs: a grid of characters, an SVG picture, a trace
 * for Perfetto or chrome://tracing, and figures as JSON. Pure output: everything shown is in the
 * plan and in the result of its simulation.
 */

#endif
