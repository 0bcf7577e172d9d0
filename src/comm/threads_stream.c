/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that are threads, with memory of devices. The hosts meet as they always do, in words and
 * mailboxes, but only to tell each other what they have enqueued; marks then order the devices.
 *
 * Every sum and exchange has the same three steps, each a meeting of the hosts:
 *
 *   ready   my memory may be read behind this mark
 *   summed  my piece of the sum is there behind this one (reduce only)
 *   read    I have read yours: behind this you may write again
 *
 * A mark is set again only after all who wait for it have said so to their stream: they give back
 * what was lent behind that.
 */
#include "threads.h"

#include "ppcli/backend.h"
#include "ppcli/err.h"

int pp_threads_bind(struct pp_transport *tp)
{
    struct rank *k = tp->impl;
    for (int i = 0; i < POINTS; i++) {
        PP_TRY(pp_backend_mark_create(tp->be, false, &k->points[i]));
    }
    return 0;
}

void pp_threads_forget_marks(struct pp_transport *tp)
{
    struct rank *k = tp->impl;
    for (int i = 0; i < POINTS; i++) {
        pp_backend_mark_destroy(tp->be, k->points[i]);
        k->points[i] = NULL;
    }
    for (int i = 0; i < k->n_ends; i++) {
        const struct end *e = &k->ends[i];
        for (int slot = 0; e->lines && slot < e->spec.slots; slot++) {
            void **mark = e->spec.src == tp->rank ? &e->lines[slot].sent : &e->lines[slot].freed;
            pp_backend_mark_destroy(tp->be, *mark);
            *mark = NULL;
        }
    }
}

int pp_threads_behind(struct pp_transport *tp, void *mark, uint32_t fence)
{
    const struct rank *k = tp->impl;
    return mark && fence == k->fence ? pp_backend_mark_wait(tp->be, mark) : 0;
}

static int set(struct pp_transport *tp, enum point p)
{
    const struct rank *k = tp->impl;
    return pp_backend_mark_set(tp->be, k->points[p]);
}

static int wait_for(struct pp_transport *tp, int rank, enum point p)
{
    const struct rank *k = tp->impl;
    return pp_backend_mark_wait(tp->be, k->group->ranks[rank]->points[p]);
}

/* --- a group reads each other's memory ---------------------------------------------------------
 */

struct meeting {
    struct pp_transport *tp;
    const int *group; /* NULL: all ranks */
    int n;
};

static int member(const struct meeting *m, int j)
{
    return m->group ? m->group[j] : j;
}

/* Everybody else may read p behind the point. */
static int lend_all(const struct meeting *m, enum point point, const void *p, size_t bytes)
{
    PP_TRY(set(m->tp, point));
    for (int j = 0; j < m->n; j++) {
        if (member(m, j) != m->tp->rank) {
            pp_threads_lend(m->tp, member(m, j), p, bytes);
        }
    }
    return 0;
}

/* What member j lends; give_back when what reads it is enqueued. */
static int borrow_from(const struct meeting *m, int j, enum point point, size_t bytes,
                       const void **out)
{
    const struct line *line = NULL;
    PP_TRY(pp_threads_borrow(m->tp, member(m, j), bytes, &line));
    PP_TRY(wait_for(m->tp, member(m, j), point));
    *out = line->p;
    return 0;
}

static int take_back_all(const struct meeting *m)
{
    for (int j = 0; j < m->n; j++) {
        if (member(m, j) != m->tp->rank) {
            PP_TRY(pp_threads_take_back(m->tp, member(m, j)));
        }
    }
    return 0;
}

/* My stream goes on when everybody has read what I lent. */
static int part(const struct meeting *m)
{
    PP_TRY(take_back_all(m));
    PP_TRY(lend_all(m, POINT_READ, NULL, 0));
    for (int j = 0; j < m->n; j++) {
        const void *none;
        if (member(m, j) != m->tp->rank) {
            PP_TRY(borrow_from(m, j, POINT_READ, 0, &none));
            pp_threads_give_back(m->tp, member(m, j));
        }
    }
    return take_back_all(m);
}

/*
 * As on the host each member sums its piece of all bufs in group order. What lies elsewhere is
 * copied first, for it may be on another device. Nobody else reads my piece of my buf, so the sum
 * may be made there, or be put there at once; scratch holds the sum until the order has come to me,
 * and behind it what is added next.
 */
static int sum_piece(const struct meeting *m, int me, size_t N, float *buf, float *scratch)
{
    struct pp_backend *be = m->tp->be;
    size_t lo = pp_piece(N, m->n, me), n = pp_piece(N, m->n, me + 1) - lo;
    float *sum = me == 0 ? buf + lo : scratch;
    float *next = me == 0 ? scratch : scratch + n;
    pp_assert(m->n == 2 || me == 0 || 2 * n <= N);
    for (int j = 0; j < m->n; j++) {
        const void *theirs = NULL;
        if (j == me) {
            if (j > 0) {
                PP_TRY(pp_backend_add(be, n, buf + lo, sum));
            }
            continue;
        }
        PP_TRY(borrow_from(m, j, POINT_READY, N * sizeof(float), &theirs));
        float *to = j == 0 ? sum : next;
        PP_TRY(pp_backend_copy(be, to, (const float *)theirs + lo, n * sizeof(float)));
        pp_threads_give_back(m->tp, member(m, j));
        if (j > 0) {
            PP_TRY(pp_backend_add(be, n, next, sum));
        }
    }
    return me == 0 ? 0 : pp_backend_copy(be, buf + lo, sum, n * sizeof(float));
}

int pp_threads_reduce_on(struct pp_transport *tp, const int *group, int n, size_t N, float *buf,
                         float *scratch)
{
    const struct meeting m = {tp, group, n};
    int me = 0;
    while (group[me] != tp->rank) {
        me++;
    }
    PP_TRY(lend_all(&m, POINT_READY, buf, N * sizeof(float)));
    PP_TRY(sum_piece(&m, me, N, buf, scratch));
    PP_TRY(take_back_all(&m));
    PP_TRY(lend_all(&m, POINT_SUMMED, buf, N * sizeof(float)));
    for (int j = 0; j < n; j++) {
        const void *theirs = NULL;
        size_t at = pp_piece(N, n, j), count = pp_piece(N, n, j + 1) - at;
        if (j == me) {
            continue;
        }
        PP_TRY(borrow_from(&m, j, POINT_SUMMED, N * sizeof(float), &theirs));
        PP_TRY(
            pp_backend_copy(tp->be, buf + at, (const float *)theirs + at, count * sizeof(float)));
        pp_threads_give_back(tp, group[j]);
    }
    return part(&m);
}

int pp_threads_allgather_on(struct pp_transport *tp, const void *in, size_t bytes, void *out)
{
    const struct meeting m = {tp, NULL, tp->size};
    char *to = out;
    PP_TRY(lend_all(&m, POINT_READY, in, bytes));
    for (int j = 0; j < tp->size; j++) {
        const void *theirs = in;
        if (j != tp->rank) {
            PP_TRY(borrow_from(&m, j, POINT_READY, bytes, &theirs));
        }
        PP_TRY(pp_backend_copy(tp->be, to + (size_t)j * bytes, theirs, bytes));
        if (j != tp->rank) {
            pp_threads_give_back(tp, j);
        }
    }
    return part(&m);
}

/* --- captured steps ----------------------------------------------------------------------------
 */

/* Each point is set again only after a barrier that those who wait for it have come to: for JOINED
 * that of fork, for FORKED that of the next join. */
int pp_threads_join(struct pp_transport *tp)
{
    PP_TRY(set(tp, POINT_JOINED));
    PP_TRY(pp_threads_barrier(tp));
    for (int r = 1; tp->rank == 0 && r < tp->size; r++) {
        PP_TRY(wait_for(tp, r, POINT_JOINED));
    }
    return 0;
}

int pp_threads_fork(struct pp_transport *tp)
{
    struct rank *k = tp->impl;
    if (tp->rank == 0) {
        PP_TRY(set(tp, POINT_FORKED));
    }
    PP_TRY(pp_threads_barrier(tp));
    if (tp->rank != 0) {
        PP_TRY(wait_for(tp, 0, POINT_FORKED));
    }
    k->fence++;
    return 0;
}

int pp_threads_wait_mark(struct pp_transport *tp, void *mark, uint64_t timeout_ns)
{
    const struct rank *k = tp->impl;
    return pp_wait_mark(&k->waiter, tp->be, mark, timeout_ns);
}
