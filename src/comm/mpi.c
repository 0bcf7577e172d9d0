/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks are MPI processes. Nothing blocks inside MPI: every operation is started without blocking
 * and finished in one polling loop (finish), which backs off, notices an abort and, because MPI
 * moves messages only inside its calls, also pushes whatever else is under way.
 *
 * No wildcard receives: the MPI tag is (channel, slot). Messages of one slot follow each other
 * strictly, so this pairs every send with its receive whatever the order in which slots are freed.
 * A message is a header (its tag and size) and the payload, in that order under the same MPI tag:
 * with the message's own tag as MPI tag a plan's mistake would be a hang, with the header it is an
 * error.
 */
#include "mpi_impl.h"

#include <limits.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "ppcli/err.h"
#include "ppcli/mem.h"
#include "wait.h"

#define SLOT_BITS 16
#define GIB ((size_t)1 << 30)
#define NAP_NS 50000

/* --- waiting -----------------------------------------------------------------------------------
 */

static int finish(struct mpi *m, MPI_Request *request, MPI_Status *status)
{
    struct pp_backoff b = {.crowded = m->crowded};
    for (;;) {
        int done = 0;
        MPI_TRY(MPI_Test(request, &done, status));
        if (done) {
            return 0;
        }
        int code = atomic_load_explicit(&m->stop, memory_order_relaxed);
        if (code != 0) {
            MPI_Abort(MPI_COMM_WORLD, code);
            return pp_fail(PP_ELOST, "stopped: another rank failed");
        }
        if (pp_backoff_pause(&b)) {
            continue;
        }
        pp_show_wait(m->waited_ns);
        if (m->crowded) {
            struct timespec nap = {.tv_sec = 0, .tv_nsec = NAP_NS};
            nanosleep(&nap, NULL);
        } else {
            sched_yield(); /* progress needs our calls: sleeping would stall the neighbour too */
        }
    }
}

/* MPI belongs to one thread. From another one only the wish is left, for the next finish(). */
static void stop_all(struct pp_transport *tp)
{
    struct mpi *m = tp->impl;
    int code = pp_error_get()->code;
    code = code < 0 ? -code : -PP_EINTERNAL;
    int none = 0;
    atomic_compare_exchange_strong(&m->stop, &none, code);
    if (pthread_equal(pthread_self(), m->thread)) {
        MPI_Abort(MPI_COMM_WORLD, code);
    }
}

static bool stopped(struct pp_transport *tp)
{
    struct mpi *m = tp->impl;
    return atomic_load(&m->stop) != 0;
}

static void show_waits(struct pp_transport *tp, uint64_t *waited_ns)
{
    struct mpi *m = tp->impl;
    m->waited_ns = waited_ns;
}

/* --- collectives, send and recv ----------------------------------------------------------------
 */

static int allgather(struct pp_transport *tp, const void *in, size_t bytes, void *out)
{
    struct mpi *m = tp->impl;
    if (bytes > INT_MAX / (size_t)tp->size) {
        return pp_fail(PP_ERESOURCE,
                       "allgather of %zu bytes from each of %d ranks: at most %d in "
                       "all over MPI",
                       bytes, tp->size, INT_MAX);
    }
    MPI_Request r;
    MPI_TRY(MPI_Iallgather(in, (int)bytes, MPI_BYTE, out, (int)bytes, MPI_BYTE, m->control, &r));
    return finish(m, &r, MPI_STATUS_IGNORE);
}

static int post_vote(struct pp_transport *tp, bool yes)
{
    struct mpi *m = tp->impl;
    m->yes = yes;
    MPI_TRY(MPI_Iallreduce(&m->yes, &m->all, 1, MPI_INT, MPI_MIN, m->control, &m->vote));
    return 0;
}

static int wait_vote(struct pp_transport *tp, bool *out_all)
{
    struct mpi *m = tp->impl;
    PP_TRY(finish(m, &m->vote, MPI_STATUS_IGNORE));
    *out_all = m->all != 0;
    return 0;
}

/* Both cut alike, so the pieces pair up; no bytes are one empty message, so that they still meet.
 */
static int send(struct pp_transport *tp, int dst, const void *buf, size_t bytes)
{
    struct mpi *m = tp->impl;
    pp_assert(dst >= 0 && dst < tp->size && dst != tp->rank);
    size_t done = 0;
    do {
        size_t n = bytes - done < GIB ? bytes - done : GIB;
        MPI_Request r;
        MPI_TRY(MPI_Isend((const char *)buf + done, (int)n, MPI_BYTE, dst, 0, m->control, &r));
        PP_TRY(finish(m, &r, MPI_STATUS_IGNORE));
        done += n;
    } while (done < bytes);
    return 0;
}

static int recv(struct pp_transport *tp, int src, void *buf, size_t bytes)
{
    struct mpi *m = tp->impl;
    pp_assert(src >= 0 && src < tp->size && src != tp->rank);
    size_t done = 0;
    do {
        size_t n = bytes - done < GIB ? bytes - done : GIB;
        MPI_Request r;
        MPI_Status status;
        int found = 0;
        MPI_TRY(MPI_Irecv((char *)buf + done, (int)n, MPI_BYTE, src, 0, m->control, &r));
        PP_TRY(finish(m, &r, &status));
        MPI_TRY(MPI_Get_count(&status, MPI_BYTE, &found));
        if ((size_t)found != n) {
            return pp_fail(PP_EINTERNAL, "from rank %d to %d: expected %zu bytes, found %d", src,
                           tp->rank, n, found);
        }
        done += n;
    } while (done < bytes);
    return 0;
}

/* --- channels ----------------------------------------------------------------------------------
 */

static int make_ends(struct pp_transport *tp, const struct pp_channel_spec *specs, int n,
                     void *const *memory)
{
    struct mpi *m = tp->impl;
    int *tag_ub = NULL;
    int found = 0;
    MPI_TRY(MPI_Comm_get_attr(m->channels, MPI_TAG_UB, &tag_ub, &found));
    int most = found ? *tag_ub : 32767;
    m->ends = pp_alloc((size_t)n, sizeof(*m->ends));
    if (!m->ends) {
        return PP_ERESOURCE;
    }
    m->n_ends = n;
    for (int i = 0; i < n; i++) {
        struct end *e = &m->ends[i];
        e->spec = specs[i];
        e->memory = memory[i];
        if (!memory[i] || (uintptr_t)memory[i] % PP_ALIGN != 0) {
            return pp_fail(PP_EINTERNAL, "channel %d: rank %d gives no aligned memory", specs[i].id,
                           tp->rank);
        }
        if (specs[i].bytes > GIB) {
            return pp_fail(PP_ECONFIG,
                           "a message of %zu bytes: at most %zu over MPI; use more "
                           "micro-batches, or ranks as threads",
                           specs[i].bytes, GIB);
        }
        int last = (specs[i].id << SLOT_BITS) + specs[i].slots - 1;
        if (last > most) {
            return pp_fail(PP_ERESOURCE, "channel %d needs MPI tag %d, this MPI ends at %d",
                           specs[i].id, last, most);
        }
        e->slots = pp_alloc((size_t)specs[i].slots, sizeof(*e->slots));
        if (!e->slots) {
            return PP_ERESOURCE;
        }
        for (int k = 0; k < specs[i].slots; k++) {
            e->slots[k].parts[HEADER] = MPI_REQUEST_NULL;
            e->slots[k].parts[PAYLOAD] = MPI_REQUEST_NULL;
        }
    }
    return 0;
}

static int open_channels(struct pp_transport *tp, const struct pp_channel_spec *specs, int n,
                         void *const *memory)
{
    struct mpi *m = tp->impl;
    pp_assert(!m->ends);
    PP_TRY(pp_channels_check(tp, specs, n));
    return pp_transport_agree(tp, make_ends(tp, specs, n, memory));
}

static struct end *end_of(struct pp_transport *tp, int ch, int slot)
{
    struct mpi *m = tp->impl;
    pp_assert(ch >= 0 && ch < m->n_ends && slot >= 0 && slot < m->ends[ch].spec.slots);
    return &m->ends[ch];
}

static void *slot_memory(struct pp_transport *tp, int ch, int slot)
{
    struct end *e = end_of(tp, ch, slot);
    return e->memory + (size_t)slot * e->spec.bytes;
}

/* The slot is ours again when the previous message has left it. */
static int acquire(struct pp_transport *tp, int ch, int slot)
{
    struct end *e = end_of(tp, ch, slot);
    pp_assert(e->spec.src == tp->rank);
    struct mpi_slot *s = &e->slots[slot];
    PP_TRY(finish(tp->impl, &s->parts[HEADER], MPI_STATUS_IGNORE));
    PP_TRY(finish(tp->impl, &s->parts[PAYLOAD], MPI_STATUS_IGNORE));
    s->side.turn = PP_TURN_ACQUIRED;
    return 0;
}

static int post_send(struct pp_transport *tp, int ch, int slot, size_t bytes, int tag)
{
    struct mpi *m = tp->impl;
    struct end *e = end_of(tp, ch, slot);
    pp_assert(e->spec.src == tp->rank);
    struct mpi_slot *s = &e->slots[slot];
    PP_TRY(pp_slot_posting_send(&e->spec, slot, &s->side, bytes, tag));
    int mpi_tag = (e->spec.id << SLOT_BITS) + slot;
    s->header = (struct header){.bytes = bytes, .tag = (uint32_t)tag, .count = s->side.count++};
    MPI_TRY(MPI_Isend(&s->header, (int)sizeof(s->header), MPI_BYTE, e->spec.dst, mpi_tag,
                      m->channels, &s->parts[HEADER]));
    MPI_TRY(MPI_Isend(slot_memory(tp, ch, slot), (int)bytes, MPI_BYTE, e->spec.dst, mpi_tag,
                      m->channels, &s->parts[PAYLOAD]));
    return 0;
}

static int post_recv(struct pp_transport *tp, int ch, int slot, size_t bytes, int tag)
{
    struct mpi *m = tp->impl;
    struct end *e = end_of(tp, ch, slot);
    pp_assert(e->spec.dst == tp->rank);
    struct mpi_slot *s = &e->slots[slot];
    PP_TRY(pp_slot_posting_recv(&e->spec, slot, &s->side, bytes, tag));
    int mpi_tag = (e->spec.id << SLOT_BITS) + slot;
    MPI_TRY(MPI_Irecv(&s->header, (int)sizeof(s->header), MPI_BYTE, e->spec.src, mpi_tag,
                      m->channels, &s->parts[HEADER]));
    /* The whole slot, so that a message of another size is found by its header, not cut. */
    MPI_TRY(MPI_Irecv(slot_memory(tp, ch, slot), (int)e->spec.bytes, MPI_BYTE, e->spec.src, mpi_tag,
                      m->channels, &s->parts[PAYLOAD]));
    return 0;
}

static int wait_recv(struct pp_transport *tp, int ch, int slot)
{
    struct end *e = end_of(tp, ch, slot);
    struct mpi_slot *s = &e->slots[slot];
    PP_TRY(pp_slot_waiting(&e->spec, slot, &s->side));
    PP_TRY(finish(tp->impl, &s->parts[HEADER], MPI_STATUS_IGNORE));
    PP_TRY(finish(tp->impl, &s->parts[PAYLOAD], MPI_STATUS_IGNORE));
    if (s->header.count != s->side.count) {
        return pp_fail(PP_EINTERNAL, "channel %d slot %d: expected message %u, found message %u",
                       e->spec.id, slot, s->side.count, s->header.count);
    }
    PP_TRY(pp_slot_received(&e->spec, slot, &s->side, s->header.bytes, s->header.tag));
    s->side.count++;
    return 0;
}

static int release(struct pp_transport *tp, int ch, int slot)
{
    struct end *e = end_of(tp, ch, slot);
    return pp_slot_releasing(&e->spec, slot, &e->slots[slot].side);
}

const struct pp_transport_ops transport_mpi = {
    .name = "mpi",
    .help = "ranks are MPI processes, started by mpirun or srun",
    .caps = {.shared_slots = false, .processes = true},
    .destroy = pp_mpi_close,
    .open_channels = open_channels,
    .slot = slot_memory,
    .acquire = acquire,
    .post_send = post_send,
    .post_recv = post_recv,
    .wait_recv = wait_recv,
    .release = release,
    .allgather = allgather,
    .send = send,
    .recv = recv,
    .abort = stop_all,
    .stopped = stopped,
    .show_waits = show_waits,
    .post_vote = post_vote,
    .wait_vote = wait_vote,
};
