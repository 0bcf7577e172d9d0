/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/sched/schedule.h that only this module uses. */
#ifndef PPCLI_SRC_SCHED_SCHEDULE_H
#define PPCLI_SRC_SCHED_SCHEDULE_H

#include "ppcli/sched/schedule.h"

int pp_emit_cell(struct pp_emit *e, enum pp_op op, int stage, int mb); /* Errors: PP_ERESOURCE */
bool pp_schedule_merges(const char *name);

#endif
