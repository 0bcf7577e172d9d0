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

/* By exchange. Errors: PP_ERESOURCE. */
int pp_repair_run(const struct pp_repair *r);

/* By branch and bound to the least makespan; lists that have it stay as they are. Errors: PP_ERESOURCE;
 * PP_ECONFIG without a proof. */
int pp_exact_prove(const struct pp_repair *r);

/* The same as a beam of a few milliseconds, without a proof, where the lists are short enough for one:
 * up to 400 cells. Errors: PP_ERESOURCE. */
int pp_exact_beam(const struct pp_repair *r);

/* ---- jobs.c */

struct pp_job {
    int64_t head; /* not before */
    int64_t left; /* work */
    int64_t tail; /* after it, elsewhere */
};

/* When all n jobs of one rank, and what follows them, can have ended at the earliest, even if the rank
 * may interrupt them. Changes the jobs. */
int64_t pp_jobs_bound(struct pp_job *jobs, int n);

#endif
