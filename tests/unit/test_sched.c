/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules against published checksums, tables and formulas. */
#include "test_sched_lists.h"
#include "test_sched_line.h"
#include "test_sched_peak.h"

static const struct {
    int p, m;
} sizes[] = {{2, 4}, {2, 8}, {4, 8}, {8, 16}};

static void check_crcs(const char *name, const unsigned *crcs)
{
    for (size_t i = 0; i < LEN(sizes); i++) {
        PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_named(name, sizes[i].p, sizes[i].m);
        unsigned crc = crc_of(plan);
        if (crc != crcs[i]) {
            fail_msg("%s p%d m%d: crc %08x, published %08x", name, sizes[i].p, sizes[i].m, crc,
                     crcs[i]);
        }
    }
}

TEST(gpipe_and_1f1b_print_the_published_cells)
{
    check_crcs("gpipe", (const unsigned[]){0x937d2cc4, 0x9a838f02, 0x008f5c35, 0x4c7b5247});
    check_crcs("1f1b", (const unsigned[]){0x51520832, 0x9eced39d, 0xf9d02352, 0xd59cecf2});
}

TEST(passes_accept_the_published_cells_of_other_schedules)
{
    check_crcs("2-eager 1f1b", (const unsigned[]){0x4827aeb0, 0x567ea4ce, 0x6127915d, 0x96ac0171});
    check_crcs("interleaved v2",
               (const unsigned[]){0xc52817ae, 0xb1c54e03, 0xb834db0e, 0x1e8b7afc});
    check_crcs("interleaved v4",
               (const unsigned[]){0xde879348, 0xf6028356, 0xbc123860, 0x45680c9d});
    check_crcs("zb-h1", (const unsigned[]){0x3a2ce6d5, 0x4a05a02d, 0x6f82b291, 0xa8719168});
    check_crcs("zb-h2", (const unsigned[]){0x98dc1cdc, 0xc8d31d0c, 0xbf17332f, 0x8f638d3b});
    check_crcs("interleaved-zb v2",
               (const unsigned[]){0x0ee7cfc5, 0xd3c9ff16, 0x1d150717, 0x6bd90bd1});
    check_crcs("zb-v", (const unsigned[]){0xae004cdd, 0x36c69384, 0xeb71807b, 0x2bdd3426});
}

TEST(csv_rows_are_those_of_torch)
{
    struct pp_plan *plan = plan_named("1f1b", 2, 4);
    check_plan_text(plan, pp_plan_print_csv,
                    "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n"
                    "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n");
    pp_plan_destroy(&plan);

    plan = plan_named("naive", 2, 2);
    check_plan_text(plan, pp_plan_print_csv, "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n");
    pp_plan_destroy(&plan);
}

static int64_t makespan_of(const struct pp_plan *plan, bool fused)
{
    struct ticks unit = {.f = 1, .i = 1, .w = 1, .fused_send = fused};
    int64_t makespan = -1;
    time_line(plan, &unit, &makespan, NULL, NULL);
    return makespan;
}

TEST(makespans_and_peaks_are_the_published_ones)
{
    /* ticks of one chunk: v times those of a rank */
    static const struct {
        const char *name;
        int v;
        int64_t p4m8, p8m16;
        int first4, last4, first8, last8; /* peak on the first and the last rank */
    } table[] = {
        {"gpipe", 1, 33, 69, 8, 8, 16, 16},
        {"1f1b", 1, 33, 69, 4, 1, 8, 1},
        {"2-eager 1f1b", 1, 33, 69, 7, 1, 15, 1},
        {"interleaved v2", 2, 57, 117, 11, 5, 23, 9},
        {"zb-h1", 1, 27, 55, 4, 4, 8, 8},
        {"zb-h2", 1, 27, 55, 7, 7, 15, 15},
        {"interleaved-zb v2", 2, 51, 103, 8, 8, 16, 16},
        {"zb-v", 2, 51, 103, 8, 8, 16, 16},
    };
    for (size_t i = 0; i < LEN(table); i++) {
        struct pp_plan *plan = plan_named(table[i].name, 4, 8);
        print_message("# %s p4 m8\n", table[i].name);
        CHECK_INT_EQ(makespan_of(plan, true), table[i].p4m8);
        CHECK_INT_EQ(peak_of(plan, 0), table[i].first4);
        CHECK_INT_EQ(peak_of(plan, 3), table[i].last4);
        double bubble;
        CHECK_OK(pp_bubble_ideal(plan, &bubble));
        double work = 24.0 * table[i].v;
        assert_float_equal(bubble, 1.0 - work / (double)table[i].p4m8, 1e-12);
        pp_plan_destroy(&plan);

        plan = plan_named(table[i].name, 8, 16);
        print_message("# %s p8 m16\n", table[i].name);
        CHECK_INT_EQ(makespan_of(plan, true), table[i].p8m16);
        CHECK_INT_EQ(peak_of(plan, 0), table[i].first8);
        CHECK_INT_EQ(peak_of(plan, 7), table[i].last8);
        pp_plan_destroy(&plan);
    }
}

static const char *const plain[] = {"naive", "gpipe", "1f1b", NULL};

TEST(every_size_has_the_bubble_of_the_formula)
{
    for (int p = 1; p <= 8; p++) {
        for (int m = 1; m <= 16; m++) {
            double ideal = (p - 1.0) / (m + p - 1.0);
            double naive = 1.0 - 1.0 / p;
            for (const char *const *name = plain; *name; name++) {
                bool is_naive = strcmp(*name, "naive") == 0;
                PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_named(*name, p, m);
                double bubble = -1;
                CHECK_OK(pp_bubble_ideal(plan, &bubble));
                assert_float_equal(bubble, is_naive ? naive : ideal, 1e-12);
                CHECK_INT_EQ(makespan_of(plan, true), is_naive ? 3 * p * m : 3 * (m + p - 1));
            }
        }
    }
}

TEST(unequal_ticks_follow_the_formula_too)
{
    struct ticks ticks = {.f = 5, .i = 7, .w = 3, .fused_send = true};
    for (int p = 1; p <= 8; p++) {
        for (int m = 1; m <= 16; m++) {
            int64_t makespan;
            int64_t work[8];
            struct pp_plan *plan = plan_named("1f1b", p, m);
            time_line(plan, &ticks, &makespan, work, NULL);
            CHECK_INT_EQ(makespan, (m + p - 1) * (5 + 7 + 3));
            for (int r = 0; r < p; r++)
                CHECK_INT_EQ(work[r], m * (5 + 7 + 3));
            pp_plan_destroy(&plan);
            plan = plan_named("gpipe", p, m);
            time_line(plan, &ticks, &makespan, NULL, NULL);
            CHECK_INT_EQ(makespan, (m + p - 1) * (5 + 7 + 3));
            pp_plan_destroy(&plan);
        }
    }
}

TEST(slots_of_1f1b_do_not_grow_with_microbatches)
{
    for (int p = 1; p <= 8; p++) {
        for (int m = 1; m <= 24; m++) {
            PP_OWN(pp_plan_destroy) struct pp_plan *one = plan_named("1f1b", p, m);
            PP_OWN(pp_plan_destroy) struct pp_plan *all = plan_named("gpipe", p, m);
            PP_OWN(pp_plan_destroy) struct pp_plan *naive = plan_named("naive", p, m);
            for (int s = 0; s < p; s++) {
                CHECK_INT_EQ(one->state_slots[s], least(m, p - s));
                CHECK_INT_EQ(all->state_slots[s], m);
                CHECK_INT_EQ(naive->state_slots[s], 1);
                CHECK_INT_EQ(one->grad_slots[s], 1);
                CHECK_INT_EQ(all->grad_slots[s], 1);
            }
        }
    }
}

TEST(names_find_their_schedules)
{
    int n = 0, trained = 0;
    for (const char *const *line = pp_schedule_help(); *line; line += 2, n++) {
        const struct pp_schedule_ops *ops = pp_schedule_find(line[0]);
        assert_non_null(ops);
        CHECK_STR_EQ(pp_schedule_name(ops), line[0]);
        assert_non_null(strstr(line[1], "; memory: "));
        CHECK_INT_EQ(ops->copies == 2, strstr(line[1], "plan only") != NULL);
        trained += ops->copies != 2;
    }
    for (const char *const *name = pp_schedule_names(); *name; name++, trained--)
        assert_int_not_equal(pp_schedule_find(*name)->copies, 2);
    CHECK_INT_EQ(n, 20);
    CHECK_INT_EQ(trained, 0);
    assert_null(pp_schedule_find("GPipe"));
    assert_null(pp_schedule_find(""));
}

TEST(placement_loops_or_folds)
{
    static const int loop[] = {0, 1, 2, 0, 1, 2, 0, 1, 2};
    static const int fold[] = {0, 1, 2, 2, 1, 0, 0, 1, 2};
    for (int s = 0; s < 9; s++) {
        CHECK_INT_EQ(pp_place(PP_PLACE_LOOP, 3, s), loop[s]);
        CHECK_INT_EQ(pp_place(PP_PLACE_V, 3, s), fold[s]);
    }
}

TEST(impossible_geometries_are_refused_with_a_way_out)
{
    struct pp_plan *plan = NULL;
    struct pp_geometry g = {.stages = 4, .chunks = 2, .microbatches = 8};
    for (const char *const *name = plain; *name; name++) {
        CHECK_FAILS(pp_plan_build(*name, &g, &plan), PP_ECONFIG, "1 chunk per rank, not 2");
        CHECK_FAILS(pp_plan_build(*name, &g, &plan), PP_ECONFIG, "set chunks = 1");
    }
    g = (struct pp_geometry){.stages = 0, .chunks = 1, .microbatches = 8};
    CHECK_FAILS(pp_plan_build("gpipe", &g, &plan), PP_ECONFIG, "0 stages");
    g = (struct pp_geometry){.stages = 2, .chunks = 1, .microbatches = -1};
    CHECK_FAILS(pp_plan_build("gpipe", &g, &plan), PP_ECONFIG, "-1 micro-batches");
    g = (struct pp_geometry){.stages = 70000, .chunks = 1, .microbatches = 70000};
    CHECK_FAILS(pp_plan_build("1f1b", &g, &plan), PP_ECONFIG, "too many");
    g = (struct pp_geometry){.stages = INT32_MAX, .chunks = INT32_MAX, .microbatches = INT32_MAX};
    CHECK_FAILS(pp_plan_build_eval(&g, PP_PLACE_LOOP, &plan), PP_ECONFIG, "too many");
    g = (struct pp_geometry){.stages = 2, .chunks = 1, .microbatches = 2};
    CHECK_FAILS(pp_plan_build("1f1B", &g, &plan), PP_ECONFIG, "naive, gpipe, 1f1b");
    assert_null(plan);
}
