/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport of host memory carries messages of a device: every slot has a twin in pinned memory
 * of the host. A send copies down, waits on the host until that copy is done and hands the twin to
 * the inner transport; a receive waits there and copies up, ordered on the stream. The slot itself
 * needs no waiting: all that touches it is on one stream.
 *
 * So unlike the other transports of a device this one makes the host wait for the device, in
 * post_send for the work that makes the message and in release for the copy up. Both waits end by
 * themselves: no device waits for another here, and what the host waits for in between is what a
 * rank without a device would wait for at the same place of the plan.
 */
#include "impl.h"

#include <string.h>

#include "ppcli/backend.h"
#include "ppcli/err.h"
#include "ppcli/mem.h"
#include "wait.h"

/* Reductions and gathered values go through the host in pieces of this size. */
#define PIECE_BYTES ((size_t)4 << 20)

/* Pinned memory, aligned as slots must be. */
struct pinned {
    void *raw;
    size_t bytes;
    char *p;
};

struct slot {
    void *copied;  /* mark: the twin's content has gone up */
    size_t posted; /* bytes of the receive */
};

struct end {
    struct pp_channel_spec spec;
    char *memory;        /* of the device */
    struct pinned twins; /* nothing where the inner transport has the memory */
    struct slot *slots;
};

struct staged {
    struct pp_transport *inner;
    struct pp_transport_ops ops;
    struct pp_backend *be; /* bound; of the transport */
    uint64_t timeout_ns;
    uint64_t *waited_ns;
    struct pinned piece[2];
    void *down; /* mark: the last copy to the host is done */
    int n_ends;
    struct end *ends;
};

static int wait_mark(struct pp_transport *tp, void *mark, uint64_t timeout_ns)
{
    struct staged *s = tp->impl;
    const struct pp_waiter how = {.crowded = true, .waited_ns = s->waited_ns};
    return pp_wait_mark(&how, tp->be, mark, timeout_ns);
}

/* --- memory ---------------------------------------------------------------------------------- */

static int pin(struct pp_backend *be, size_t bytes, struct pinned *out)
{
    PP_TRY(pp_size_add(bytes, PP_ALIGN, &out->bytes));
    PP_TRY(pp_backend_host_alloc(be, out->bytes, &out->raw));
    uintptr_t at = (uintptr_t)out->raw;
    out->p = (char *)out->raw + (PP_ALIGN - at % PP_ALIGN) % PP_ALIGN;
    return 0;
}

static void unpin(struct pp_backend *be, struct pinned *m)
{
    pp_backend_host_free(be, m->raw, m->bytes);
    *m = (struct pinned){0};
}

static int bind(struct pp_transport *tp)
{
    struct staged *s = tp->impl;
    s->be = tp->be;
    PP_TRY(pp_backend_mark_create(tp->be, false, &s->down));
    for (int i = 0; i < 2; i++) {
        PP_TRY(pin(tp->be, PIECE_BYTES, &s->piece[i]));
    }
    return 0;
}

/* Let go of the channels; not of memory that a device which does not answer may still copy from or
 * to: freeing it would wait for the device, for ever. */
static void forget_ends(struct staged *s, bool quiet)
{
    for (int i = 0; i < s->n_ends; i++) {
        struct end *e = &s->ends[i];
        for (int k = 0; quiet && e->slots && k < e->spec.slots; k++) {
            pp_backend_mark_destroy(s->be, e->slots[k].copied);
        }
        if (quiet) {
            unpin(s->be, &e->twins);
        }
        pp_free(e->slots);
    }
    pp_free(s->ends);
    s->ends = NULL;
    s->n_ends = 0;
}

static void destroy(struct pp_transport *tp)
{
    struct staged *s = tp->impl;
    bool quiet = s->be && pp_backend_mark_set(s->be, s->down) == 0 &&
                 wait_mark(tp, s->down, s->timeout_ns) == 0;
    forget_ends(s, quiet);
    for (int i = 0; quiet && i < 2; i++) {
        unpin(s->be, &s->piece[i]);
    }
    if (quiet) {
        pp_backend_mark_destroy(s->be, s->down);
    }
    pp_transport_destroy(&s->inner);
    pp_free(s);
}

/* --- channels -------------------------------------------------------------------------------- */

static int make_ends(struct pp_transport *tp, const struct pp_channel_spec *specs, int n,
                     void *const *memory, void **twins)
{
    struct staged *s = tp->impl;
    bool lends = s->inner->caps.shared_slots;
    s->ends = pp_alloc((size_t)n, sizeof(*s->ends));
    if (!s->ends) {
        return PP_ERESOURCE;
    }
    s->n_ends = n;
    for (int i = 0; i < n; i++) {
        struct end *e = &s->ends[i];
        size_t bytes = 0;
        e->spec = specs[i];
        e->memory = memory[i];
        if (!memory[i] || (uintptr_t)memory[i] % PP_ALIGN != 0) {
            return pp_fail(PP_EINTERNAL, "channel %d: rank %d gives no aligned memory", specs[i].id,
                           tp->rank);
        }
        if (specs[i].dst == tp->rank || !lends) {
            PP_TRY(pp_size_mul((size_t)specs[i].slots, specs[i].bytes, &bytes));
            PP_TRY(pin(tp->be, bytes, &e->twins));
        }
        twins[i] = e->twins.p;
        e->slots = pp_alloc((size_t)specs[i].slots, sizeof(*e->slots));
        if (!e->slots) {
            return PP_ERESOURCE;
        }
        for (int k = 0; k < specs[i].slots; k++) {
            PP_TRY(pp_backend_mark_create(tp->be, false, &e->slots[k].copied));
        }
    }
    return 0;
}

static int open_channels(struct pp_transport *tp, const struct pp_channel_spec *specs, int n,
                         void *const *memory)
{
    struct staged *s = tp->impl;
    pp_assert(!s->ends && tp->be);
    PP_TRY(pp_channels_check(tp, specs, n)); /* before memory is taken for them */
    void **twins = pp_alloc((size_t)n, sizeof(*twins));
    int rc = twins ? make_ends(tp, specs, n, memory, twins) : PP_ERESOURCE;
    rc = pp_transport_agree(tp, rc);
    if (rc == 0) {
        rc = s->inner->ops->open_channels(s->inner, specs, n, twins);
    }
    if (rc < 0) {
        forget_ends(s, true);
    }
    pp_free(twins);
    return rc;
}

static struct end *end_of(struct pp_transport *tp, int ch, int slot)
{
    struct staged *s = tp->impl;
    pp_assert(ch >= 0 && ch < s->n_ends && slot >= 0 && slot < s->ends[ch].spec.slots);
    return &s->ends[ch];
}

static void *slot_memory(struct pp_transport *tp, int ch, int slot)
{
    struct end *e = end_of(tp, ch, slot);
    return e->memory + (size_t)slot * e->spec.bytes;
}

static int acquire(struct pp_transport *tp, int ch, int slot)
{
    struct staged *s = tp->impl;
    return s->inner->ops->acquire(s->inner, ch, slot);
}

/* Copies and waits until the copy is there. */
static int copy_down(struct pp_transport *tp, void *host, const void *device, size_t bytes)
{
    struct staged *s = tp->impl;
    PP_TRY(pp_backend_download(tp->be, host, device, bytes));
    PP_TRY(pp_backend_mark_set(tp->be, s->down));
    return wait_mark(tp, s->down, s->timeout_ns);
}

static int post_send(struct pp_transport *tp, int ch, int slot, size_t bytes, int tag)
{
    struct staged *s = tp->impl;
    struct pp_transport *in = s->inner;
    size_t fits = end_of(tp, ch, slot)->spec.bytes;
    if (bytes <= fits) { /* or the inner one says what is wrong */
        PP_TRY(copy_down(tp, in->ops->slot(in, ch, slot), slot_memory(tp, ch, slot), bytes));
    }
    return in->ops->post_send(in, ch, slot, bytes, tag);
}

static int post_recv(struct pp_transport *tp, int ch, int slot, size_t bytes, int tag)
{
    struct staged *s = tp->impl;
    struct end *e = end_of(tp, ch, slot);
    PP_TRY(s->inner->ops->post_recv(s->inner, ch, slot, bytes, tag));
    e->slots[slot].posted = bytes;
    return 0;
}

static int wait_recv(struct pp_transport *tp, int ch, int slot)
{
    struct staged *s = tp->impl;
    struct pp_transport *in = s->inner;
    struct slot *k = &end_of(tp, ch, slot)->slots[slot];
    PP_TRY(in->ops->wait_recv(in, ch, slot));
    PP_TRY(pp_backend_upload(tp->be, slot_memory(tp, ch, slot), in->ops->slot(in, ch, slot),
                             k->posted));
    return pp_backend_mark_set(tp->be, k->copied);
}

/* The twin is the next message's once it has gone up. */
static int release(struct pp_transport *tp, int ch, int slot)
{
    struct staged *s = tp->impl;
    struct slot *k = &end_of(tp, ch, slot)->slots[slot];
    PP_TRY(wait_mark(tp, k->copied, s->timeout_ns));
    return s->inner->ops->release(s->inner, ch, slot);
}

/* --- collectives ----------------------------------------------------------------------------- */

static int allgather(struct pp_transport *tp, const void *in, size_t bytes, void *out)
{
    struct staged *s = tp->impl;
    return s->inner->ops->allgather(s->inner, in, bytes, out);
}

static int allgather_on(struct pp_transport *tp, const void *in, size_t bytes, void *out)
{
    struct staged *s = tp->impl;
    size_t most = PIECE_BYTES / (size_t)tp->size;
    for (size_t at = 0; at < bytes; at += most) {
        size_t n = bytes - at < most ? bytes - at : most;
        PP_TRY(copy_down(tp, s->piece[0].p, (const char *)in + at, n));
        PP_TRY(s->inner->ops->allgather(s->inner, s->piece[0].p, n, s->piece[1].p));
        for (int r = 0; r < tp->size; r++) {
            PP_TRY(pp_backend_upload(tp->be, (char *)out + (size_t)r * bytes + at,
                                     s->piece[1].p + (size_t)r * n, n));
        }
    }
    return 0;
}

/* Element by element the sum of the inner transport, so pieces change no bits. The host writes to a
 * piece again only behind a copy down, which comes after the copy up on the stream. */
static int reduce(struct pp_transport *tp, const int *group, int n, size_t n_floats, float *buf,
                  float *scratch)
{
    struct staged *s = tp->impl;
    const size_t most = PIECE_BYTES / sizeof(float);
    float *sum = (float *)(void *)s->piece[0].p;
    for (size_t at = 0; at < n_floats; at += most) {
        size_t m = n_floats - at < most ? n_floats - at : most;
        PP_TRY(copy_down(tp, sum, buf + at, m * sizeof(float)));
        PP_TRY(pp_transport_reduce(s->inner, group, n, m, sum, (float *)(void *)s->piece[1].p));
        PP_TRY(pp_backend_upload(tp->be, buf + at, sum, m * sizeof(float)));
    }
    return 0;
}

static int send(struct pp_transport *tp, int dst, const void *buf, size_t bytes)
{
    struct staged *s = tp->impl;
    return s->inner->ops->send(s->inner, dst, buf, bytes);
}

static int recv(struct pp_transport *tp, int src, void *buf, size_t bytes)
{
    struct staged *s = tp->impl;
    return s->inner->ops->recv(s->inner, src, buf, bytes);
}

static int post_vote(struct pp_transport *tp, bool yes)
{
    struct staged *s = tp->impl;
    return pp_transport_post_vote(s->inner, yes);
}

static int wait_vote(struct pp_transport *tp, bool *out_all)
{
    struct staged *s = tp->impl;
    return pp_transport_wait_vote(s->inner, out_all);
}

static void stop_all(struct pp_transport *tp)
{
    struct staged *s = tp->impl;
    s->inner->ops->abort(s->inner);
}

static bool stopped(struct pp_transport *tp)
{
    struct staged *s = tp->impl;
    return s->inner->ops->stopped(s->inner);
}

static void show_waits(struct pp_transport *tp, uint64_t *waited_ns)
{
    struct staged *s = tp->impl;
    s->waited_ns = waited_ns;
    s->inner->ops->show_waits(s->inner, waited_ns);
}

int pp_staged_open(struct pp_transport *inner, uint64_t timeout_ns, struct pp_transport **out)
{
    struct staged *s = pp_alloc(1, sizeof(*s));
    int rc = s ? pp_transport_new(NULL, inner->rank, inner->size, s, out) : PP_ERESOURCE;
    if (rc < 0) {
        pp_free(s);
        pp_transport_destroy(&inner);
        return rc;
    }
    s->inner = inner;
    s->timeout_ns = timeout_ns;
    s->ops = (struct pp_transport_ops){
        .name = "staged",
        .help = "memory of a device over a transport of host memory",
        .caps = inner->caps,
        .destroy = destroy,
        .bind = bind,
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
        .post_vote = post_vote,
        .wait_vote = wait_vote,
        .allgather_on = allgather_on,
        .wait_mark = wait_mark,
        .reduce = reduce,
    };
    s->ops.caps.shared_slots = false;
    (*out)->ops = &s->ops;
    (*out)->caps = s->ops.caps;
    return 0;
}
