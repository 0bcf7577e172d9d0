/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/sched/plan.h that only this module uses. */
#ifndef PPCLI_SRC_SCHED_PLAN_H
#define PPCLI_SRC_SCHED_PLAN_H

#include "ppcli/sched/plan.h"

/* The action of a rank's list that is the first G or T, n_actions when there is none: what stands
 * before is the schedule's. */
int pp_plan_first_tied(const struct pp_rank_plan *list);

/*
 * Prove again that a plan's slots do not alias, that the W of its groups are adjacent and
 * that it cannot hang: builders have done it; for a plan that came another way. Its lists and
 * messages must be those of a builder. PP_EFORMAT with the slot that would be overwritten, the W
 * that is alone, or the wait cycle as people read it.
 */
int pp_plan_prove(const struct pp_plan *plan);

#endif
