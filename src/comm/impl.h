/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the transports share: making the handle, and the two things every one of them must refuse
 * alike, channels the two ends see differently and slots used out of turn.
 */
#ifndef PPCLI_COMM_IMPL_H
#define PPCLI_COMM_IMPL_H

#include "ppcli/transport.h"

#define PP_TRANSPORT(name) extern const struct pp_transport_ops transport_##name;
#include "transports.def"
#undef PP_TRANSPORT

/* A handle; takes impl over only on success. Local. Errors: PP_ERESOURCE. */
int pp_transport_new(const struct pp_transport_ops *ops, int rank, int size, void *impl,
                     struct pp_transport **out);

/*
 * Collective: are the specs legal, and does the other end of each have the same one? Needs only
 * allgather, send and recv. Every rank gets the same verdict. Errors: PP_EINTERNAL, PP_ERESOURCE.
 */
int pp_channels_check(struct pp_transport *tp, const struct pp_channel_spec *specs, int n);

/* Collective: everybody's specs, [size][*out_most]; slots == 0 ends a shorter list. Needs only
 * allgather, send and recv. *out is the caller's: pp_free(). Errors: PP_ERESOURCE, on every rank.
 */
int pp_channels_gather(struct pp_transport *tp, const struct pp_channel_spec *specs, int n,
                       struct pp_channel_spec **out, int *out_most);

/* First element of piece d of N elements cut into n balanced pieces; d == n gives N. */
size_t pp_piece(size_t N, int n, int d);

/* sum[i] += x[i], i = 0..n-1 */
void pp_piece_add(size_t n, const float *x, float *sum);

/* One slot as one of its two ends sees it. */
enum pp_turn {
    PP_TURN_FREE,
    PP_TURN_ACQUIRED, /* sender: may write, then post_send */
    PP_TURN_POSTED,   /* receiver: expects a message */
    PP_TURN_HELD,     /* receiver: reads a message, then release */
};

struct pp_slot_end {
    enum pp_turn turn;
    uint32_t count; /* messages that went through this slot before */
    uint32_t tag;   /* receiver: expected */
    size_t bytes;   /* receiver: expected */
};

/* These refuse a call out of turn, a size or a tag out of range (PP_EINTERNAL), else they note the
 * new turn. Local. */
int pp_slot_posting_send(const struct pp_channel_spec *c, int slot, struct pp_slot_end *s,
                         size_t bytes, int tag);
int pp_slot_posting_recv(const struct pp_channel_spec *c, int slot, struct pp_slot_end *s,
                         size_t bytes, int tag);
int pp_slot_waiting(const struct pp_channel_spec *c, int slot, const struct pp_slot_end *s);
int pp_slot_received(const struct pp_channel_spec *c, int slot, struct pp_slot_end *s, size_t bytes,
                     uint32_t tag);
int pp_slot_releasing(const struct pp_channel_spec *c, int slot, struct pp_slot_end *s);

#endif
