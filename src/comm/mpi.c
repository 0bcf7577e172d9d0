/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks are MPI processes. No call blocks inside MPI: every operation is started without blocking
 * and finished in one polling loop (finish_request), which backs off, notices an abort and, because
 * MPI moves messages only inside its calls, also advances all other messages. Between hosts a large
 * message must also move while its ranks compute: then a thread, the mover, calls MPI.
 *
 * There are no wildcard receives: the MPI tag encodes channel and slot. Messages of one slot follow
 * each other strictly, so this pairs every send with its receive whatever the order in which slots
 * are freed. A message is a header (its tag and size) and the payload, in that order under the same
 * MPI tag. If the message's own tag were the MPI tag, a plan's mistake would be a hang; with the
 * header it is an error.
 */
#include "mpi_impl.h"

#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "ppcli/base/cores.h"
#include "wait.h"

#define GIB ((size_t)1 << 30)
#define NAP_NS 50000
#define MOVE_NS 300000 /* interval in which a fast network carries less than the kernel holds */
#define LARGE_BYTES ((size_t)2 << 20) /* the kernel certainly holds less for a connection */

/* ---- who may call MPI */

static struct mpi *lock_calls(struct pp_transport *tp)
{
    struct mpi *m = tp->impl;
    if (m->moves)
        pthread_mutex_lock(&m->lock);
    return m;
}

static void unlock_calls(struct mpi **m)
{
    if ((*m)->moves)
        pthread_mutex_unlock(&(*m)->lock);
}

/* Makes the mover wait until the function returns. It stands at the beginning of each operation. */
#define MPI_IS_MINE(tp)                                                                            \
    __attribute__((cleanup(unlock_calls), unused)) struct mpi *mine_ = lock_calls(tp)

static void *move_messages(void *arg)
{
    struct mpi *m = arg;
    int found;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    pthread_mutex_lock(&m->lock);
    while (!m->over) {
        if (m->large == 0) {
            pthread_cond_wait(&m->wake, &m->lock);
            continue;
        }
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, m->control, &found, MPI_STATUS_IGNORE);
        pthread_mutex_unlock(&m->lock);
        pp_clock_nap(MOVE_NS);
        pthread_mutex_lock(&m->lock);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

int pp_mpi_start_mover(struct mpi *m)
{
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->wake, NULL);
    int e = pp_thread_start(&m->mover, move_messages, m);
    m->moves = e == 0;
    return e == 0 ? 0
                  : pp_fail(PP_ERESOURCE, "cannot start a thread for messages: %s", strerror(e));
}

static void count_large(struct mpi *m, struct mpi_slot *s, bool large)
{
    m->large += (large && m->moves) - s->large;
    s->large = large && m->moves;
    if (s->large && m->large == 1)
        pthread_cond_signal(&m->wake);
}

/* ---- waiting */

static int finish_request(struct pp_transport *tp, MPI_Request *request, MPI_Status *status)
{
    struct mpi *m = tp->impl;
    struct pp_backoff b = {.crowded = tp->crowded};
    for (;;) {
        int done = 0;
        MPI_TRY(MPI_Test(request, &done, status));
        if (done)
            return 0;
        int code = atomic_load_explicit(&m->stop, memory_order_relaxed);
        if (code != 0) {
            MPI_Abort(MPI_COMM_WORLD, code);
            return pp_fail(PP_ELOST, "stopped: another rank failed");
        }
        if (pp_backoff_pause(&b))
            continue;
        pp_show_wait(tp->waited_ns);
        if (tp->crowded)
            pp_clock_nap(NAP_NS);
        else
            /* MPI makes progress only in our calls: sleeping would stall the neighbour too */
            sched_yield();
    }
}

/* Aborts all ranks. Only one thread may call MPI; another thread leaves a request, which the next
 * finish_request() finds. */
static void stop_all(struct pp_transport *tp)
{
    struct mpi *m = tp->impl;
    int code = pp_error_get()->code;
    code = code < 0 ? -code : -PP_EINTERNAL;
    int none = 0;
    atomic_compare_exchange_strong(&m->stop, &none, code); /* unless an earlier abort has set it */
    if (pthread_equal(pthread_self(), m->thread)) {
        MPI_IS_MINE(tp);
        MPI_Abort(MPI_COMM_WORLD, none != 0 ? none : code);
    }
}

static bool stopped(struct pp_transport *tp)
{
    struct mpi *m = tp->impl;
    return atomic_load(&m->stop) != 0;
}

/* ---- collectives, exchanges */

static int allgather(struct pp_transport *tp, const void *in, size_t bytes, void *out)
{
    MPI_IS_MINE(tp);
    struct mpi *m = tp->impl;
    if (bytes > INT_MAX / (size_t)tp->size) {
        return pp_fail(PP_ERESOURCE,
                       "allgather of %zu bytes from each of %d ranks: at most %d in "
                       "all over MPI",
                       bytes, tp->size, INT_MAX);
    }
    MPI_Request r;
    MPI_TRY(MPI_Iallgather(in, (int)bytes, MPI_BYTE, out, (int)bytes, MPI_BYTE, m->control, &r));
    return finish_request(tp, &r, MPI_STATUS_IGNORE);
}

static int post_vote(struct pp_transport *tp, bool yes)
{
    MPI_IS_MINE(tp);
    struct mpi *m = tp->impl;
    m->yes = yes;
    MPI_TRY(MPI_Iallreduce(&m->yes, &m->all, 1, MPI_INT, MPI_MIN, m->control, &m->vote));
    return 0;
}

static int wait_vote(struct pp_transport *tp, bool *out_all)
{
    MPI_IS_MINE(tp);
    struct mpi *m = tp->impl;
    PP_TRY(finish_request(tp, &m->vote, MPI_STATUS_IGNORE));
    *out_all = m->all != 0;
    return 0;
}

static size_t part_of(size_t bytes, size_t from)
{
    return bytes - from < GIB ? bytes - from : GIB;
}

/* Exchanges messages with n peers, in parts of a GiB, until the longest message is done. Request 2i
 * receives from the peer of x[i], request 2i + 1 sends to it. A message of which no bytes are left
 * has no request. An empty message has one in the first round. */
static int exchange(struct pp_transport *tp, const struct pp_exchange *x, int n)
{
    MPI_IS_MINE(tp);
    const struct mpi *m = tp->impl;
    MPI_Request *r = m->requests;
    MPI_Status status;
    size_t at = 0, most = 0, all = 2 * (size_t)n;
    for (; at == 0 || at < most; at += GIB) {
        for (size_t i = 0; i < all; i++) {
            const struct pp_exchange *e = &x[i / 2];
            char *p = i % 2 == 0 ? e->in : (char *)e->out;
            size_t bytes = i % 2 == 0 ? e->in_bytes : e->out_bytes;
            int part = (int)part_of(bytes, at);
            most = bytes > most ? bytes : most;
            r[i] = MPI_REQUEST_NULL;
            if (p && (at < bytes || at == 0))
                MPI_TRY(i % 2 == 0
                            ? MPI_Irecv(p + at, part, MPI_BYTE, e->peer, 0, m->control, &r[i])
                            : MPI_Isend(p + at, part, MPI_BYTE, e->peer, 0, m->control, &r[i]));
        }
        for (size_t i = 0; i < all; i++) {
            const struct pp_exchange *e = &x[i / 2];
            bool comes = i % 2 == 0 && r[i] != MPI_REQUEST_NULL;
            int found = 0;
            PP_TRY(finish_request(tp, &r[i], &status));
            if (comes)
                MPI_TRY(MPI_Get_count(&status, MPI_BYTE, &found));
            if (comes && (size_t)found != part_of(e->in_bytes, at)) {
                return pp_fail(PP_EINTERNAL, "from rank %d to %d: expected %zu bytes, found %d",
                               e->peer, tp->rank, part_of(e->in_bytes, at), found);
            }
        }
    }
    return 0;
}

/* ---- channels */

static int open_channels(struct pp_transport *tp, const struct pp_channel_spec *specs, int n,
                         void *const *memory)
{
    struct mpi *m = tp->impl;
    int *tag_ub = NULL;
    int found = 0;
    MPI_TRY(MPI_Comm_get_attr(m->channels, MPI_TAG_UB, &tag_ub, &found));
    int most = found ? *tag_ub : 32767;
    PP_TAKE(int, used, 2 * tp->size); /* of messages to each rank, then of those from each */
    for (int i = 0; i < n; i++) {
        if (specs[i].bytes > PP_MPI_MESSAGE_MAX)
            return pp_fail(PP_ECONFIG, PP_MPI_TOO_LONG, specs[i].bytes, PP_MPI_MESSAGE_MAX);
        bool out = specs[i].src == tp->rank;
        int *next = out ? &used[specs[i].dst] : &used[tp->size + specs[i].src];
        ((struct mpi_end *)tp->ends[i].own)->tag = *next;
        if (specs[i].slots > most - *next) {
            return pp_fail(PP_ERESOURCE, "channel %d needs %d MPI tags after %d, the last is %d",
                           specs[i].id, specs[i].slots, *next, most);
        }
        *next += specs[i].slots;
        struct mpi_slot *slots = tp->ends[i].own_slots;
        for (int k = 0; k < specs[i].slots; k++) {
            slots[k].parts[HEADER] = MPI_REQUEST_NULL;
            slots[k].parts[PAYLOAD] = MPI_REQUEST_NULL;
            slots[k].large = false;
        }
    }
    return 0;
}

static struct mpi_slot *slot_of(const struct pp_channel_end *e, int slot)
{
    return (struct mpi_slot *)e->own_slots + slot;
}

static int finish_slot(struct pp_transport *tp, struct mpi_slot *s)
{
    PP_TRY(finish_request(tp, &s->parts[HEADER], MPI_STATUS_IGNORE));
    PP_TRY(finish_request(tp, &s->parts[PAYLOAD], MPI_STATUS_IGNORE));
    count_large(tp->impl, s, false);
    return 0;
}

/* Waits until the previous message has left the slot. */
static int acquire(struct pp_transport *tp, struct pp_channel_end *e, int slot)
{
    MPI_IS_MINE(tp);
    return finish_slot(tp, slot_of(e, slot));
}

static int post_send(struct pp_transport *tp, struct pp_channel_end *e, int slot, size_t bytes,
                     int tag)
{
    MPI_IS_MINE(tp);
    struct mpi *m = tp->impl;
    struct mpi_slot *s = slot_of(e, slot);
    int mpi_tag = ((const struct mpi_end *)e->own)->tag + slot;
    s->header =
        (struct header){.bytes = bytes, .tag = (uint32_t)tag, .count = e->slots[slot].count};
    MPI_TRY(MPI_Isend(&s->header, (int)sizeof(s->header), MPI_BYTE, e->spec.dst, mpi_tag,
                      m->channels, &s->parts[HEADER]));
    MPI_TRY(MPI_Isend(pp_slot_memory(e, slot), (int)bytes, MPI_BYTE, e->spec.dst, mpi_tag,
                      m->channels, &s->parts[PAYLOAD]));
    count_large(m, s, bytes > LARGE_BYTES);
    return 0;
}

/* Posts a receive of the whole slot, not only of `bytes`, so that a message of another size is
 * found by its header instead of being truncated. */
static int post_recv(struct pp_transport *tp, struct pp_channel_end *e, int slot, size_t bytes)
{
    MPI_IS_MINE(tp);
    struct mpi *m = tp->impl;
    struct mpi_slot *s = slot_of(e, slot);
    int mpi_tag = ((const struct mpi_end *)e->own)->tag + slot;
    MPI_TRY(MPI_Irecv(&s->header, (int)sizeof(s->header), MPI_BYTE, e->spec.src, mpi_tag,
                      m->channels, &s->parts[HEADER]));
    MPI_TRY(MPI_Irecv(pp_slot_memory(e, slot), (int)e->spec.bytes, MPI_BYTE, e->spec.src, mpi_tag,
                      m->channels, &s->parts[PAYLOAD]));
    count_large(m, s, bytes > LARGE_BYTES);
    return 0;
}

static int wait_recv(struct pp_transport *tp, struct pp_channel_end *e, int slot, size_t *bytes,
                     uint32_t *tag)
{
    MPI_IS_MINE(tp);
    struct mpi_slot *s = slot_of(e, slot);
    PP_TRY(finish_slot(tp, s));
    if (s->header.count != e->slots[slot].count) {
        return pp_fail(PP_EINTERNAL, "channel %d slot %d: expected message %u, found message %u",
                       e->spec.id, slot, e->slots[slot].count, s->header.count);
    }
    *bytes = s->header.bytes;
    *tag = s->header.tag;
    return 0;
}

static bool fits(const struct pp_paths *p, char why[PP_TRANSPORT_WHY_MAX])
{
    snprintf(why, PP_TRANSPORT_WHY_MAX, "messages go through host memory");
    return true;
}

const struct pp_transport_ops transport_mpi = {
    .name = "mpi",
    .help = "ranks are MPI processes, started by mpirun or srun",
    .caps = {.shared_slots = false, .processes = true},
    .joins_processes = true,
    .is_world = true,
    .library = "MPI",
    .version = pp_mpi_version,
    .probe = pp_mpi_probe,
    .fits = fits,
    .open = pp_mpi_open,
    .end_bytes = sizeof(struct mpi_end),
    .slot_bytes = sizeof(struct mpi_slot),
    .destroy = pp_mpi_close,
    .open_channels = open_channels,
    .acquire = acquire,
    .post_send = post_send,
    .post_recv = post_recv,
    .wait_recv = wait_recv,
    .allgather = allgather,
    .exchange = exchange,
    .abort = stop_all,
    .stopped = stopped,
    .post_vote = post_vote,
    .wait_vote = wait_vote,
};
