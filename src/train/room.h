/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a run fits into the memory there is. Local to train/. */
#ifndef PPCLI_TRAIN_ROOM_H
#define PPCLI_TRAIN_ROOM_H

#include <stdint.h>

#include "ppcli/train.h"
#include "ppcli/transport.h"

/* Where a limit stands decides with whom a process shares it. */
enum room_kind {
    ROOM_SYSTEM,  /* all processes of the machine */
    ROOM_GROUP,   /* those of its control group */
    ROOM_ADDRESS, /* nobody */
    ROOM_KINDS
};

struct room {
    uint64_t bytes[ROOM_KINDS]; /* what may still be taken; UINT64_MAX: nobody says */
    uint64_t group;             /* equal for processes of one control group */
};

/*
 * Memory available on this machine; what the control groups of this process (both versions, each
 * level) and its address space have left. root: "" or, in tests, a folder with proc/ and sys/ in
 * it. What cannot be read is no limit. Local.
 */
void room_find(const char *root, struct room *out);

/* The limit that leaves least, and its name ("what the system has available"; static storage). */
enum room_kind room_nearest(const struct room *room, const char **what);

/* What one process of a run will take, and has room for. */
struct room_claim {
    uint64_t ranks, data; /* bytes of its ranks and of the data it reads */
    struct room room;
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
