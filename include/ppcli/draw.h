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

#include "ppcli/plan.h"
#include "ppcli/sim.h"

struct pp_drawing { /* nothing is owned */
    const struct pp_plan *plan;
    const struct pp_sim_result *result; /* with times; pp_draw_json() does without */
    struct pp_schedule_costs costs;     /* of one rank, as simulated */
    const size_t *bytes;                /* [P] memory of each rank; NULL: not known */
    int columns;                        /* grid: at most so many; 0: as many as labels need */
    bool color;                         /* grid: escape codes for 256 colours */
};

/*
 * Ranks down, time across, a cell as wide as it lasts, "." where a rank waits; above it the shape,
 * the makespan and both bubbles, before each row the rank's peak. As wide as the labels need, and
 * narrower, with shorter labels, where `columns` says so. Errors: PP_EIO, PP_ERESOURCE, PP_ECONFIG
 * when it would be wider than any line can be.
 */
int pp_draw_grid(const struct pp_drawing *d, FILE *f);

/* One self-contained picture, readable on light and dark pages. Errors: PP_EIO. */
int pp_draw_svg(const struct pp_drawing *d, FILE *f);

/* Trace events: one "X" an action, an arrow for every message; one unit of time is 1 ms.
 * Errors: PP_EIO. */
int pp_draw_trace(const struct pp_drawing *d, FILE *f);

/* Shape, costs, makespan, both bubbles and each rank's figures as one object. Errors: PP_EIO. */
int pp_draw_json(const struct pp_drawing *d, FILE *f);

#endif
