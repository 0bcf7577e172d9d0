/* SPDX-License-Identifier: Apache-2.0 */
/* The life of one rank, from opening its device to its last step. */
#ifndef PPCLI_TRAIN_RANK_H
#define PPCLI_TRAIN_RANK_H

#include "ppcli/train/train.h"
#include "ppcli/base/cores.h"

struct rank_spec {
    const struct pp_run *run;
    const struct pp_train_options *options;
    int rank;
    const struct pp_dataset *shared[2]; /* by enum pp_split; NULL: the rank opens what it needs */
    struct pp_watchdog *watchdog;       /* the watchdog of this process; may be NULL */
    bool failed_alone;                  /* out: failed in a way that the other ranks cannot know */
    uint64_t failed_ns;                 /* out: when it failed, before the other ranks were told */
    struct pp_backend *be;              /* out: for rank_free() */
    struct pp_exec *x;                  /* out: for rank_free() */
    struct pp_ring *ring;               /* out: for rank_free() */
};

/* Runs one rank. If it fails alone (in the middle of a step), it has aborted the transport. Call
 * rank_free() after it in any case. Collective. */
int rank_main(struct rank_spec *spec, struct pp_transport *tp);

/* Returns the bytes of a rank's record of actions. Local. */
size_t rank_ring_bytes(const struct pp_layout *l, const struct pp_train_options *options);

/* Record in the ring that this rank begins or ends something outside the executor. `step` is the
 * number of optimizer steps done. Local. */
void rank_event_begin(struct rank_spec *spec, enum pp_event_kind kind, int64_t step);
void rank_event_end(struct rank_spec *spec);

/* Frees the rank's executor, ring and backend. Call it in the thread of rank_main() when all ranks
 * that are threads of this process have returned from rank_main(): until then they may use this
 * rank's message slots. Local. */
void rank_free(struct rank_spec *spec);

/* ---- fit.c: checks that a run fits into memory */

/* Memory that one process of a run will use, and the memory that is left for it. */
struct memory_claim {
    uint64_t ranks, data; /* bytes for its ranks, and for the data that it reads */
    struct pp_memory_left room;
    uint32_t machine; /* see the head of a ring */
};

/*
 * Checks that the claims fit into the memory left for process `at` of n; processes that share a
 * limit are added up. PP_ERESOURCE names both numbers, the limit and what would help. Local.
 */
int fit_check_claims(const struct memory_claim *claims, int n, int at);

/*
 * Checks that the ranks on each device fit into its memory. rank: this process's rank; -1: all
 * ranks are threads of this process. PP_ERESOURCE names the device, both numbers and what would
 * help. Local.
 */
int fit_check_devices(const struct pp_run *run, int rank);

/*
 * Checks the memory of a whole run before anything is allocated or read. tp NULL: all ranks are
 * threads of this process, Local; else each rank is a process: Collective, with the same result on
 * every rank. Errors: PP_ERESOURCE; those of pp_transport_agree().
 */
int fit_check(const struct pp_run *run, const struct pp_train_options *options,
              struct pp_transport *tp);

/* ---- seats.c: assigns devices and processors to ranks */

/*
 * Sets run->seats and run->transport. tp NULL: all ranks are threads of this process, Local; else
 * each rank is a process: Collective, with the same result on every rank. Errors: PP_ERESOURCE: no
 * such device, or no connection between two devices; PP_ECONFIG: run.partition_sms with processes
 * that share a device.
 */
int seats_take(struct pp_run *run, struct pp_transport *tp);

/*
 * Wraps a transport of threads or processes as run->transport asks: in NCCL, or in a copy through
 * host memory between devices and MPI; not at all if it can move the ranks' memory itself. Replaces
 * *tp, which is NULL on failure. Local, in the rank's thread. Errors: PP_ERESOURCE.
 */
int seats_connect(const struct pp_run *run, struct pp_transport **tp);

/* Returns the backend choice of a rank of the run. Local. */
struct pp_backend_choice seats_choice(const struct pp_run *run, int rank);

/* Checks that ranks that are processes have the same model, plan and data. Collective. Errors:
 * PP_ECONFIG, the same on every rank; as of reading files. */
int pp_run_compare(const struct pp_run *run, struct pp_transport *tp);

#endif
