/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simulated plan for people and for other programs: a grid of characters, an SVG picture, a trace
 * for Perfetto or chrome://tracing, and figures as JSON. Pure output: everything shown is in the
 * plan and in the result of its simulation.
 */
#ifndef PPCLI_DRAW_H
#define PPCLI_DRAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "ppcli/chrome.h"
#include "ppcli/picture.h"
#include "ppcli/plan.h"
#include "ppcli/sim.h"

struct pp_drawing { /* nothing is owned */
    const struct pp_plan *plan;
    const struct pp_sim_result *result; /* with times; pp_draw_json() does without */
    const struct pp_sim_costs *costs;   /* the result's */
    const size_t *bytes;                /* [P] memory of each rank; NULL: not known */
    int columns;                        /* grid: at most as many; 0: as many as labels need */
    bool color;                         /* grid: escape codes for 256 colours */
    const struct pp_look *look;         /* picture; NULL: its own title and width */
};

/*
 * Ranks down, time across, a cell as wide as it lasts, "." where a rank waits; above it the shape,
 * the makespan and the bubble, before each row the rank's peak. As wide as the labels need, and
 * narrower, with shorter labels, where `columns` says so. Errors: PP_EIO, PP_ERESOURCE, PP_ECONFIG
 * when it would be wider than any line can be.
 */
int pp_draw_grid(const struct pp_drawing *d, FILE *f);
/* The grid of pp_sim_textbook(). Errors: as above. */
int pp_draw_textbook(const struct pp_plan *plan, FILE *f);

/* See ppcli/picture.h. Errors: PP_EIO. */
int pp_draw_svg(const struct pp_drawing *d, FILE *f);

/* Trace events as in ppcli/chrome.h: a slice for every action (two for a B: I and W) and for every
 * wait, an arrow for every message; one unit of time is 1 ms. Errors: PP_EIO. */
int pp_draw_trace(const struct pp_drawing *d, FILE *f);

struct pp_draw_steps {        /* nothing is owned */
    double unit_ns;           /* one unit of time */
    double zero;              /* this time of the result is 0 */
    const size_t *live_bytes; /* [n_virtual] of one activation; NULL: chunks are counted */
    int step;                 /* what the args call it; negative: nothing */
};

/* The processes, slices, arrows and counters of pp_draw_trace() into a file that is open already;
 * with `costs->between` the optimizer follows the last action of each rank. */
void pp_draw_events(const struct pp_drawing *d, const struct pp_draw_steps *how,
                    struct pp_chrome *c);

/* Shape, costs, makespan, the bubble, the two of the zero-bubble papers and each rank's figures as
 * one object. Errors: PP_EIO. */
int pp_draw_json(const struct pp_drawing *d, FILE *f);

#endif
