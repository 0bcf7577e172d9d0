/* SPDX-License-Identifier: Apache-2.0 */
/* Marks of ranks that are threads with memory of devices. The hosts meet as they always do, in
 * words and mailboxes; marks order what they have enqueued. */
#include "threads.h"

#include "ppcli/backend.h"

int pp_threads_bind(struct pp_transport *tp)
{
    struct rank *k = tp->impl;
    for (int i = 0; i < POINTS; i++)
        PP_TRY(pp_backend_mark_create(tp->be, false, &k->points[i]));
    return 0;
}

void pp_threads_forget_marks(struct pp_transport *tp)
{
    struct rank *k = tp->impl;
    for (int i = 0; i < POINTS; i++) {
        pp_backend_mark_destroy(tp->be, k->points[i]);
        k->points[i] = NULL;
    }
}

int pp_threads_behind(struct pp_transport *tp, void *mark, uint32_t fence)
{
    const struct rank *k = tp->impl;
    return mark && fence == k->fence ? pp_backend_mark_wait(tp->be, mark) : 0;
}

int pp_threads_set_point(struct pp_transport *tp, enum point p)
{
    const struct rank *k = tp->impl;
    return pp_backend_mark_set(tp->be, k->points[p]);
}

int pp_threads_wait_point(struct pp_transport *tp, int rank, enum point p)
{
    const struct rank *k = tp->impl;
    return pp_backend_mark_wait(tp->be, k->group->ranks[rank]->points[p]);
}

/* ---- captured steps */

/* Each point is set again only after a barrier that those who wait for it have come to: for JOINED
 * that of fork, for FORKED that of the next join. */
int pp_threads_join(struct pp_transport *tp)
{
    PP_TRY(pp_threads_set_point(tp, POINT_JOINED));
    PP_TRY(pp_threads_barrier(tp));
    for (int r = 1; tp->rank == 0 && r < tp->size; r++)
        PP_TRY(pp_threads_wait_point(tp, r, POINT_JOINED));
    return 0;
}

int pp_threads_fork(struct pp_transport *tp)
{
    struct rank *k = tp->impl;
    if (tp->rank == 0)
        PP_TRY(pp_threads_set_point(tp, POINT_FORKED));
    PP_TRY(pp_threads_barrier(tp));
    if (tp->rank != 0)
        PP_TRY(pp_threads_wait_point(tp, 0, POINT_FORKED));
    k->fence++;
    return 0;
}
