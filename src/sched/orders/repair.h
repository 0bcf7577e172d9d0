/* SPDX-License-Identifier: Apache-2.0 */
/* Making finished lists shorter, for schedules that are made for costs. */
#ifndef PPCLI_SCHED_REPAIR_H
#define PPCLI_SCHED_REPAIR_H

#include "../pass.h"

struct pp_repair {
    int p, m, n_virtual;
    int limit;           /* chunks a rank may hold, from F to W */
    const int64_t *cost; /* [3 * n_virtual] F, I, W of each stage */
    const int64_t *hop;  /* [n_virtual] transfer from a stage to the next */
    int32_t *cells;      /* [p][row] 3 * stage + op; changed */
    size_t row;
};

/* Errors: PP_ERESOURCE. */
int pp_repair_run(const struct pp_repair *r);

#endif
