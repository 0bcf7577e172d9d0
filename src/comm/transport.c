/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part that is the same for every transport, built on its table: the list of names, the error
 * code that all ranks share, and the sum whose bits do not depend on which rank arrives first.
 */
#include "impl.h"

#include <string.h>

#include "ppcli/dev/backend.h"
#include "ppcli/base/base.h"
#include "wait.h"

int pp_transport_new(const struct pp_transport_ops *ops, int rank, int size, void *impl,
                     struct pp_transport **out)
{
    struct pp_transport *tp = pp_alloc(1, sizeof(*tp));
    int32_t *verdicts = pp_alloc((size_t)size, sizeof(*verdicts));
    struct pp_exchange *exchanges = pp_alloc((size_t)size, sizeof(*exchanges));
    if (!tp || !verdicts || !exchanges) {
        pp_free(tp);
        pp_free(verdicts);
        pp_free(exchanges);
        return PP_ERESOURCE;
    }
    *tp = (struct pp_transport){.ops = ops,
                                .caps = ops->caps,
                                .rank = rank,
                                .size = size,
                                .impl = impl,
                                .verdicts = verdicts,
                                .exchanges = exchanges};
    *out = tp;
    return 0;
}

int pp_transport_wrap(const struct pp_transport_ops *ops, struct pp_transport *inner,
                      size_t impl_bytes, struct pp_transport **out)
{
    PP_OWN_MEMORY void *impl = pp_alloc(1, impl_bytes);
    PP_TRY_UNDO(impl ? pp_transport_new(ops, inner->rank, inner->size, impl, out) : PP_ERESOURCE,
                pp_transport_destroy(&inner));
    impl = NULL;
    (*out)->inner = inner;
    (*out)->crowded = true; /* it waits for a device, so it leaves the core to others */
    (*out)->caps.processes = inner->caps.processes;
    (*out)->host = inner->host;
    return 0;
}

void pp_transport_destroy(struct pp_transport **tp)
{
    struct pp_transport *t = *tp;
    if (!t)
        return;
    t->ops->destroy(t);
    pp_ends_free(t);
    pp_transport_destroy(&t->inner);
    pp_free(t->impl);
    pp_free(t->verdicts);
    pp_free(t->exchanges);
    pp_free(t);
    *tp = NULL;
}

/* ---- calls that an inner transport may do */

/* Finds the first transport from tp inwards that has the call, else the innermost. */
#define FIND(tp, call)                                                                             \
    while (!(tp)->ops->call && (tp)->inner)                                                        \
        (tp) = (tp)->inner;

/* Returns rc. If it is PP_ELOST, also tells the transport and all its inner transports that a rank
 * is lost, since any of them may have done the call. */
static int report_lost(struct pp_transport *tp, int rc)
{
    for (struct pp_transport *t = tp; rc == PP_ELOST && t; t = t->inner)
        if (t->ops->lost)
            t->ops->lost(t);
    return rc;
}

int pp_transport_allgather(struct pp_transport *tp, const void *in, size_t bytes, void *out)
{
    struct pp_transport *t = tp;
    FIND(t, allgather);
    return report_lost(tp, t->ops->allgather(t, in, bytes, out));
}

/* Exchanges messages in host memory with n peers. */
static int exchange_on_host(struct pp_transport *tp, const struct pp_exchange *x, int n)
{
    struct pp_transport *t = tp;
    FIND(t, exchange);
    return report_lost(tp, t->ops->exchange(t, x, n));
}

int pp_transport_send(struct pp_transport *tp, int dst, const void *buf, size_t bytes)
{
    pp_assert(dst >= 0 && dst < tp->size && dst != tp->rank);
    return exchange_on_host(
        tp, &(struct pp_exchange){.peer = dst, .out = buf ? buf : "", .out_bytes = bytes}, 1);
}

int pp_transport_recv(struct pp_transport *tp, int src, void *buf, size_t bytes)
{
    char none;
    pp_assert(src >= 0 && src < tp->size && src != tp->rank);
    return exchange_on_host(
        tp, &(struct pp_exchange){.peer = src, .in = buf ? buf : &none, .in_bytes = bytes}, 1);
}

void pp_transport_abort(struct pp_transport *tp)
{
    FIND(tp, abort);
    tp->ops->abort(tp);
}

bool pp_transport_stopped(struct pp_transport *tp)
{
    FIND(tp, stopped);
    return tp->ops->stopped && tp->ops->stopped(tp);
}

void pp_transport_show_waits(struct pp_transport *tp, uint64_t *waited_ns)
{
    for (; tp; tp = tp->inner)
        tp->waited_ns = waited_ns;
}

int pp_transport_post_vote(struct pp_transport *tp, bool yes)
{
    struct pp_transport *t = tp;
    FIND(t, post_vote);
    if (t->ops->post_vote)
        return report_lost(tp, t->ops->post_vote(t, yes));
    tp->vote = yes;
    return 0;
}

int pp_transport_wait_vote(struct pp_transport *tp, bool *out_all)
{
    struct pp_transport *t = tp;
    FIND(t, wait_vote);
    if (t->ops->wait_vote)
        return report_lost(tp, t->ops->wait_vote(t, out_all));
    PP_TRY(pp_transport_allgather(tp, &tp->vote, sizeof(tp->vote), tp->verdicts));
    bool all = true;
    for (int r = 0; r < tp->size; r++)
        all = all && tp->verdicts[r] != 0;
    *out_all = all;
    return 0;
}

/* ---- the error code of all ranks */

/* The part of an error that is sent to other ranks: the source position stays, because pointers do
 * not cross processes. */
struct story {
    uint8_t full; /* as struct pp_error */
    char text[PP_ERROR_TEXT_MAX];
};

/* Makes the error of rank `teller`, the lowest rank that failed, the error of all ranks, and
 * returns `code`. The teller sends it to each rank: a gather would need size times this record, and
 * a failing run may have no memory. */
static int share_error(struct pp_transport *tp, int teller, int code, int rc)
{
    struct story s;
    if (tp->rank != teller) {
        PP_TRY(pp_transport_recv(tp, teller, &s, sizeof(s)));
        s.text[sizeof(s.text) - 1] = '\0';
        if (rc >= 0)
            pp_fail(code, "rank %d: %s", teller, s.text);
        if (rc >= 0 && s.full)
            pp_error_full();
        return code;
    }
    memset(&s, 0, sizeof(s));
    const struct pp_error *e = pp_error_get();
    const char *text = e->code != 0 && e->text[0] != '\0' ? e->text : pp_status_name(code);
    s.full = e->code != 0 && e->full;
    memcpy(s.text, text, strnlen(text, sizeof(s.text) - 1));
    for (int r = 0; r < tp->size; r++)
        if (r != teller)
            PP_TRY(pp_transport_send(tp, r, &s, sizeof(s)));
    return code;
}

int pp_transport_agree(struct pp_transport *tp, int rc)
{
    int32_t mine = rc < 0 ? rc : 0;
    PP_TRY(pp_transport_allgather(tp, &mine, sizeof(mine), tp->verdicts));
    for (int r = 0; r < tp->size; r++)
        if (tp->verdicts[r] < 0)
            return share_error(tp, r, tp->verdicts[r], rc);
    return 0;
}

int pp_transport_from_first(struct pp_transport *tp, int rc, void *data, size_t bytes)
{
    PP_TRY(pp_transport_agree(tp, rc));
    for (int r = 1; r < tp->size && tp->rank == 0; r++)
        PP_TRY(pp_transport_send(tp, r, data, bytes));
    return tp->rank == 0 ? 0 : pp_transport_recv(tp, 0, data, bytes);
}

/* ---- memory of a device */

int pp_transport_bind(struct pp_transport *tp, struct pp_backend *be)
{
    pp_assert(!tp->be);
    tp->be = be;
    if (tp->ops->bind)
        return tp->ops->bind(tp);
    if (!be->caps.host_visible) {
        return pp_fail(PP_ERESOURCE, "transport %s cannot move memory of %s", tp->ops->name,
                       be->description);
    }
    return 0;
}

static bool moves_device_memory(const struct pp_transport *tp)
{
    return tp->be && !tp->be->caps.host_visible;
}

int pp_transport_allgather_on(struct pp_transport *tp, const void *in, size_t bytes, void *out)
{
    if (!moves_device_memory(tp))
        return pp_transport_allgather(tp, in, bytes, out);
    if (tp->ops->allgather_on)
        return tp->ops->allgather_on(tp, in, bytes, out);
    int n = 0;
    char *to = out;
    for (int r = 0; r < tp->size; r++)
        if (r != tp->rank)
            tp->exchanges[n++] = (struct pp_exchange){r, in, bytes, to + (size_t)r * bytes, bytes};
    PP_TRY(pp_backend_copy(tp->be, to + (size_t)tp->rank * bytes, in, bytes));
    return tp->ops->exchange_on(tp, tp->exchanges, n);
}

bool pp_transport_has_exchanges(const struct pp_transport *tp)
{
    return tp->ops->open_exchanges != NULL;
}

int pp_transport_open_exchanges(struct pp_transport *tp, int count)
{
    return tp->ops->open_exchanges(tp, count);
}

int pp_transport_post_exchange(struct pp_transport *tp, int number, const struct pp_exchange *x,
                               int n)
{
    return tp->ops->post_exchange(tp, number, x, n);
}

int pp_transport_wait_exchange(struct pp_transport *tp, int number)
{
    return tp->ops->wait_exchange(tp, number);
}

bool pp_transport_can_fork(const struct pp_transport *tp)
{
    return tp->ops->join && tp->ops->fork;
}

int pp_transport_join(struct pp_transport *tp)
{
    pp_assert(tp->ops->join);
    return tp->ops->join(tp);
}

int pp_transport_fork(struct pp_transport *tp)
{
    pp_assert(tp->ops->fork);
    return tp->ops->fork(tp);
}

void pp_transport_record(struct pp_transport *tp, bool on)
{
    pp_assert(tp->ops->record);
    tp->ops->record(tp, on);
}

/* Waits until the device has reached the mark. Polls, because a call that waits for the device
 * could wait forever. */
int pp_transport_wait_mark(struct pp_transport *tp, void *mark, uint64_t timeout_ns)
{
    if (tp->ops->wait_mark)
        return tp->ops->wait_mark(tp, mark, timeout_ns);
    struct pp_poll poll = {.backoff.crowded = tp->crowded, .waited_ns = tp->waited_ns};
    for (;;) {
        bool reached = false;
        PP_TRY(pp_backend_mark_reached(tp->be, mark, &reached));
        if (reached)
            return 0;
        if (pp_transport_stopped(tp))
            return pp_fail(PP_ELOST, "stopped: another rank failed");
        if (!pp_poll_pause(&poll, timeout_ns)) {
            return pp_fail(PP_ELOST, "%s has not finished its work for %.3g s", tp->be->description,
                           (double)timeout_ns * 1e-9);
        }
    }
}

int pp_transport_barrier(struct pp_transport *tp)
{
    int32_t mine = 0;
    return pp_transport_allgather(tp, &mine, sizeof(mine), tp->verdicts);
}

/* ---- sums */

/* A sum over a group, of which this rank is member `me`. */
struct sum {
    struct pp_transport *tp;
    const int *group;
    int n, me;
    bool on_device;
    float *buf, *scratch;
};

/* Returns the first element of piece d when N elements are cut into n balanced pieces; N if d ==
 * n. */
static size_t piece_start(size_t N, int n, int d)
{
    size_t each = N / (size_t)n;
    size_t left = N % (size_t)n;
    return each * (size_t)d + ((size_t)d < left ? (size_t)d : left);
}

static int add_floats(const struct sum *s, size_t n, const float *x, float *to)
{
    if (s->on_device)
        return pp_backend_add(s->tp->be, n, x, to);
    for (size_t i = 0; i < n; i++)
        to[i] += x[i];
    return 0;
}

static int copy_floats(const struct sum *s, size_t n, const float *x, float *to)
{
    if (s->on_device)
        return pp_backend_copy(s->tp->be, to, x, n * sizeof(float));
    memcpy(to, x, n * sizeof(float));
    return 0;
}

static int exchange_for_sum(const struct sum *s, int n)
{
    return s->on_device ? s->tp->ops->exchange_on(s->tp, s->tp->exchanges, n)
                        : exchange_on_host(s->tp, s->tp->exchanges, n);
}

/* Sums N elements, which are few: the first member of the group receives the elements of the
 * others, adds them in group order, and sends the result to the others. */
static int reduce_small(const struct sum *s, size_t N)
{
    size_t bytes = N * sizeof(float);
    struct pp_exchange *x = s->tp->exchanges;
    for (int j = 1; j < s->n; j++) {
        if (s->me == 0) {
            x[0] = (struct pp_exchange){.peer = s->group[j], .in = s->scratch, .in_bytes = bytes};
            PP_TRY(exchange_for_sum(s, 1));
            PP_TRY(add_floats(s, N, s->scratch, s->buf));
        } else if (s->me == j) {
            x[0] = (struct pp_exchange){.peer = s->group[0], .out = s->buf, .out_bytes = bytes};
            PP_TRY(exchange_for_sum(s, 1));
        }
    }
    if (s->me != 0) {
        x[0] = (struct pp_exchange){.peer = s->group[0], .in = s->buf, .in_bytes = bytes};
        return exchange_for_sum(s, 1);
    }
    for (int j = 1; j < s->n; j++)
        x[j - 1] = (struct pp_exchange){.peer = s->group[j], .out = s->buf, .out_bytes = bytes};
    return exchange_for_sum(s, s->n - 1);
}

/* Sums N elements by pieces. Member d owns piece d: it receives that piece from all other members,
 * keeps the copies until the last has arrived, adds them in group order and sends the sum to the
 * others. */
static int reduce_pieces(const struct sum *s, size_t N)
{
    const size_t f = sizeof(float);
    struct pp_exchange *x = s->tp->exchanges;
    size_t lo = piece_start(N, s->n, s->me);
    size_t mine = piece_start(N, s->n, s->me + 1) - lo;
    int k = 0;
    for (int j = 0; j < s->n; j++) {
        size_t theirs = piece_start(N, s->n, j);
        if (j != s->me) {
            x[k] = (struct pp_exchange){s->group[j], s->buf + theirs,
                                        (piece_start(N, s->n, j + 1) - theirs) * f,
                                        s->scratch + (size_t)k * mine, mine * f};
            k++;
        }
    }
    PP_TRY(exchange_for_sum(s, k));
    /* The sum starts with member 0's piece in its place: ((x0 + x1) + x2) + ... */
    float *sum = s->me == 0 ? s->buf + lo : s->scratch;
    for (int j = 1; j < s->n; j++) {
        const float *from = s->scratch + (size_t)(j < s->me ? j : j - 1) * mine;
        PP_TRY(add_floats(s, mine, j == s->me ? s->buf + lo : from, sum));
    }
    if (s->me != 0)
        PP_TRY(copy_floats(s, mine, sum, s->buf + lo));
    k = 0;
    for (int j = 0; j < s->n; j++) {
        size_t theirs = piece_start(N, s->n, j);
        if (j != s->me) {
            x[k++] = (struct pp_exchange){s->group[j], s->buf + lo, mine * f, s->buf + theirs,
                                          (piece_start(N, s->n, j + 1) - theirs) * f};
        }
    }
    return exchange_for_sum(s, k);
}

int pp_transport_reduce(struct pp_transport *tp, const int *group, int n, size_t n_floats,
                        float *buf, float *scratch)
{
    struct sum s = {tp, group, n, -1, moves_device_memory(tp), buf, scratch};
    for (int j = 0; j < n; j++) {
        pp_assert(group[j] >= 0 && group[j] < tp->size && (j == 0 || group[j - 1] < group[j]));
        s.me = group[j] == tp->rank ? j : s.me;
    }
    pp_assert(s.me >= 0);
    if (n == 1 || n_floats == 0)
        return 0;
    if (tp->ops->reduce)
        return tp->ops->reduce(tp, group, n, n_floats, buf, scratch);
    /* The pieces of the n-1 others must fit into the scratch: (n-1) * ceil(N/n) <= N. */
    size_t others = (size_t)n - 1;
    return n_floats < others * others ? reduce_small(&s, n_floats) : reduce_pieces(&s, n_floats);
}
