/* SPDX-License-Identifier: Apache-2.0 */
/* Teams: every unit is done once, whatever the numbers of threads, pieces and processors. */
#include "ppcli/base/cores.h"

#include <stdatomic.h>
#include <string.h>

#include "test.h"
#include "ppcli/base/base.h"

#define UNITS 1000

struct job {
    _Atomic int done[UNITS];
    _Atomic int running[16]; /* pieces of each member at this moment */
    _Atomic bool together;   /* two of one member */
    size_t grain;
    uint64_t nap_ns; /* of every second piece */
};

static void mark_units(const void *args, const struct pp_piece *piece)
{
    struct job *j = (struct job *)args;
    if (atomic_fetch_add(&j->running[piece->member], 1) > 0)
        j->together = true;
    if (piece->from % j->grain != 0)
        j->together = true;
    if (j->nap_ns > 0 && piece->from / j->grain % 2 == 1)
        pp_clock_nap(j->nap_ns);
    for (size_t i = piece->from; i < piece->to; i++)
        atomic_fetch_add(&j->done[i], 1);
    atomic_fetch_sub(&j->running[piece->member], 1);
}

static void check_once(struct pp_team *team, size_t units, size_t grain, double cost,
                       uint64_t nap_ns)
{
    static struct job j;
    memset(&j, 0, sizeof(j));
    j.grain = grain;
    j.nap_ns = nap_ns;
    const struct pp_work work = {mark_units, units, grain, cost};
    pp_team_run(team, &work, &j);
    assert_false(j.together);
    for (size_t i = 0; i < UNITS; i++)
        CHECK_INT_EQ(j.done[i], i < units);
}

TEST(every_unit_is_done_once)
{
    for (int threads = 2; threads <= 16; threads += 7) {
        for (int processors = 1; processors <= 16; processors *= 4) {
            struct pp_team_spec spec = {
                .threads = threads, .processors = processors, .crowded = processors > 4};
            struct pp_team *team = NULL;
            CHECK_OK(pp_team_create(&spec, &team));
            for (int i = 0; i < 400; i++) /* in 1 to 18 pieces: whoever is late meets other jobs */
                check_once(team, (size_t)(i * 37 % (UNITS + 1)), (size_t)(i % 5 + 1),
                           6000.0 * (i * 7 % 18 + 1), 0);
            check_once(team, UNITS, 7, 20000, 0); /* fewer pieces than threads */
            check_once(team, UNITS, 1, 10, 0);    /* one */
            pp_team_destroy(&team);
            assert_null(team);
        }
    }
}

TEST(no_team_is_one_piece)
{
    check_once(NULL, UNITS, 3, 1e9, 0);
    check_once(NULL, 0, 3, 1e9, 0);
}

/* Sleepers are woken, and a caller that sleeps is. */
TEST(a_team_that_sleeps_wakes_up)
{
    struct pp_team_spec spec = {.threads = 3, .processors = 3};
    struct pp_team *team = NULL;
    CHECK_OK(pp_team_create(&spec, &team));
    for (int i = 0; i < 20; i++) {
        pp_clock_nap(2000000);
        check_once(team, UNITS, 100, 1e9, i % 2 ? 2000000 : 0);
    }
    pp_team_destroy(&team);
}

static _Atomic int begun;

static void count_member(void)
{
    atomic_fetch_add(&begun, 1);
}

TEST(begin_is_called_in_each_new_thread)
{
    struct pp_team_spec spec = {.threads = 4, .processors = 3, .begin = count_member};
    struct pp_team *team = NULL;
    CHECK_OK(pp_team_create(&spec, &team));
    pp_team_destroy(&team);
    CHECK_INT_EQ(begun, 2);
}
