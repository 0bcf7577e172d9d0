/* SPDX-License-Identifier: Apache-2.0 */
/* The time line of a plan in whole ticks of each chunk, with free hand-overs. */
#ifndef PPCLI_TESTS_SCHED_LINE_H
#define PPCLI_TESTS_SCHED_LINE_H

#include "ppcli/bubble.h"
#include "ppcli/err.h"
#include "test.h"

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
    pp_sim_uniform(plan, t->f * v, t->i * v, t->w * v, arrays, &costs);
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

#endif
