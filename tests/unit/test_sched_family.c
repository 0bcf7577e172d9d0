/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schedules of the 1F1B and ZB-H families on a loop, against published checksums, rows and
 * tables.
 */
#include "test_sched_times.h"
#include "test_sched_line.h"
#include "test_sched_peak.h"

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

static unsigned crc_of_text(const char *text)
{
    return (unsigned)crc32(0, (const Bytef *)text, (uInt)strlen(text));
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
    };
    for (size_t i = 0; i < LEN(table); i++) {
        for (size_t k = 0; k < LEN(sizes); k++) {
            PP_OWN_MEMORY char *text = published(table[i].name, sizes[k].p, sizes[k].m);
            struct pp_plan *plan = plan_named(table[i].name, sizes[k].p, sizes[k].m);
            unsigned crc = crc_of_text(text);
            if (crc != table[i].crc[k]) {
                fail_msg("%s p%d m%d: crc %08x, published %08x", table[i].name, sizes[k].p,
                         sizes[k].m, crc, table[i].crc[k]);
            }
            if (!plan->schedule->descends)
                CHECK_INT_EQ(crc_of(plan), crc);
            pp_plan_destroy(&plan);
        }
    }
}

/* Does `row` stand in the rows of a text, as line number r? */
static void check_row(const char *text, int r, const char *row)
{
    while (r-- > 0)
        text = strchr(text, '\n') + 1;
    if (strncmp(text, row, strlen(row)) != 0 || text[strlen(row)] != '\n')
        fail_msg("row is %.*s, expected %s", (int)strcspn(text, "\n"), text, row);
}

TEST(rows_are_the_published_ones)
{
    static const struct {
        const char *name;
        int p, m, r;
        const char *row;
    } table[] = {
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
    };
    for (size_t i = 0; i < LEN(table); i++) {
        PP_OWN_MEMORY char *text = published(table[i].name, table[i].p, table[i].m);
        check_row(text, table[i].r, table[i].row);
    }
}

/* A plan of looped-bfs: the published list, its B's as I, and the W's in ascending order. */
TEST(looped_bfs_runs_its_input_gradients_as_published)
{
    struct pp_plan *plan = plan_named("looped-bfs v2", 2, 3);
    check_plan_text(plan, pp_plan_print_csv,
                    "0F0,0F1,0F2,2F0,2F1,2F2,2I2,2I1,2B0,2W1,2W2,0I2,0I1,0B0,0W1,0W2\n"
                    "1F0,1F1,1F2,3F0,3F1,3F2,3I2,3I1,3B0,3W1,3W2,1I2,1I1,1B0,1W1,1W2\n");
    pp_plan_destroy(&plan);
    PP_OWN_MEMORY char *text = published("looped-bfs v2", 2, 3);
    CHECK_STR_EQ(text, "0F0,0F1,0F2,2F0,2F1,2F2,2B2,2B1,2B0,0B2,0B1,0B0\n"
                       "1F0,1F1,1F2,3F0,3F1,3F2,3B2,3B1,3B0,1B2,1B1,1B0\n");
}

static int64_t makespan_of(const struct pp_plan *plan, struct ticks ticks)
{
    int64_t makespan = -1;
    time_line(plan, &ticks, &makespan, NULL, NULL);
    return makespan;
}

static const struct ticks unit = {.f = 1, .i = 1, .w = 1, .fused_send = true};

TEST(makespans_and_peaks_are_the_published_ones)
{
    /* ticks of one chunk: v times those of a rank; spans where they differ from the makespan */
    static const struct {
        const char *name;
        int p, m, v;
        int64_t makespan, longest;
        int first, step; /* peak of the first rank, and from rank to rank */
    } table[] = {
        {"2-eager 1f1b", 4, 8, 1, 33, 33, 7, -2},
        {"2-eager 1f1b", 8, 16, 1, 69, 69, 15, -2},
        {"interleaved v2", 4, 8, 2, 57, 57, 11, -2},
        {"interleaved v2", 8, 16, 2, 117, 117, 23, -2},
        {"looped-bfs v2", 4, 8, 2, 57, 57, 16, 0},
        {"looped-bfs v2", 8, 16, 2, 117, 117, 32, 0},
        {"zb-h1", 4, 8, 1, 27, 27, 4, 0},
        {"zb-h1", 8, 16, 1, 55, 55, 8, 0},
        {"zb-h2", 4, 8, 1, 27, 24, 7, 0},
        {"zb-h2", 8, 16, 1, 55, 48, 15, 0},
        {"interleaved-zb v2", 4, 8, 2, 51, 51, 8, 0},
        {"interleaved-zb v2", 8, 16, 2, 103, 103, 16, 0},
    };
    for (size_t i = 0; i < LEN(table); i++) {
        int p = table[i].p;
        PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_named(table[i].name, p, table[i].m);
        struct times t = {.f = 1, .i = 1, .w = 1};
        struct spans s;
        double bubble;
        print_message("# %s p%d m%d\n", table[i].name, p, table[i].m);
        spans_of(plan, &t, &s);
        CHECK_INT_EQ(makespan_of(plan, unit), table[i].makespan);
        CHECK_INT_EQ(s.makespan, table[i].makespan);
        CHECK_INT_EQ(s.longest, table[i].longest);
        CHECK_OK(pp_bubble_ideal(plan, &bubble));
        double work = 3.0 * table[i].m * table[i].v;
        assert_float_equal(bubble, 1.0 - work / (double)table[i].makespan, 1e-12);
        for (int r = 0; r < p; r++)
            CHECK_INT_EQ(peak_of(plan, r), table[i].first + r * table[i].step);
    }
}

/* Makespans of P = 4, M = 16 for hand-overs of 0, 1/20, 1/10, 1/4, 1/2 and 1 op. */
TEST(slow_links_cost_what_was_published)
{
    static const int comm[] = {0, 2, 4, 10, 20, 40}; /* a rank's op takes 40 */
    static const struct {
        const char *name;
        double spans[6];
    } table[] = {
        {"gpipe", {57, 57.3, 57.6, 58.5, 60, 63}},
        {"1f1b", {57, 58.4, 59.8, 64, 71, 85}},
        {"2-eager 1f1b", {57, 57.3, 57.6, 58.5, 60, 63}},
        {"interleaved v2", {52.5, 53.2, 53.9, 56, 59.5, 75.5}},
        {"interleaved v4", {50.25, 51.75, 53.25, 57.75, 75.75, 114.75}},
        {"looped-bfs v2", {52.5, 52.8, 53.1, 54, 55.5, 58.5}},
        {"looped-bfs v4", {50.25, 50.55, 50.85, 51.75, 53.25, 59.25}},
        {"zb-h1", {51, 51.6, 52.2, 54, 57, 71}},
        {"zb-h2", {51, 51.15, 51.3, 51.75, 52.5, 54}},
        {"interleaved-zb v2", {49.5, 50.3, 51.1, 53.5, 66, 93}},
        {"interleaved-zb v4", {48.75, 49.95, 51.15, 63.5, 90, 143}},
    };
    for (size_t i = 0; i < LEN(table); i++) {
        PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_named(table[i].name, 4, 16);
        int cell = 40 / plan->geometry.chunks;
        for (size_t k = 0; k < LEN(comm); k++) {
            struct times t = {.f = cell, .i = cell, .w = cell, .comm = comm[k]};
            struct spans s;
            spans_of(plan, &t, &s);
            print_message("# %s c=%d/40: %g, published %g\n", table[i].name, comm[k],
                          (double)s.makespan / 40, table[i].spans[k]);
            assert_float_equal((double)s.makespan / 40, table[i].spans[k], 1e-9);
        }
    }
}
