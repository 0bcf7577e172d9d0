/* SPDX-License-Identifier: Apache-2.0 */
/* The schedules over a V, in waves and in two directions: their formulas, and what they refuse. */
#include "test_sched_line.h"
#include "../../src/sched/plan.h"
#include "test_sim_shapes.h"

static const char *const v_names[] = {"zb-v", "v-half", "v-min", "1f1b-v", "dualpipev"};

static struct pp_plan *plan_v(const char *name, int p, int m)
{
    return build_plan(name, p, 2, m);
}

static struct pp_plan *plan_waves(int p, int waves, int m)
{
    return build_plan("hanayo", p, 2 * waves, m);
}

/* The longest time that a rank needs for its own list. */
static int64_t longest_span(const struct pp_plan *plan)
{
    struct pp_sim_result res;
    int64_t longest = 0;
    time_line(plan, &unit, NULL, NULL, &res);
    for (int r = 0; r < plan->geometry.stages; r++) {
        int64_t span = (int64_t)(res.last_end[r] - res.first_start[r]);
        longest = span > longest ? span : longest;
    }
    pp_sim_result_fini(&res);
    return longest;
}

TEST(no_rank_of_zb_v_waits_between_its_first_cell_and_its_last)
{
    for (int p = 1; p <= 8; p++) {
        for (int m = 2 * p - 1; m <= 24; m++) {
            PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_v("zb-v", p, m);
            CHECK_INT_EQ(longest_span(plan), 6 * m);
            CHECK_INT_EQ(peak_of(plan, 0), 2 * p < 2 * m ? 2 * p : 2 * m);
        }
    }
}

TEST(memory_of_v_half_and_v_min_is_that_of_the_paper)
{
    for (int p = 1; p <= 12; p++) {
        for (int m = 1; m <= 40; m += 3) {
            PP_OWN(pp_plan_destroy) struct pp_plan *half = plan_v("v-half", p, m);
            PP_OWN(pp_plan_destroy) struct pp_plan *min = plan_v("v-min", p, m);
            for (int r = 0; r < p; r++) {
                assert_in_range(peak_of(half, r), 1, 2 * ((p + 2) / 2));
                assert_in_range(peak_of(min, r), 1, 2 * ((p + 4) / 3));
            }
            if (m >= 2 * p && p > 1) {
                CHECK_INT_EQ(peak_of(half, 0), 2 * ((p + 2) / 2));
                CHECK_INT_EQ(peak_of(min, 0), 2 * ((p + 4) / 3));
            }
        }
    }
}

/* The F's message need not wait for the B of its pair: apart they are faster than as one piece. */
TEST(dualpipev_without_overlap_takes_the_time_of_zb_v)
{
    for (int p = 1; p <= 8; p++) {
        for (int m = 2 * p; m <= 24; m++) {
            int64_t zero = 0;
            int64_t dual = 0;
            PP_OWN(pp_plan_destroy) struct pp_plan *zb_v = plan_v("zb-v", p, m);
            PP_OWN(pp_plan_destroy) struct pp_plan *dualpipev = plan_v("dualpipev", p, m);
            time_line(zb_v, &unit, &zero, NULL, NULL);
            time_line(dualpipev, &unit, &dual, NULL, NULL);
            CHECK_INT_EQ(zero, 6 * m + p - 1);
            CHECK_INT_EQ(dual, zero);
        }
    }
}

TEST(other_chunk_counts_are_refused)
{
    static const int chunks[] = {1, 3, 4};
    for (size_t i = 0; i < LEN(v_names); i++) {
        CHECK_INT_EQ(pp_schedule_default_chunks(pp_schedule_find(v_names[i])), 2);
        CHECK_INT_EQ(pp_schedule_find(v_names[i])->placement, PP_PLACE_V);
        for (size_t k = 0; k < LEN(chunks); k++) {
            struct pp_plan *plan = NULL;
            struct pp_geometry g = {.stages = 2, .chunks = chunks[k], .microbatches = 8};
            CHECK_FAILS(pp_plan_build(v_names[i], &g, &plan), PP_ECONFIG, "set chunks = 2");
            CHECK_FAILS(pp_plan_build(v_names[i], &g, &plan), PP_ECONFIG, v_names[i]);
        }
    }
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
            double early = 1.0 - work / (double)makespan_of(plan, split);
            double fused = 1.0 - work / (double)makespan_of(plan, unit);
            assert_float_equal(early, (p - 1) / (3 * pw + p - 1), 1e-12);
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
                CHECK_INT_EQ(makespan_of(plan, split), 6 * waves * m + 2 * p - 2);
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
                assert_true(makespan_of(plan, split) <= 6 * waves * full + 2 * p - 2);
                for (int r = 0; r < p; r++)
                    assert_in_range(peak_of(plan, r), 1, 2 * waves * least(m, p));
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

TEST(dualpipe_idles_as_published)
{
    /* F = 1, B = 2, W = 1 per stage; a pair takes 3 or 2.5 */
    static const struct {
        int p, m;
        double pair, makespan, idle[8];
    } table[] = {
        {8, 20, 3, 66, {6, 6, 6, 6, 6, 6, 6, 6}},
        {8, 20, 2.5, 59, {3.5, 4, 4.5, 4.5, 4.5, 4.5, 4, 3.5}},
        {4, 8, 3, 26, {2, 2, 2, 2}},
    };
    for (size_t i = 0; i < LEN(table); i++) {
        struct rank_costs c = {.f = 1, .i = 1, .w = 1, .overlap = table[i].pair / 3};
        PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_of("dualpipe", table[i].p, table[i].m);
        struct pp_sim_result res;
        simulate(plan, &c, &res);
        assert_float_equal(res.makespan, table[i].makespan, 1e-9);
        for (int r = 0; r < table[i].p; r++) {
            assert_float_equal(res.idle[r], table[i].idle[r], 1e-9);
            CHECK_INT_EQ(res.peak[r], table[i].p + 1);
        }
        pp_sim_result_fini(&res);
    }
}

TEST(dualpipe_idles_on_its_worst_rank_as_the_formula_says)
{
    for (int p = 4; p <= 16; p *= 2) {
        for (int m = 2 * p; m <= 4 * p; m += p) {
            for (int i = 0; i < 3; i++) {
                double pair = 3 - 0.25 * i;
                struct rank_costs c = {.f = 1, .i = 1, .w = 1, .overlap = pair / 3};
                PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_of("dualpipe", p, m);
                struct pp_sim_result res;
                double worst = 0;
                simulate(plan, &c, &res);
                for (int r = 0; r < p; r++)
                    worst = res.idle[r] > worst ? res.idle[r] : worst;
                assert_float_equal(worst, (p / 2 - 1) * (pair + 2 - 3), 1e-9);
                pp_sim_result_fini(&res);
            }
        }
    }
}

TEST(chimera_has_half_the_bubble_of_1f1b)
{
    static const struct ticks even = {.f = 1, .i = 1, .w = 0, .fused_send = true};
    for (int p = 2; p <= 16; p += 2) {
        PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_of("chimera", p, p);
        int64_t makespan;
        time_line(plan, &even, &makespan, NULL, NULL);
        CHECK_INT_EQ(makespan, 2 * p + p - 2);
    }
}

TEST(two_copies_share_the_ranks_and_hand_nothing_over)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_of("dualpipe", 4, 8);
    CHECK_INT_EQ(plan->geometry.microbatches, 4);
    CHECK_INT_EQ(plan->copies, 2);
    CHECK_INT_EQ(plan->channels[2 * 3].slots, 0);
}

TEST(all_shapes_are_proved_or_refused_with_a_way_out)
{
    int n = 0;
    for (const char *const *name = (const char *[]){"dualpipe", "chimera", NULL}; *name; name++) {
        for (int p = 1; p <= 10; p++) {
            for (int m = 1; m <= 40; m++) {
                struct pp_geometry g = {.stages = p, .chunks = 2, .microbatches = m};
                struct pp_plan *plan = NULL;
                if (pp_plan_build(*name, &g, &plan) < 0) {
                    CHECK_INT_EQ(pp_error_get()->code, PP_ECONFIG);
                    assert_non_null(strstr(pp_error_get()->text, "nearest legal: "));
                    continue;
                }
                pp_plan_destroy(&plan);
                n++;
            }
        }
    }
    print_message("# %d plans\n", n);
    CHECK_INT_EQ(n, 75 + 100); /* even p and m, m >= 2p for dualpipe */
    struct pp_plan *plan = NULL;
    struct pp_geometry g = {.stages = 3, .chunks = 2, .microbatches = 7};
    CHECK_FAILS(pp_plan_build("dualpipe", &g, &plan), PP_ECONFIG,
                "nearest legal: stages = 4, microbatches = 8");
    g.chunks = 1;
    CHECK_FAILS(pp_plan_build("chimera", &g, &plan), PP_ECONFIG, "set chunks = 2");
}
