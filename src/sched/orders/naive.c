/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Naive model parallelism: one micro-batch at a time runs all the way down and all the way back, so
 * that only one rank works at any time. Bubble 1 - 1/P: the baseline for all other schedules.
 */
#include "orders.h"

static int emit(const struct pp_geometry *g, int rank, struct pp_emit *e)
{
    return pp_emit_1f1b(g, rank, 0, e);
}

const struct pp_schedule_ops schedule_naive = {
    .placement = PP_PLACE_LOOP,
    .merges = true,
    .chunks = 1,
    .emit = emit,
};
