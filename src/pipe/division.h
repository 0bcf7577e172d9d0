/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/pipe/division.h that only this module uses. */
#ifndef PPCLI_SRC_PIPE_DIVISION_H
#define PPCLI_SRC_PIPE_DIVISION_H

#include "ppcli/pipe/division.h"

/*
 * The whole of it. table: the plan of a schedule that is one (pp_layout_read_table()), which
 * outlives *out; else NULL. Errors: PP_ECONFIG, then *key is the config's that is at fault;
 * PP_ERESOURCE.
 */
int pp_division_of(const struct pp_config *cfg, const struct pp_model *model,
                   const struct pp_plan *table, struct pp_division *out, const char **key);

/* Where its pieces lie: by its schedule, or as its table has them. PP_ECONFIG: in neither order. */
int pp_division_placement(const struct pp_division *d, enum pp_placement *out);

#endif
