/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looped breadth-first (Lamy-Poirier, "Breadth-First Pipeline Parallelism", 2023): all forwards
 * chunk by chunk, then all backwards, last chunk first. It has the bubble of interleaved 1F1B,
 * transfers that hide behind M cells of the same chunk, and chunks whose gradients complete early,
 * for V*M chunks in flight. The paper and torch have each chunk's backwards in descending order.
 */
#include "../pass.h"
#include "../schedule.h"

static int emit(const struct pp_geometry *g, int rank, struct pp_emit *e)
{
    for (int chunk = 0; chunk < g->chunks; chunk++)
        for (int mb = 0; mb < g->microbatches; mb++)
            PP_TRY(pp_emit_cell(e, PP_OP_F, chunk * g->stages + rank, mb));
    for (int chunk = g->chunks - 1; chunk >= 0; chunk--)
        for (int mb = g->microbatches - 1; mb >= 0; mb--)
            PP_TRY(pp_emit_cell(e, PP_OP_B, chunk * g->stages + rank, mb));
    return 0;
}

const struct pp_schedule_ops schedule_looped_bfs = {
    .placement = PP_PLACE_LOOP,
    .merges = true,
    .default_chunks = 2,
    .descends = true,
    .emit = emit,
};
