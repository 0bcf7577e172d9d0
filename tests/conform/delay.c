/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport that lends its calls to another one, late: before each it yields, sleeps up to a
 * third of a millisecond, or does nothing. Whatever passes only with lucky timing fails here. Each
 * rank draws its delays from a stream of its own, so a seed that shows a fault shows it again (as
 * far as threads allow).
 */
#include "conform.h"

#include <sched.h>
#include <time.h>

#include "../../src/comm/impl.h"
#include "ppcli/base/base.h"

struct delay {
    struct pp_transport_ops ops; /* without what the inner one cannot do */
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
    return tp->inner;
}

static void destroy(struct pp_transport *tp)
{
}

static int bind(struct pp_transport *tp)
{
    return pp_transport_bind(tp->inner, tp->be);
}

static int open_channels(struct pp_transport *tp, const struct pp_channel_spec *specs, int n,
                         void *const *memory)
{
    PP_TRY(pp_transport_open_channels(late(tp), specs, n, memory));
    for (int i = 0; i < n; i++)
        tp->ends[i].memory = pp_transport_slot(tp->inner, i, 0);
    return 0;
}

static int acquire(struct pp_transport *tp, struct pp_channel_end *e, int slot)
{
    return pp_transport_acquire(late(tp), (int)(e - tp->ends), slot);
}

static int post_send(struct pp_transport *tp, struct pp_channel_end *e, int slot, size_t bytes,
                     int tag)
{
    return pp_transport_post_send(late(tp), (int)(e - tp->ends), slot, bytes, tag);
}

static int post_recv(struct pp_transport *tp, struct pp_channel_end *e, int slot, size_t bytes)
{
    return pp_transport_post_recv(late(tp), (int)(e - tp->ends), slot, bytes,
                                  (int)e->slots[slot].tag);
}

static int wait_recv(struct pp_transport *tp, struct pp_channel_end *e, int slot, size_t *bytes,
                     uint32_t *tag)
{
    return pp_transport_wait_recv(late(tp), (int)(e - tp->ends), slot);
}

static int release(struct pp_transport *tp, struct pp_channel_end *e, int slot)
{
    return pp_transport_release(late(tp), (int)(e - tp->ends), slot);
}

static int allgather(struct pp_transport *tp, const void *in, size_t bytes, void *out)
{
    return pp_transport_allgather(late(tp), in, bytes, out);
}

static int reduce(struct pp_transport *tp, const int *group, int n, size_t n_floats, float *buf,
                  float *scratch)
{
    return pp_transport_reduce(late(tp), group, n, n_floats, buf, scratch);
}

static int allgather_on(struct pp_transport *tp, const void *in, size_t bytes, void *out)
{
    return pp_transport_allgather_on(late(tp), in, bytes, out);
}

static int join(struct pp_transport *tp)
{
    return pp_transport_join(late(tp));
}

static int fork_(struct pp_transport *tp)
{
    return pp_transport_fork(late(tp));
}

static void record(struct pp_transport *tp, bool on)
{
    pp_transport_record(late(tp), on);
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

static const struct pp_transport_ops delay = {
    .name = "delay",
    .help = "another transport, slow and uneven",
    .destroy = destroy,
    .bind = bind,
    .open_channels = open_channels,
    .acquire = acquire,
    .post_send = post_send,
    .post_recv = post_recv,
    .wait_recv = wait_recv,
    .release = release,
    .allgather = allgather,
    .reduce = reduce,
    .allgather_on = allgather_on,
    .join = join,
    .fork = fork_,
    .record = record,
    .wait_mark = wait_mark,
    .post_vote = post_vote,
    .wait_vote = wait_vote,
};

int delay_open(struct pp_transport *inner, uint64_t seed, struct pp_transport **out)
{
    PP_TRY(pp_transport_wrap(&delay, inner, sizeof(struct delay), out));
    struct delay *d = (*out)->impl;
    d->ops = delay;
    d->seed = seed;
    d->stream = pp_rng_stream("delay", (uint64_t)inner->rank);
    if (!pp_transport_can_fork(inner))
        d->ops.join = d->ops.fork = NULL;
    (*out)->ops = &d->ops;
    (*out)->caps = inner->caps;
    return 0;
}
