/* SPDX-License-Identifier: Apache-2.0 */
/*
 * V-Half and V-Min differ in their pattern only: first[4] is set to the slots of F a, F z, I z, I a
 * of micro-batch 0 on `rank`.
 */
#ifndef PPCLI_SCHED_V_CONTROL_H
#define PPCLI_SCHED_V_CONTROL_H

#include "v_grid.h"

int pp_v_control(const struct pp_geometry *g, void (*pattern)(int p, int rank, int *first),
                 struct pp_emit_all *e);

#endif
