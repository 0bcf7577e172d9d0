/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DualPipe (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024): micro-batches enter at both ends.
 * The two chunks of DualPipeV's V are here a pipeline and its mirror image, so a rank runs the list
 * of the DualPipeV rank that is as far from the end. Every rank holds two copies of the weights.
 */
#include "orders.h"

int pp_check_two_way(const struct pp_geometry *g, int least)
{
    struct pp_geometry nearest = *g;
    nearest.stages += g->stages % 2;
    nearest.microbatches += g->microbatches % 2;
    if (nearest.microbatches < (int64_t)least * nearest.stages)
        nearest.microbatches = least * nearest.stages;
    if (nearest.stages == g->stages && nearest.microbatches == g->microbatches)
        return 0;
    return pp_refuse_shape(g, &nearest,
                           "an even number of stages and of micro-batches, one half for each "
                           "direction%s",
                           least > 0 ? ", and two micro-batches per stage" : "");
}

static int check(const struct pp_geometry *g)
{
    return pp_check_two_way(g, 2);
}

static int emit(const struct pp_geometry *g, int rank, struct pp_emit *e)
{
    int half = g->stages / 2;
    struct pp_v_rank v;
    pp_v_start(&v, g, rank, e);
    if (rank >= half) { /* nearer to the end where the other pipeline begins */
        int down = v.stage[PP_V_A];
        v.stage[PP_V_A] = v.stage[PP_V_Z];
        v.stage[PP_V_Z] = down;
    }
    pp_dualpipe_phases(&v, half, rank < half ? rank : g->stages - 1 - rank);
    return v.rc;
}

const struct pp_schedule_ops schedule_dualpipe = {
    .placement = PP_PLACE_V,
    .chunks = 2,
    .copies = 2,
    .check = check,
    .emit = emit,
};
