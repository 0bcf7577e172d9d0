/* SPDX-License-Identifier: Apache-2.0 */
/* What the pictures of a plan share. Local to show. */
#ifndef PPCLI_SHOW_DRAW_IMPL_H
#define PPCLI_SHOW_DRAW_IMPL_H

#include "draw.h"

#define PP_DRAW_SHADES                                                                             \
    4 /* colours of an op, for the first, second, ... chunk of a rank; they repeat */

/* Returns the name of the plan's schedule, such as "zb-v", or what stands for it if the plan came
 * from no schedule. */
const char *draw_name(const struct pp_plan *plan);

/* Writes the shape of a plan, such as "4 stages x 2 chunks, 8 micro-batches". */
void draw_shape(const struct pp_plan *plan, char *out, size_t bytes);

/* Writes the figures of a plan, such as "makespan 33, bubble 27.3 %". */
void draw_figures(const struct pp_drawing *d, char *out, size_t bytes);

/* "per rank F 1, I 1, W 1; transfer 0", or "per stage F 2,1,1,1, I 1, W 1; transfer 0,1,0" */
#define DRAW_COSTS_MAX 512
void draw_costs(const struct pp_drawing *d, char *out, size_t bytes);

/* Returns whether the n numbers x[0], x[step], ... are all the same. */
bool draw_is_even(const double *x, int step, int n);

/* Writes the longest of the labels "4F12" (only if ranks have several chunks), "F12" and "F" that
 * has at most `room` letters, or "" if none has. Returns its length. */
int draw_label(const struct pp_plan *plan, const struct pp_action *a, int room,
               char out[PP_CELL_LABEL]);

/* Returns how many letters the longest label of the plan has. */
int draw_label_length(const struct pp_plan *plan);

/* Sets least[op] to the least duration of any action of that op, or to 0 if there is none. */
void draw_least(const struct pp_drawing *d, double least[PP_OPS]);

/* Returns the length of the shortest cell that is worth a label: of the ops that last at least a
 * quarter of the longest op, the least duration of any of their actions. Returns 0 if nothing takes
 * time. */
double draw_unit(const struct pp_drawing *d);

/* Cuts a label such as "4F12" to "F12", to "F", or to nothing, so that it has at most `room`
 * letters. */
void draw_fit(char *label, int room);

/* Checks that the whole plan was written; one check at the end is enough, because stdio keeps the
 * first failure. */
int draw_written(FILE *f);

#endif
