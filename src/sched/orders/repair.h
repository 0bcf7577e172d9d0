/* SPDX-License-Identifier: Apache-2.0 */
/* Shortens finished lists, for schedules that are made for costs. */
#ifndef PPCLI_SCHED_REPAIR_H
#define PPCLI_SCHED_REPAIR_H

#include "../pass.h"

struct pp_repair {
    int p, m, n_virtual;
    int limit;           /* chunks a rank may hold, from F to W */
    const int64_t *cost; /* [3 * n_virtual] F, I, W of each stage */
    const int64_t *hop;  /* [n_virtual] transfer from a stage to the next */
    int32_t *cells;      /* [p][row] 3 * stage + op; the lists, changed in place */
    size_t row;
};

/* Shortens the lists by exchange. Errors: PP_ERESOURCE. */
int pp_repair_run(const struct pp_repair *r);

/* Shortens the lists to the least makespan by branch and bound; lists that already have it stay as
 * they are. Errors: PP_ERESOURCE; PP_ECONFIG if no proof is found. */
int pp_exact_prove(const struct pp_repair *r);

/* Shortens the lists by a beam search of a few milliseconds, which proves nothing, for lists of up
 * to 400 cells. Errors: PP_ERESOURCE. */
int pp_exact_beam(const struct pp_repair *r);

/* ---- jobs.c */

struct pp_job {
    int64_t head; /* earliest start */
    int64_t left; /* work */
    int64_t tail; /* time after it on other ranks */
};

/* Returns a lower bound of the time at which all n jobs of one rank, and what follows each of them,
 * have ended: the earliest such time if the rank could interrupt jobs. Changes the jobs. */
int64_t pp_jobs_bound(struct pp_job *jobs, int n);

#endif
