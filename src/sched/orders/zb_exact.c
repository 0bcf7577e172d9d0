/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zb-exact: the shortest possible step for the F, I and W of every chunk, under a cap: a reference
 * for small instances.
 */
#include "orders.h"

#define CELLS 48 /* most F's of a step */

int pp_check_exact(const struct pp_geometry *g)
{
    int64_t cells = (int64_t)g->stages * g->chunks * g->microbatches;
    PP_TRY(pp_check_cap(g));
    if (cells <= CELLS)
        return 0;
    return pp_fail(PP_ECONFIG,
                   "proves steps of at most %d micro-batches x stages x chunks, not %d x %d x %d: "
                   "take fewer, or zb-fit",
                   CELLS, g->microbatches, g->stages, g->chunks);
}

static int emit_all(const struct pp_geometry *g, struct pp_emit **e)
{
    return pp_greedy_emit(g, PP_PLACE_LOOP, PP_GREEDY_EXACT, e);
}

const struct pp_schedule_ops schedule_zb_exact = {
    .placement = PP_PLACE_LOOP,
    .fits = true,
    .proves = true,
    .check = pp_check_exact,
    .emit_all = emit_all,
};
