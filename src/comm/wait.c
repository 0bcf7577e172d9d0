/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting on a word: spin, yield, futex.
 *
 * No wake-up is lost. The sleeper adds itself to `sleepers` and then reads `value`; the waker
 * writes `value` and then reads `sleepers`; all four are sequentially consistent, so at least one
 * of the two sees the other: either the sleeper finds the new value and does not sleep, or the
 * waker finds a sleeper and wakes it. Between the sleeper's read and its sleep the kernel compares
 * `value` again under its own lock, and a waker's call waits for that lock. The same store and
 * loads also carry the data: sequential consistency includes release and acquire.
 */
#include "wait.h"

#include <linux/futex.h>
#include <limits.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ppcli/base/base.h"
#include "ppcli/base/cores.h"

/* A pause takes 15 to 45 ns on the processors we know: 1 to 2 microseconds in all. */
#define SPINS 48
/* A yield when no other thread can run takes about 0.3 microseconds. A rank with its own core may
 * poll for a while, because waking from a sleep costs tens of microseconds; when crowded, the core
 * should go to threads that have work. */
#define YIELDS 2000
#define YIELDS_CROWDED 8
/* Interval between checks of a device. */
#define NAP_NS 20000
/* The longest time that a sleeper does not see an abort. */
#define SLEEP_NS 50000000

bool pp_backoff_pause(struct pp_backoff *b)
{
    uint32_t spins = b->crowded ? 0 : SPINS;
    uint32_t yields = b->crowded ? YIELDS_CROWDED : YIELDS;
    if (b->rounds >= spins + yields)
        return false;
    if (b->rounds < spins)
        pp_thread_pause();
    else
        sched_yield();
    b->rounds++;
    return true;
}

static void sleep_on_word(struct pp_word *w, uint32_t seen)
{
    const struct timespec most = {.tv_sec = 0, .tv_nsec = SLEEP_NS};
    atomic_fetch_add(&w->sleepers, 1);
    if (atomic_load(&w->value) == seen) {
        /* After any return (woken, changed, interrupted, timed out) the caller checks again. */
        (void)syscall(SYS_futex, &w->value, FUTEX_WAIT_PRIVATE, seen, &most, NULL, 0);
    }
    atomic_fetch_sub(&w->sleepers, 1);
}

void pp_word_set(struct pp_word *w, uint32_t value)
{
    atomic_store(&w->value, value);
    if (atomic_load(&w->sleepers) > 0)
        (void)syscall(SYS_futex, &w->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void pp_show_wait(uint64_t *waited_ns)
{
    if (waited_ns)
        __atomic_store_n(waited_ns, pp_clock_ns(), __ATOMIC_RELAXED);
}

int pp_word_wait(const struct pp_waiter *how, struct pp_word *w, uint32_t target)
{
    struct pp_backoff b = {.crowded = how->crowded};
    for (;;) {
        uint32_t seen = atomic_load(&w->value);
        if (seen == target)
            return 0;
        if (atomic_load_explicit(&how->stop->value, memory_order_relaxed) != 0)
            return pp_fail(PP_ELOST, "stopped: another rank failed");
        if (!pp_backoff_pause(&b)) {
            pp_show_wait(how->waited_ns);
            sleep_on_word(w, seen);
        } else if (b.rounds > SPINS && b.rounds % 4 == 0) {
            pp_show_wait(how->waited_ns); /* on a busy machine a yield can take milliseconds */
        }
    }
}

bool pp_poll_pause(struct pp_poll *p, uint64_t timeout_ns)
{
    if (pp_backoff_pause(&p->backoff))
        return true;
    uint64_t now = pp_clock_ns();
    p->start_ns = p->start_ns > 0 ? p->start_ns : now;
    if (timeout_ns > 0 && now - p->start_ns > timeout_ns)
        return false;
    pp_show_wait(p->waited_ns);
    pp_clock_nap(NAP_NS);
    return true;
}
