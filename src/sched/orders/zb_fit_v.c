/* SPDX-License-Identifier: Apache-2.0 */
/* zb-fit on a V: rank 0 holds the first chunk and, if the number of chunks is even, the last
 * one. */
#include "orders.h"

static int emit_all(const struct pp_geometry *g, struct pp_emit **e)
{
    return pp_greedy_emit(g, PP_PLACE_V, PP_GREEDY_SPLIT, e);
}

const struct pp_schedule_ops schedule_zb_fit_v = {
    .placement = PP_PLACE_V,
    .default_chunks = 2,
    .fits = true,
    .stands_in = true,
    .check = pp_check_cap,
    .emit_all = emit_all,
};
