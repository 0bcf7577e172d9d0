/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport that lends its calls to another one, late. Each rank draws its delays from a stream
 * of its own, so a seed that shows a fault shows it again (as far as threads allow).
 */
#include "impl.h"

#include <sched.h>
#include <time.h>

#include "ppcli/err.h"
#include "ppcli/mem.h"
#include "ppcli/rng.h"

struct delay {
    struct pp_transport *inner;
    struct pp_transport_ops ops; /* the wrapper's, with the inner one's capabilities */
    uint64_t seed, stream, calls;
};

static struct pp_transport *late(struct pp_transport *tp)
{
    struct delay *d = tp->impl;
    uint32_t r = pp_rng_u32(d->seed, d->stream, d->calls++);
    /* Half of the calls go straight through, a quarter yields, every 16th sleeps. */
    if (r % 16 == 0) {
        struct timespec t = {.tv_sec = 0, .tv_nsec = (long)(r >> 4) % 300000};
        nanosleep(&t, NULL);
    } else if (r % 4 == 1) {
        sched_yield();
    }
    return d->inner;
}

static void destroy(struct pp_transport *tp)
{
    struct delay *d = tp->impl;
    pp_transport_destroy(&d->inner);
    pp_free(d);
}

static int open_channels(struct pp_transport *tp, const struct pp_channel_spec *specs, int n,
                         void *const *memory)
{
    struct pp_transport *in = late(tp);
    return in->ops->open_channels(in, specs, n, memory);
}

static void *slot_memory(struct pp_transport *tp, int ch, int slot)
{
    struct delay *d = tp->impl;
    return d->inner->ops->slot(d->inner, ch, slot);
}

static int acquire(struct pp_transport *tp, int ch, int slot)
{
    struct pp_transport *in = late(tp);
    return in->ops->acquire(in, ch, slot);
}

static int post_send(struct pp_transport *tp, int ch, int slot, size_t bytes, int tag)
{
    struct pp_transport *in = late(tp);
    return in->ops->post_send(in, ch, slot, bytes, tag);
}

static int post_recv(struct pp_transport *tp, int ch, int slot, size_t bytes, int tag)
{
    struct pp_transport *in = late(tp);
    return in->ops->post_recv(in, ch, slot, bytes, tag);
}

static int wait_recv(struct pp_transport *tp, int ch, int slot)
{
    struct pp_transport *in = late(tp);
    return in->ops->wait_recv(in, ch, slot);
}

static int release(struct pp_transport *tp, int ch, int slot)
{
    struct pp_transport *in = late(tp);
    return in->ops->release(in, ch, slot);
}

static int allgather(struct pp_transport *tp, const void *in_bytes, size_t bytes, void *out)
{
    struct pp_transport *in = late(tp);
    return in->ops->allgather(in, in_bytes, bytes, out);
}

static int send(struct pp_transport *tp, int dst, const void *buf, size_t bytes)
{
    struct pp_transport *in = late(tp);
    return in->ops->send(in, dst, buf, bytes);
}

static int recv(struct pp_transport *tp, int src, void *buf, size_t bytes)
{
    struct pp_transport *in = late(tp);
    return in->ops->recv(in, src, buf, bytes);
}

static int reduce(struct pp_transport *tp, const int *group, int n, size_t n_floats, float *buf,
                  float *scratch)
{
    struct pp_transport *in = late(tp);
    return in->ops->reduce(in, group, n, n_floats, buf, scratch);
}

static int bind(struct pp_transport *tp)
{
    struct delay *d = tp->impl;
    return pp_transport_bind(d->inner, tp->be);
}

static int allgather_on(struct pp_transport *tp, const void *in_bytes, size_t bytes, void *out)
{
    return pp_transport_allgather_on(late(tp), in_bytes, bytes, out);
}

static int join(struct pp_transport *tp)
{
    return pp_transport_join(late(tp));
}

static int fork_(struct pp_transport *tp)
{
    return pp_transport_fork(late(tp));
}

static int wait_mark(struct pp_transport *tp, void *mark, uint64_t timeout_ns)
{
    return pp_transport_wait_mark(late(tp), mark, timeout_ns);
}

static int post_vote(struct pp_transport *tp, bool yes)
{
    return pp_transport_post_vote(late(tp), yes);
}

static int wait_vote(struct pp_transport *tp, bool *out_all)
{
    return pp_transport_wait_vote(late(tp), out_all);
}

static void stop_all(struct pp_transport *tp)
{
    struct delay *d = tp->impl; /* any thread: draws nothing */
    d->inner->ops->abort(d->inner);
}

static bool stopped(struct pp_transport *tp)
{
    struct delay *d = tp->impl;
    return d->inner->ops->stopped(d->inner);
}

static void show_waits(struct pp_transport *tp, uint64_t *waited_ns)
{
    struct delay *d = tp->impl;
    d->inner->ops->show_waits(d->inner, waited_ns);
}

int pp_delay_open(struct pp_transport *inner, uint64_t seed, struct pp_transport **out)
{
    struct delay *d = pp_alloc(1, sizeof(*d));
    int rc = d ? pp_transport_new(NULL, inner->rank, inner->size, d, out) : PP_ERESOURCE;
    if (rc < 0) {
        pp_free(d);
        pp_transport_destroy(&inner);
        return rc;
    }
    d->inner = inner;
    d->seed = seed;
    d->stream = pp_rng_stream("delay", (uint64_t)inner->rank);
    d->ops = (struct pp_transport_ops){
        .name = "delay",
        .help = "another transport, slow and uneven (tests)",
        .caps = inner->caps,
        .destroy = destroy,
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
        .stopped = inner->ops->stopped ? stopped : NULL,
        .show_waits = show_waits,
        .bind = bind,
        .allgather_on = inner->ops->allgather_on ? allgather_on : NULL,
        .join = inner->ops->join ? join : NULL,
        .fork = inner->ops->fork ? fork_ : NULL,
        .wait_mark = wait_mark,
        .post_vote = post_vote,
        .wait_vote = wait_vote,
        .reduce = inner->ops->reduce ? reduce : NULL,
    };
    (*out)->ops = &d->ops;
    (*out)->caps = d->ops.caps;
    return 0;
}
