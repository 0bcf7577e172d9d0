/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules against what was published of them: checksums, rows, times, memory; and what they refuse. */
#include "test_sched_line.h"

/* The schedule's own list. */
static char *published(const char *name, int p, int m)
{
    struct pp_geometry g;
    const char *schedule = geometry_named(name, p, m, &g);
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    assert_non_null(f);
    CHECK_OK(pp_schedule_print_csv(pp_schedule_find(schedule), &g, f));
    fclose(f);
    return text;
}

TEST(cells_have_the_published_checksums)
{
    static const struct {
        int p, m;
    } sizes[] = {{2, 4}, {2, 8}, {4, 8}, {8, 16}};
    static const struct {
        const char *name;
        unsigned crc[4];
    } table[] = {
        {"gpipe", {0x937d2cc4, 0x9a838f02, 0x008f5c35, 0x4c7b5247}},
        {"1f1b", {0x51520832, 0x9eced39d, 0xf9d02352, 0xd59cecf2}},
        {"1f1b-eager v1", {0x51520832, 0x9eced39d, 0xf9d02352, 0xd59cecf2}},
        {"interleaved v1", {0x51520832, 0x9eced39d, 0xf9d02352, 0xd59cecf2}},
        {"2-eager 1f1b", {0x4827aeb0, 0x567ea4ce, 0x6127915d, 0x96ac0171}},
        {"interleaved v2", {0xc52817ae, 0xb1c54e03, 0xb834db0e, 0x1e8b7afc}},
        {"interleaved v4", {0xde879348, 0xf6028356, 0xbc123860, 0x45680c9d}},
        {"looped-bfs v2", {0x3b320c26, 0xf3eb04ad, 0x5c815041, 0xafe952d9}},
        {"zb-h1", {0x3a2ce6d5, 0x4a05a02d, 0x6f82b291, 0xa8719168}},
        {"interleaved-zb v1", {0x3a2ce6d5, 0x4a05a02d, 0x6f82b291, 0xa8719168}},
        {"zb-h2", {0x98dc1cdc, 0xc8d31d0c, 0xbf17332f, 0x8f638d3b}},
        {"interleaved-zb v2", {0x0ee7cfc5, 0xd3c9ff16, 0x1d150717, 0x6bd90bd1}},
        {"zb-v", {0xae004cdd, 0x36c69384, 0xeb71807b, 0x2bdd3426}},
        {"v-half", {0xf8205f69, 0xa0dec468, 0x167b250a, 0x23b0962c}},
        {"v-min", {0xfcb9c1f6, 0xc1a5b8e5, 0x325bb46a, 0x8ea9e78a}},
        {"dualpipev", {0xa255bfb2, 0x26240296, 0x9bc36e1a, 0xd5f1772e}},
    };
    for (size_t i = 0; i < LEN(table); i++) {
        for (size_t k = 0; k < LEN(sizes); k++) {
            PP_OWN_MEMORY char *text = published(table[i].name, sizes[k].p, sizes[k].m);
            PP_OWN(pp_plan_destroy)
            struct pp_plan *plan = plan_named(table[i].name, sizes[k].p, sizes[k].m);
            print_message("# %s p%d m%d\n", table[i].name, sizes[k].p, sizes[k].m);
            CHECK_INT_EQ(crc32(0, (const Bytef *)text, (uInt)strlen(text)), table[i].crc[k]);
            if (!plan->schedule->descends)
                CHECK_INT_EQ(crc_of(plan), table[i].crc[k]);
        }
    }
}

TEST(rows_are_the_published_ones)
{
    static const struct {
        const char *name;
        int p, m, r;
        const char *row;
    } table[] = {
        {"naive", 2, 2, 0, "0F0,0B0,0F1,0B1"},
        {"naive", 2, 2, 1, "1F0,1B0,1F1,1B1"},
        {"1f1b", 2, 4, 0, "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3"},
        {"1f1b", 2, 4, 1, "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3"},
        {"hanayo", 2, 2, 0, "0F0,0F1,3F0,3B0,3F1,3B1,0B0,0B1"},
        {"hanayo", 2, 2, 1, "1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1"},
        {"looped-bfs v2", 2, 3, 0, "0F0,0F1,0F2,2F0,2F1,2F2,2B2,2B1,2B0,0B2,0B1,0B0"},
        {"looped-bfs v2", 2, 3, 1, "1F0,1F1,1F2,3F0,3F1,3F2,3B2,3B1,3B0,1B2,1B1,1B0"},
        {"interleaved v2", 2, 4, 0,
         "0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,0B3"},
        {"interleaved v2", 2, 4, 1,
         "1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,1B2,1B3"},
        {"interleaved v2", 4, 8, 3,
         "3F0,3F1,3F2,3F3,7F0,7B0,7F1,7B1,7F2,7B2,7F3,7B3,3F4,3B0,3F5,3B1,3F6,3B2,3F7,3B3,7F4,7B4,"
         "7F5,7B5,7F6,7B6,7F7,7B7,3B4,3B5,3B6,3B7"},
        {"looped-bfs v2", 2, 4, 0,
         "0F0,0F1,0F2,0F3,2F0,2F1,2F2,2F3,2B3,2B2,2B1,2B0,0B3,0B2,0B1,0B0"},
        {"interleaved-zb v2", 2, 4, 1,
         "1F0,1F1,3F0,3I0,3F1,3I1,3W0,1F2,1I0,3W1,1F3,1I1,1W0,3F2,3I2,1W1,3F3,3I3,3W2,1I2,3W3,1I3,"
         "1W2,1W3"},
        {"zb-h2", 2, 4, 0, "0F0,0F1,0F2,0I0,0W0,0F3,0I1,0W1,0I2,0W2,0I3,0W3"},
        {"zb-h2", 2, 4, 1, "1F0,1I0,1F1,1I1,1F2,1I2,1W0,1F3,1I3,1W1,1W2,1W3"},
        {"zb-h1", 4, 8, 0,
         "0F0,0F1,0F2,0F3,0I0,0W0,0F4,0I1,0W1,0F5,0I2,0W2,0F6,0I3,0W3,0F7,0I4,0W4,0I5,0W5,0I6,0W6,"
         "0I7,0W7"},
        {"zb-h1", 4, 8, 2,
         "2F0,2F1,2I0,2F2,2I1,2F3,2I2,2W0,2F4,2I3,2W1,2F5,2I4,2W2,2F6,2I5,2W3,2F7,2I6,2W4,2I7,2W5,"
         "2W6,2W7"},
        {"zb-v", 2, 4, 0,
         "0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0F3,0I0,0W0,3F2,3I2,3W2,0I1,0W1,3F3,3I3,3W3,"
         "0I2,0W2,0I3,0W3"},
        {"zb-v", 2, 4, 1,
         "1F0,2F0,1F1,2F1,2I0,2W0,1F2,1I0,1W0,2F2,2I1,2W1,1F3,1I1,1W1,2F3,2I2,2W2,1I2,2I3,"
         "1I3,1W2,2W3,1W3"},
        {"dualpipev", 2, 4, 0,
         "0F0,0F1,0F2,3F0,3I0,3W0,3F1,(0F3;3B1)OVERLAP_F_B,(3F2;0B0)OVERLAP_F_B,3B2,"
         "(3F3;0B1)OVERLAP_F_B,3B3,0I2,0W2,0I3,0W3"},
        {"dualpipev", 2, 4, 1,
         "1F0,2F0,1F1,2F1,1F2,2B0,(2F2;1B0)OVERLAP_F_B,(1F3;2B1)OVERLAP_F_B,"
         "(2F3;1B1)OVERLAP_F_B,2B2,1B2,2I3,1I3,2W3,1W3"},
        {"v-half", 4, 8, 0,
         "0F0,0F1,0F2,0F3,0F4,7F0,7I0,7W0,7F1,7I1,7W1,7F2,7I2,7W2,0I0,0W0,0F5,7F3,7I3,7W3,"
         "0I1,0W1,0F6,7F4,7I4,7W4,0I2,0W2,0F7,7F5,7I5,7W5,0I3,0W3,7F6,7I6,7W6,0I4,0W4,7F7,"
         "7I7,0I5,7W7,0I6,0W5,0W6,0I7,0W7"},
        {"v-min", 4, 8, 0,
         "0F0,0F1,0F2,7F0,7I0,7W0,7F1,7I1,7W1,0F3,0I0,0W0,7F2,7I2,0I1,7W2,0W1,0F4,7F3,7I3,"
         "0I2,7W3,0W2,0F5,7F4,7I4,0I3,7W4,0W3,0F6,7F5,7I5,0I4,7W5,0W4,0F7,7F6,7I6,0I5,7W6,"
         "0W5,7F7,7I7,0I6,7W7,0W6,0I7,0W7"},
        {"1f1b-v", 4, 8, 0,
         "0F0,0F1,0F2,0F3,0F4,7F0,7B0,7F1,7B1,7F2,7B2,7F3,7B3,0B0,0F5,7F4,7B4,0B1,0F6,7F5,"
         "7B5,0B2,0F7,7F6,7B6,0B3,7F7,7B7,0B4,0B5,0B6,0B7"},
        {"1f1b-v", 4, 8, 3,
         "3F0,4F0,3F1,4F1,3F2,4F2,4B0,3B0,3F3,4F3,4B1,3B1,3F4,4F4,4B2,3B2,3F5,4F5,4B3,3B3,"
         "3F6,4F6,4B4,3B4,3F7,4F7,4B5,3B5,4B6,3B6,4B7,3B7"},
        {"dualpipe", 4, 8, 0,
         "0F0,0F1,0F2,7F0,7I0,7W0,7F1,(0F3;7B1)OVERLAP_F_B,(7F2;0B0)OVERLAP_F_B,7B2,"
         "(7F3;0B1)OVERLAP_F_B,7B3,0I2,0W2,0I3,0W3"},
        {"dualpipe", 4, 8, 1,
         "1F0,6F0,1F1,6F1,1F2,6B0,(6F2;1B0)OVERLAP_F_B,(1F3;6B1)OVERLAP_F_B,"
         "(6F3;1B1)OVERLAP_F_B,6B2,1B2,6I3,1I3,6W3,1W3"},
        {"dualpipe", 4, 8, 2,
         "5F0,2F0,5F1,2F1,5F2,2B0,(2F2;5B0)OVERLAP_F_B,(5F3;2B1)OVERLAP_F_B,"
         "(2F3;5B1)OVERLAP_F_B,2B2,5B2,2I3,5I3,2W3,5W3"},
        {"chimera", 4, 4, 0, "0F0,0F1,7F0,7B0,7F1,7B1,0B0,0B1"},
        {"chimera", 4, 4, 1, "1F0,6F0,1F1,6F1,6B0,1B0,6B1,1B1"},
        {"chimera", 4, 4, 2, "5F0,2F0,5F1,2F1,2B0,5B0,2B1,5B1"},
        {"chimera", 4, 4, 3, "4F0,4F1,3F0,3B0,3F1,3B1,4B0,4B1"},
    };
    for (size_t i = 0; i < LEN(table); i++) {
        PP_OWN(pp_plan_destroy)
        struct pp_plan *plan = plan_named(table[i].name, table[i].p, table[i].m);
        PP_OWN_MEMORY char *text = plan->schedule->descends
                                       ? published(table[i].name, table[i].p, table[i].m)
                                       : printed(plan, pp_plan_print_csv);
        char *row = text;
        for (int r = 0; r < table[i].r; r++)
            row = strchr(row, '\n') + 1;
        row[strcspn(row, "\n")] = '\0';
        CHECK_STR_EQ(row, table[i].row);
    }
}

/* A plan of looped-bfs: the published list, its B's as I, and the W's in ascending order. */
TEST(looped_bfs_runs_its_input_gradients_as_published)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_named("looped-bfs v2", 2, 3);
    check_plan_text(plan, pp_plan_print_csv,
                    "0F0,0F1,0F2,2F0,2F1,2F2,2I2,2I1,2B0,2W1,2W2,0I2,0I1,0B0,0W1,0W2\n"
                    "1F0,1F1,1F2,3F0,3F1,3F2,3I2,3I1,3B0,3W1,3W2,1I2,1I1,1B0,1W1,1W2\n");
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
                CHECK_INT_EQ(makespan_of(plan, unit), is_naive ? 3 * p * m : 3 * (m + p - 1));
            }
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
    enum {
        SCHEDULES = 0
#define PP_SCHEDULE(...) +1
#define PP_SCHEDULE_TWO_WAY PP_SCHEDULE
#include "../../src/sched/schedules.def"
    };
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
    CHECK_INT_EQ(n, SCHEDULES);
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
