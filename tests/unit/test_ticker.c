/* SPDX-License-Identifier: Apache-2.0 */
/* The time that a thread could have used: none while it waits for a core, however long it waits. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "../../src/watch/ticker.h"
#include "ppcli/base/base.h"
#include "test.h"

static int core;
static struct ticked starved;
static atomic_bool begun, enough;

static void take_the_core(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    (void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

static void *starve(void *arg)
{
    take_the_core();
    assert_int_equal(pthread_setschedparam(pthread_self(), SCHED_IDLE, &(struct sched_param){0}),
                     0);
    starved = ticked_self();
    atomic_store(&begun, true);
    while (!atomic_load(&enough)) {
    }
    return NULL;
}

static void *take(void *arg)
{
    take_the_core();
    while (!atomic_load(&enough)) {
    }
    return NULL;
}

static void *sleeps(void *arg)
{
    starved = ticked_self();
    atomic_store(&begun, true);
    while (!atomic_load(&enough))
        pp_clock_nap(1000000000);
    return arg;
}

/* Looks at the thread for a second: the share of time that it could have used. */
static double share(void)
{
    uint64_t used = 0, all = 0, last = pp_clock_ns();
    while (all < 1000000000) {
        pp_clock_nap(20000000);
        uint64_t now = pp_clock_ns();
        used += ticked_share(&starved, now - last);
        all += now - last;
        last = now;
    }
    return (double)used / (double)all;
}

static double share_of(void *(*run)(void *), void *(*beside)(void *))
{
    pthread_t a, b;
    atomic_store(&begun, false);
    atomic_store(&enough, false);
    assert_int_equal(pthread_create(&a, NULL, run, NULL), 0);
    while (!atomic_load(&begun))
        pp_clock_nap(1000000);
    if (beside)
        assert_int_equal(pthread_create(&b, NULL, beside, NULL), 0);
    double s = share();
    atomic_store(&enough, true);
    pthread_join(a, NULL);
    if (beside)
        pthread_join(b, NULL);
    return s;
}

TEST(a_long_wait_for_a_core_does_not_count)
{
    if (access("/proc/self/schedstat", R_OK) != 0) {
        print_message("the kernel keeps no schedstat\n");
        skip();
    }
    core = sched_getcpu();
    assert_true(core >= 0);
    assert_true(share_of(starve, take) < 0.5);
}

TEST(a_wait_for_something_else_does)
{
    assert_true(share_of(sleeps, NULL) > 0.5);
}
