/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that looks after others: it wakes up from time to time, and it counts the time that a
 * thread could have used. On a crowded machine a thread that waits for a core gets on no better
 * than one that hangs; only the kernel knows the difference.
 */
#ifndef PPCLI_WATCH_TICKER_H
#define PPCLI_WATCH_TICKER_H

#include <stdbool.h>
#include <stdint.h>

#include "ppcli/sim/trace.h"

struct ticker;

/* Calls tick(ctx) about every `every_ns`, in a thread of its own that takes no signals, until it
 * returns false. Local. The caller owns *out. Errors: PP_ERESOURCE. */
int ticker_start(uint64_t every_ns, bool (*tick)(void *ctx), void *ctx, struct ticker **out);
/* Waits for a call that is under way. Local; accepts NULL in *t. */
void ticker_stop(struct ticker **t);

/* A thread that is looked after. Zeroed: none yet. */
struct ticked {
    int64_t pid, tid;           /* tid 0: it has not begun, so it has had no time */
    struct pp_thread_time last; /* when it was looked at last */
};

/* The calling thread. Local. */
struct ticked ticked_self(void);

/* Of dt_ns since the last look, what the thread did not spend waiting for a core. Any thread. */
uint64_t ticked_share(struct ticked *t, uint64_t dt_ns);

#endif
