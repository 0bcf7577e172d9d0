/* SPDX-License-Identifier: Apache-2.0 */
/* Who sits where in a run. Local to train/. */
#ifndef PPCLI_TRAIN_SEATS_H
#define PPCLI_TRAIN_SEATS_H

#include "ppcli/run.h"

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

#endif
