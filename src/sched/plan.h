/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/sched/plan.h that only this module uses. */
#ifndef PPCLI_SRC_SCHED_PLAN_H
#define PPCLI_SRC_SCHED_PLAN_H

#include "ppcli/sched/plan.h"

/* Returns the index of the first G or T in a rank's list, or n_actions if there is none. The
 * actions before it come from the schedule. */
int pp_plan_first_tied(const struct pp_rank_plan *list);

/*
 * Proves again that a plan's slots do not alias, that the W of its groups are adjacent and that it
 * cannot hang. Builders have done so; this is for plans from another source. Its lists and messages
 * must be those of a builder. PP_EFORMAT with the slot that would be overwritten, the W that is
 * alone, or the wait cycle for people.
 */
int pp_plan_prove(const struct pp_plan *plan);

#endif
