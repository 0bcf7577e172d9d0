/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates the known schedules at a shape with costs that a user gave; tables are compared with them. */
#include "ppcli/plan/search.h"

#include "ppcli/base/base.h"

struct pricing {
    const struct pp_cost_list *lists; /* [PP_COSTS] */
    int (*see)(const struct pp_plan *plan, const struct pp_sim_result *result, void *ctx);
    void *ctx;
};

/* Builds and simulates the plan of a schedule, made for the costs if its order depends on them. */
static int simulate_schedule(const struct pp_schedule_ops *ops, const struct pp_geometry *shape,
                             const struct pricing *p)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    PP_OWN(pp_stage_costs_fini) struct pp_stage_costs costs = {.f = NULL};
    PP_OWN(pp_sim_result_fini) struct pp_sim_result result = {0};
    struct pp_geometry g = {.stages = shape->stages,
                            .chunks = shape->chunks,
                            .microbatches = shape->microbatches,
                            .memory_cap = shape->memory_cap,
                            .costs = pp_cost_means(p->lists)};
    PP_TRY(pp_plan_check_room(&g, false));
    PP_TRY(pp_plan_build(pp_schedule_name(ops), &g, &plan));
    PP_TRY(pp_stage_costs_set(plan, p->lists, &costs));
    if (ops->fits) {
        PP_TRY(pp_plan_fit(&g, costs.f, g.costs.comm, &plan));
        PP_TRY(pp_stage_costs_set(plan, p->lists, &costs));
    }
    PP_TRY(pp_sim_run(plan, &costs.costs, false, &result));
    return p->see(plan, &result, p->ctx);
}

static bool takes_chunks(const struct pp_schedule_ops *ops, int chunks)
{
    return ops->chunks == 0 || ops->chunks == chunks;
}

int pp_schedules_simulate(const char *name, const struct pp_geometry *shape,
                          const struct pp_cost_list lists[PP_COSTS],
                          int (*see)(const struct pp_plan *plan, const struct pp_sim_result *result,
                                     void *ctx),
                          void *ctx)
{
    struct pricing p = {.lists = lists, .see = see, .ctx = ctx};
    if (name) {
        struct pp_geometry own = *shape;
        const struct pp_schedule_ops *ops = pp_schedule_find(name);
        own.chunks = takes_chunks(ops, own.chunks) ? own.chunks : pp_schedule_default_chunks(ops);
        return simulate_schedule(ops, &own, &p);
    }
    for (const char *const *known = pp_schedule_names(); *known; known++) {
        const struct pp_schedule_ops *ops = pp_schedule_find(*known);
        if (ops->proves || !takes_chunks(ops, shape->chunks))
            continue;
        int rc = simulate_schedule(ops, shape, &p);
        PP_TRY(rc == PP_ECONFIG ? 0 : rc);
    }
    pp_error_clear();
    return 0;
}
