/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a group of rank threads from start to end, and finds the error that was the first cause. */
#include <string.h>

#include "ppcli/base/base.h"
#include "ppcli/base/cores.h"
#include "transport.h"

/* The exit, which opens when every rank has arrived: until then other ranks may use a rank's
 * memory. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    int missing;
};

struct rank_thread {
    const struct pp_threads_job *job;
    struct pp_threads *group;
    struct gate *gate;
    pthread_t thread;
    int rank, rc;
    uint64_t failed_ns;
    struct pp_error error;
};

static void arrive_at_gate(struct gate *g, int ranks, bool wait)
{
    pthread_mutex_lock(&g->lock);
    g->missing -= ranks;
    if (g->missing == 0)
        pthread_cond_broadcast(&g->opened);
    while (wait && g->missing > 0)
        pthread_cond_wait(&g->opened, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void *run_thread(void *arg)
{
    struct rank_thread *t = arg;
    struct pp_transport *tp = NULL;
    t->rc = pp_threads_attach(t->group, t->rank, &tp);
    if (t->rc == 0)
        t->rc = t->job->work(&tp, t->rank, t->job->ctx, &t->failed_ns);
    if (t->rc < 0)
        t->error = *pp_error_get();
    if (!tp)
        pp_threads_abort(t->group); /* the others would wait for this rank */
    arrive_at_gate(t->gate, 1, true);
    pp_transport_destroy(&tp);
    if (t->job->end)
        t->job->end(t->rank, t->job->ctx);
    return NULL;
}

/* Returns whether the failure of rank a explains that of b. A rank that an abort has woken returns
 * PP_ELOST. Of two ranks that failed by themselves, the first may have caused the second. */
static bool explains_failure(const struct rank_thread *a, const struct rank_thread *b)
{
    if ((a->rc == PP_ELOST) != (b->rc == PP_ELOST))
        return b->rc == PP_ELOST;
    return a->failed_ns > 0 && b->failed_ns > 0 && a->failed_ns < b->failed_ns;
}

int pp_threads_run(int n, const struct pp_threads_job *job)
{
    struct gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, n};
    struct pp_threads *group = NULL;
    const struct rank_thread *cause = NULL;
    struct rank_thread *ranks = pp_alloc((size_t)n, sizeof(*ranks));
    int rc = ranks ? pp_threads_create(n, job->places, &group) : PP_ERESOURCE, started = 0;
    for (; rc == 0 && started < n; started++) {
        struct rank_thread *t = &ranks[started];
        *t = (struct rank_thread){.job = job, .group = group, .gate = &gate, .rank = started};
        int e = pp_thread_start(&t->thread, run_thread, t);
        if (e != 0) {
            rc = pp_fail(PP_ERESOURCE, "cannot start the thread of rank %d of %d: %s", started, n,
                         strerror(e));
            pp_threads_abort(group);
            arrive_at_gate(&gate, n - started, false);
            break;
        }
    }
    for (int r = 0; r < started; r++) {
        pthread_join(ranks[r].thread, NULL);
        if (ranks[r].rc < 0 && (!cause || explains_failure(&ranks[r], cause)))
            cause = &ranks[r];
    }
    if (rc == 0 && cause) {
        (void)pp_error_adopt(&cause->error);
        rc = cause->rc;
    }
    pp_threads_destroy(&group);
    pp_free(ranks);
    return rc;
}
