/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one way a rank waits for another thread: on a 32-bit word that changes.
 *
 * Spin a microsecond or two (only when every rank has a core of its own: otherwise the rank we wait
 * for cannot run meanwhile), then yield, then sleep in the kernel. A sleep is bounded and looks at
 * the stop word, so abort() needs to wake nobody.
 */
#ifndef PPCLI_COMM_WAIT_H
#define PPCLI_COMM_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pp_word {
    _Atomic uint32_t value;
    _Atomic uint32_t sleepers; /* threads that are, or are about to be, asleep on value */
};

struct pp_waiter {
    struct pp_word *stop; /* not 0: give up */
    bool crowded;         /* more ranks than cores */
    uint64_t *waited_ns;  /* gets the time of every look at a word that makes wait; NULL: nobody */
};

/* This rank waits and is well. Local. */
void pp_show_wait(uint64_t *waited_ns);

/*
 * Publish a value and wake who sleeps. What this thread wrote before is visible to whoever sees the
 * value. Costs one locked instruction, and a system call only when somebody sleeps. Local.
 */
void pp_word_set(struct pp_word *w, uint32_t value);

/*
 * Return 0 as soon as the word holds `target`, also when stopped meanwhile; PP_ELOST when stopped
 * and it does not. The word must stay at `target` until this thread has seen it. Local.
 */
int pp_word_wait(const struct pp_waiter *how, struct pp_word *w, uint32_t target);

/* The spinning and yielding part alone, for things that are polled (MPI requests). */
struct pp_backoff {
    bool crowded;
    uint32_t rounds; /* start at 0 */
};

/* Pause a little; false, without pausing, when it is time to sleep. Local. */
bool pp_backoff_pause(struct pp_backoff *b);

/* A wait for what is looked at again and again, in which the thread also sleeps. */
struct pp_poll {
    struct pp_backoff backoff;
    uint64_t *waited_ns;
    uint64_t start_ns; /* start at 0 */
};

/* Between two looks; false: it has taken more than timeout_ns (0: no limit). Local. */
bool pp_poll_pause(struct pp_poll *p, uint64_t timeout_ns);

#endif
