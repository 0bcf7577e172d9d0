/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes a bound for one rank whose jobs arrive at known times and leave work for other ranks: of
 * the jobs that have arrived, the one with the longest tail runs until the next one arrives. No
 * order ends sooner (Carlier and Pinson, Management Science 35, 1989).
 */
#include "repair.h"

#include <stdlib.h>

static int compare_heads(const void *a, const void *b)
{
    const struct pp_job *x = a, *y = b;
    return (x->head > y->head) - (x->head < y->head);
}

int64_t pp_jobs_bound(struct pp_job *jobs, int n)
{
    int64_t t = 0, bound = 0;
    int arrived = 0, open = 0;
    qsort(jobs, (size_t)n, sizeof(*jobs), compare_heads);
    while (arrived < n || open > 0) {
        t = open == 0 && jobs[arrived].head > t ? jobs[arrived].head : t;
        for (; arrived < n && jobs[arrived].head <= t;
             arrived++) { /* the open jobs come first, sorted by tail */
            struct pp_job arrival = jobs[arrived];
            int k = open++;
            for (; k > 0 && jobs[k - 1].tail > arrival.tail; k--)
                jobs[k] = jobs[k - 1];
            jobs[k] = arrival;
        }
        struct pp_job *job = &jobs[open - 1];
        int64_t run =
            arrived < n && jobs[arrived].head - t < job->left ? jobs[arrived].head - t : job->left;
        t += run;
        job->left -= run;
        if (job->left == 0) {
            bound = t + job->tail > bound ? t + job->tail : bound;
            open--;
        }
    }
    return bound;
}
