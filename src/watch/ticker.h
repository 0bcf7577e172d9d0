/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that watches other threads: it wakes up periodically, and it counts the time that a
 * thread could have used. On a crowded machine a thread that waits for a core looks like one that
 * hangs; only the kernel can tell them apart.
 */
#ifndef PPCLI_WATCH_TICKER_H
#define PPCLI_WATCH_TICKER_H

#include <stdbool.h>
#include <stdint.h>

#include "ppcli/sim/trace.h"

struct ticker;

/* Calls tick(ctx) about every `every_ns`, in a thread of its own that takes no signals, until
 * tick() returns false. Local. The caller owns *out. Errors: PP_ERESOURCE. */
int ticker_start(uint64_t every_ns, bool (*tick)(void *ctx), void *ctx, struct ticker **out);
/* Ends the thread, after a call of tick() that is in progress. Local; accepts NULL in *t. */
void ticker_stop(struct ticker **t);

/* A watched thread. All zero: no thread yet. */
struct ticked {
    int64_t pid, tid;           /* tid 0: the thread has not begun, so it has had no time */
    struct pp_thread_time last; /* its times at the last reading */
};

/* Returns the calling thread as a thread whose time can be read. Local. */
struct ticked ticked_self(void);

/* Returns how much of the dt_ns since the last reading the thread did not spend waiting for a core.
 * Any thread. */
uint64_t ticked_share(struct ticked *t, uint64_t dt_ns);

#endif
