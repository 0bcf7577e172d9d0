/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mailboxes between threads: one line for each ordered pair of ranks. The sender lends a pointer
 * until the receiver has copied the data. Between devices the hosts use the same mailboxes only to
 * report what they have enqueued; two marks then order the devices:
 *
 *   ready   after this mark the receiver may read my memory
 *   read    after this mark the sender may write its memory again
 *
 * A mark is set again only after every waiter has enqueued its wait. Otherwise a wait could depend
 * on later work; enqueued work never waits for work that is not enqueued yet.
 */
#include "threads.h"

#include <string.h>

#include "ppcli/backend.h"

static struct line *mail(const struct pp_transport *tp, int src, int dst)
{
    const struct rank *k = tp->impl;
    return &k->group->mail[src * tp->size + dst];
}

static void lend(struct pp_transport *tp, int dst, const void *p, size_t bytes)
{
    struct rank *k = tp->impl;
    struct line *m = mail(tp, tp->rank, dst);
    m->p = p;
    m->bytes = bytes;
    pp_word_set(&m->turn, 2 * k->sent[dst] + 1);
    k->sent[dst]++;
}

/* Copy what src lends; it is given back later. */
static int copy_from(struct pp_transport *tp, int src, void *to, size_t bytes, bool on_device)
{
    const struct rank *k = tp->impl;
    struct line *m = mail(tp, src, tp->rank);
    PP_TRY(pp_threads_wait(tp, &m->turn, 2 * k->received[src] + 1));
    if (m->bytes != bytes) {
        return pp_fail(PP_EINTERNAL, "from rank %d to %d: expected %zu bytes, found %zu", src,
                       tp->rank, bytes, m->bytes);
    }
    if (on_device) {
        PP_TRY(pp_threads_wait_point(tp, src, POINT_READY));
        return pp_backend_copy(tp->be, to, m->p, bytes);
    }
    if (bytes > 0)
        memcpy(to, m->p, bytes);
    return 0;
}

static void give_back(struct pp_transport *tp, int src)
{
    struct rank *k = tp->impl;
    k->received[src]++;
    pp_word_set(&mail(tp, src, tp->rank)->turn, 2 * k->received[src]);
}

static int exchange(struct pp_transport *tp, const struct pp_exchange *x, int n, bool on_device)
{
    const struct rank *k = tp->impl;
    PP_TRY(on_device ? pp_threads_set_point(tp, POINT_READY) : 0);
    for (int i = 0; i < n; i++)
        if (x[i].out)
            lend(tp, x[i].peer, x[i].out, x[i].out_bytes);
    for (int i = 0; i < n; i++)
        if (x[i].in)
            PP_TRY(copy_from(tp, x[i].peer, x[i].in, x[i].in_bytes, on_device));
    PP_TRY(on_device ? pp_threads_set_point(tp, POINT_READ) : 0);
    for (int i = 0; i < n; i++)
        if (x[i].in)
            give_back(tp, x[i].peer);
    for (int i = 0; i < n; i++) {
        int peer = x[i].peer;
        if (x[i].out) {
            PP_TRY(pp_threads_wait(tp, &mail(tp, tp->rank, peer)->turn, 2 * k->sent[peer]));
            PP_TRY(on_device ? pp_threads_wait_point(tp, peer, POINT_READ) : 0);
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
