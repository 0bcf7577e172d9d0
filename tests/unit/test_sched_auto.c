/* SPDX-License-Identifier: Apache-2.0 */
/* The zero-bubble heuristic: known lists, the paper's figures, its memory cap, what it refuses. */
#include "../../src/sched/orders/zb_auto.h"

#include <math.h>

#include "ppcli/base/base.h"
#include "test_sched_oracle.h"
#include "test_sched_line.h"

static struct pp_plan *plan_auto(int p, int m, double cap, struct pp_schedule_costs costs)
{
    struct pp_plan *plan = NULL;
    struct pp_geometry g = {
        .stages = p, .chunks = 1, .microbatches = m, .memory_cap = cap, .costs = costs};
    CHECK_OK(pp_plan_build("zb-auto", &g, &plan));
    return plan;
}

static const struct pp_schedule_costs unit_costs = {.f = 1, .i = 1, .w = 1};
static const struct times unit_times = {.f = 1, .i = 1, .w = 1};

static int most_held(const struct pp_plan *plan)
{
    int most = 0;
    for (int r = 0; r < plan->geometry.stages; r++)
        most = peak_of(plan, r) > most ? peak_of(plan, r) : most;
    return most;
}

TEST(cap_of_p_gives_zb_h1)
{
    for (int p = 1; p <= 8; p++) {
        for (int m = 1; m <= 20; m++) {
            struct spans s, s_h1;
            struct pp_geometry g = {.stages = p, .chunks = 1, .microbatches = m};
            PP_OWN(pp_plan_destroy) struct pp_plan *h1 = NULL;
            PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_auto(p, m, p, unit_costs);
            CHECK_OK(pp_plan_build("zb-h1", &g, &h1));
            spans_of(plan, &unit_times, &s);
            spans_of(h1, &unit_times, &s_h1);
            CHECK_INT_EQ(s.makespan, s_h1.makespan);
            if (m > p) /* in fewer rounds the W's of the drain can go elsewhere at no cost */
                CHECK_INT_EQ(crc_of(plan), crc_of(h1));
        }
    }
}

TEST(no_costs_are_even_costs)
{
    struct pp_plan *none = plan_auto(4, 8, 4, (struct pp_schedule_costs){0});
    PP_OWN(pp_plan_destroy) struct pp_plan *ones = plan_auto(4, 8, 4, unit_costs);
    struct pp_plan *thirds =
        plan_auto(4, 8, 4, (struct pp_schedule_costs){1 / 3., 1 / 3., 1 / 3., 0});
    CHECK_INT_EQ(crc_of(none), 0x6f82b291); /* zb-h1, p4 m8 */
    CHECK_INT_EQ(crc_of(ones), 0x6f82b291);
    CHECK_INT_EQ(crc_of(thirds), 0x6f82b291);
    pp_plan_destroy(&none);
    pp_plan_destroy(&thirds);
}

TEST(cap_of_2p_gives_the_published_rows)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_auto(4, 8, 8, unit_costs);
    PP_OWN_MEMORY char *text = printed(plan, pp_plan_print_csv);
    const char *r0 = "0F0,0F1,0F2,0F3,0F4,0F5,0F6,0I0,0F7,0W0,0I1,0W1,0I2,0W2,0I3,0W3,0I4,0W4,0I5,"
                     "0W5,0I6,0W6,0I7,0W7\n";
    const char *r3 = "3F0,3I0,3F1,3I1,3F2,3I2,3F3,3I3,3F4,3I4,3F5,3I5,3F6,3I6,3F7,3I7,3W0,3W1,3W2,"
                     "3W3,3W4,3W5,3W6,3W7\n";
    assert_memory_equal(text, r0, strlen(r0));
    CHECK_STR_EQ(text + strlen(text) - strlen(r3), r3);
}

TEST(nobody_waits_with_cap_2p)
{
    for (int p = 1; p <= 8; p++) {
        for (int m = 2 * p - 1; m <= 24; m++) {
            struct spans s;
            struct pp_plan *plan = plan_auto(p, m, 0, unit_costs); /* 0: 2P */
            spans_of(plan, &unit_times, &s);
            CHECK_INT_EQ(s.longest, 3 * m);
            CHECK_INT_EQ(s.makespan, 3 * m + p - 1);
            CHECK_INT_EQ(most_held(plan), m < 2 * p ? m : 2 * p);
            pp_plan_destroy(&plan);
        }
    }
}

TEST(no_rank_holds_more_than_the_cap)
{
    for (int round = 0; round < 400; round++) {
        int p = 1 + random_below(8);
        int m = 1 + random_below(20);
        double cap = 1 + random_below(4 * p) / 2.0;
        struct pp_schedule_costs costs = {random_below(9) / 4., random_below(9) / 4.,
                                          random_below(9) / 4., random_below(5) / 8.};
        PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_auto(p, m, cap, costs);
        assert_true(most_held(plan) <= cap);
        if (round % 8 == 0)
            run_in_all_ways(plan);
    }
}

/* What the authors' memory model gives: some of a micro-batch's memory is free after I. */
static struct pp_plan *plan_paper(const struct pp_zb_auto *z, int64_t *span)
{
    struct pp_emit lists[8] = {{0}};
    struct pp_emit *ranks[8];
    struct lists l = {.g = {.stages = z->p, .chunks = 1, .microbatches = z->m}};
    struct pp_plan *plan = NULL;
    for (int r = 0; r < z->p; r++)
        ranks[r] = &lists[r];
    CHECK_OK(pp_zb_auto_emit(z, ranks, span));
    for (int r = 0; r < z->p; r++) {
        l.rank_of[r] = r;
        l.cells[r] = lists[r].cells;
        l.n[r] = (int)lists[r].n;
    }
    CHECK_OK(lists_plan(&l, &plan));
    for (int r = 0; r < z->p; r++)
        pp_free(lists[r].cells);
    return plan;
}

/* Models of the paper's table 5: h hidden, a heads, s = 1024; times in microseconds. */
static const struct model {
    int m, h, a;
    int64_t f, i, w, comm;
    double zb_1p, zb_2p;
} models[] = {
    {24, 2304, 24, 18522, 18086, 9337, 601, .1585, .0433},
    {32, 2304, 24, 18513, 18086, 9331, 626, .1242, .0039},
    {64, 2304, 24, 18546, 18097, 9321, 762, .0674, .0026},
    {24, 4096, 32, 29718, 29444, 19927, 527, .1323, .0029},
    {32, 4096, 32, 29802, 29428, 19530, 577, .1045, .0022},
    {64, 4096, 32, 29935, 29621, 19388, 535, .0554, .0010},
};

static double span_bubble(const struct model *k, double cap)
{
    double mem_f = 34.0 * k->h + 5.0 * k->a * 1024;
    double mem_w = 32.0 * k->h;
    struct pp_zb_auto z = {.p = 8,
                           .m = k->m,
                           .f = k->f,
                           .i = k->i,
                           .w = k->w,
                           .comm = k->comm,
                           .mem_f = mem_f,
                           .mem_i = mem_f - mem_w,
                           .mem_w = mem_w,
                           .cap = cap * 8 * mem_f};
    int64_t span = 0;
    struct spans s;
    struct pp_plan *plan = plan_paper(&z, &span);
    spans_of(plan, &(struct times){.f = k->f, .i = k->i, .w = k->w, .comm = k->comm}, &s);
    CHECK_INT_EQ(s.longest, span);
    pp_plan_destroy(&plan);
    return 1.0 - (double)(k->m * (k->f + k->i + k->w)) / (double)span;
}

/* To the four digits that are printed. */
static void check_bubble(double bubble, double published)
{
    if (fabs(bubble - published) > 0.5e-4)
        fail_msg("span bubble %.6f, published %.4f", bubble, published);
}

TEST(bubbles_are_those_of_the_paper)
{
    for (size_t i = 0; i < LEN(models); i++) {
        print_message("# h = %d, m = %d\n", models[i].h, models[i].m);
        check_bubble(span_bubble(&models[i], 1), models[i].zb_1p);
        check_bubble(span_bubble(&models[i], 2), models[i].zb_2p);
    }
}

TEST(memory_buys_time_as_published)
{
    static const double caps[] = {1, 1.25, 1.5, 1.75, 2, 2.5, 3};
    static const double small[] = {.1585, .1068, .0719, .0433, .0433, .0433, .0433};
    static const double large[] = {.1323, .0751, .0475, .0182, .0029, .0029, .0029};
    for (size_t i = 0; i < LEN(caps); i++) {
        print_message("# cap %g\n", caps[i]);
        check_bubble(span_bubble(&models[0], caps[i]), small[i]);
        check_bubble(span_bubble(&models[3], caps[i]), large[i]);
    }
}

/* Charged until W, as the schedule does it, the same plateau needs three times P, not 1.75. */
TEST(honest_memory_needs_a_higher_cap_for_the_same_bubble)
{
    static const double caps[] = {1, 1.5, 2, 3};
    static const double bubbles[] = {.1585, .1281, .1015, .0433};
    const struct model *k = &models[0];
    for (size_t i = 0; i < LEN(caps); i++) {
        struct spans s;
        struct pp_schedule_costs costs = {(double)k->f, (double)k->i, (double)k->w,
                                          (double)k->comm};
        PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_auto(8, k->m, 8 * caps[i], costs);
        spans_of(plan, &(struct times){.f = k->f, .i = k->i, .w = k->w, .comm = k->comm}, &s);
        check_bubble(1.0 - (double)(k->m * (k->f + k->i + k->w)) / (double)s.longest, bubbles[i]);
        CHECK_INT_EQ(most_held(plan), (int)(8 * caps[i]));
    }
}

TEST(impossible_wishes_are_refused)
{
    static const struct {
        struct pp_geometry g;
        const char *words;
    } table[] = {
        {{.stages = 4, .chunks = 2, .microbatches = 8}, "set chunks = 1"},
        {{.stages = 4, .chunks = 1, .microbatches = 8, .memory_cap = 0.5},
         "at least 1, or 0 for 8"},
        {{.stages = 4, .chunks = 1, .microbatches = 8, .memory_cap = -3}, "at least 1"},
        {{.stages = 4, .chunks = 1, .microbatches = 8, .memory_cap = NAN}, "at least 1"},
        {{.stages = 4, .chunks = 1, .microbatches = 8, .costs = {-1, 1, 1, 0}}, "F -1"},
        {{.stages = 4, .chunks = 1, .microbatches = 8, .costs = {1, NAN, 1, 0}},
         "must be a number"},
        {{.stages = 4, .chunks = 1, .microbatches = 8, .costs = {1, 1, INFINITY, 0}}, "W inf"},
        {{.stages = 4, .chunks = 1, .microbatches = 8, .costs = {1, 1, 1, -1e-9}}, "0 or more"},
    };
    for (size_t i = 0; i < LEN(table); i++) {
        struct pp_plan *plan = NULL;
        CHECK_FAILS(pp_plan_build("zb-auto", &table[i].g, &plan), PP_ECONFIG, table[i].words);
        assert_null(plan);
    }
}

TEST(extreme_costs_give_a_plan)
{
    static const struct pp_schedule_costs table[] = {
        {.f = 1e-300, .i = 1e-300, .w = 1e-300},
        {.f = 1e300, .i = 1, .w = 0, .comm = 0},
        {.comm = 1e300},
        {.f = 1, .i = 1, .w = 1, .comm = 1e9},
        {.w = 1},
        {.f = 4e-320, .i = 1e-322},
    };
    for (size_t i = 0; i < LEN(table); i++) {
        PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_auto(4, 12, INFINITY, table[i]);
        CHECK_INT_EQ(plan->ranks[3].n_actions, 36);
    }
}
