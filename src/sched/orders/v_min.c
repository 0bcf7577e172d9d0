/* SPDX-License-Identifier: Apache-2.0 */
/*
 * V-Min (Qi et al., "Pipeline Parallelism with Controllable Memory", 2024): the least activation
 * memory of its family, a third of 1F1B's (2 floor((P+4)/3) chunks per rank), at a bubble that is
 * still below 1F1B's. Every cell follows its predecessor at once, so a micro-batch leaves as early
 * as possible. If F, I and W differ, the tight pattern has a bubble in steady state.
 */
#include "orders.h"

static void fill_pattern(int p, int rank, int *first)
{
    int delta = p % 3 == 0 ? 2 : 0; /* keeps apart the cells of different micro-batches */
    first[PP_V_FA] = rank;
    first[PP_V_FZ] = 2 * p - rank - 1;
    first[PP_V_IZ] = 2 * p + delta + rank;
    first[PP_V_IA] = 4 * p + delta - rank - 1;
}

static int emit_all(const struct pp_geometry *g, struct pp_emit **e)
{
    return pp_v_control(g, fill_pattern, e);
}

const struct pp_schedule_ops schedule_v_min = {
    .placement = PP_PLACE_V,
    .chunks = 2,
    .emit_all = emit_all,
};
