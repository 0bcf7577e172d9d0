/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one way a rank waits for another thread: on a 32-bit word that changes.
 *
 * It spins a microsecond or two (only when every rank has its own core: otherwise the other rank
 * could not run meanwhile), then yields, then sleeps in the kernel. A sleep is bounded and checks
 * the stop word, so abort() need not wake any rank.
 */
#ifndef PPCLI_COMM_WAIT_H
#define PPCLI_COMM_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pp_word {
    _Atomic uint32_t value;
    _Atomic uint32_t sleepers; /* threads that sleep on value, or are about to */
};

struct pp_waiter {
    struct pp_word *stop; /* not 0: give up */
    bool crowded;         /* more ranks than cores */
    uint64_t *waited_ns;  /* gets the time of every check of the waiting thread; may be NULL */
};

/* Stores the current time in *waited_ns, to show that this rank waits and is alive. Local. */
void pp_show_wait(uint64_t *waited_ns);

/*
 * Publishes a value and wakes sleepers. Earlier writes of this thread are visible to threads that
 * see the value. Costs one locked instruction, and a system call only if a thread sleeps. Local.
 */
void pp_word_set(struct pp_word *w, uint32_t value);

/* Waits until the word holds `target`. Returns 0 as soon as it does, even if the rank was stopped
 * meanwhile, or PP_ELOST if the rank was stopped and the word does not hold it. The word must stay
 * at `target` until this thread has seen it. Local. */
int pp_word_wait(const struct pp_waiter *how, struct pp_word *w, uint32_t target);

/* The spinning and yielding part alone, for operations that are polled (MPI requests). */
struct pp_backoff {
    bool crowded;
    uint32_t rounds; /* start at 0 */
};

/* Pauses a little and returns true; returns false, without pausing, when the caller should sleep.
 * Local. */
bool pp_backoff_pause(struct pp_backoff *b);

/* A wait that polls, in which the thread also sleeps. */
struct pp_poll {
    struct pp_backoff backoff;
    uint64_t *waited_ns;
    uint64_t start_ns; /* start at 0 */
};

/* Pauses between two polls; returns false when the wait has taken more than timeout_ns (0: no
 * limit). Local. */
bool pp_poll_pause(struct pp_poll *p, uint64_t timeout_ns);

#endif
