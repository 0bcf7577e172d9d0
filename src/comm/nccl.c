/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between devices through NCCL, across processes and machines. Another transport ("the
 * inner one": threads or mpi) carries what is small and on the host: set-up, scalars, abort.
 *
 * A message of NCCL occupies part of the device from the moment it is enqueued until the other side
 * arrives, and work behind it in its stream waits. So:
 *
 *   - every channel has a communicator of its two ranks and a stream, on each side. Sends never
 *     wait behind receives, and one boundary never waits behind another.
 *   - the compute stream and a channel's stream are ordered through events only:
 *
 *       post_send  written -> channel: send -> sent      acquire    compute waits for sent
 *       post_recv  channel waits for released: receive   wait_recv  compute waits for received
 *       release    released, in the compute stream
 *
 *   - receives are posted early, in the order of the sends (ppcli/sched/plan.h), so a send finds its
 *     receive, and a stream holds only messages that will be matched in this order. What the plan
 *     proves about ranks that wait for slots therefore holds for the streams: "sent" comes no later
 *     than "the receiver has released", which is what the proof lets a sender wait for.
 *
 * Messages carry no tag and no size: both sides know them from the plan (caps.unlabelled).
 *
 * Sums over replicas are exact and the same as with other transports: pieces are exchanged, and
 * each member adds its piece in the order of the group. NCCL's own reductions add in another order.
 */
#include "nccl_impl.h"

#include "ppcli/dev/devices.h"

/* ---- messages */

int pp_nccl_move(struct nccl *n, struct pp_channel_end *e, int slot, size_t bytes)
{
    const struct nccl_end *own = e->own;
    struct nccl_slot *s = nccl_slot(e, slot);
    bool sends = e->spec.src == n->tp->rank;
    char *memory = pp_slot_memory(e, slot);
    if (s->here_fence == n->fence)
        CUDA_TRY(n, cudaStreamWaitEvent(own->stream, s->here, 0));
    if (bytes > 0 && sends) /* an empty message is not sent, on both sides */
        NCCL_TRY(n, e, Send(memory, bytes, ncclUint8, 1, own->comm, own->stream));
    if (bytes > 0 && !sends)
        NCCL_TRY(n, e, Recv(memory, bytes, ncclUint8, 0, own->comm, own->stream));
    CUDA_TRY(n, cudaEventRecord(s->there, own->stream));
    s->there_fence = n->fence;
    return 0;
}

/* Records in the compute stream the point from which the channel may use the slot's memory. */
static int record_here(struct nccl *n, const struct pp_channel_end *e, int slot)
{
    struct nccl_slot *s = nccl_slot(e, slot);
    CUDA_TRY(n, cudaEventRecord(s->here, n->stream));
    s->here_fence = n->fence;
    return 0;
}

/* Makes the compute stream wait until the channel's message was sent or received. */
static int acquire(struct pp_transport *tp, struct pp_channel_end *e, int slot)
{
    struct nccl *n = tp->impl;
    PP_TRY(pp_nccl_alive(n));
    if (nccl_slot(e, slot)->there_fence == n->fence)
        CUDA_TRY(n, cudaStreamWaitEvent(n->stream, nccl_slot(e, slot)->there, 0));
    return 0;
}

static int post_send(struct pp_transport *tp, struct pp_channel_end *e, int slot, size_t bytes,
                     int tag)
{
    struct nccl *n = tp->impl;
    PP_TRY(pp_nccl_alive(n));
    PP_TRY(record_here(n, e, slot));
    return pp_nccl_move(n, e, slot, bytes);
}

static int post_recv(struct pp_transport *tp, struct pp_channel_end *e, int slot, size_t bytes)
{
    struct nccl *n = tp->impl;
    PP_TRY(pp_nccl_alive(n));
    return n->records ? 0 : pp_nccl_move(n, e, slot, bytes);
}

/* Makes the compute stream wait for the message. A recorded receive begins only at this point: a
 * graph does not promise to run two branches at once, so an earlier receive could make earlier work
 * wait. */
static int wait_recv(struct pp_transport *tp, struct pp_channel_end *e, int slot, size_t *bytes,
                     uint32_t *tag)
{
    struct nccl *n = tp->impl;
    if (n->records) {
        PP_TRY(record_here(n, e, slot));
        PP_TRY(pp_nccl_move(n, e, slot, *bytes));
    }
    return acquire(tp, e, slot);
}

static int release(struct pp_transport *tp, struct pp_channel_end *e, int slot)
{
    return record_here(tp->impl, e, slot);
}

/* ---- recorded steps: every rank records its own */

static int join_stream(struct nccl *n, cudaStream_t stream, cudaEvent_t joined)
{
    CUDA_TRY(n, cudaEventRecord(joined, stream));
    CUDA_TRY(n, cudaStreamWaitEvent(n->stream, joined, 0));
    return 0;
}

static int join_channels(struct pp_transport *tp)
{
    struct nccl *n = tp->impl;
    PP_TRY(pp_nccl_alive(n));
    for (int i = 0; i < tp->n_ends; i++) {
        const struct nccl_end *own = tp->ends[i].own;
        PP_TRY(join_stream(n, own->stream, own->joined));
    }
    return n->side ? join_stream(n, n->side, n->forked) : 0;
}

static int fork_channels(struct pp_transport *tp)
{
    struct nccl *n = tp->impl;
    CUDA_TRY(n, cudaEventRecord(n->forked, n->stream));
    for (int i = 0; i < tp->n_ends; i++)
        CUDA_TRY(n,
                 cudaStreamWaitEvent(((struct nccl_end *)tp->ends[i].own)->stream, n->forked, 0));
    if (n->side)
        CUDA_TRY(n, cudaStreamWaitEvent(n->side, n->forked, 0));
    n->fence++;
    return 0;
}

static void record_steps(struct pp_transport *tp, bool on)
{
    ((struct nccl *)tp->impl)->records = on;
}

/* ---- collectives on the device, in the compute stream */

/* Checks the result of a call inside a group. After a failure it ends the group, because an open
 * group would swallow this thread's next calls, including the abort. */
static int in_group(struct nccl *n, ncclResult_t rc, const char *call)
{
    if (rc == ncclSuccess)
        return 0;
    n->nccl->GroupEnd();
    return pp_nccl_failed(n, NULL, rc, call);
}

struct exchanging {
    const struct pp_exchange *x;
    int n_peers;
    cudaStream_t stream;
};

static int exchange_now(struct nccl *n, void *arg)
{
    const struct exchanging *a = arg;
    const struct pp_exchange *x = a->x;
    const struct nccl_library *nccl = n->nccl;
    NCCL_TRY(n, NULL, GroupStart());
    for (int i = 0; i < a->n_peers; i++) {
        size_t out = x[i].out ? x[i].out_bytes : 0, in = x[i].in ? x[i].in_bytes : 0;
        int peer = x[i].peer;
        if (out > 0) {
            PP_TRY(in_group(n, nccl->Send(x[i].out, out, ncclUint8, peer, n->world, a->stream),
                            "ncclSend"));
        }
        if (in > 0) {
            PP_TRY(in_group(n, nccl->Recv(x[i].in, in, ncclUint8, peer, n->world, a->stream),
                            "ncclRecv"));
        }
    }
    NCCL_TRY(n, NULL, GroupEnd());
    return 0;
}

/* Exchanges messages with n_peers ranks in a stream. The first message between two ranks connects
 * them and waits for both of their hosts, so a helper thread posts it. */
static int exchange(struct nccl *n, const struct pp_exchange *x, int n_peers, cudaStream_t stream)
{
    struct exchanging a = {x, n_peers, stream};
    bool all_met = true;
    for (int i = 0; i < n_peers; i++) {
        all_met = all_met && n->met[x[i].peer];
        n->met[x[i].peer] = true;
    }
    PP_TRY(pp_nccl_alive(n));
    return all_met ? exchange_now(n, &a) : pp_nccl_help(n, "connecting replicas", exchange_now, &a);
}

static int exchange_on(struct pp_transport *tp, const struct pp_exchange *x, int n_peers)
{
    return exchange(tp->impl, x, n_peers, ((struct nccl *)tp->impl)->stream);
}

/* Enqueues exchange `number` in the side stream, after the work that is now in the compute stream.
 * Messages of one communicator are sent in the order in which they were enqueued, whatever the
 * stream. */
static int post_exchange(struct pp_transport *tp, int number, const struct pp_exchange *x,
                         int n_peers)
{
    struct nccl *n = tp->impl;
    const struct nccl_exchange *e = &n->exchanges[number];
    CUDA_TRY(n, cudaEventRecord(e->here, n->stream));
    CUDA_TRY(n, cudaStreamWaitEvent(n->side, e->here, 0));
    PP_TRY(exchange(n, x, n_peers, n->side));
    CUDA_TRY(n, cudaEventRecord(e->there, n->side));
    return 0;
}

static int wait_exchange(struct pp_transport *tp, int number)
{
    struct nccl *n = tp->impl;
    PP_TRY(pp_nccl_alive(n));
    CUDA_TRY(n, cudaStreamWaitEvent(n->stream, n->exchanges[number].there, 0));
    return 0;
}

struct gathering {
    const void *in;
    void *out;
    size_t bytes;
};

static int gather_now(struct nccl *n, void *arg)
{
    const struct gathering *a = arg;
    NCCL_TRY(n, NULL, AllGather(a->in, a->out, a->bytes, ncclUint8, n->world, n->stream));
    return 0;
}

static int allgather_on(struct pp_transport *tp, const void *in, size_t bytes, void *out)
{
    struct nccl *n = tp->impl;
    struct gathering a = {in, out, bytes};
    bool first = !n->met[tp->rank];
    PP_TRY(pp_nccl_alive(n));
    if (bytes == 0)
        return 0;
    n->met[tp->rank] = true;
    return first ? pp_nccl_help(n, "connecting all ranks", gather_now, &a) : gather_now(n, &a);
}

/* ---- calls on the host, through the inner transport */

/* Gives up this rank's communicators after another rank's abort, which also ends the waits of this
 * rank's device. */
static void lost(struct pp_transport *tp)
{
    pp_nccl_give_up(tp->impl);
}

/* Aborts all ranks and gives up this rank's communicators. Another thread than the rank's own only
 * does the first; the rank's thread does the second at its next wait. */
static void stop_all(struct pp_transport *tp)
{
    struct nccl *n = tp->impl;
    pp_transport_abort(tp->inner);
    if (pthread_equal(pthread_self(), n->thread))
        pp_nccl_give_up(n);
}

static int bind(struct pp_transport *tp)
{
    struct nccl *n = tp->impl;
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

static bool fits(const struct pp_paths *p, char why[PP_TRANSPORT_WHY_MAX])
{
    int a, b;
    if (p->seats[0].device.number < 0) {
        snprintf(why, PP_TRANSPORT_WHY_MAX,
                 "NCCL connects CUDA devices, and the ranks compute on the processor");
        return false;
    }
    if (!pp_paths_share(p, &a, &b)) {
        snprintf(why, PP_TRANSPORT_WHY_MAX, "each rank has a device of its own");
        return true;
    }
    snprintf(why, PP_TRANSPORT_WHY_MAX,
             p->processes ? "ranks %d and %d are processes that share device %d"
                          : "ranks %d and %d share device %d, and NCCL needs one for each",
             a, b, p->seats[a].device.number);
    return false;
}

const struct pp_transport_ops transport_nccl = {
    .name = "nccl",
    .help = "ranks have a device each, NCCL moves the messages; threads or processes",
    .caps = {.unlabelled = true, .own_steps = true},
    .joins_threads = true,
    .joins_processes = true,
    .needs_device = true,
    .library = "NCCL",
    .network_variable = "NCCL_SOCKET_IFNAME",
    .version = pp_nccl_version,
    .probe = pp_nccl_probe,
    .prepare = pp_nccl_prepare,
    .fits = fits,
    .open = pp_nccl_open,
    .device_bytes = (size_t)512 << 20, /* measured elsewhere: NVIDIA/nccl #964, #2363 */
    .end_bytes = sizeof(struct nccl_end),
    .slot_bytes = sizeof(struct nccl_slot),
    .destroy = pp_nccl_destroy,
    .bind = bind,
    .open_channels = pp_nccl_open_channels,
    .acquire = acquire,
    .post_send = post_send,
    .post_recv = post_recv,
    .wait_recv = wait_recv,
    .release = release,
    .abort = stop_all,
    .lost = lost,
    .exchange_on = exchange_on,
    .open_exchanges = pp_nccl_open_exchanges,
    .post_exchange = post_exchange,
    .wait_exchange = wait_exchange,
    .allgather_on = allgather_on,
    .join = join_channels,
    .fork = fork_channels,
    .record = record_steps,
    .wait_mark = pp_nccl_wait_mark,
};
