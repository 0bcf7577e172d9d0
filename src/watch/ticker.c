/* SPDX-License-Identifier: Apache-2.0 */
/* See ticker.h. Allocates all memory at the start, because a thread that hangs may hold the
 * allocator. */
#include "ticker.h"

#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ppcli/base/base.h"
#include "ppcli/base/cores.h"

struct ticker {
    uint64_t every_ns;
    bool (*tick)(void *ctx);
    void *ctx;
    pthread_t thread;
    pthread_mutex_t lock; /* protects `stop` */
    pthread_cond_t wake;
    bool stop;
};

static void *run_ticker(void *arg)
{
    struct ticker *t = arg;
    bool goes_on = true;
    pthread_mutex_lock(&t->lock);
    while (goes_on && !t->stop) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (long)t->every_ns;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&t->wake, &t->lock, &until);
        if (!t->stop)
            goes_on = t->tick(t->ctx);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static void destroy_ticker(struct ticker *t)
{
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
    pp_free(t);
}

int ticker_start(uint64_t every_ns, bool (*tick)(void *ctx), void *ctx, struct ticker **out)
{
    struct ticker *t;
    PP_ALLOC(t, 1);
    t->every_ns = every_ns;
    t->tick = tick;
    t->ctx = ctx;
    pthread_mutex_init(&t->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&t->wake, &attr);
    pthread_condattr_destroy(&attr);
    /* Signals are for the threads that train. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int e = pp_thread_start(&t->thread, run_ticker, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (e != 0) {
        destroy_ticker(t);
        return pp_fail(PP_ERESOURCE, "cannot start the thread of the watchdog: %s", strerror(e));
    }
    *out = t;
    return 0;
}

void ticker_stop(struct ticker **ticker)
{
    struct ticker *t = *ticker;
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
    destroy_ticker(t);
    *ticker = NULL;
}

struct ticked ticked_self(void)
{
    struct ticked t = {.pid = getpid(), .tid = gettid()};
    t.last = pp_thread_time(t.pid, t.tid);
    return t;
}

uint64_t ticked_share(struct ticked *t, uint64_t dt_ns)
{
    if (t->tid == 0)
        return 0;
    struct pp_thread_time last = t->last, now = pp_thread_time(t->pid, t->tid);
    t->last = now;
    /* If it was ready at both readings, it may have waited in between and may still wait; the
     * kernel has counted only the time it ran. */
    if (now.ready && last.ready)
        return now.ran_ns - last.ran_ns < dt_ns ? now.ran_ns - last.ran_ns : dt_ns;
    uint64_t waited = now.waited_ns > last.waited_ns ? now.waited_ns - last.waited_ns : 0;
    return dt_ns > waited ? dt_ns - waited : 0;
}
