/* SPDX-License-Identifier: Apache-2.0 */
/* Time lines of plans in whole ticks of each chunk. test_sim.c judges the simulator itself. */
#ifndef PPCLI_TESTS_SCHED_LINE_H
#define PPCLI_TESTS_SCHED_LINE_H

#include <math.h>

#include "../../src/sim/sim.h"
#include "ppcli/base/base.h"
#include "test_sched_lists.h"

struct ticks {
    int f, i, w;
    bool fused_send;
};

/* makespan, work[r]: may be NULL; res: the whole result, for the caller to free, or NULL */
static inline void time_line(const struct pp_plan *plan, const struct ticks *t, int64_t *makespan,
                             int64_t *work, struct pp_sim_result *res)
{
    int v = plan->geometry.chunks / plan->copies;
    struct pp_sim_costs costs;
    struct pp_sim_result own;
    PP_OWN_MEMORY double *arrays = calloc(3 * (size_t)plan->n_virtual, sizeof(*arrays));
    assert_non_null(arrays);
    pp_sim_make_uniform(plan, t->f * v, t->i * v, t->w * v, arrays, &costs);
    costs.fused_send = t->fused_send;
    CHECK_OK(pp_sim_run(plan, &costs, true, &own));
    if (makespan)
        *makespan = (int64_t)own.makespan;
    for (int r = 0; work && r < plan->geometry.stages; r++)
        work[r] = (int64_t)own.work[r];
    if (res)
        *res = own;
    else
        pp_sim_result_fini(&own);
}

/* Messages leave after B (unit), or after its I (split). */
static const struct ticks unit = {1, 1, 1, true}, split = {1, 1, 1, false};

static inline int64_t makespan_of(const struct pp_plan *plan, struct ticks ticks)
{
    int64_t makespan = -1;
    time_line(plan, &ticks, &makespan, NULL, NULL);
    return makespan;
}

struct times {
    int64_t f, i, w; /* of one cell; B = i + w, and its message leaves at its end */
    int64_t comm;    /* of a transfer between two ranks */
    int64_t pair;    /* of an overlapped F;B; 0: one after the other */
};

struct spans {
    int64_t makespan, longest; /* longest: most that a rank needs from its first to its last cell */
};

static inline void spans_of(const struct pp_plan *plan, const struct times *t, struct spans *s)
{
    int v = plan->geometry.chunks / plan->copies;
    struct pp_sim_costs costs;
    struct pp_sim_result result;
    PP_OWN_MEMORY double *arrays = calloc(3 * (size_t)plan->n_virtual, sizeof(*arrays));
    assert_non_null(arrays);
    pp_sim_make_uniform(plan, (double)(t->f * v), (double)(t->i * v), (double)(t->w * v), arrays,
                        &costs);
    costs.latency = (double)t->comm;
    costs.overlap = (double)t->pair / (double)(t->f + t->i + t->w);
    costs.fused_send = true;
    CHECK_OK(pp_sim_run(plan, &costs, true, &result));
    *s = (struct spans){.makespan = llround(result.makespan)};
    for (int r = 0; r < plan->geometry.stages; r++) {
        double span = result.end[r][plan->ranks[r].n_actions - 1] - result.start[r][0];
        s->longest = llround(span) > s->longest ? llround(span) : s->longest;
    }
    pp_sim_result_fini(&result);
}

#endif
