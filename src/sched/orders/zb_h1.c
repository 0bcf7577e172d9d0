/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ZB-H1 (Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024): 1F1B whose backward passes are
 * split. Input gradients go at once, because a neighbour waits for them. Rank r delays its weight
 * gradients by r micro-batches and fills the end with them: bubble (P-1)(F+I-W) instead of
 * (P-1)(F+I+W), for P micro-batches in flight on every rank, which 1F1B holds on its first rank.
 */
#include "orders.h"
#include "../schedule.h"

int pp_emit_zb_h(const struct pp_geometry *g, int rank, int ahead, int hold, struct pp_emit *e)
{
    int m = g->microbatches;
    int n_f = 0;
    int n_w = 0;
    for (; n_f < m && n_f < ahead; n_f++)
        PP_TRY(pp_emit_cell(e, PP_OP_F, rank, n_f));
    for (int n_i = 0; n_i < m; n_i++) {
        if (n_f < m)
            PP_TRY(pp_emit_cell(e, PP_OP_F, rank, n_f++));
        PP_TRY(pp_emit_cell(e, PP_OP_I, rank, n_i));
        if (n_i >= hold)
            PP_TRY(pp_emit_cell(e, PP_OP_W, rank, n_w++));
    }
    for (; n_w < m; n_w++)
        PP_TRY(pp_emit_cell(e, PP_OP_W, rank, n_w));
    return 0;
}

static int emit(const struct pp_geometry *g, int rank, struct pp_emit *e)
{
    return pp_emit_zb_h(g, rank, g->stages - 1 - rank, rank, e);
}

const struct pp_schedule_ops schedule_zb_h1 = {
    .placement = PP_PLACE_LOOP,
    .chunks = 1,
    .emit = emit,
    .held = pp_held_1f1b,
};
