/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1F1B-V (Qi et al., "Pipeline Parallelism with Controllable Memory", 2024): one forward, one fused
 * backward in turn on a V of two chunks, for about two thirds of the activation memory of 1F1B and
 * a slightly smaller bubble; for engines, or kernels, that do not split the backward.
 *
 * A B takes two of the six slots of a period. The chain of a micro-batch runs down, up, down, up,
 * and waits three slots after every third B, so that B's never meet; then everything is pulled to
 * the left as far as the peak of the steady state allows.
 */
#include "orders.h"

#include "ppcli/base/base.h"

/* Places a B in two slots at *now and moves *now past it; after every third B by a pause of three
 * more slots. */
static void put_b(int *first, int kind, int *now, int *since_pause)
{
    first[kind] = *now;
    first[kind - PP_V_IZ + PP_V_WZ] = *now + 1;
    *now += 2;
    if (++*since_pause == 3) {
        *since_pause = 0;
        *now += 3;
    }
}

static void pattern(int p, int *first)
{
    int now = PP_V_PERIOD; /* leaves one period in front, for the squeeze */
    for (int r = 0; r < p; r++)
        first[r * PP_V_KINDS + PP_V_FA] = ++now;
    for (int r = p - 1; r >= 0; r--)
        first[r * PP_V_KINDS + PP_V_FZ] = ++now;
    now += p % 3 == 0 ? 4 : 1;
    int since_pause = (3 - (p + 2) % 3) % 3;
    for (int r = 0; r < p; r++)
        put_b(first + (size_t)r * PP_V_KINDS, PP_V_IZ, &now, &since_pause);
    for (int r = p - 1; r >= 0; r--)
        put_b(first + (size_t)r * PP_V_KINDS, PP_V_IA, &now, &since_pause);
}

static int emit_all(const struct pp_geometry *g, struct pp_emit **e)
{
    PP_TAKE(int, first, (size_t)g->stages *PP_V_KINDS);
    PP_OWN(pp_v_grid_fini) struct pp_v_grid grid = {0};
    pattern(g->stages, first);
    PP_TRY(pp_v_grid_init(&grid, g->stages, g->microbatches, true, first));
    pp_v_grid_count(&grid);
    pp_v_grid_squeeze(&grid);
    return pp_v_grid_emit(&grid, e);
}

const struct pp_schedule_ops schedule_one_f_one_b_v = {
    .placement = PP_PLACE_V,
    .chunks = 2,
    .emit_all = emit_all,
};
