/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/pipe/division.h that only this module uses. */
#ifndef PPCLI_SRC_PIPE_DIVISION_H
#define PPCLI_SRC_PIPE_DIVISION_H

#include "ppcli/pipe/division.h"

/*
 * Reads a whole division from a config.
 *   table  the plan that is the schedule (pp_layout_read_table()); must outlive *out; NULL: no
 *          table
 * Errors: PP_ECONFIG, and *key names the config key at fault; PP_ERESOURCE.
 */
int pp_division_of(const struct pp_config *cfg, const struct pp_model *model,
                   const struct pp_plan *table, struct pp_division *out, const char **key);

/* Finds how the pieces are placed on the ranks, from the schedule or the table. Errors: PP_ECONFIG
 * if the table has none of the known placements. */
int pp_division_find_placement(const struct pp_division *d, enum pp_placement *out);

/* Fails with PP_ECONFIG, and *key names the config key at fault. */
#define pp_fail_about(key, name, ...) (*(key) = (name), pp_fail(PP_ECONFIG, __VA_ARGS__))

#endif
