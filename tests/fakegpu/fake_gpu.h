/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What other emulated libraries (cuBLASLt, NCCL) need of the emulated device: work on a stream, and
 * questions about memory. Errors are those of the CUDA runtime.
 */
#ifndef FAKE_GPU_H
#define FAKE_GPU_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* fn(arg) runs on the stream, behind what was enqueued there before, in a thread that may touch the
 * memory of the stream's device. Recorded as a node where the stream is captured: fn then runs at
 * each replay, so arg must live as long as the graph; done(arg), where not NULL, is called once
 * when fn will not run again. On an error done has been called. waits: fn waits for another stream,
 * and other branches of its graph go on. */
cudaError_t fake_enqueue(cudaStream_t stream, bool waits, void (*fn)(void *arg), void *arg,
                         void (*done)(void *arg));
/* Device whose memory [p, p + bytes) lies wholly within one block of, or -1. */
int fake_device_of(const void *p, size_t bytes);
/* Whether work of the stream may touch [p, p + bytes): memory of its device, or of one that its
 * device reaches. */
bool fake_reaches(cudaStream_t stream, const void *p, size_t bytes);
/* Whether no byte of [p, p + bytes) is one that nobody may touch, as what fake_forbid() was told. */
bool fake_within(const void *p, size_t bytes);
/* The device of a stream, -1 for none. */
int fake_stream_device(cudaStream_t stream);
bool fake_stream_captured(cudaStream_t stream);
/* Multiprocessors that the stream's work may use; 0 for no stream. */
int fake_stream_sms(cudaStream_t stream);
/* Count a call of `name`; true with *code where PPCLI_FAKE_FAIL asks it to fail. */
bool fake_fails(const char *name, int *code);
/* Things that must be gone at exit: by = 1 or -1. */
void fake_count(const char *what, int by);
/* Bytes that a call of the product will still read or write, though others of its calls have been
 * enqueued since (fake_waits.c). */
struct fake_range {
    uintptr_t from, to;
    bool written;
    const char *what; /* will touch it */
};
/* Those of the calling thread; how many. A program without the product has none. */
size_t fake_waiting(struct fake_range *out, size_t max) __attribute__((weak));
/* Something that is enqueued now touches the bytes: ends the program where a call that waits should have
 * come first. Kernels are watched instead. */
void fake_touch(const char *by, const void *p, size_t bytes, bool writes);
/* The program under test broke a rule that a device would punish later or never: say it, abort. */
void fake_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#ifdef __cplusplus
}
#endif

#endif
