/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device made of threads, for tests: the CPU backend's arithmetic behind everything that makes a
 * device hard. Each backend is a stream, a thread of its own that does what was enqueued, late and
 * with uneven pauses. Its memory faults when the host touches it. Sources of copies are read when
 * the copy is done, not when it is asked for. Captured work is replayed in any order that its marks
 * allow. The rules of a capture are those of CUDA, and breaking one is an error:
 *
 *   a wait inside for a mark set outside, or the other way round; a copy to the host, a wait of the
 *   host, an allocation inside; an end by another thread, or before every stream has come back.
 *
 * It stands where the CUDA backend would: a program that links lazy.c has it as run.backend = cuda.
 */
#ifndef PPCLI_TESTS_LAZY_H
#define PPCLI_TESTS_LAZY_H

#include <stddef.h>

#include "ppcli/dev/backend.h"

extern const struct pp_backend_ops backend_cuda;

/* What all of them did since the program began. */
struct lazy_counts {
    long launches;   /* graphs */
    long captures;   /* that ended well */
    long host_waits; /* synchronize, to_host */
    long ops;        /* enqueued outside a replay */
};
struct lazy_counts lazy_counts(void);

/* From now on no ops are offered that streams need for a capture. */
void lazy_without_graphs(bool without);

/* The n-th op enqueued from now on, by any rank, fails when it is done (n >= 1); 0: none. During a
 * capture it fails when it is enqueued. */
void lazy_fail_at(long n);

/* The n-th op enqueued from now on takes 4 seconds. */
void lazy_hang_at(long n);

/* The n-th product of a forward pass from now on makes its first value a NaN; 0: none. */
void lazy_spoil_at(long n);

/* What the host may read of memory of the device, for a test's own expectations. */
const void *lazy_peek(const void *p);

#endif
