/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eager 1F1B (k = 2: "overlap-friendly" in Zhuang et al., "On Optimizing the Communication of Model
 * Parallelism", 2022): runs k times as many forwards ahead as 1F1B, so that a transfer can arrive
 * while there is other work. With k = 1 + ceil(2c / (F+B)), where c is the time of a transfer,
 * every transfer of the steady state is hidden; 1F1B (k = 1) exposes about 2c per micro-batch. Rank
 * r holds k(P-1-r) + 1 micro-batches in flight.
 *
 * k = 2 is right for every c up to half of F+B, and a good choice when c was not measured.
 */
#include "orders.h"

#include <math.h>

static bool is_duration(double x)
{
    return isfinite(x) && x >= 0;
}

static int check(const struct pp_geometry *g)
{
    const struct pp_schedule_costs *c = &g->costs;
    if (g->eager < 0)
        return pp_fail(PP_ECONFIG, "eager = %d, must be at least 1 (0: from the costs)", g->eager);
    if (!is_duration(c->f) || !is_duration(c->i) || !is_duration(c->w) || !is_duration(c->comm)) {
        return pp_fail(PP_ECONFIG,
                       "costs f = %g, i = %g, w = %g, comm = %g: each must be "
                       "a number of at least 0",
                       c->f, c->i, c->w, c->comm);
    }
    return 0;
}

int pp_schedule_eager(const struct pp_geometry *g)
{
    if (g->eager > 0)
        return g->eager;
    double work = g->costs.f + g->costs.i + g->costs.w;
    double k = 1 + ceil(2 * g->costs.comm / (work > 0 ? work : 3));
    return k < g->microbatches ? (int)k : g->microbatches; /* there are only M forwards */
}

static int emit(const struct pp_geometry *g, int rank, struct pp_emit *e)
{
    return pp_emit_1f1b(g, rank, (int64_t)pp_schedule_eager(g) * (g->stages - 1 - rank), e);
}

const struct pp_schedule_ops schedule_eager = {
    .placement = PP_PLACE_LOOP,
    .merges = true,
    .chunks = 1,
    .eager = true,
    .check = check,
    .emit = emit,
};
