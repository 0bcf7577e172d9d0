/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks are called slow, on given times. */
#include "test.h"

#include <math.h>

#include "../../src/runlog/parts.h"

struct scene {
    struct pp_layout layout;
    struct pp_pace *pace;
    int64_t t;
    int told; /* calls of told() */
    int rank; /* of the last one */
    struct pace_rank slow;
};

static void told(void *ctx, int rank, const struct pace_rank *now)
{
    struct scene *s = ctx;
    s->told++;
    s->rank = rank;
    s->slow = *now;
}

static void begin(struct scene *s, int stages, int replicas)
{
    *s = (struct scene){
        .layout = {.stages = stages, .replicas = replicas, .ranks = stages * replicas}};
    assert_int_equal(pace_create(&s->layout, &s->pace), 0);
}

/* n windows of a second and 10 steps. */
static void windows(struct scene *s, int n, const double *busy)
{
    for (int i = 0; i < n; i++) {
        s->t += 10;
        struct pp_window w = {.t = s->t, .sync_steps = 10, .sync_seconds = 1, .busy = busy};
        pace_window(s->pace, &w, told, s);
    }
}

TEST(a_rank_that_becomes_slow_is_named_with_factor_and_step)
{
    struct scene s;
    const double good[] = {0.3, 0.2, 0.4, 0.3}, bad[] = {0.3, 0.2, 0.4, 0.3 * 1.31};
    begin(&s, 4, 1);
    windows(&s, 90, good);
    assert_int_equal(s.told, 0);
    windows(&s, 4, bad);
    assert_int_equal(s.told, 0); /* it must last */
    windows(&s, 6, bad);
    assert_int_equal(s.told, 1);
    assert_int_equal(s.rank, 3);
    assert_int_equal(s.slow.from, 901);
    assert_true(fabs(s.slow.factor - 1.31) < 1e-9);
    windows(&s, 10, good);
    assert_int_equal(s.told, 2);
    assert_true(s.slow.factor == 1 && s.slow.from == 1001);
    assert_true(s.pace->ranks[0].factor == 1);
    pp_free(s.pace);
}

TEST(what_makes_all_ranks_slow_is_the_fault_of_none)
{
    struct scene s;
    const double good[] = {0.3, 0.2}, busy[] = {0.6, 0.41};
    begin(&s, 2, 1);
    windows(&s, 10, good);
    windows(&s, 100, busy);
    assert_int_equal(s.told, 0);
    pp_free(s.pace);
}

TEST(of_two_ranks_the_slower_one_is_named)
{
    struct scene s;
    const double good[] = {0.3, 0.2}, bad[] = {0.9, 0.2};
    begin(&s, 2, 1);
    windows(&s, 10, good);
    windows(&s, 10, bad);
    assert_int_equal(s.told, 1);
    assert_int_equal(s.rank, 0);
    assert_true(fabs(s.slow.factor - 3) < 1e-9);
    pp_free(s.pace);
}

TEST(a_replica_that_is_slow_from_the_start_is_named)
{
    struct scene s;
    const double busy[] = {0.3, 0.2, 0.3, 0.2, 0.3, 0.3}; /* 3 replicas of 2 stages */
    begin(&s, 2, 3);
    windows(&s, 20, busy);
    assert_int_equal(s.told, 1);
    assert_int_equal(s.rank, 5);
    assert_true(fabs(s.slow.factor - 1.5) < 1e-9);
    pp_free(s.pace);
}

TEST(a_short_hiccup_is_not_told)
{
    struct scene s;
    const double good[] = {0.3, 0.2, 0.2}, bad[] = {0.3, 2, 0.2};
    begin(&s, 3, 1);
    windows(&s, 10, good);
    for (int i = 0; i < 20; i++) {
        windows(&s, 3, bad);
        windows(&s, 1, good);
    }
    assert_int_equal(s.told, 0);
    pp_free(s.pace);
}
