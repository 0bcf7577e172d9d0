/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ZB-H2 (Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024): ZB-H1 with twice the forwards
 * ahead and twice the weight gradients delayed, for at most 2P-1 micro-batches in flight. No rank
 * idles between its first and its last cell when F = I = W; an optimizer step that all ranks take
 * together still has ZB-H1's bubble. Of all schedules it tolerates slow links best.
 *
 * The paper asks for M >= 2P-1. With fewer, its rule runs further ahead than there are
 * micro-batches to gain from, and ends later than ZB-H1 (P = M = 8: 34 ticks, not 31). So each rank
 * runs only M - P further than ZB-H1: the same span, and never a later end.
 */
#include "orders.h"

static int emit(const struct pp_geometry *g, int rank, struct pp_emit *e)
{
    int ahead = g->stages - 1 - rank;
    int further = g->microbatches > g->stages ? g->microbatches - g->stages : 0;
    return pp_emit_zb_h(g, rank, ahead + PP_MIN(ahead, further), rank + PP_MIN(rank, further), e);
}

const struct pp_schedule_ops schedule_zb_h2 = {
    .placement = PP_PLACE_LOOP,
    .chunks = 1,
    .emit = emit,
};
