/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/show/results.h that only this module uses. */
#ifndef PPCLI_SRC_SHOW_RESULTS_H
#define PPCLI_SRC_SHOW_RESULTS_H

#include "ppcli/show/results.h"

/* "off", "all", or how many of the chunks are computed again: "1 of 4". */
const char *pp_candidate_recompute(const struct pp_candidate *c, char out[32]);

/* The table, and the sections of an own row. */
void pp_machine_plan_rows(const struct pp_machine_plan *p, FILE *f);
int pp_machine_plan_section(const struct pp_machine_plan *p, const struct pp_candidate *row,
                            FILE *f);
bool pp_plan_runs_on(const struct pp_candidate *r, int system);

#endif
