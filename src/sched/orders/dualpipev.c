/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DualPipeV (DeepSeek-AI's DualPipe, 2025, cut in half to a V of two chunks per rank): in steady
 * state the forward of one chunk runs together with the backward of the other, so that the messages
 * of each hide under the arithmetic of the other. The marked pairs are meant to overlap. A rank
 * that cannot do two things at once runs the F, then the B: with F = I = W this takes the time of
 * ZB-V, with 2P+1 chunks in memory instead of 2P.
 *
 * Towards the end some backward passes delay their W to fill the gaps of the drain.
 */
#include "orders.h"

static int check(const struct pp_geometry *g)
{
    if (g->microbatches < 2 * g->stages) {
        struct pp_geometry nearest = *g;
        nearest.microbatches = 2 * g->stages;
        return pp_refuse_shape(g, &nearest, "at least two micro-batches per stage");
    }
    return 0;
}

void pp_dualpipe_phases(struct pp_v_rank *v, int p, int rank)
{
    int above = p - 1 - rank; /* ranks between this rank and the fold */
    int steady = v->m - 2 * p + rank + 1;
    int split = (rank + 1) / 2; /* drain step from which the W is delayed */

    pp_v_phase(v, 2 * above, "aF");
    pp_v_phase(v, rank + 1, "aF zF");
    pp_v_phase(v, above, "zI -W zF");
    if (above == 0) {
        /* The rank at the fold runs the F and B of its first pair one after the other, because all
         * other ranks wait for its first B. */
        pp_v_phase(v, 1, "aF zB (zF aB)");
        steady--;
    }
    pp_v_phase(v, steady, "(aF zB) (zF aB)");
    pp_v_phase(v, above, "zB (zF aB)");
    pp_v_phase(v, split, "zB aB");
    pp_v_phase(v, 1, rank % 2 == 0 ? "zB aI" : "zI aI");
    pp_v_phase(v, rank - split, "zI aI");
    pp_v_phase(v, above, "-W aI");
    pp_v_phase(v, rank + 1, "-W");
}

static int emit(const struct pp_geometry *g, int rank, struct pp_emit *e)
{
    struct pp_v_rank v;
    pp_v_start(&v, g, rank, e);
    pp_dualpipe_phases(&v, g->stages, rank);
    return v.rc;
}

const struct pp_schedule_ops schedule_dualpipev = {
    .placement = PP_PLACE_V,
    .chunks = 2,
    .check = check,
    .emit = emit,
};
