/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between rank 0 and rank 1 that are measured: the calls of the executor, shortened. */
#ifndef PPCLI_TUNE_LINK_H
#define PPCLI_TUNE_LINK_H

#include "ppcli/transport.h"

/* Channel 0 goes from rank 0 to rank 1, channel 1 back: `slots` and one slots of `bytes`. *memory
 * gets what this rank provides, for pp_arena_destroy() when no rank uses it any more. Collective;
 * ranks above 1 take part without channels. */
struct pp_arena;
int link_open(struct pp_transport *tp, int slots, size_t bytes, struct pp_arena *memory);

/* The slot is mine to write into; then it goes. */
int link_send(struct pp_transport *tp, int ch, int slot, size_t bytes);

/* A receive that is posted when it is wanted. */
int link_receive(struct pp_transport *tp, int ch, int slot, size_t bytes);

/* Ranks 0 and 1 meet; each has the other's number then. */
int link_swap(struct pp_transport *tp, double *x);

#endif
