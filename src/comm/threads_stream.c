/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges between ranks that are threads, and the marks of ranks with memory of devices. The
 * hosts synchronize through words and mailboxes; marks order the work that they have enqueued. */
#include "threads.h"

#include <string.h>

#include "ppcli/dev/backend.h"

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

static int set_point(struct pp_transport *tp, enum point p)
{
    const struct rank *k = tp->impl;
    return pp_backend_mark_set(tp->be, k->points[p]);
}

static int wait_point(struct pp_transport *tp, int rank, enum point p)
{
    const struct rank *k = tp->impl;
    return pp_backend_mark_wait(tp->be, k->group->ranks[rank]->points[p]);
}

/* ---- captured steps */

/* Makes the stream of rank 0 wait for the work that all ranks have enqueued. A rank sets its point
 * JOINED again only after the barrier of the next fork, and FORKED only after that of the next
 * join; all ranks that wait for the point have passed that barrier. */
int pp_threads_join(struct pp_transport *tp)
{
    PP_TRY(set_point(tp, POINT_JOINED));
    PP_TRY(pp_threads_barrier(tp));
    for (int r = 1; tp->rank == 0 && r < tp->size; r++)
        PP_TRY(wait_point(tp, r, POINT_JOINED));
    return 0;
}

int pp_threads_fork(struct pp_transport *tp)
{
    struct rank *k = tp->impl;
    if (tp->rank == 0)
        PP_TRY(set_point(tp, POINT_FORKED));
    PP_TRY(pp_threads_barrier(tp));
    if (tp->rank != 0)
        PP_TRY(wait_point(tp, 0, POINT_FORKED));
    k->fence++;
    return 0;
}

void pp_threads_record(struct pp_transport *tp, bool on)
{
    struct rank *k = tp->impl;
    if (on)
        pthread_mutex_lock(&k->group->recorder);
    k->records = on;
    if (!on)
        pthread_mutex_unlock(&k->group->recorder);
}

/*
 * ---- mailboxes between threads: one line for each ordered pair of ranks. The sender lends a pointer
 * until the receiver has copied the data. Between devices the hosts use the same mailboxes only to
 * report what they have enqueued; two marks then order the devices:
 *
 *   ready   after this mark the receiver may read my memory
 *   read    after this mark the sender may write its memory again
 *
 * A mark is set again only after every waiter has enqueued its wait. Otherwise a wait could depend
 * on later work; enqueued work never waits for work that is not enqueued yet.
 */

static struct line *mail_line(const struct pp_transport *tp, int src, int dst)
{
    const struct rank *k = tp->impl;
    return &k->group->mail[src * tp->size + dst];
}

static void lend_bytes(struct pp_transport *tp, int dst, const void *p, size_t bytes)
{
    struct rank *k = tp->impl;
    struct line *m = mail_line(tp, tp->rank, dst);
    m->p = p;
    m->bytes = bytes;
    pp_word_set(&m->turn, 2 * k->sent[dst] + 1);
    k->sent[dst]++;
}

/* Copies the data that rank `src` lends through its mailbox to `to`. The caller ends the loan
 * later. */
static int copy_from(struct pp_transport *tp, int src, void *to, size_t bytes, bool on_device)
{
    const struct rank *k = tp->impl;
    struct line *m = mail_line(tp, src, tp->rank);
    PP_TRY(pp_threads_wait(tp, &m->turn, 2 * k->received[src] + 1));
    if (m->bytes != bytes) {
        return pp_fail(PP_EINTERNAL, "from rank %d to %d: expected %zu bytes, found %zu", src,
                       tp->rank, bytes, m->bytes);
    }
    if (on_device) {
        PP_TRY(wait_point(tp, src, POINT_READY));
        return pp_backend_copy(tp->be, to, m->p, bytes);
    }
    if (bytes > 0)
        memcpy(to, m->p, bytes);
    return 0;
}

static void return_slot(struct pp_transport *tp, int src)
{
    struct rank *k = tp->impl;
    k->received[src]++;
    pp_word_set(&mail_line(tp, src, tp->rank)->turn, 2 * k->received[src]);
}

static int exchange(struct pp_transport *tp, const struct pp_exchange *x, int n, bool on_device)
{
    const struct rank *k = tp->impl;
    PP_TRY(on_device ? set_point(tp, POINT_READY) : 0);
    for (int i = 0; i < n; i++)
        if (x[i].out)
            lend_bytes(tp, x[i].peer, x[i].out, x[i].out_bytes);
    for (int i = 0; i < n; i++)
        if (x[i].in)
            PP_TRY(copy_from(tp, x[i].peer, x[i].in, x[i].in_bytes, on_device));
    PP_TRY(on_device ? set_point(tp, POINT_READ) : 0);
    for (int i = 0; i < n; i++)
        if (x[i].in)
            return_slot(tp, x[i].peer);
    for (int i = 0; i < n; i++) {
        int peer = x[i].peer;
        if (x[i].out) {
            PP_TRY(pp_threads_wait(tp, &mail_line(tp, tp->rank, peer)->turn, 2 * k->sent[peer]));
            PP_TRY(on_device ? wait_point(tp, peer, POINT_READ) : 0);
        }
    }
    return 0;
}

int pp_threads_exchange(struct pp_transport *tp, const struct pp_exchange *x, int n)
{
    return exchange(tp, x, n, false);
}

int pp_threads_exchange_on(struct pp_transport *tp, const struct pp_exchange *x, int n)
{
    return exchange(tp, x, n, true);
}
