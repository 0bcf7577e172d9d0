/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of plans and runs. Local to show. */
#ifndef PPCLI_SRC_SHOW_DRAW_H
#define PPCLI_SRC_SHOW_DRAW_H

#include "ppcli/show/report.h"
#include "ppcli/sim/trace.h"

/*
 * A simulated plan for people and for other programs: a grid of characters, an SVG picture, a trace
 * for Perfetto or chrome://tracing, and figures as JSON. Pure output: everything shown is in the
 * plan and in the result of its simulation.
 */

#define PP_CELL_LABEL 32 /* room for "1023F65534" */
#define PP_CURVE_NAME 128

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
/* Draws lanes as SVG. Errors: PP_EIO. Local. */
int pp_picture_lanes(const struct pp_lanes *p, const struct pp_look *look, FILE *f);
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
/* Draws curves as SVG. Errors: PP_EIO. Local. */
int pp_picture_curves(const struct pp_curves *p, const struct pp_look *look, FILE *f);

/*
 * Draws the plan as text: ranks down, time across, a cell as wide as it lasts, "." where a rank
 * waits; above it the shape, the makespan and the bubble, before each row the rank's peak. It is as
 * wide as the labels need or, with shorter labels, as narrow as `columns` asks for. Errors: PP_EIO,
 * PP_ERESOURCE, PP_ECONFIG if it would be wider than any line can be.
 */
int pp_draw_grid(const struct pp_drawing *d, FILE *f);
/* Draws the grid of pp_sim_textbook(). Errors: those of pp_draw_grid(). */
int pp_draw_textbook(const struct pp_plan *plan, FILE *f);

/* Draws the plan as SVG. Errors: PP_EIO. */
int pp_draw_svg(const struct pp_drawing *d, FILE *f);

/* Writes trace events as in ppcli/sim/trace.h: a slice for every action (two for a B: I and W) and
 * for every wait, an arrow for every message. One unit of time is 1 ms. Errors: PP_EIO. */
int pp_draw_trace(const struct pp_drawing *d, FILE *f);

/* Writes one JSON object: shape, costs, makespan, the bubble, the two bubbles of the zero-bubble
 * papers and each rank's figures. Errors: PP_EIO. */
int pp_draw_json(const struct pp_drawing *d, FILE *f);

#endif
