/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between devices through NCCL, across processes and machines. Another transport ("the
 * inner one": threads or mpi) carries what is small and on the host: set-up, scalars, abort.
 *
 * A message of NCCL takes part of the device from the moment it is enqueued until the other side
 * is there, and whatever is behind it in its stream waits. So:
 *
 *   - every channel has a communicator of its two ranks and a stream, on each side. Sends never
 *     stand behind receives, and one boundary never behind another.
 *   - the compute stream meets a channel's stream through events only:
 *
 *       post_send  written -> channel: send -> sent      acquire    compute waits for sent
 *       post_recv  channel waits for released: receive   wait_recv  compute waits for received
 *       release    released, in the compute stream
 *
 *   - receives are posted early, in the order of the sends (ppcli/plan.h), so a send finds its
 *     receive there, and a stream holds only what will be met in this order. What the plan's proof
 *     says of ranks that wait for slots therefore holds for the streams: "sent" comes no later than
 *     "the receiver has released", which is what the proof lets a sender wait for.
 *
 * Messages carry no tag and no size: both sides know them from the plan (caps.unlabelled).
 *
 * Sums over replicas are exact and the same as everywhere: pieces are exchanged, and each member
 * adds its piece in the order of the group. NCCL's own reductions add in an order of theirs.
 */
#include "nccl_impl.h"

#include <string.h>

#include "ppcli/backend.h"
#include "ppcli/err.h"
#include "ppcli/mem.h"

/* --- messages -------------------------------------------------------------------------------- */

static struct end *end_of(struct pp_transport *tp, int ch, int slot)
{
    struct nccl *n = tp->impl;
    pp_assert(ch >= 0 && ch < n->n_ends && slot >= 0 && slot < n->ends[ch].spec.slots);
    return &n->ends[ch];
}

static void *slot_memory(struct pp_transport *tp, int ch, int slot)
{
    struct end *e = end_of(tp, ch, slot);
    return e->memory + (size_t)slot * e->spec.bytes;
}

int pp_nccl_move(struct nccl *n, struct end *e, int slot, size_t bytes)
{
    struct nccl_slot *s = &e->slots[slot];
    char *memory = e->memory + (size_t)slot * e->spec.bytes;
    CUDA_TRY(n, cudaStreamWaitEvent(e->stream, s->here, 0));
    if (bytes > 0) { /* nothing is no message, on both sides */
        ncclResult_t rc = e->spec.src == n->rank
                              ? n->nccl->Send(memory, bytes, ncclUint8, 1, e->comm, e->stream)
                              : n->nccl->Recv(memory, bytes, ncclUint8, 0, e->comm, e->stream);
        PP_TRY(pp_nccl_settle(n, e->comm, e, rc, e->spec.src == n->rank ? "ncclSend" : "ncclRecv"));
    }
    CUDA_TRY(n, cudaEventRecord(s->there, e->stream));
    return 0;
}

static int acquire(struct pp_transport *tp, int ch, int slot)
{
    struct nccl *n = tp->impl;
    struct end *e = end_of(tp, ch, slot);
    pp_assert(e->spec.src == tp->rank);
    PP_TRY(pp_nccl_alive(n));
    CUDA_TRY(n, cudaStreamWaitEvent(n->stream, e->slots[slot].there, 0));
    e->slots[slot].side.turn = PP_TURN_ACQUIRED;
    return 0;
}

static int post_send(struct pp_transport *tp, int ch, int slot, size_t bytes, int tag)
{
    struct nccl *n = tp->impl;
    struct end *e = end_of(tp, ch, slot);
    pp_assert(e->spec.src == tp->rank);
    struct nccl_slot *s = &e->slots[slot];
    PP_TRY(pp_slot_posting_send(&e->spec, slot, &s->side, bytes, tag));
    PP_TRY(pp_nccl_alive(n));
    CUDA_TRY(n, cudaEventRecord(s->here, n->stream));
    return pp_nccl_move(n, e, slot, bytes);
}

static int post_recv(struct pp_transport *tp, int ch, int slot, size_t bytes, int tag)
{
    struct nccl *n = tp->impl;
    struct end *e = end_of(tp, ch, slot);
    pp_assert(e->spec.dst == tp->rank);
    PP_TRY(pp_slot_posting_recv(&e->spec, slot, &e->slots[slot].side, bytes, tag));
    PP_TRY(pp_nccl_alive(n));
    return pp_nccl_move(n, e, slot, bytes);
}

static int wait_recv(struct pp_transport *tp, int ch, int slot)
{
    struct nccl *n = tp->impl;
    struct end *e = end_of(tp, ch, slot);
    struct nccl_slot *s = &e->slots[slot];
    PP_TRY(pp_slot_waiting(&e->spec, slot, &s->side));
    PP_TRY(pp_nccl_alive(n));
    CUDA_TRY(n, cudaStreamWaitEvent(n->stream, s->there, 0));
    return pp_slot_received(&e->spec, slot, &s->side, s->side.bytes, s->side.tag);
}

static int release(struct pp_transport *tp, int ch, int slot)
{
    struct nccl *n = tp->impl;
    struct end *e = end_of(tp, ch, slot);
    struct nccl_slot *s = &e->slots[slot];
    PP_TRY(pp_slot_releasing(&e->spec, slot, &s->side));
    CUDA_TRY(n, cudaEventRecord(s->here, n->stream));
    return 0;
}

/* --- collectives on the device, in the compute stream --------------------------------------- */

static int group_begin(struct nccl *n)
{
    return pp_nccl_settle(n, n->world, NULL, n->nccl->GroupStart(), "ncclGroupStart");
}

static int group_end(struct nccl *n)
{
    return pp_nccl_settle(n, n->world, NULL, n->nccl->GroupEnd(), "ncclGroupEnd");
}

/* Inside a group nothing happens yet: "in progress" is for its end to wait for. */
static int in_group(struct nccl *n, ncclResult_t rc, const char *call)
{
    return rc == ncclSuccess || rc == ncclInProgress ? 0 : pp_nccl_failed(n, NULL, rc, call);
}

static int put(struct nccl *n, int peer, const float *x, size_t floats)
{
    return floats == 0
               ? 0
               : in_group(n, n->nccl->Send(x, floats, ncclFloat32, peer, n->world, n->stream),
                          "ncclSend");
}

static int get(struct nccl *n, int peer, float *x, size_t floats)
{
    return floats == 0
               ? 0
               : in_group(n, n->nccl->Recv(x, floats, ncclFloat32, peer, n->world, n->stream),
                          "ncclRecv");
}

/* Few elements: the first member adds them all up, in order, and tells the others. */
static int reduce_small(struct nccl *n, const int *group, int members, int me, size_t N, float *buf,
                        float *scratch)
{
    for (int j = 1; j < members; j++) {
        if (me != 0 && me != j) {
            continue;
        }
        PP_TRY(group_begin(n));
        PP_TRY(me == 0 ? get(n, group[j], scratch, N) : put(n, group[0], buf, N));
        PP_TRY(group_end(n));
        if (me == 0) {
            PP_TRY(pp_backend_add(n->be, N, scratch, buf));
        }
    }
    PP_TRY(group_begin(n));
    for (int j = 1; j < members; j++) {
        if (me == 0) {
            PP_TRY(put(n, group[j], buf, N));
        } else if (me == j) {
            PP_TRY(get(n, group[0], buf, N));
        }
    }
    return group_end(n);
}

/* Member d owns piece d: it gets that piece of everybody else, adds them in group order, and gives
 * the sum back. Both exchanges are one group of NCCL each. */
static int reduce_pieces(struct nccl *n, const int *group, int members, int me, size_t N,
                         float *buf, float *scratch)
{
    size_t lo = pp_piece(N, members, me);
    size_t mine = pp_piece(N, members, me + 1) - lo;
    PP_TRY(group_begin(n));
    for (int j = 0; j < members; j++) {
        if (j != me) {
            size_t theirs = pp_piece(N, members, j);
            size_t place = (size_t)(j < me ? j : j - 1) * mine;
            PP_TRY(put(n, group[j], buf + theirs, pp_piece(N, members, j + 1) - theirs));
            PP_TRY(get(n, group[j], scratch + place, mine));
        }
    }
    PP_TRY(group_end(n));
    /* The sum starts with member 0's piece, where that lies: ((x0 + x1) + x2) + ... */
    float *sum = me == 0 ? buf + lo : scratch;
    for (int j = 1; j < members; j++) {
        const float *x = j == me ? buf + lo : scratch + (size_t)(j < me ? j : j - 1) * mine;
        PP_TRY(pp_backend_add(n->be, mine, x, sum));
    }
    if (me != 0) {
        PP_TRY(pp_backend_copy(n->be, buf + lo, sum, mine * sizeof(float)));
    }
    PP_TRY(group_begin(n));
    for (int j = 0; j < members; j++) {
        if (j != me) {
            size_t theirs = pp_piece(N, members, j);
            PP_TRY(put(n, group[j], buf + lo, mine));
            PP_TRY(get(n, group[j], buf + theirs, pp_piece(N, members, j + 1) - theirs));
        }
    }
    return group_end(n);
}

static int reduce(struct pp_transport *tp, const int *group, int members, size_t N, float *buf,
                  float *scratch)
{
    struct nccl *n = tp->impl;
    int me = 0;
    while (group[me] != tp->rank) {
        me++;
    }
    PP_TRY(pp_nccl_alive(n));
    /* The pieces of the others must fit the scratch: (n-1) * ceil(N/n) <= N. */
    size_t others = (size_t)members - 1;
    return N < others * others ? reduce_small(n, group, members, me, N, buf, scratch)
                               : reduce_pieces(n, group, members, me, N, buf, scratch);
}

static int allgather_on(struct pp_transport *tp, const void *in, size_t bytes, void *out)
{
    struct nccl *n = tp->impl;
    PP_TRY(pp_nccl_alive(n));
    if (bytes == 0) {
        return 0;
    }
    ncclResult_t rc = n->nccl->AllGather(in, out, bytes, ncclUint8, n->world, n->stream);
    return pp_nccl_settle(n, n->world, NULL, rc, "ncclAllGather");
}

/* --- on the host: the inner transport -------------------------------------------------------- */

/* Another rank's abort ends the waits of this one's device too. */
static int passed(struct nccl *n, int rc)
{
    if (rc == PP_ELOST) {
        pp_nccl_give_up(n);
    }
    return rc;
}

static int allgather(struct pp_transport *tp, const void *in, size_t bytes, void *out)
{
    struct nccl *n = tp->impl;
    return passed(n, n->inner->ops->allgather(n->inner, in, bytes, out));
}

static int send(struct pp_transport *tp, int dst, const void *buf, size_t bytes)
{
    struct nccl *n = tp->impl;
    return passed(n, n->inner->ops->send(n->inner, dst, buf, bytes));
}

static int recv(struct pp_transport *tp, int src, void *buf, size_t bytes)
{
    struct nccl *n = tp->impl;
    return passed(n, n->inner->ops->recv(n->inner, src, buf, bytes));
}

static int post_vote(struct pp_transport *tp, bool yes)
{
    struct nccl *n = tp->impl;
    return passed(n, pp_transport_post_vote(n->inner, yes));
}

static int wait_vote(struct pp_transport *tp, bool *out_all)
{
    struct nccl *n = tp->impl;
    return passed(n, pp_transport_wait_vote(n->inner, out_all));
}

/* From another thread only the wish goes out: the rank's own thread finds it at its next wait. */
static void stop_all(struct pp_transport *tp)
{
    struct nccl *n = tp->impl;
    n->inner->ops->abort(n->inner);
    if (pthread_equal(pthread_self(), n->thread)) {
        pp_nccl_give_up(n);
    }
}

static bool stopped(struct pp_transport *tp)
{
    struct nccl *n = tp->impl;
    return n->inner->ops->stopped && n->inner->ops->stopped(n->inner);
}

static void show_waits(struct pp_transport *tp, uint64_t *waited_ns)
{
    struct nccl *n = tp->impl;
    n->waited_ns = waited_ns;
    n->inner->ops->show_waits(n->inner, waited_ns);
}

static int bind(struct pp_transport *tp)
{
    struct nccl *n = tp->impl;
    n->be = tp->be;
    n->stream = pp_backend_native_stream(tp->be);
    if (!n->stream) {
        return pp_fail(PP_ERESOURCE,
                       "NCCL moves messages between CUDA devices, and the ranks compute on %s: use "
                       "run.transport = threads or mpi",
                       tp->be->description);
    }
    CUDA_TRY(n, cudaGetDevice(&n->device));
    return 0;
}

const struct pp_transport_ops transport_nccl = {
    .name = "nccl",
    .help = "ranks have a device each, NCCL moves the messages; threads or processes",
    .caps = {.unlabelled = true},
    .destroy = pp_nccl_destroy,
    .bind = bind,
    .open_channels = pp_nccl_open_channels,
    .slot = slot_memory,
    .acquire = acquire,
    .post_send = post_send,
    .post_recv = post_recv,
    .wait_recv = wait_recv,
    .release = release,
    .allgather = allgather,
    .send = send,
    .recv = recv,
    .post_vote = post_vote,
    .wait_vote = wait_vote,
    .abort = stop_all,
    .stopped = stopped,
    .show_waits = show_waits,
    .allgather_on = allgather_on,
    .wait_mark = pp_nccl_wait_mark,
    .reduce = reduce,
};
