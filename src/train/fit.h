/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a run fits into the memory there is. Local to train/. */
#ifndef PPCLI_TRAIN_FIT_H
#define PPCLI_TRAIN_FIT_H

#include "ppcli/room.h"
#include "ppcli/train.h"

/* What one process of a run will take, and has room for. */
struct room_claim {
    uint64_t ranks, data; /* bytes of its ranks and of the data it reads */
    struct pp_room room;
    uint32_t machine; /* as in the head of a ring */
};

/*
 * Hold what is claimed against the room of process `at` of n: a limit must do for all that share
 * it. PP_ERESOURCE with both numbers, the limit and what would help. Local.
 */
int room_judge(const struct room_claim *claims, int n, int at);

/*
 * Ranks with devices: each device by itself. rank: of this process; -1: all are its threads.
 * PP_ERESOURCE with the device, both numbers and what would help. Local.
 */
int room_check_devices(const struct pp_run *run, int rank);

/*
 * All of it for a run, before anything is allocated or read. tp NULL: all ranks are threads of this
 * process. Else collective, one rank a process: every rank gets the same verdict. Errors:
 * PP_ERESOURCE; those of pp_transport_agree().
 */
int room_check(const struct pp_run *run, const struct pp_train_options *options,
               struct pp_transport *tp);

#endif
