/* SPDX-License-Identifier: Apache-2.0 */
/* The bubble and its parts: they add up, whatever the plan, the times and the measurement. */
#include "test.h"
#include "../../src/sched/schedule.h"

#include <math.h>

#include "../../src/sim/sim.h"
#include "ppcli/base/base.h"

static struct pp_plan *plan_of(const char *schedule, int stages, int chunks, int microbatches)
{
    struct pp_geometry g = {.stages = stages, .chunks = chunks, .microbatches = microbatches};
    struct pp_plan *plan = NULL;
    CHECK_OK(pp_plan_build(schedule, &g, &plan));
    return plan;
}

/* Stages of equal times; `heavy` takes `factor` times as long. */
static struct pp_bubble explain(const struct pp_plan *plan, int heavy, double factor, double every,
                                double idle)
{
    double arrays[3 * 64];
    struct pp_sim_costs costs;
    struct pp_bubble b;
    pp_sim_make_uniform(plan, 1, 1, 1, arrays, &costs);
    for (int op = 0; op < 3; op++)
        arrays[op * plan->n_virtual + heavy] *= factor;
    costs.slots = true;
    CHECK_OK(pp_bubble_explain(plan, &costs, every, idle, &b));
    return b;
}

static void check_sum(const struct pp_bubble *b)
{
    char text[PP_BUBBLE_TEXT_MAX];
    double idle, schedule, imbalance, waiting;
    assert_float_equal(b->schedule + b->imbalance + b->waiting, b->idle, 1e-12);
    assert_true(b->schedule >= 0 && b->imbalance >= 0);
    assert_true(b->waiting >= -1e-12 || b->idle < 0);
    CHECK_INT_EQ(sscanf(pp_bubble_parts(b, text), "%lf = %lf + %lf + %lf", &idle, &schedule,
                        &imbalance, &waiting),
                 4);
    assert_float_equal(schedule + imbalance + waiting, idle, 1e-9);
    assert_float_equal(idle, b->idle * 100, 0.051);
}

TEST(the_parts_add_up)
{
    static const struct {
        const char *name;
        int chunks;
    } schedules[] = {{"gpipe", 1}, {"1f1b", 1}, {"zb-h2", 1}, {"interleaved", 2}, {"zb-v", 2}};
    for (size_t i = 0; i < sizeof(schedules) / sizeof(schedules[0]); i++) {
        struct pp_plan *plan = plan_of(schedules[i].name, 4, schedules[i].chunks, 8);
        for (int heavy = 0; heavy < plan->n_virtual; heavy++) {
            for (double idle = -0.01; idle < 1; idle += 0.0377) {
                struct pp_bubble b = explain(plan, heavy, 1 + heavy, heavy % 3, idle);
                check_sum(&b);
            }
        }
        pp_plan_destroy(&plan);
    }
}

TEST(equal_stages_have_no_imbalance)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_of("gpipe", 4, 1, 8);
    struct pp_bubble b = explain(plan, 0, 1, 1, 0.3);
    assert_float_equal(b.schedule, 1 - 24.0 / 30, 1e-12); /* I leaves before W */
    assert_float_equal(b.imbalance, 0, 1e-12);
    assert_float_equal(b.waiting, 0.1, 1e-12);
}

/* One stage with most of the work: no schedule can idle less than the others must. */
TEST(a_heavy_stage_is_imbalance_and_is_named)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_of("zb-h2", 2, 1, 8);
    double least = 1 - 9.0 / (2 * 6); /* of 9 units of work, 6 on stage 1 */
    struct pp_bubble b = explain(plan, 1, 2, 0, least);
    CHECK_INT_EQ(b.busiest, 1);
    assert_float_equal(b.work, 6.0 / 9, 1e-12);
    assert_float_equal(b.schedule + b.imbalance, least, 1e-9);
    assert_true(b.imbalance > 0.2);
    char text[PP_BUBBLE_TEXT_MAX];
    assert_non_null(strstr(pp_bubble_text(&b, text), "stage 1 has 67 % of the work"));
}

TEST(hand_overs_and_launches_are_waiting)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_of("1f1b", 2, 1, 4);
    double arrays[6], work[2], step;
    struct pp_sim_costs costs;
    struct pp_bubble b;
    pp_sim_make_uniform(plan, 1, 1, 1, arrays, &costs);
    double busy = pp_sim_work(plan, &costs, work);
    assert_float_equal(busy, 2 * 4 * 3, 1e-12);
    costs.latency = 0.5;
    costs.launch = 0.25;
    CHECK_OK(pp_sim_step(plan, &costs, 1, 0, &step, NULL));
    double idle = pp_bubble_idle(busy, step, 2);
    CHECK_OK(pp_bubble_explain(plan, &costs, 1, idle, &b));
    assert_float_equal(b.schedule, 1 - 12.0 / 14, 1e-12);
    assert_float_equal(b.imbalance, 0, 1e-12);
    assert_float_equal(b.waiting, idle - b.schedule, 1e-12);
    assert_true(b.waiting > 0.05);
}

/* A step in the long run and one alone, where merging saves no time. */
static void times_of(const char *name, int p, int m, int k, double out[2])
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    const struct pp_schedule_ops *ops = pp_schedule_find(name);
    struct pp_geometry g = {
        .stages = p, .chunks = pp_schedule_default_chunks(ops), .microbatches = m, .coalesce = k};
    double arrays[3 * 64];
    struct pp_sim_costs costs;
    CHECK_OK(pp_plan_build(name, &g, &plan));
    pp_sim_make_uniform(plan, 1, 1, 1, arrays, &costs);
    CHECK_OK(pp_sim_step(plan, &costs, 0, 0, &out[0], NULL));
    CHECK_OK(pp_sim_step(plan, &costs, 1, 0, &out[1], NULL));
}

TEST(schedules_that_merge_weight_gradients_take_no_longer)
{
    int n = 0;
    for (const char *const *name = pp_schedule_names(); *name; name++) {
        if (!pp_schedule_merges(*name))
            continue;
        n++;
        for (int p = 1; p <= 8; p++) {
            for (int m = 1; m <= 13; m++) {
                double one[2], merged[2];
                times_of(*name, p, m, 1, one);
                for (int k = 2; k <= m; k++) {
                    times_of(*name, p, m, k, merged);
                    if (merged[0] > one[0] + 1e-9 || merged[1] > one[1] + 1e-9)
                        fail_msg("%s p%d m%d: %g and %g with W of %d, %g and %g without", *name, p,
                                 m, merged[0], merged[1], k, one[0], one[1]);
                }
            }
        }
    }
    assert_true(n >= 4);
}

TEST(schedules_that_split_backwards_do_not_merge_by_themselves)
{
    static const char *const split[] = {"zb-h1",    "zb-h2",     "interleaved-zb", "zb-auto",
                                        "zb-fit",   "zb-v",      "v-half",         "v-min",
                                        "zb-fit-v", "dualpipev", "file:x"};
    for (size_t i = 0; i < sizeof(split) / sizeof(split[0]); i++)
        assert_false(pp_schedule_merges(split[i]));
}

TEST(the_ideal_is_the_textbooks_whatever_is_merged_or_recomputed)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    struct pp_geometry g = {.stages = 2, .chunks = 1, .microbatches = 4, .coalesce = 4};
    bool again[2] = {true, true};
    double ideal, equal;
    CHECK_OK(pp_plan_build("1f1b", &g, &plan));
    CHECK_OK(pp_plan_add_recompute(plan, again));
    CHECK_OK(pp_bubble_ideal(plan, &ideal));
    CHECK_OK(pp_bubble_equal(plan, &equal));
    assert_float_equal(ideal, 1.0 / 5, 1e-12);
    assert_true(fabs(equal - ideal) > 0.01);
}
