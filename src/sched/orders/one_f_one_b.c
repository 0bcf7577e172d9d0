/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1F1B (Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training", 2021, there called
 * PipeDream-Flush): rank r runs P-1-r forwards ahead, then one forward and one backward in turn.
 * The bubble of GPipe with at most P-r micro-batches in flight instead of M.
 */
#include "orders.h"
#include "../schedule.h"

int pp_emit_1f1b(const struct pp_geometry *g, int rank, int64_t ahead, struct pp_emit *e)
{
    int m = g->microbatches;
    int warmup = ahead < m ? (int)ahead : m;

    for (int k = 0; k < m + warmup; k++) {
        if (k < m)
            PP_TRY(pp_emit_cell(e, PP_OP_F, rank, k));
        if (k >= warmup)
            PP_TRY(pp_emit_cell(e, PP_OP_B, rank, k - warmup));
    }
    return 0;
}

int pp_held_1f1b(const struct pp_geometry *g, int rank)
{
    return g->stages - rank;
}

static int emit(const struct pp_geometry *g, int rank, struct pp_emit *e)
{
    return pp_emit_1f1b(g, rank, g->stages - 1 - rank, e);
}

const struct pp_schedule_ops schedule_one_f_one_b = {
    .placement = PP_PLACE_LOOP,
    .merges = true,
    .chunks = 1,
    .emit = emit,
    .held = pp_held_1f1b,
};
