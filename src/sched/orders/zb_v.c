/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ZB-V (Qi et al., "Pipeline Parallelism with Controllable Memory", 2024, and "Zero Bubble (Almost)
 * Pipeline Parallelism", 2023): F, I and W of two chunks per rank, folded to a V. In steady state
 * every rank runs aF aI aW zF zI zW and never waits; with F = I = W no rank waits between its first
 * cell and its last. At most 2P chunks are held, as much memory as rank 0 of 1F1B.
 *
 * The list is that of at least 2P-1 micro-batches without the cells that do not exist.
 */
#include "orders.h"

static int emit(const struct pp_geometry *g, int rank, struct pp_emit *e)
{
    int p = g->stages;
    int n = 2 * p - 1 > g->microbatches ? 2 * p - 1 : g->microbatches;
    struct pp_v_rank v;
    pp_v_start(&v, g, rank, e);
    const int *a = v.next[PP_V_A];
    const int *z = v.next[PP_V_Z];

    pp_v_phase(&v, 2 * (p - rank) - 1, "aF");
    pp_v_phase(&v, rank, "zF aF");
    pp_v_phase(&v, p - rank, "zF zI zW");
    pp_v_phase(&v, n - a[PP_OP_F], "aF aI aW zF zI zW");
    pp_v_phase(&v, n - z[PP_OP_F], "aI aW zF zI zW");
    pp_v_phase(&v, rank, "aI zI");
    pp_v_phase(&v, p - rank, "aI aW");
    pp_v_phase(&v, n - z[PP_OP_W], "zW");
    pp_v_phase(&v, n - a[PP_OP_W], "aW");
    return v.rc;
}

const struct pp_schedule_ops schedule_zb_v = {
    .placement = PP_PLACE_V,
    .chunks = 2,
    .stands_in = true,
    .emit = emit,
};
