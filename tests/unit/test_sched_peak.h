/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank of a plan holds at most. */
#ifndef PPCLI_TESTS_TEST_SCHED_PEAK_H
#define PPCLI_TESTS_TEST_SCHED_PEAK_H

#include "ppcli/plan.h"

/* Most activations that rank r holds at once, in micro-batches of one chunk, from F to W. */
static inline int peak_of(const struct pp_plan *plan, int r)
{
    int live = 0;
    int peak = 0;
    for (int k = 0; k < plan->ranks[r].n_actions; k++) {
        int op = plan->ranks[r].actions[k].op;
        live += op == PP_OP_F ? 1 : op == PP_OP_I ? 0 : -1;
        peak = live > peak ? live : peak;
    }
    return peak;
}

#endif
