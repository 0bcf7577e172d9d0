/* SPDX-License-Identifier: Apache-2.0 */
/* What the process knows about its devices. All of it may be called by any thread. */
#ifndef PPCLI_DEV_CUDA_DEVICE_H
#define PPCLI_DEV_CUDA_DEVICE_H

#include "cuda_impl.h"

#define CUDA_DEVICES_MAX 64

/* 0, or PP_ERESOURCE with the reason and what would work in *why; no failure is recorded. */
int cuda_count_devices(int *n, char *why, size_t bytes);

/* The table's entries of these names: see ppcli/backend.h. */
int cuda_list_devices(struct pp_device *out, int max, int *n, char *why, size_t bytes);
bool cuda_reaches(int from, int to);
int cuda_free_bytes(int device, uint64_t *out);
void cuda_versions(void (*visit)(void *ctx, const char *what, const char *text), void *ctx);

/* Make it the calling thread's device and start using it; every hold needs a drop. A thread works
 * on one device at a time: the last it held. 0 <= number < CUDA_DEVICES_MAX. */
int cuda_device_hold(int number, struct cuda_device **out);
void cuda_device_drop(struct cuda_device *d);
int cuda_device_processors(const struct cuda_device *d); /* multiprocessors, all of them */

/*
 * A stream on piece `partition` of `partitions` of the device, or on all of it (partitions 0), and
 * how many multiprocessors that is. The device is cut by the first call and stays so until nobody
 * holds it: all ranks must ask for the same number of pieces. The caller destroys the stream before
 * the drop. Errors: PP_ERESOURCE.
 */
int cuda_device_stream(struct cuda_device *d, int partition, int partitions, cudaStream_t *stream,
                       int *processors);

/* How products are computed, found out once for all ranks of the device (plan.c owns the content).
 * Locked until cuda_device_choices_done(): who finds none makes it meanwhile. */
struct cuda_choice **cuda_device_choices(struct cuda_device *d);
void cuda_device_choices_done(struct cuda_device *d);

#endif
