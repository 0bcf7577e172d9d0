/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPipe (Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline
 * Parallelism", 2019): all forwards, then all backwards. The backwards run in ascending order,
 * unlike in some engines, so that gradients are added up in the order of every other schedule.
 */
#include "orders.h"

static int emit(const struct pp_geometry *g, int rank, struct pp_emit *e)
{
    return pp_emit_1f1b(g, rank, g->microbatches, e);
}

static int held(const struct pp_geometry *g, int rank)
{
    (void)rank;
    return g->microbatches;
}

const struct pp_schedule_ops schedule_gpipe = {
    .placement = PP_PLACE_LOOP,
    .merges = true,
    .chunks = 1,
    .emit = emit,
    .held = held,
};
