/* SPDX-License-Identifier: Apache-2.0 */
/* What a set-up that takes too long says of itself. */
#include "test.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../src/comm/impl.h"
#include "../../src/comm/wait.h"
#include "ppcli/base/base.h"
#include "ppcli/conf/config.h"
#include "ppcli/watch/watch.h"

static char said[512];
static int done;

static void lost(const char *text)
{
    snprintf(said, sizeof(said), "%s", text);
    __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
}

/* It says so all the time, so also between the watch's look at the clock and its look at this. */
TEST(a_rank_that_waits_is_not_one_that_hangs)
{
    struct pp_config cfg = {.run = {.hang_timeout = 0.001}};
    struct pp_transport tp = {.inner = NULL};
    struct pp_deadline *d = NULL;
    CHECK_OK(pp_deadline_start(&cfg, lost, &d));
    pp_deadline_watch_waits(d, &tp);
    pp_deadline_enter(d, PP_DEADLINE_DATA);
    while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE))
        pp_show_wait(tp.waited_ns);
    pp_deadline_stop(&d);
    assert_non_null(strstr(said, " s in reading the data, for a rank that does not say why"));
}

/* A process that computes on the first core that is free to this one; idle: only when nobody else does. */
static pid_t start_busy(bool idle)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    cpu_set_t all, one;
    int cpu = 0;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)sched_getaffinity(0, sizeof(all), &all);
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    (void)sched_setaffinity(0, sizeof(one), &one);
    if (idle)
        (void)sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){0});
    for (volatile unsigned k = 0;; k++)
        ;
}

static void leave(const char *text)
{
    (void)text;
    _exit(7);
}

/* A rank in a phase of half a second. */
static pid_t start_waiting(void)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    struct pp_config cfg = {.run = {.hang_timeout = 0.25}};
    struct pp_deadline *d = NULL;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (pp_deadline_start(&cfg, leave, &d) < 0)
        _exit(1);
    pp_deadline_enter(d, PP_DEADLINE_DATA);
    for (;;)
        pp_clock_nap(1000000000);
}

/* The launcher of three ranks: 0 when the deadline counted no time of the rank that has no core, and all other. */
static int launch_three(void)
{
    int status;
    setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
    pid_t busy = start_busy(false), starved = start_busy(true);
    pp_clock_nap(300000000);
    pid_t waits = start_waiting();
    pp_clock_nap(4000000000);
    if (waitpid(waits, &status, WNOHANG) != 0)
        return 2;
    kill(starved, SIGKILL);
    kill(busy, SIGKILL);
    return waitpid(waits, &status, 0) == waits && WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

TEST(time_in_which_another_rank_has_no_core_does_not_count)
{
    int status;
    pid_t launcher = fork();
    if (launcher == 0)
        _exit(launch_three());
    assert_int_equal(waitpid(launcher, &status, 0), launcher);
    CHECK_INT_EQ(WEXITSTATUS(status), 7);
}
