/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interleaved zero bubble (torch's ScheduleInterleavedZeroBubble): interleaved 1F1B whose backward
 * passes are split. Input gradients go first, because a neighbour waits for them; the weight
 * gradients follow r cells late on rank r, and fill the idle time at the end. At most V*P chunks
 * are in flight on every rank, which 1F1B holds on its first rank. V = 1 is ZB-H1.
 */
#include "orders.h"
#include "../schedule.h"

static int check(const struct pp_geometry *g)
{
    return pp_groups_check(g, g->stages - 1);
}

static int emit(const struct pp_geometry *g, int rank, struct pp_emit *e)
{
    struct pp_groups groups = pp_groups_of(g);
    int p = g->stages;
    int v = g->chunks;
    int cells = v * g->microbatches;
    int64_t ahead = (int64_t)(v - 1) * groups.size + p - 1 - rank;
    int warmup = ahead < cells ? (int)ahead : cells;
    int n_w = 0;
    int chunk;
    int mb;

    for (int k = 0; k < cells + warmup || n_w < cells; k++) {
        if (k < cells) {
            pp_groups_entry(&groups, k, &chunk, &mb);
            PP_TRY(pp_emit_cell(e, PP_OP_F, chunk * p + rank, mb));
        }
        if (k >= warmup && k < cells + warmup) {
            pp_groups_entry(&groups, k - warmup, &chunk, &mb);
            PP_TRY(pp_emit_cell(e, PP_OP_I, (v - 1 - chunk) * p + rank, mb));
        }
        if (k - warmup >= rank && n_w < cells) {
            pp_groups_entry(&groups, n_w++, &chunk, &mb);
            PP_TRY(pp_emit_cell(e, PP_OP_W, (v - 1 - chunk) * p + rank, mb));
        }
    }
    return 0;
}

const struct pp_schedule_ops schedule_interleaved_zb = {
    .placement = PP_PLACE_LOOP,
    .default_chunks = 2,
    .check = check,
    .emit = emit,
    .held = pp_held_interleaved,
};
