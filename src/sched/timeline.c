/* SPDX-License-Identifier: Apache-2.0 */
/* The integer time line of a plan: the textbook picture, in numbers. */
#include "pass.h"

#include "ppcli/err.h"

struct line {
    const struct pp_plan *plan;
    int64_t *const *start;
    int64_t *const *end;
    int64_t makespan;
    int64_t *work;
};

static void visit(void *ctx, int rank, int k, int64_t start, int64_t mid, int64_t end)
{
    (void)mid;
    struct line *l = ctx;
    if (l->start)
        l->start[rank][k] = start;
    if (l->end)
        l->end[rank][k] = end;
    if (l->work)
        l->work[rank] += end - start;
    l->makespan = end > l->makespan ? end : l->makespan;
}

int pp_plan_timeline(const struct pp_plan *plan, const struct pp_ticks *ticks,
                     int64_t *const *start, int64_t *const *end, int64_t *makespan, int64_t *work)
{
    struct line l = {.plan = plan, .start = start, .end = end, .work = work};
    for (int r = 0; work && r < plan->geometry.stages; r++)
        work[r] = 0;
    struct pp_walk w;
    int rc = pp_walk_init(&w, plan, ticks, false);
    if (rc == 0) {
        w.visit = visit;
        w.ctx = &l;
        rc = pp_walk_run(&w);
    }
    pp_walk_fini(&w);
    if (rc == 0 && makespan)
        *makespan = l.makespan;
    return rc;
}

/* Every rank holds as many chunks as any other, so on even ticks all work equally long. */
static int64_t unit_work(const struct pp_plan *plan)
{
    int64_t cells = (int64_t)plan->geometry.chunks * plan->geometry.microbatches;
    return plan->kind == PP_PLAN_EVAL ? cells : 3 * cells;
}

int pp_plan_bubble(const struct pp_plan *plan, double *out)
{
    static const struct pp_ticks unit = {.f = 1, .i = 1, .w = 1, .fused_send = true};
    int64_t makespan = 0;
    PP_TRY(pp_plan_timeline(plan, &unit, NULL, NULL, &makespan, NULL));
    *out = (double)(makespan - unit_work(plan)) / (double)makespan;
    return 0;
}
