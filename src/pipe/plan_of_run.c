/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the plan that a run would execute, and computes the memory of its ranks. */
#include "ppcli/pipe/layout.h"

#include <string.h>

#include "ppcli/sched/plan.h"

int pp_run_plan(const struct pp_run *run, const struct pp_schedule_costs *costs,
                const char *const words[4], struct pp_plan **out)
{
    const struct pp_layout *l = run->layout;
    const struct pp_plan *plan = l->plans[0].plan;
    struct pp_geometry g = plan->geometry;
    PP_OWN(pp_plan_destroy) struct pp_plan *built = NULL, *together = NULL;
    g.costs = *costs;
    g.ticks = run->cfg->pipeline.costs.n > 0 ? run->cfg->pipeline.costs.at : NULL;
    g.recompute = l->division.recompute;
    PP_TRY(plan->schedule ? pp_plan_build(pp_schedule_name(plan->schedule), &g, &built)
                          : pp_layout_read_table(run->cfg, words, &built));
    if (!plan->schedule && g.coalesce > 1) {
        PP_TRY(pp_plan_coalesce(built, g.coalesce, &together));
        pp_plan_destroy(&built);
        built = together;
        together = NULL;
    }
    if (memchr(l->frozen, true, (size_t)plan->n_virtual))
        PP_TRY(pp_plan_freeze(built, l->frozen));
    if (memchr(l->division.recompute, true, (size_t)plan->n_virtual))
        PP_TRY(pp_plan_add_recompute(built, l->division.recompute));
    PP_TRY(plan->n_ties > 0 ? pp_plan_tie(built, plan->ties, plan->n_ties) : 0);
    *out = built;
    built = NULL;
    return 0;
}

int pp_run_bytes(const struct pp_run *run, const struct pp_layout *l, int n,
                 struct pp_exec_bytes *out)
{
    struct pp_transport_caps caps = pp_run_caps(run);
    for (int r = 0; r < n; r++) {
        struct pp_exec_spec spec = {.cfg = run->cfg, .layout = l, .rank = r, .caps = caps};
        PP_TRY(pp_exec_predict(&spec, &out[r]));
    }
    return 0;
}
