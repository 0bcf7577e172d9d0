/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zb-fit: the greedy heuristic of the zero-bubble papers (Qi et al., 2023 and 2024) for stages and
 * chunks that differ in F, I and W: the best list that greedy.c finds for the costs.
 */
#include "orders.h"

static int emit_all(const struct pp_geometry *g, struct pp_emit **e)
{
    return pp_greedy_emit(g, PP_PLACE_LOOP, PP_GREEDY_SPLIT, e);
}

const struct pp_schedule_ops schedule_zb_fit = {
    .placement = PP_PLACE_LOOP,
    .fits = true,
    .check = pp_check_cap,
    .emit_all = emit_all,
};
