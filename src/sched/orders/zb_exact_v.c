/* SPDX-License-Identifier: Apache-2.0 */
/* zb-exact on a V. */
#include "orders.h"

static int emit_all(const struct pp_geometry *g, struct pp_emit **e)
{
    return pp_greedy_emit(g, PP_PLACE_V, PP_GREEDY_EXACT, e);
}

const struct pp_schedule_ops schedule_zb_exact_v = {
    .placement = PP_PLACE_V,
    .default_chunks = 2,
    .fits = true,
    .proves = true,
    .check = pp_check_exact,
    .emit_all = emit_all,
};
