/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the NCCL transport decides before NCCL is asked: who may sit where, in which order
 * communicators are made, and how much of a device each of them may take. Pure functions of what
 * all ranks have told each other, so that all ranks come to the same answer; no NCCL in sight.
 */
#ifndef PPCLI_COMM_NCCL_ORDER_H
#define PPCLI_COMM_NCCL_ORDER_H

#include "ppcli/comm/transport.h"

/*
 * Channels that one rank can be an end of. Each has a stream of its own, in which a message may
 * wait for its other side on the device; CUDA keeps at most 32 streams apart, and what waits must
 * not come before what it waits for.
 */
#define NCCL_CHANNELS_MAX 24

/* Where a rank computes, as NCCL tells devices apart. */
struct nccl_place {
    char host[128];  /* NCCL_HOSTID, else a name that no other machine has */
    char device[32]; /* PCI bus id */
};

/* PP_ERESOURCE when two of the n ranks share a device, with both and what would work. */
int pp_nccl_check_places(const struct nccl_place *places, int n);

/*
 * all[n]: every channel of the transport, once. round[i]: when its communicator is made. No rank
 * has two channels in a round, so ranks that walk through their channels by ascending round never
 * wait in a circle: of the channels not yet made one with the lowest round has both its ends
 * waiting for it. Channels without a common rank share a round where they can. *rounds: how many
 * there are, fewer than twice the most channels of a rank. Errors: PP_ERESOURCE.
 */
int pp_nccl_rounds(const struct pp_channel_spec *all, int n, int size, int *round, int *rounds);

/* The most channels that one rank is an end of. Errors: PP_ERESOURCE. */
int pp_nccl_most_channels(const struct pp_channel_spec *all, int n, int size, int *out);

/* Multiprocessors that a message may take while it waits and moves, for n ranks that are ends of at
 * most `most` channels: 1 where all are on one host, whose links one of them fills nearly, and where
 * every one that waits is missing to the products. */
int pp_nccl_blocks(const struct nccl_place *places, int n, int most);

/* The channels of all ranks, gathered with pp_channels_gather(), each once and by ascending id:
 * out[0..*n-1], of room for size * most. */
void pp_nccl_merge(const struct pp_channel_spec *all, int size, int most,
                   struct pp_channel_spec *out, int *n);

#endif
