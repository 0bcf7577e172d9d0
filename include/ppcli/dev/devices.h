/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who sits where: which device each rank computes on, with whom it shares it, and what follows for
 * the way messages take. Pure functions of what every rank has told; only pp_devices_find() asks a
 * driver. All Local; given the same arguments, the same answer on every rank.
 */
#ifndef PPCLI_DEV_DEVICES_H
#define PPCLI_DEV_DEVICES_H

#include "ppcli/base/cores.h"
#include "ppcli/dev/backend.h"

/* Where a rank computes. */
struct pp_seat {
    /* What the rank itself knows and tells the others: */
    uint64_t host; /* equal on ranks of one machine */
    char host_name[PP_HOST_MAX];
    int process;             /* equal, with host, on ranks that are threads of one process */
    struct pp_device device; /* number -1: the processor */
    uint64_t free_bytes;     /* of the device's memory, before the run takes any */
    /* What pp_seats_settle() finds: */
    int sharing;   /* ranks on this device, this one included; 0: the processor */
    int processes; /* that these ranks belong to */
    int part;      /* this rank computes on part `part` of `parts` equal parts of the device ... */
    int parts;     /* ... 0: on all of it */
};

/*
 * The devices that a run of cfg may use in this process, in the order in which ranks take them: all
 * of the backend's, or those of run.devices. *n is 0 where the backend computes on the processor.
 * Errors: PP_ERESOURCE: one is not there, or none.
 */
int pp_devices_find(const struct pp_backend_ops *ops, const struct pp_config *cfg,
                    struct pp_device out[PP_DEVICES_MAX], int *n);

/* Which of n devices, counted from 0, the index-th of `ranks` ranks of a machine takes: one each
 * when there are enough, else neighbours share. n >= 1. */
int pp_devices_deal(int n, int index, int ranks);

/*
 * Fill in what follows from all seats together; partition: run.partition_sms. seats[i] is rank i's.
 * Errors: PP_ECONFIG, the seats as they were: partition where processes share a device.
 */
int pp_seats_settle(struct pp_seat *seats, int n, bool partition);

/* Whether both compute on one device; false when one computes on the processor. */
bool pp_seat_same_device(const struct pp_seat *a, const struct pp_seat *b);

/* "cuda:0 NVIDIA H200 (part 1 of 2)"; backend: its name. Returns out. */
const char *pp_seat_describe(const struct pp_seat *seat, const char *backend, char *out,
                             size_t bytes);

/* What a cudaError_t that a call returned is here: a code such as PP_ELOST, and what to do about it. In
 * builds with CUDA. Any thread. */
int pp_cuda_meaning(int error, const char **advice);

#endif
