/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chimera (Li and Hoefler, "Chimera: Efficiently Training Large-Scale Neural Networks with
 * Bidirectional Pipelines", 2021): two 1F1B pipelines in opposite directions, each filling the
 * other's bubble. A unit is one micro-batch per stage, half of them in each direction; more than
 * that are units one after the other. Two copies of the weights on every rank.
 *
 * When F and B take one tick, stage s of either pipeline runs F_i at s + 2i and B_i at
 * 2P-1-s + 2i. The other pipeline's cells on the same rank fall between, because P is even: sorted
 * by tick, they are the list.
 */
#include "orders.h"
#include "../schedule.h"

static int check(const struct pp_geometry *g)
{
    return pp_check_two_way(g, 0);
}

/* Emits the cell that the stage runs at tick t of a unit (micro-batches first .. first + n - 1), if
 * there is one. */
static int emit_tick(const struct pp_geometry *g, int stage, int first, int n, int t,
                     struct pp_emit *e)
{
    int s = stage < g->stages ? stage : stage - g->stages;
    int since_f = t - s;
    int since_b = t - (2 * g->stages - 1 - s);
    if (since_f >= 0 && since_f % 2 == 0 && since_f / 2 < n)
        return pp_emit_cell(e, PP_OP_F, stage, first + since_f / 2);
    if (since_b >= 0 && since_b % 2 == 0 && since_b / 2 < n)
        return pp_emit_cell(e, PP_OP_B, stage, first + since_b / 2);
    return 0;
}

static int emit(const struct pp_geometry *g, int rank, struct pp_emit *e)
{
    int unit = g->stages / 2;
    for (int first = 0; first < g->microbatches; first += unit) {
        int n = g->microbatches - first < unit ? g->microbatches - first : unit;
        for (int t = 0; t < 3 * g->stages; t++) {
            PP_TRY(emit_tick(g, rank, first, n, t, e));
            PP_TRY(emit_tick(g, 2 * g->stages - 1 - rank, first, n, t, e));
        }
    }
    return 0;
}

const struct pp_schedule_ops schedule_chimera = {
    .placement = PP_PLACE_V,
    .chunks = 2,
    .copies = 2,
    .check = check,
    .emit = emit,
};
