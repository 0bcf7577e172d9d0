/* SPDX-License-Identifier: Apache-2.0 */
/* What one rank does from its first to its last step. */
#ifndef PPCLI_TRAIN_RANK_H
#define PPCLI_TRAIN_RANK_H

#include "ppcli/train/train.h"
#include "ppcli/base/cores.h"

struct rank_spec {
    const struct pp_run *run;
    const struct pp_train_options *options;
    int rank;
    const struct pp_dataset *shared[2]; /* by enum pp_split; NULL: open what this rank needs */
    struct pp_watchdog *watchdog;       /* of this process; may be NULL */
    bool failed_alone;                  /* out: failed where the other ranks could not know */
    uint64_t failed_ns;                 /* out: when; the clock before the others were told */
    struct pp_backend *be;              /* out: for rank_free() */
    struct pp_exec *x;                  /* out: for rank_free() */
    struct pp_ring *ring;               /* out: for rank_free() */
};

/* Collective. A rank that fails alone (in the middle of a step) has aborted the transport. Whatever
 * comes back, rank_free() follows. */
int rank_main(struct rank_spec *spec, struct pp_transport *tp);

/* What a rank's record of actions takes. Local. */
size_t rank_ring_bytes(const struct pp_layout *l, const struct pp_train_options *options);

/* What this rank does outside the executor, into its ring. step: optimizer steps done. Local. */
void rank_event_begin(struct rank_spec *spec, enum pp_event_kind kind, int64_t step);
void rank_event_end(struct rank_spec *spec);

/* Local, in the thread of rank_main(), when all ranks that are threads of this process have
 * returned from it: until then they may be reading and writing this one's message slots. */
void rank_free(struct rank_spec *spec);

/* ---- fit.c: whether a run fits into the memory there is. Local to train/ */

/* What one process of a run will take, and has room for. */
struct room_claim {
    uint64_t ranks, data; /* bytes of its ranks and of the data it reads */
    struct pp_memory_left room;
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

/* ---- seats.c: who sits where in a run. Local to train/ */

/*
 * Fill in run->seats and run->transport. tp NULL: all ranks are threads of this process, Local;
 * else each rank is a process: Collective, the same verdict on every rank.
 * Errors: PP_ERESOURCE: no such device, or no way between two; PP_ECONFIG: run.partition_sms where
 * processes share a device.
 */
int seats_take(struct pp_run *run, struct pp_transport *tp);

/*
 * Put around a transport of threads or processes what run->transport says: NCCL, or memory of the
 * host between devices and MPI; nothing where it can move the ranks' memory itself. *tp is
 * replaced; NULL on failure. Local, in the rank's thread. Errors: PP_ERESOURCE.
 */
int seats_connect(const struct pp_run *run, struct pp_transport **tp);

/* What rank `rank` of the run asks of its backend. Local. */
struct pp_backend_choice seats_choice(const struct pp_run *run, int rank);

/* Collective, of ranks that are processes: whether they have the same model, plan and data. Errors:
 * PP_ECONFIG, the same on every rank; as of reading files. */
int pp_run_compare(const struct pp_run *run, struct pp_transport *tp);

#endif
