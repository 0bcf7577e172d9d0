/* SPDX-License-Identifier: Apache-2.0 */
/* What the pictures of a plan share. Local to show. */
#ifndef PPCLI_SHOW_DRAW_IMPL_H
#define PPCLI_SHOW_DRAW_IMPL_H

#include "draw.h"

#define PP_DRAW_SHADES                                                                             \
    4 /* colours of an op, for the first, second, ... chunk of a rank; they repeat */

/* "zb-v" and the like; what stands for it when a plan came from no schedule. */
const char *draw_name(const struct pp_plan *plan);

/* "4 stages x 2 chunks, 8 micro-batches" */
void draw_shape(const struct pp_plan *plan, char *out, size_t bytes);

/* "makespan 33, bubble 27.3 %" */
void draw_figures(const struct pp_drawing *d, char *out, size_t bytes);

/* "per rank F 1, I 1, W 1; transfer 0", or "per stage F 2,1,1,1, I 1, W 1; transfer 0,1,0" */
#define DRAW_COSTS_MAX 512
void draw_costs(const struct pp_drawing *d, char *out, size_t bytes);

/* Are x[0], x[step], ... n numbers all the same? */
bool draw_is_even(const double *x, int step, int n);

/* The longest of "4F12" (rank with several chunks), "F12" and "F" that fits `room`; "" for none.
 * Returns its length. */
int draw_label(const struct pp_plan *plan, const struct pp_action *a, int room,
               char out[PP_CELL_LABEL]);

/* Letters that the longest label of the plan has. */
int draw_label_length(const struct pp_plan *plan);

/* least[op]: the least duration of any action of that op; 0 when there is none. */
void draw_least(const struct pp_drawing *d, double least[PP_OPS]);

/* The shortest cell that is worth a label: of the ops that last at least a quarter of the longest
 * op, the least duration of any of their actions. 0 when nothing takes time. */
double draw_unit(const struct pp_drawing *d);

/* Cut "4F12" to "F12" or "F", or to nothing, so that it has at most `room` letters. */
void draw_fit(char *label, int room);

/* stdio keeps the first failure; one look at the end is enough. */
int draw_written(FILE *f);

#endif
