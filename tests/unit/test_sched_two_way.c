/* SPDX-License-Identifier: Apache-2.0 */
/* Two pipelines in opposite directions: published rows, idle times and peaks. */
#include "test_sched_lists.h"
#include "test_sched_line.h"
#include "test_sim_shapes.h"

/* Row r of a plan's table. */
static void check_row(const struct pp_plan *plan, int r, const char *row)
{
    char *text = printed(plan, pp_plan_print_csv);
    char *at = text;
    for (; r > 0; r--)
        at = strchr(at, '\n') + 1;
    CHECK_INT_EQ(strcspn(at, "\n"), strlen(row));
    assert_memory_equal(at, row, strlen(row));
    free(text);
}

TEST(dualpipe_has_the_published_rows)
{
    /* the pipeline that goes up: stages 4..7, on ranks 3..0 */
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_of("dualpipe", 4, 8);
    check_row(plan, 0,
              "0F0,0F1,0F2,7F0,7I0,7W0,7F1,(0F3;7B1)OVERLAP_F_B,(7F2;0B0)OVERLAP_F_B,7B2,"
              "(7F3;0B1)OVERLAP_F_B,7B3,0I2,0W2,0I3,0W3");
    check_row(plan, 1,
              "1F0,6F0,1F1,6F1,1F2,6B0,(6F2;1B0)OVERLAP_F_B,(1F3;6B1)OVERLAP_F_B,"
              "(6F3;1B1)OVERLAP_F_B,6B2,1B2,6I3,1I3,6W3,1W3");
    check_row(plan, 2,
              "5F0,2F0,5F1,2F1,5F2,2B0,(2F2;5B0)OVERLAP_F_B,(5F3;2B1)OVERLAP_F_B,"
              "(2F3;5B1)OVERLAP_F_B,2B2,5B2,2I3,5I3,2W3,5W3");
    CHECK_INT_EQ(plan->geometry.microbatches, 4);
    CHECK_INT_EQ(plan->copies, 2);
    CHECK_INT_EQ(plan->channels[2 * 3].slots, 0); /* no hand-over from one copy to the other */
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

TEST(chimera_has_the_authors_rows)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_of("chimera", 4, 4);
    check_row(plan, 0, "0F0,0F1,7F0,7B0,7F1,7B1,0B0,0B1");
    check_row(plan, 1, "1F0,6F0,1F1,6F1,6B0,1B0,6B1,1B1");
    check_row(plan, 2, "5F0,2F0,5F1,2F1,2B0,5B0,2B1,5B1");
    check_row(plan, 3, "4F0,4F1,3F0,3B0,3F1,3B1,4B0,4B1");
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
