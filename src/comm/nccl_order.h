/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decisions of the NCCL transport before NCCL is called: which ranks may use which devices, in
 * which order communicators are made, and how much of a device each of them may use. These are pure
 * functions of data that all ranks have exchanged, so all ranks come to the same answer; they do
 * not use NCCL.
 */
#ifndef PPCLI_COMM_NCCL_ORDER_H
#define PPCLI_COMM_NCCL_ORDER_H

#include "ppcli/comm/transport.h"

/*
 * Most channels that one rank can be an end of. Each has a stream of its own, in which a message
 * may wait for its other side on the device; CUDA keeps at most 32 streams independent, and a
 * message must not come before one that it waits for.
 */
#define NCCL_CHANNELS_MAX 24

/* The device of a rank, as NCCL tells devices apart. */
struct nccl_place {
    char host[128];  /* NCCL_HOSTID, else a name that is unique to the machine */
    char device[32]; /* PCI bus id */
};

/* Checks that no two of the n ranks share a device. PP_ERESOURCE names both ranks and what would
 * work. */
int pp_nccl_check_places(const struct nccl_place *places, int n);

/*
 * Computes in which round each communicator is made. all[n] has every channel of the transport
 * once. No rank has two channels in a round, so ranks that make their communicators by ascending
 * round never wait in a circle: of the channels that are not made yet, both ends of one with the
 * lowest round wait for it. Channels without a common rank share a round if possible. *rounds is
 * the number of rounds, fewer than twice the most channels of a rank. Errors: PP_ERESOURCE.
 */
int pp_nccl_rounds(const struct pp_channel_spec *all, int n, int size, int *round, int *rounds);

/* Computes how many channels the rank with most channels is an end of. Errors: PP_ERESOURCE. */
int pp_nccl_most_channels(const struct pp_channel_spec *all, int n, int size, int *out);

/* Returns how many multiprocessors a message may use while it waits and moves, for n ranks that are
 * ends of at most `most` channels. It is 1 if all ranks are on one host, because one multiprocessor
 * nearly fills the links there, and each one that waits is lost to computation. */
int pp_nccl_blocks(const struct nccl_place *places, int n, int most);

/* Merges the channels of all ranks, gathered with pp_channels_gather(), to out[*n]: each channel
 * once, by ascending id. The capacity of `out` must be size * most. */
void pp_nccl_merge(const struct pp_channel_spec *all, int size, int most,
                   struct pp_channel_spec *out, int *n);

#endif
