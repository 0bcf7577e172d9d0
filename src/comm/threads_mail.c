/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mailboxes between threads: one line for each ordered pair of ranks. The sender lends a pointer
 * and takes it back when the receiver has read what it needs; with the same two steps all members
 * of a group can read each other's memory, which is how they sum it.
 */
#include "threads.h"

#include <string.h>

#include "ppcli/err.h"

void pp_threads_lend(struct pp_transport *tp, int dst, const void *p, size_t bytes)
{
    struct rank *k = tp->impl;
    struct line *m = &k->group->mail[tp->rank * tp->size + dst];
    m->p = p;
    m->bytes = bytes;
    pp_word_set(&m->turn, 2 * k->sent[dst] + 1);
    k->sent[dst]++;
}

/* Until dst is done with what was lent last. */
int pp_threads_take_back(struct pp_transport *tp, int dst)
{
    struct rank *k = tp->impl;
    struct line *m = &k->group->mail[tp->rank * tp->size + dst];
    return pp_word_wait(&k->waiter, &m->turn, 2 * k->sent[dst]);
}

static int take_back_all(struct pp_transport *tp, const int *group, int n)
{
    for (int j = 0; j < n; j++) {
        if (group[j] != tp->rank) {
            PP_TRY(pp_threads_take_back(tp, group[j]));
        }
    }
    return 0;
}

int pp_threads_borrow(struct pp_transport *tp, int src, size_t bytes, const struct line **out)
{
    struct rank *k = tp->impl;
    struct line *m = &k->group->mail[src * tp->size + tp->rank];
    PP_TRY(pp_word_wait(&k->waiter, &m->turn, 2 * k->received[src] + 1));
    if (m->bytes != bytes) {
        return pp_fail(PP_EINTERNAL, "from rank %d to %d: expected %zu bytes, found %zu", src,
                       tp->rank, bytes, m->bytes);
    }
    *out = m;
    return 0;
}

void pp_threads_give_back(struct pp_transport *tp, int src)
{
    struct rank *k = tp->impl;
    struct line *m = &k->group->mail[src * tp->size + tp->rank];
    k->received[src]++;
    pp_word_set(&m->turn, 2 * k->received[src]);
}

int pp_threads_send(struct pp_transport *tp, int dst, const void *buf, size_t bytes)
{
    pp_assert(dst >= 0 && dst < tp->size && dst != tp->rank);
    pp_threads_lend(tp, dst, buf, bytes);
    return pp_threads_take_back(tp, dst);
}

int pp_threads_recv(struct pp_transport *tp, int src, void *buf, size_t bytes)
{
    pp_assert(src >= 0 && src < tp->size && src != tp->rank);
    const struct line *m = NULL;
    PP_TRY(pp_threads_borrow(tp, src, bytes, &m));
    if (bytes > 0) {
        memcpy(buf, m->p, bytes);
    }
    pp_threads_give_back(tp, src);
    return 0;
}

/*
 * Everybody lends buf to everybody; each member sums its piece over all bufs, in group order, into
 * its scratch. When all have read, everybody lends the scratch and copies the pieces into buf.
 */
int pp_threads_reduce(struct pp_transport *tp, const int *group, int n, size_t N, float *buf,
                      float *scratch)
{
    if (pp_transport_on_device(tp)) {
        return pp_threads_reduce_on(tp, group, n, N, buf, scratch);
    }
    const struct line *m = NULL;
    int me = 0;
    for (int j = 0; j < n; j++) {
        if (group[j] == tp->rank) {
            me = j;
        } else {
            pp_threads_lend(tp, group[j], buf, N * sizeof(float));
        }
    }
    size_t lo = pp_piece(N, n, me);
    size_t hi = pp_piece(N, n, me + 1);
    for (int j = 0; j < n; j++) {
        const float *x = buf;
        if (j != me) {
            PP_TRY(pp_threads_borrow(tp, group[j], N * sizeof(float), &m));
            x = m->p;
        }
        if (j == 0) {
            memcpy(scratch + lo, x + lo, (hi - lo) * sizeof(float));
        } else {
            pp_piece_add(hi - lo, x + lo, scratch + lo);
        }
        if (j != me) {
            pp_threads_give_back(tp, group[j]);
        }
    }
    PP_TRY(take_back_all(tp, group, n));
    /* Nobody reads my buf any more; the others' pieces are theirs to lend. */
    for (int j = 0; j < n; j++) {
        if (j != me) {
            pp_threads_lend(tp, group[j], scratch, N * sizeof(float));
        }
    }
    memcpy(buf + lo, scratch + lo, (hi - lo) * sizeof(float));
    for (int j = 0; j < n; j++) {
        if (j == me) {
            continue;
        }
        PP_TRY(pp_threads_borrow(tp, group[j], N * sizeof(float), &m));
        size_t at = pp_piece(N, n, j);
        memcpy(buf + at, (const float *)m->p + at, (pp_piece(N, n, j + 1) - at) * sizeof(float));
        pp_threads_give_back(tp, group[j]);
    }
    return take_back_all(tp, group, n);
}
