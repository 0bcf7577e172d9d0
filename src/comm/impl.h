/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the transports share: the handle, the ends of channels, and the exchange that
 * sums and messages are built from. */
#ifndef PPCLI_COMM_IMPL_H
#define PPCLI_COMM_IMPL_H

#include "ppcli/comm/transport.h"

#define PP_TRANSPORT(name) extern const struct pp_transport_ops transport_##name;
#include "transports.def"
extern const struct pp_transport_ops transport_skeleton; /* in no table */

/* Makes a transport with the table `ops`. Takes `impl` over only on success. Local. Errors:
 * PP_ERESOURCE. */
int pp_transport_new(const struct pp_transport_ops *ops, int rank, int size, void *impl,
                     struct pp_transport **out);
/* Makes a transport that is built on `inner`, with impl_bytes of zeroed impl. Takes `inner` over,
 * also on failure. Local. Errors: PP_ERESOURCE. */
int pp_transport_wrap(const struct pp_transport_ops *ops, struct pp_transport *inner,
                      size_t impl_bytes, struct pp_transport **out);

/*
 * Sends messages of a device over a transport that moves memory of the host (MPI, threads): the
 * bound backend copies them to pinned memory of the host and back. post_send waits for the work
 * that makes the message, release for the copy to the device; PP_ELOST when the device needs more
 * than timeout_ns (0: no limit). Slots, reduce and allgather_on are memory of the device; all else
 * is as `inner` does it. Pinned: a copy of every slot, and 8 MiB. Takes `inner` over (also on
 * failure). Local.
 */
int pp_staged_open(struct pp_transport *inner, uint64_t timeout_ns, struct pp_transport **out);

/* Return whether they have found, in *a and *b, two ranks that share a device, or two ranks whose
 * devices do not reach each other's memory. */
bool pp_paths_share(const struct pp_paths *p, int *a, int *b);
bool pp_paths_gap(const struct pp_paths *p, int *a, int *b);

/* Collective. Gathers the specs of all ranks in [size][*out_most]; an entry with slots == 0 ends a
 * list that is shorter. Needs only allgather, send and recv. The caller owns *out: pp_free().
 * Errors: PP_ERESOURCE, on every rank. */
int pp_channels_gather(struct pp_transport *tp, const struct pp_channel_spec *specs, int n,
                       struct pp_channel_spec **out, int *out_most);

/* The state of one slot as one of its two ends sees it. */
enum pp_turn {
    PP_TURN_FREE,
    PP_TURN_ACQUIRED, /* sender: may write, then calls post_send */
    PP_TURN_POSTED,   /* receiver: expects a message */
    PP_TURN_HELD,     /* receiver: reads a message, then calls release */
};

struct pp_slot_end {
    enum pp_turn turn;
    uint32_t count; /* messages through this slot so far */
    uint32_t tag;   /* receiver: expected */
    size_t bytes;   /* receiver: expected */
};

/* One end of a channel. */
struct pp_channel_end {
    struct pp_channel_spec spec;
    char *memory;              /* memory of the slots */
    struct pp_slot_end *slots; /* [spec.slots] */
    /* private memory of the transport: ops->end_bytes, and ops->slot_bytes for each slot */
    void *own, *own_slots;
};

static inline char *pp_slot_memory(const struct pp_channel_end *e, int slot)
{
    return e->memory + (size_t)slot * e->spec.bytes;
}

void pp_ends_free(struct pp_transport *tp);

#endif
