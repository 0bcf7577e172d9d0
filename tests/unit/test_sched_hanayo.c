/* SPDX-License-Identifier: Apache-2.0 */
/* Hanayo: its order, its bubble in waves and ranks, its memory, every shape. */
#include "test_sched_sim.h"
#include "test_sched_line.h"

static struct pp_plan *plan_waves(int p, int waves, int m)
{
    struct pp_plan *plan = NULL;
    struct pp_geometry g = {.stages = p, .chunks = 2 * waves, .microbatches = m};
    CHECK_OK(pp_plan_build("hanayo", &g, &plan));
    return plan;
}

static int64_t makespan_of(const struct pp_plan *plan, bool fused)
{
    int64_t makespan = 0;
    struct ticks unit = {.f = 1, .i = 1, .w = 1, .fused_send = fused};
    time_line(plan, &unit, &makespan, NULL, NULL);
    return makespan;
}

/* Most chunks that rank r holds at once. */
static int peak_of(const struct pp_plan *plan, int r)
{
    int live = 0;
    int peak = 0;
    for (int k = 0; k < plan->ranks[r].n_actions; k++) {
        live += plan->ranks[r].actions[k].op == PP_OP_F ? 1 : -1;
        peak = live > peak ? live : peak;
    }
    return peak;
}

TEST(backwards_go_first_then_the_deepest_forward)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_waves(2, 1, 2);
    check_plan_text(plan, pp_plan_print_csv,
                    "0F0,0F1,3F0,3B0,3F1,3B1,0B0,0B1\n"
                    "1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n");
}

/*
 * For M = P and T_B = 2 T_F the bubble is (P-1)/(3PW+P-1) when gradients leave after I, and
 * (2P-2)/(3PW+2P-2) when they wait for W, both below the (2P-2)/(3PW+P-1) that is quoted for the
 * paper.
 */
TEST(bubble_shrinks_with_waves_as_the_formula_says)
{
    for (int p = 1; p <= 8; p++) {
        for (int waves = 1; waves <= 4; waves++) {
            PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_waves(p, waves, p);
            double work = 6.0 * waves * p;
            double pw = (double)p * waves;
            double split = 1.0 - work / (double)makespan_of(plan, false);
            double fused = 1.0 - work / (double)makespan_of(plan, true);
            assert_float_equal(split, (p - 1) / (3 * pw + p - 1), 1e-12);
            assert_float_equal(fused, (2 * p - 2) / (3 * pw + 2 * p - 2), 1e-12);
            assert_true(fused <= (2 * p - 2) / (3 * pw + p - 1));
        }
    }
}

/* The last rank cannot start before tick P-1, nor can anything end sooner than P-1 I's after it. */
TEST(full_rounds_take_the_least_time_there_is)
{
    for (int p = 1; p <= 8; p++) {
        for (int waves = 1; waves <= 3; waves++) {
            for (int m = p; m <= 3 * p; m += p) {
                PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_waves(p, waves, m);
                CHECK_INT_EQ(makespan_of(plan, false), 6 * waves * m + 2 * p - 2);
            }
        }
    }
}

TEST(every_shape_runs_with_the_memory_of_p_microbatches)
{
    for (int p = 1; p <= 8; p++) {
        for (int waves = 1; waves <= 3; waves++) {
            for (int m = 1; m <= 20; m++) {
                PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_waves(p, waves, m);
                CHECK_OK(pp_plan_prove(plan));
                int full = (m + p - 1) / p * p; /* a last round that is not full takes no longer */
                assert_true(makespan_of(plan, false) <= 6 * waves * full + 2 * p - 2);
                for (int r = 0; r < p; r++)
                    assert_in_range(peak_of(plan, r), 1, 2 * waves * least(m, p));
            }
        }
    }
}

TEST(it_runs_in_any_interleaving)
{
    for (int p = 1; p <= 4; p++) {
        for (int waves = 1; waves <= 3; waves++) {
            for (int m = 1; m <= 9; m++) {
                PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_waves(p, waves, m);
                run_in_all_ways(plan);
            }
        }
    }
}

TEST(half_waves_are_refused)
{
    struct pp_plan *plan = NULL;
    struct pp_geometry g = {.stages = 4, .chunks = 3, .microbatches = 8};
    CHECK_FAILS(pp_plan_build("hanayo", &g, &plan), PP_ECONFIG, "two chunks per wave");
    CHECK_FAILS(pp_plan_build("hanayo", &g, &plan), PP_ECONFIG, "nearest legal: chunks = 4");
    g.chunks = 1;
    CHECK_FAILS(pp_plan_build("hanayo", &g, &plan), PP_ECONFIG, "nearest legal: chunks = 2");
    CHECK_INT_EQ(pp_schedule_default_chunks(pp_schedule_find("hanayo")), 2);
}
