/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the simulator share: schedules by a short text, and printed numbers. */
#ifndef PPCLI_TESTS_SIM_SHAPES_H
#define PPCLI_TESTS_SIM_SHAPES_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ppcli/sched/plan.h"
#include "../../src/sim/sim.h"
#include "test.h"

struct rank_costs { /* of one micro-batch on one whole rank; textbook B */
    double f, i, w, comm, overlap;
};

/* "interleaved v4", "1f1b-eager k2", "zb-auto c8", "gpipe"; made for these costs */
static inline struct pp_plan *plan_for(const char *text, int p, int m,
                                       const struct rank_costs *costs)
{
    struct pp_plan *plan = NULL;
    char name[64];
    char option[16] = "";
    assert_true(sscanf(text, "%63s %15s", name, option) >= 1);
    const struct pp_schedule_ops *ops = pp_schedule_find(name);
    if (!ops) {
        fail_msg("there is no schedule %s", name);
        return NULL;
    }
    struct pp_geometry g = {
        .stages = p, .chunks = pp_schedule_default_chunks(ops), .microbatches = m};
    if (option[0] == 'v')
        g.chunks = atoi(option + 1);
    else if (option[0] == 'k')
        g.eager = atoi(option + 1);
    else if (option[0] == 'c')
        g.memory_cap = atoi(option + 1);
    g.costs = (struct pp_schedule_costs){costs->f, costs->i, costs->w, costs->comm};
    CHECK_OK(pp_plan_build(name, &g, &plan));
    return plan;
}

static inline struct pp_plan *plan_of(const char *text, int p, int m)
{
    const struct rank_costs even = {.f = 1, .i = 1, .w = 1};
    return plan_for(text, p, m, &even);
}

static inline void simulate(const struct pp_plan *plan, const struct rank_costs *rc,
                            struct pp_sim_result *out)
{
    struct pp_sim_costs costs;
    PP_OWN_MEMORY double *arrays = calloc(3 * (size_t)plan->n_virtual, sizeof(*arrays));
    assert_non_null(arrays);
    pp_sim_make_uniform(plan, rc->f, rc->i, rc->w, arrays, &costs);
    costs.latency = rc->comm;
    costs.overlap = rc->overlap;
    costs.fused_send = true;
    CHECK_OK(pp_sim_run(plan, &costs, false, out));
}

/* The next number of a printed row and how far a value may be from it: half of its last digit. */
static inline double next_number(const char **row, double *half)
{
    char *end;
    while (**row == ' ')
        ++*row;
    double x = strtod(*row, &end);
    assert_true(end > *row);
    const char *dot = memchr(*row, '.', (size_t)(end - *row));
    *half = 0.5 * pow(10.0, dot ? -(double)(end - dot - 1) : 0.0) * (1 + 1e-9) + 1e-9;
    *row = end;
    return x;
}

/* `value` is what the row prints next; "-" prints nothing. */
static inline void check_printed(const char *what, double value, const char **row)
{
    while (**row == ' ')
        ++*row;
    if (**row == '-') {
        ++*row;
        return;
    }
    double half;
    double printed = next_number(row, &half);
    if (!(fabs(value - printed) <= half))
        fail_msg("%s: simulated %.6f, published %g", what, value, printed);
}

#endif
