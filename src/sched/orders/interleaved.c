/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interleaved 1F1B (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU
 * Clusters Using Megatron-LM", 2021, virtual pipeline): a rank holds V pieces of the model, so the
 * pipeline fills and drains in steps of 1/V of a rank's work. The bubble of 1F1B divided by V, for
 * V times the messages and up to (V-1)*P + 2(P-1-r) + 1 chunks in flight. V = 1 is 1F1B.
 */
#include "orders.h"
#include "../schedule.h"

static int check(const struct pp_geometry *g)
{
    return pp_groups_check(g, 2 * (g->stages - 1));
}

int pp_held_interleaved(const struct pp_geometry *g, int rank)
{
    int p = g->stages;
    return g->chunks == 1 ? p - rank : (g->chunks - 1) * p + 2 * (p - 1 - rank) + 1;
}

static int emit(const struct pp_geometry *g, int rank, struct pp_emit *e)
{
    struct pp_groups groups = pp_groups_of(g);
    int p = g->stages;
    int v = g->chunks;
    int cells = v * g->microbatches;
    /* Two hops per rank, there and back, because every rank has V forwards to fill them; 1F1B,
     * whose pair takes the whole rank, needs one. */
    int64_t ahead =
        v == 1 ? p - 1 - rank : (int64_t)(v - 1) * groups.size + 2 * (int64_t)(p - 1 - rank);
    int warmup = ahead < cells ? (int)ahead : cells;
    int chunk;
    int mb;

    for (int k = 0; k < cells + warmup; k++) {
        if (k < cells) {
            pp_groups_entry(&groups, k, &chunk, &mb);
            PP_TRY(pp_emit_cell(e, PP_OP_F, chunk * p + rank, mb));
        }
        if (k >= warmup) {
            pp_groups_entry(&groups, k - warmup, &chunk, &mb);
            PP_TRY(pp_emit_cell(e, PP_OP_B, (v - 1 - chunk) * p + rank, mb));
        }
    }
    return 0;
}

const struct pp_schedule_ops schedule_interleaved = {
    .placement = PP_PLACE_LOOP,
    .default_chunks = 2,
    .stands_in = true,
    .check = check,
    .emit = emit,
    .held = pp_held_interleaved,
};
