/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Naive model parallelism: one micro-batch at a time goes all the way down and all the way back,
 * so that only one rank ever works. Bubble 1 - 1/P; the yardstick that pipelining is held against.
 */
#include "../pass.h"

static int emit(const struct pp_geometry *g, int rank, struct pp_emit *e)
{
    for (int mb = 0; mb < g->microbatches; mb++) {
        PP_TRY(pp_emit_cell(e, PP_OP_F, rank, mb));
        PP_TRY(pp_emit_cell(e, PP_OP_B, rank, mb));
    }
    return 0;
}

const struct pp_schedule_ops schedule_naive = {
    .placement = PP_PLACE_LOOP,
    .chunks = 1,
    .emit = emit,
};
