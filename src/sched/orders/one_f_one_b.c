/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1F1B (Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training", 2021, there called
 * PipeDream-Flush): rank r runs P-1-r forwards ahead, then one forward and one backward in turn.
 * The bubble of GPipe with at most P-r micro-batches in flight instead of M.
 */
#include "../pass.h"

static int emit(const struct pp_geometry *g, int rank, struct pp_emit *e)
{
    int m = g->microbatches;
    int warmup = g->stages - 1 - rank < m ? g->stages - 1 - rank : m;

    for (int mb = 0; mb < warmup; mb++)
        PP_TRY(pp_emit_cell(e, PP_OP_F, rank, mb));
    for (int mb = warmup; mb < m; mb++) {
        PP_TRY(pp_emit_cell(e, PP_OP_F, rank, mb));
        PP_TRY(pp_emit_cell(e, PP_OP_B, rank, mb - warmup));
    }
    for (int mb = m - warmup; mb < m; mb++)
        PP_TRY(pp_emit_cell(e, PP_OP_B, rank, mb));
    return 0;
}

const struct pp_schedule_ops schedule_one_f_one_b = {
    .placement = PP_PLACE_LOOP,
    .chunks = 1,
    .emit = emit,
};
