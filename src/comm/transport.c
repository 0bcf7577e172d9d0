/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is the same for every transport, built on its table: the list of names, the verdict all
 * ranks share, and the sum whose bits do not depend on who arrives first.
 */
#include "impl.h"

#include <string.h>

#include "ppcli/backend.h"
#include "ppcli/err.h"
#include "ppcli/mem.h"
#include "wait.h"

const char *const *pp_transport_names(void)
{
    static const char *const names[] = {"auto",
#define PP_TRANSPORT(name) #name,
#include "transports.def"
#undef PP_TRANSPORT
                                        NULL};
    return names;
}

int pp_transport_new(const struct pp_transport_ops *ops, int rank, int size, void *impl,
                     struct pp_transport **out)
{
    struct pp_transport *tp = pp_alloc(1, sizeof(*tp));
    int32_t *verdicts = pp_alloc((size_t)size, sizeof(*verdicts));
    if (!tp || !verdicts) {
        pp_free(tp);
        pp_free(verdicts);
        return PP_ERESOURCE;
    }
    *tp = (struct pp_transport){
        .ops = ops, .rank = rank, .size = size, .impl = impl, .verdicts = verdicts};
    if (ops) {
        tp->caps = ops->caps;
    }
    *out = tp;
    return 0;
}

void pp_transport_destroy(struct pp_transport **tp)
{
    if (!*tp) {
        return;
    }
    (*tp)->ops->destroy(*tp);
    pp_free((*tp)->verdicts);
    pp_free(*tp);
    *tp = NULL;
}

/* --- the calls of the table ------------------------------------------------------------------- */

int pp_transport_open_channels(struct pp_transport *tp, const struct pp_channel_spec *specs, int n,
                               void *const *memory)
{
    return tp->ops->open_channels(tp, specs, n, memory);
}

void *pp_transport_slot(struct pp_transport *tp, int ch, int slot)
{
    return tp->ops->slot(tp, ch, slot);
}

int pp_transport_acquire(struct pp_transport *tp, int ch, int slot)
{
    return tp->ops->acquire(tp, ch, slot);
}

int pp_transport_post_send(struct pp_transport *tp, int ch, int slot, size_t bytes, int tag)
{
    return tp->ops->post_send(tp, ch, slot, bytes, tag);
}

int pp_transport_post_recv(struct pp_transport *tp, int ch, int slot, size_t bytes, int tag)
{
    return tp->ops->post_recv(tp, ch, slot, bytes, tag);
}

int pp_transport_wait_recv(struct pp_transport *tp, int ch, int slot)
{
    return tp->ops->wait_recv(tp, ch, slot);
}

int pp_transport_release(struct pp_transport *tp, int ch, int slot)
{
    return tp->ops->release(tp, ch, slot);
}

int pp_transport_allgather(struct pp_transport *tp, const void *in, size_t bytes, void *out)
{
    return tp->ops->allgather(tp, in, bytes, out);
}

int pp_transport_send(struct pp_transport *tp, int dst, const void *buf, size_t bytes)
{
    return tp->ops->send(tp, dst, buf, bytes);
}

int pp_transport_recv(struct pp_transport *tp, int src, void *buf, size_t bytes)
{
    return tp->ops->recv(tp, src, buf, bytes);
}

void pp_transport_abort(struct pp_transport *tp)
{
    tp->ops->abort(tp);
}

bool pp_transport_stopped(struct pp_transport *tp)
{
    return tp->ops->stopped && tp->ops->stopped(tp);
}

void pp_transport_show_waits(struct pp_transport *tp, uint64_t *waited_ns)
{
    tp->ops->show_waits(tp, waited_ns);
}

/* --- the verdict of all ranks ------------------------------------------------------------------
 */

/* What travels of an error: the source position stays where it is, pointers do not cross. */
struct story {
    char text[PP_ERROR_TEXT_MAX];
};

/* The lowest failing rank tells the others. Sent and not gathered: size times this record would
 * need memory, and a failing run may have none. */
static int share_story(struct pp_transport *tp, int teller, int code, int rc)
{
    struct story s;
    if (tp->rank != teller) {
        PP_TRY(tp->ops->recv(tp, teller, &s, sizeof(s)));
        s.text[sizeof(s.text) - 1] = '\0';
        if (rc >= 0) {
            pp_fail(code, "rank %d: %s", teller, s.text);
        }
        return code;
    }
    memset(&s, 0, sizeof(s));
    const struct pp_error *e = pp_error_get();
    const char *text = e->code != 0 && e->text[0] != '\0' ? e->text : pp_status_name(code);
    memcpy(s.text, text, strnlen(text, sizeof(s.text) - 1));
    for (int r = 0; r < tp->size; r++) {
        if (r != teller) {
            PP_TRY(tp->ops->send(tp, r, &s, sizeof(s)));
        }
    }
    return code;
}

int pp_transport_agree(struct pp_transport *tp, int rc)
{
    int32_t mine = rc < 0 ? rc : 0;
    PP_TRY(tp->ops->allgather(tp, &mine, sizeof(mine), tp->verdicts));
    for (int r = 0; r < tp->size; r++) {
        if (tp->verdicts[r] < 0) {
            return share_story(tp, r, tp->verdicts[r], rc);
        }
    }
    return 0;
}

/* --- memory of a device ----------------------------------------------------------------------- */

int pp_transport_bind(struct pp_transport *tp, struct pp_backend *be)
{
    pp_assert(!tp->be);
    tp->be = be;
    if (tp->ops->bind) {
        return tp->ops->bind(tp);
    }
    if (!be->caps.host_visible) {
        return pp_fail(PP_ERESOURCE, "transport %s cannot move memory of %s", tp->ops->name,
                       be->description);
    }
    return 0;
}

bool pp_transport_on_device(const struct pp_transport *tp)
{
    return tp->be && !tp->be->caps.host_visible;
}

int pp_transport_allgather_on(struct pp_transport *tp, const void *in, size_t bytes, void *out)
{
    if (!pp_transport_on_device(tp)) {
        return tp->ops->allgather(tp, in, bytes, out);
    }
    pp_assert(tp->ops->allgather_on);
    return tp->ops->allgather_on(tp, in, bytes, out);
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

int pp_transport_wait_mark(struct pp_transport *tp, void *mark, uint64_t timeout_ns)
{
    if (tp->ops->wait_mark) {
        return tp->ops->wait_mark(tp, mark, timeout_ns);
    }
    return pp_wait_mark(&(struct pp_waiter){.crowded = true}, tp->be, mark, timeout_ns);
}

int pp_transport_barrier(struct pp_transport *tp)
{
    int32_t mine = 0;
    return tp->ops->allgather(tp, &mine, sizeof(mine), tp->verdicts);
}

int pp_transport_post_vote(struct pp_transport *tp, bool yes)
{
    if (tp->ops->post_vote) {
        return tp->ops->post_vote(tp, yes);
    }
    tp->vote = yes;
    return 0;
}

int pp_transport_wait_vote(struct pp_transport *tp, bool *out_all)
{
    if (tp->ops->wait_vote) {
        return tp->ops->wait_vote(tp, out_all);
    }
    PP_TRY(tp->ops->allgather(tp, &tp->vote, sizeof(tp->vote), tp->verdicts));
    bool all = true;
    for (int r = 0; r < tp->size; r++) {
        all = all && tp->verdicts[r] != 0;
    }
    *out_all = all;
    return 0;
}

size_t pp_piece(size_t N, int n, int d)
{
    size_t each = N / (size_t)n;
    size_t left = N % (size_t)n;
    return each * (size_t)d + ((size_t)d < left ? (size_t)d : left);
}

void pp_piece_add(size_t n, const float *x, float *sum)
{
    for (size_t i = 0; i < n; i++) {
        sum[i] += x[i];
    }
}

/* Blocking both ways between two members. The lower one speaks first: two blocking sends that cross
 * hang as soon as the messages are too big to be buffered. */
static int exchange(struct pp_transport *tp, int peer, const float *out, size_t n_out, float *in,
                    size_t n_in)
{
    const size_t f = sizeof(float);
    if (tp->rank < peer) {
        PP_TRY(tp->ops->send(tp, peer, out, n_out * f));
        return tp->ops->recv(tp, peer, in, n_in * f);
    }
    PP_TRY(tp->ops->recv(tp, peer, in, n_in * f));
    return tp->ops->send(tp, peer, out, n_out * f);
}

/* Few elements: the first member adds them all up, in order, and tells the others. */
static int reduce_small(struct pp_transport *tp, const int *group, int n, int me, size_t N,
                        float *buf, float *scratch)
{
    if (me != 0) {
        PP_TRY(tp->ops->send(tp, group[0], buf, N * sizeof(float)));
        return tp->ops->recv(tp, group[0], buf, N * sizeof(float));
    }
    for (int j = 1; j < n; j++) {
        PP_TRY(tp->ops->recv(tp, group[j], scratch, N * sizeof(float)));
        pp_piece_add(N, scratch, buf);
    }
    for (int j = 1; j < n; j++) {
        PP_TRY(tp->ops->send(tp, group[j], buf, N * sizeof(float)));
    }
    return 0;
}

/*
 * Member d owns piece d: it gets that piece of everybody else, keeps all of them until the last is
 * there, adds them in group order and gives the sum back.
 *
 * Who talks to whom when: in round t member a meets member (t - a) mod n. Every round is a set of
 * disjoint pairs and every pair meets exactly once, so blocking calls cannot form a cycle.
 */
static int reduce_pieces(struct pp_transport *tp, const int *group, int n, int me, size_t N,
                         float *buf, float *scratch)
{
    size_t lo = pp_piece(N, n, me);
    size_t mine = pp_piece(N, n, me + 1) - lo;
    for (int t = 0; t < n; t++) {
        int j = (t - me + n) % n;
        if (j == me) {
            continue;
        }
        size_t theirs = pp_piece(N, n, j);
        float *place = scratch + (size_t)(j < me ? j : j - 1) * mine;
        PP_TRY(exchange(tp, group[j], buf + theirs, pp_piece(N, n, j + 1) - theirs, place, mine));
    }
    /* The sum starts with member 0's piece, where that lies: ((x0 + x1) + x2) + ... */
    float *sum = me == 0 ? buf + lo : scratch;
    for (int j = 1; j < n; j++) {
        pp_piece_add(mine, j == me ? buf + lo : scratch + (size_t)(j < me ? j : j - 1) * mine, sum);
    }
    if (me != 0) {
        memcpy(buf + lo, sum, mine * sizeof(float));
    }
    for (int t = 0; t < n; t++) {
        int j = (t - me + n) % n;
        if (j == me) {
            continue;
        }
        size_t theirs = pp_piece(N, n, j);
        PP_TRY(
            exchange(tp, group[j], buf + lo, mine, buf + theirs, pp_piece(N, n, j + 1) - theirs));
    }
    return 0;
}

int pp_transport_reduce(struct pp_transport *tp, const int *group, int n, size_t n_floats,
                        float *buf, float *scratch)
{
    int me = -1;
    for (int j = 0; j < n; j++) {
        pp_assert(group[j] >= 0 && group[j] < tp->size && (j == 0 || group[j - 1] < group[j]));
        me = group[j] == tp->rank ? j : me;
    }
    pp_assert(me >= 0);
    if (n == 1 || n_floats == 0) {
        return 0;
    }
    pp_assert(tp->ops->reduce || !pp_transport_on_device(tp));
    if (tp->ops->reduce) {
        return tp->ops->reduce(tp, group, n, n_floats, buf, scratch);
    }
    /* The pieces of the n-1 others must fit the scratch: (n-1) * ceil(N/n) <= N. */
    size_t others = (size_t)n - 1;
    if (n_floats < others * others) {
        return reduce_small(tp, group, n, me, n_floats, buf, scratch);
    }
    return reduce_pieces(tp, group, n, me, n_floats, buf, scratch);
}
