/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a machine plan share. */
#ifndef PPCLI_PLAN_MACHINE_H
#define PPCLI_PLAN_MACHINE_H

#include "ppcli/plan/machine_plan.h"
#include "search.h"

/* ---- of machine_rows.c and machine_own.c, which fill in rows */
int machine_own(struct pp_machine_plan *p);
int machine_others(struct pp_machine_plan *p);
/* An own row, whose candidate is explained, as the table has it. */
int machine_describe(const struct pp_machine_plan *p, struct pp_row *r);
/* Groups and their order. */
void machine_rank(struct pp_machine_plan *p);

bool asked_has(const struct pp_asked_list *list, int value);

#endif
