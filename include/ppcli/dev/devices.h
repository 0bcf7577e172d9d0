/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Assigns ranks to devices: which device each rank computes on, which ranks share it, and which
 * connections messages can use. Pure functions of what every rank has sent; only pp_devices_find()
 * asks a driver. All Local, with the same result on every rank for the same arguments.
 */
#ifndef PPCLI_DEV_DEVICES_H
#define PPCLI_DEV_DEVICES_H

#include "ppcli/base/cores.h"
#include "ppcli/dev/backend.h"

/* The host, process and device of a rank. */
struct pp_seat {
    /* Sent by the rank itself: */
    uint64_t host; /* equal on ranks of one machine */
    char host_name[PP_HOST_MAX];
    int process;             /* equal, together with host, on ranks that are threads of one
                                process */
    struct pp_device device; /* number -1: the processor */
    uint64_t free_bytes;     /* of the device's memory, before the run takes any */
    /* Set by pp_seats_settle(): */
    int sharing;   /* ranks on this device, with this one; 0: the processor */
    int processes; /* number of processes of these ranks */
    int part;      /* this rank computes on part `part` of ... */
    int parts;     /* ... `parts` equal parts of the device; 0: on all of it */
};

/*
 * Lists the devices that a run of cfg may use in this process, in the order in which ranks take
 * them: all of the backend's, or those of run.devices. *n is 0 if the backend computes on the
 * processor. Errors: PP_ERESOURCE: one device does not exist, or there are none.
 */
int pp_devices_find(const struct pp_backend_ops *ops, const struct pp_config *cfg,
                    struct pp_device out[PP_DEVICES_MAX], int *n);

/* Returns which of n devices, counted from 0, rank `index` of the `ranks` ranks of a machine takes.
 * Each rank takes a device of its own if there are enough; else neighbours share. n >= 1. */
int pp_devices_deal(int n, int index, int ranks);

/*
 * Sets the members of all seats that depend on the other seats; seats[i] is that of rank i, and
 * partition is run.partition_sms. Errors: PP_ECONFIG if partition is on and processes share a
 * device; the seats are then unchanged.
 */
int pp_seats_settle(struct pp_seat *seats, int n, bool partition);

/* Returns whether both seats have the same device; false if one of them computes on the
 * processor. */
bool pp_seat_same_device(const struct pp_seat *a, const struct pp_seat *b);

/* Writes a text such as "cuda:0 NVIDIA H200 (part 1 of 2)", where `backend` is the name in front.
 * Returns out. */
const char *pp_seat_describe(const struct pp_seat *seat, const char *backend, char *out,
                             size_t bytes);

/* Returns the code, such as PP_ELOST, and advice for a cudaError_t that a call returned. Only in
 * builds with CUDA. Any thread. */
int pp_cuda_meaning(int error, const char **advice);

#endif
