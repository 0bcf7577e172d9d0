/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A template for a transport. Copy this file to NAME.c, name its table transport_NAME and add
 * PP_TRANSPORT(NAME) to transports.def. The template itself is in no table, but is compiled and
 * passes the cases of every transport (tests/conform). It is built on another transport and counts
 * the bytes that this rank sends; one that connects ranks by itself has no `inner` (threads.c).
 * struct pp_transport_ops says of each hook what it must do.
 *
 *   hook                              called                     by               required
 *   probe, version                    before a run               any thread       with a library
 *   prepare                           at the program's start     the main thread  no
 *   fits                              when a run is planned      any thread       yes
 *   open, bind, open_channels         at set-up, in this order   the rank's       all but bind
 *   acquire, post_send, post_recv,    in every step              the rank's       yes
 *   wait_recv, release
 *   allgather, exchange, abort        when ranks agree; on a     the rank's;      without `inner`
 *                                     failure                    abort: any
 *   stopped, lost                     in waits                   any; the rank's  no
 *   exchange_on, allgather_on,        in every step              the rank's       if bind() takes a
 *   reduce                                                                        device's memory
 *   open_exchanges ... wait_exchange  ZeRO's exchanges           the rank's       no
 *   join, fork, record                captured steps             the rank's       no
 *   wait_mark, post_vote, wait_vote   in every step              the rank's       no
 *   destroy                           last                       the rank's       yes
 *
 * All calls of a rank come from its thread, except those of "any thread". A rank that waits must
 * return PP_ELOST soon after any rank has called abort(): what `inner` does needs no care.
 */
#include "impl.h"

#include "ppcli/base/base.h"
#include "transport.h"

/* The state of a rank. */
struct skeleton {
    uint64_t sent; /* bytes */
};

/* Required. Returns whether the transport can connect these ranks; `why` gets the reason for or
 * against it. */
static bool fits(const struct pp_paths *p, char why[PP_TRANSPORT_WHY_MAX])
{
    snprintf(why, PP_TRANSPORT_WHY_MAX, "messages are counted");
    return !p->processes;
}

/* Makes a transport that sends through `inner`, and takes `inner` over. */
static int open_skeleton(struct pp_transport *inner, uint64_t timeout_ns, struct pp_transport **out)
{
    PP_TRY(pp_transport_wrap(&transport_skeleton, inner, sizeof(struct skeleton), out));
    (*out)->caps = inner->caps;
    return 0;
}

/* Required. Frees what the transport made, except impl, which pp_transport_wrap() allocated. */
static void destroy(struct pp_transport *tp)
{
    const struct skeleton *own = tp->impl;
    pp_log_debug("rank %d sent %llu bytes", tp->rank, (unsigned long long)own->sent);
}

/* Collective. Gives tp->ends[n], which are made and checked, the memory of their slots. */
static int open_channels(struct pp_transport *tp, const struct pp_channel_spec *specs, int n,
                         void *const *memory)
{
    PP_TRY(pp_transport_open_channels(tp->inner, specs, n, memory));
    for (int i = 0; i < n; i++)
        tp->ends[i].memory = pp_transport_slot(tp->inner, i, 0);
    return 0;
}

static int index_of(const struct pp_transport *tp, const struct pp_channel_end *e)
{
    return (int)(e - tp->ends);
}

/* Sender: waits until the slot is free to be written. */
static int acquire(struct pp_transport *tp, struct pp_channel_end *e, int slot)
{
    return pp_transport_acquire(tp->inner, index_of(tp, e), slot);
}

/* Sender: sends the slot's first `bytes` bytes, and does not wait for the receiver. */
static int post_send(struct pp_transport *tp, struct pp_channel_end *e, int slot, size_t bytes,
                     int tag)
{
    struct skeleton *own = tp->impl;
    own->sent += bytes;
    return pp_transport_post_send(tp->inner, index_of(tp, e), slot, bytes, tag);
}

/* Receiver: posts the receive of a message into the slot, before the message is needed. */
static int post_recv(struct pp_transport *tp, struct pp_channel_end *e, int slot, size_t bytes)
{
    return pp_transport_post_recv(tp->inner, index_of(tp, e), slot, bytes, (int)e->slots[slot].tag);
}

/* Receiver: waits for the message of post_recv(). *bytes and *tag have the expected values. A
 * transport that learns the size and tag of the message stores them there, and the caller
 * compares. */
static int wait_recv(struct pp_transport *tp, struct pp_channel_end *e, int slot, size_t *bytes,
                     uint32_t *tag)
{
    return pp_transport_wait_recv(tp->inner, index_of(tp, e), slot);
}

/* Receiver: allows the sender to write the slot again, because this rank has read it. */
static int release(struct pp_transport *tp, struct pp_channel_end *e, int slot)
{
    return pp_transport_release(tp->inner, index_of(tp, e), slot);
}

const struct pp_transport_ops transport_skeleton = {
    .name = "skeleton",                   /* of run.transport */
    .help = "a template for a transport", /* one line for ppcli.ini(5) */
    .joins_threads = true,
    .fits = fits,
    .open = open_skeleton,
    .destroy = destroy,
    .open_channels = open_channels,
    .acquire = acquire,
    .post_send = post_send,
    .post_recv = post_recv,
    .wait_recv = wait_recv,
    .release = release,
};
