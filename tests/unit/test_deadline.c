/* SPDX-License-Identifier: Apache-2.0 */
/* What a set-up that takes too long says of itself. */
#include "test.h"

#include <string.h>

#include "../../src/comm/impl.h"
#include "../../src/comm/wait.h"
#include "ppcli/config.h"
#include "ppcli/watch.h"

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
