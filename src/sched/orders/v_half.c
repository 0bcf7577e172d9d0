/* SPDX-License-Identifier: Apache-2.0 */
/*
 * V-Half (Qi et al., "Pipeline Parallelism with Controllable Memory", 2024): half the activation
 * memory of 1F1B (2 floor((P+2)/2) chunks per rank) at about half its bubble. Forwards move two
 * slots per rank, so that a micro-batch lives half as long on the first ranks as in ZB-V.
 */
#include "orders.h"

static void pattern(int p, int rank, int *first)
{
    int delta = p % 2 == 0 ? 3 : 0; /* keeps apart the cells of different micro-batches */
    first[PP_V_FA] = 2 * rank;
    first[PP_V_FZ] = 3 * p - rank - 2;
    first[PP_V_IZ] = 3 * p + delta + 2 * rank - 1;
    first[PP_V_IA] = 6 * p + delta - rank - 2;
}

static int emit_all(const struct pp_geometry *g, struct pp_emit **e)
{
    return pp_v_control(g, pattern, e);
}

const struct pp_schedule_ops schedule_v_half = {
    .placement = PP_PLACE_V,
    .chunks = 2,
    .emit_all = emit_all,
};
