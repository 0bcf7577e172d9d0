/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carries messages of a device over a transport of host memory (MPI, or threads whose devices do
 * not reach each other): every slot has a twin in pinned memory of the host. A send copies down,
 * waits on the host until the copy is done and passes the twin to the inner transport; a receive
 * waits there and copies up, ordered on the stream. The slot itself needs no waiting: all work on
 * it is on one stream.
 *
 * So unlike the other transports of a device this one makes the host wait for the device, in
 * post_send for the work that makes the message and in release for the copy up. Both waits end by
 * themselves: no device waits for another here, and in between the host waits for the same events
 * as a rank without a device would at the same place of the plan.
 */
#include "impl.h"

#include "ppcli/dev/backend.h"
#include "ppcli/dev/devices.h"
#include "ppcli/base/base.h"

/* Reductions and gathered values go through the host in pieces of this size. */
#define PIECE_BYTES ((size_t)4 << 20)

/* Pinned memory, aligned like slots. */
struct pinned {
    void *raw;
    size_t bytes;
    char *p;
};

struct end {
    struct pinned twins; /* empty if the inner transport has the memory */
};

struct slot {
    void *copied; /* mark: the twin was copied up */
};

struct staged {
    uint64_t timeout_ns;
    struct pinned piece[2];
    void *down; /* mark: the last copy to the host is done */
};

static int wait_mark(struct pp_transport *tp, void *mark)
{
    const struct staged *s = tp->impl;
    return pp_transport_wait_mark(tp, mark, s->timeout_ns);
}

/* ---- memory */

static int pin_memory(struct pp_backend *be, size_t bytes, struct pinned *out)
{
    PP_TRY(pp_size_add(bytes, PP_ALIGN, &out->bytes));
    PP_TRY(pp_backend_host_alloc(be, out->bytes, &out->raw));
    uintptr_t at = (uintptr_t)out->raw;
    out->p = (char *)out->raw + (PP_ALIGN - at % PP_ALIGN) % PP_ALIGN;
    return 0;
}

static void unpin_memory(struct pp_backend *be, struct pinned *m)
{
    pp_backend_host_free(be, m->raw, m->bytes);
    *m = (struct pinned){0};
}

static int bind(struct pp_transport *tp)
{
    struct staged *s = tp->impl;
    PP_TRY(pp_backend_mark_create(tp->be, false, &s->down));
    for (int i = 0; i < 2; i++)
        PP_TRY(pin_memory(tp->be, PIECE_BYTES, &s->piece[i]));
    return 0;
}

/* Releases everything, also after an abort. If the device does not answer, all memory is kept,
 * because the device may still copy from or to it. */
static void destroy(struct pp_transport *tp)
{
    struct staged *s = tp->impl;
    if (!tp->be || !pp_backend_is_quiet(tp->be, s->down))
        return;
    for (int i = 0; i < tp->n_ends; i++) {
        struct end *own = tp->ends[i].own;
        struct slot *slots = tp->ends[i].own_slots;
        for (int k = 0; slots && k < tp->ends[i].spec.slots; k++)
            pp_backend_mark_destroy(tp->be, slots[k].copied);
        if (own)
            unpin_memory(tp->be, &own->twins);
    }
    for (int i = 0; i < 2; i++)
        unpin_memory(tp->be, &s->piece[i]);
    pp_backend_mark_destroy(tp->be, s->down);
}

/* ---- channels */

static int make_twins(struct pp_transport *tp, void **twins)
{
    for (int i = 0; i < tp->n_ends; i++) {
        struct pp_channel_end *e = &tp->ends[i];
        struct end *own = e->own;
        struct slot *slots = e->own_slots;
        size_t bytes = 0;
        if (e->spec.dst == tp->rank || !tp->inner->caps.shared_slots) {
            PP_TRY(pp_size_mul((size_t)e->spec.slots, e->spec.bytes, &bytes));
            PP_TRY(pin_memory(tp->be, bytes, &own->twins));
        }
        twins[i] = own->twins.p;
        for (int k = 0; k < e->spec.slots; k++)
            PP_TRY(pp_backend_mark_create(tp->be, false, &slots[k].copied));
    }
    return 0;
}

static int open_channels(struct pp_transport *tp, const struct pp_channel_spec *specs, int n,
                         void *const *memory)
{
    pp_assert(tp->be);
    PP_OWN_MEMORY void **twins = pp_alloc((size_t)n, sizeof(*twins));
    PP_TRY(pp_transport_agree(tp, twins ? make_twins(tp, twins) : PP_ERESOURCE));
    return pp_transport_open_channels(tp->inner, specs, n, twins);
}

static int index_of(const struct pp_transport *tp, const struct pp_channel_end *e)
{
    return (int)(e - tp->ends);
}

static void *twin_of(const struct pp_transport *tp, const struct pp_channel_end *e, int slot)
{
    return pp_transport_slot(tp->inner, index_of(tp, e), slot);
}

static int acquire(struct pp_transport *tp, struct pp_channel_end *e, int slot)
{
    return pp_transport_acquire(tp->inner, index_of(tp, e), slot);
}

/* Copies to the host and waits until the copy is done. */
static int copy_down(struct pp_transport *tp, void *host, const void *device, size_t bytes)
{
    struct staged *s = tp->impl;
    PP_TRY(pp_backend_download(tp->be, host, device, bytes));
    PP_TRY(pp_backend_mark_set(tp->be, s->down));
    int rc = wait_mark(tp, s->down);
    /* The twin may belong to the receiver, which frees it when all ranks have left. */
    if (rc < 0 && pp_transport_stopped(tp))
        (void)pp_backend_is_quiet(tp->be, s->down);
    return rc;
}

static int post_send(struct pp_transport *tp, struct pp_channel_end *e, int slot, size_t bytes,
                     int tag)
{
    PP_TRY(copy_down(tp, twin_of(tp, e, slot), pp_slot_memory(e, slot), bytes));
    return pp_transport_post_send(tp->inner, index_of(tp, e), slot, bytes, tag);
}

static int post_recv(struct pp_transport *tp, struct pp_channel_end *e, int slot, size_t bytes)
{
    return pp_transport_post_recv(tp->inner, index_of(tp, e), slot, bytes, (int)e->slots[slot].tag);
}

static int wait_recv(struct pp_transport *tp, struct pp_channel_end *e, int slot, size_t *bytes,
                     uint32_t *tag)
{
    struct slot *slots = e->own_slots;
    PP_TRY(pp_transport_wait_recv(tp->inner, index_of(tp, e), slot));
    PP_TRY(pp_backend_upload(tp->be, pp_slot_memory(e, slot), twin_of(tp, e, slot), *bytes));
    return pp_backend_mark_set(tp->be, slots[slot].copied);
}

/* Waits until the twin was copied to the device, then releases it for the next message. */
static int release(struct pp_transport *tp, struct pp_channel_end *e, int slot)
{
    const struct slot *slots = e->own_slots;
    PP_TRY(wait_mark(tp, slots[slot].copied));
    return pp_transport_release(tp->inner, index_of(tp, e), slot);
}

/* ---- collectives */

static int allgather_on(struct pp_transport *tp, const void *in, size_t bytes, void *out)
{
    struct staged *s = tp->impl;
    size_t most = PIECE_BYTES / (size_t)tp->size;
    for (size_t at = 0; at < bytes; at += most) {
        size_t n = bytes - at < most ? bytes - at : most;
        PP_TRY(copy_down(tp, s->piece[0].p, (const char *)in + at, n));
        PP_TRY(pp_transport_allgather(tp->inner, s->piece[0].p, n, s->piece[1].p));
        for (int r = 0; r < tp->size; r++) {
            PP_TRY(pp_backend_upload(tp->be, (char *)out + (size_t)r * bytes + at,
                                     s->piece[1].p + (size_t)r * n, n));
        }
    }
    return 0;
}

/* Sums floats over the group with the inner transport, one piece after the other. It sums element
 * by element, so pieces change no bits. The host overwrites a piece only after a copy down, which
 * comes after the copy up on the stream. */
static int reduce(struct pp_transport *tp, const int *group, int n, size_t n_floats, float *buf,
                  float *scratch)
{
    struct staged *s = tp->impl;
    const size_t most = PIECE_BYTES / sizeof(float);
    float *sum = (float *)(void *)s->piece[0].p;
    for (size_t at = 0; at < n_floats; at += most) {
        size_t m = n_floats - at < most ? n_floats - at : most;
        PP_TRY(copy_down(tp, sum, buf + at, m * sizeof(float)));
        PP_TRY(pp_transport_reduce(tp->inner, group, n, m, sum, (float *)(void *)s->piece[1].p));
        PP_TRY(pp_backend_upload(tp->be, buf + at, sum, m * sizeof(float)));
    }
    return 0;
}

static bool fits(const struct pp_paths *p, char why[PP_TRANSPORT_WHY_MAX])
{
    bool devices = p->seats[0].device.number >= 0;
    snprintf(why, PP_TRANSPORT_WHY_MAX,
             devices ? "messages go through host memory" : "the ranks compute in host memory");
    return devices;
}

const struct pp_transport_ops transport_staged = {
    .name = "staged",
    .help = "ranks are threads; messages between devices are copied through host memory",
    .joins_threads = true,
    .needs_device = true,
    .fits = fits,
    .open = pp_staged_open,
    .end_bytes = sizeof(struct end),
    .slot_bytes = sizeof(struct slot),
    .destroy = destroy,
    .bind = bind,
    .open_channels = open_channels,
    .acquire = acquire,
    .post_send = post_send,
    .post_recv = post_recv,
    .wait_recv = wait_recv,
    .release = release,
    .allgather_on = allgather_on,
    .reduce = reduce,
};

int pp_staged_open(struct pp_transport *inner, uint64_t timeout_ns, struct pp_transport **out)
{
    PP_TRY(pp_transport_wrap(&transport_staged, inner, sizeof(struct staged), out));
    ((struct staged *)(*out)->impl)->timeout_ns = timeout_ns;
    return 0;
}
