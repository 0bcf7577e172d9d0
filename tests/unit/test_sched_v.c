/* SPDX-License-Identifier: Apache-2.0 */
/* The schedules over a V: published checksums and rows, times, memory, and what they refuse. */
#include "test_sched_sim.h"
#include "test_sched_line.h"
#include "test_sched_times.h"
#include "test_sched_peak.h"

static const char *const v_names[] = {"zb-v", "v-half", "v-min", "1f1b-v", "dualpipev"};

static struct pp_plan *plan_v(const char *name, int p, int m)
{
    struct pp_plan *plan = NULL;
    struct pp_geometry g = {.stages = p, .chunks = 2, .microbatches = m};
    CHECK_OK(pp_plan_build(name, &g, &plan));
    return plan;
}

static bool may_run(const char *name, int p, int m)
{
    return strcmp(name, "dualpipev") != 0 || m >= 2 * p;
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
        {"zb-v", {0xae004cdd, 0x36c69384, 0xeb71807b, 0x2bdd3426}},
        {"v-half", {0xf8205f69, 0xa0dec468, 0x167b250a, 0x23b0962c}},
        {"v-min", {0xfcb9c1f6, 0xc1a5b8e5, 0x325bb46a, 0x8ea9e78a}},
        {"dualpipev", {0xa255bfb2, 0x26240296, 0x9bc36e1a, 0xd5f1772e}},
    };
    for (size_t i = 0; i < LEN(table); i++) {
        for (size_t k = 0; k < LEN(sizes); k++) {
            struct pp_plan *plan = plan_v(table[i].name, sizes[k].p, sizes[k].m);
            unsigned crc = crc_of(plan);
            if (crc != table[i].crc[k]) {
                fail_msg("%s p%d m%d: crc %08x, published %08x", table[i].name, sizes[k].p,
                         sizes[k].m, crc, table[i].crc[k]);
            }
            pp_plan_destroy(&plan);
        }
    }
}

/* Row `rank` of what the plan prints. */
static void check_row(const char *name, int p, int m, int rank, const char *row)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_v(name, p, m);
    char *text = printed(plan, pp_plan_print_csv);
    char *at = text;
    for (int r = 0; r < rank; r++)
        at = strchr(at, '\n') + 1;
    at[strcspn(at, "\n")] = '\0';
    CHECK_STR_EQ(at, row);
    free(text);
}

TEST(rows_are_the_published_ones)
{
    check_row("zb-v", 2, 4, 0,
              "0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0F3,0I0,0W0,3F2,3I2,3W2,0I1,0W1,3F3,3I3,3W3,"
              "0I2,0W2,0I3,0W3");
    check_row("zb-v", 2, 4, 1,
              "1F0,2F0,1F1,2F1,2I0,2W0,1F2,1I0,1W0,2F2,2I1,2W1,1F3,1I1,1W1,2F3,2I2,2W2,1I2,2I3,"
              "1I3,1W2,2W3,1W3");
    check_row("dualpipev", 2, 4, 0,
              "0F0,0F1,0F2,3F0,3I0,3W0,3F1,(0F3;3B1)OVERLAP_F_B,(3F2;0B0)OVERLAP_F_B,3B2,"
              "(3F3;0B1)OVERLAP_F_B,3B3,0I2,0W2,0I3,0W3");
    check_row("dualpipev", 2, 4, 1,
              "1F0,2F0,1F1,2F1,1F2,2B0,(2F2;1B0)OVERLAP_F_B,(1F3;2B1)OVERLAP_F_B,"
              "(2F3;1B1)OVERLAP_F_B,2B2,1B2,2I3,1I3,2W3,1W3");
    check_row("v-half", 4, 8, 0,
              "0F0,0F1,0F2,0F3,0F4,7F0,7I0,7W0,7F1,7I1,7W1,7F2,7I2,7W2,0I0,0W0,0F5,7F3,7I3,7W3,"
              "0I1,0W1,0F6,7F4,7I4,7W4,0I2,0W2,0F7,7F5,7I5,7W5,0I3,0W3,7F6,7I6,7W6,0I4,0W4,7F7,"
              "7I7,0I5,7W7,0I6,0W5,0W6,0I7,0W7");
    check_row("v-min", 4, 8, 0,
              "0F0,0F1,0F2,7F0,7I0,7W0,7F1,7I1,7W1,0F3,0I0,0W0,7F2,7I2,0I1,7W2,0W1,0F4,7F3,7I3,"
              "0I2,7W3,0W2,0F5,7F4,7I4,0I3,7W4,0W3,0F6,7F5,7I5,0I4,7W5,0W4,0F7,7F6,7I6,0I5,7W6,"
              "0W5,7F7,7I7,0I6,7W7,0W6,0I7,0W7");
    check_row("1f1b-v", 4, 8, 0,
              "0F0,0F1,0F2,0F3,0F4,7F0,7B0,7F1,7B1,7F2,7B2,7F3,7B3,0B0,0F5,7F4,7B4,0B1,0F6,7F5,"
              "7B5,0B2,0F7,7F6,7B6,0B3,7F7,7B7,0B4,0B5,0B6,0B7");
    check_row("1f1b-v", 4, 8, 3,
              "3F0,4F0,3F1,4F1,3F2,4F2,4B0,3B0,3F3,4F3,4B1,3B1,3F4,4F4,4B2,3B2,3F5,4F5,4B3,3B3,"
              "3F6,4F6,4B4,3B4,3F7,4F7,4B5,3B5,4B6,3B6,4B7,3B7");
}

TEST(times_and_peaks_are_the_published_ones)
{
    /* Ticks of a chunk, half of those of a rank. span: longest of the ranks' own times. */
    static const struct {
        const char *name;
        int p, m;
        int64_t makespan, span; /* span 0: not published */
        int peak;               /* on every rank */
        int64_t pair;           /* of an overlapped F;B as one piece of work */
    } table[] = {
        {"zb-v", 4, 8, 51, 48, 8, 0},     {"zb-v", 8, 16, 103, 96, 16, 0},
        {"v-half", 4, 8, 53, 0, 6, 0},    {"v-half", 8, 16, 113, 0, 10, 0},
        {"v-min", 4, 8, 59, 0, 4, 0},     {"v-min", 8, 16, 122, 0, 8, 0},
        {"1f1b-v", 4, 8, 63, 0, 6, 0},    {"1f1b-v", 8, 16, 129, 0, 12, 0},
        {"dualpipev", 4, 8, 54, 0, 9, 3}, {"dualpipev", 8, 16, 110, 0, 17, 3},
    };
    static const struct ticks unit = {.f = 1, .i = 1, .w = 1, .fused_send = true};
    for (size_t i = 0; i < LEN(table); i++) {
        int64_t makespan = 0;
        double bubble = 0;
        struct spans spans;
        print_message("# %s p%d m%d\n", table[i].name, table[i].p, table[i].m);
        struct pp_plan *plan = plan_v(table[i].name, table[i].p, table[i].m);
        time_line(plan, &unit, &makespan, NULL, NULL);
        CHECK_OK(pp_bubble_ideal(plan, &bubble));
        assert_float_equal(bubble, 1.0 - 6.0 * table[i].m / (double)makespan, 1e-12);
        spans_of(plan, &(struct times){.f = 1, .i = 1, .w = 1, .pair = table[i].pair}, &spans);
        CHECK_INT_EQ(spans.makespan, table[i].makespan);
        if (table[i].pair == 0)
            CHECK_INT_EQ(makespan, table[i].makespan);
        if (table[i].span > 0)
            CHECK_INT_EQ(spans.longest, table[i].span);
        for (int r = 0; r < table[i].p; r++)
            CHECK_INT_EQ(peak_of(plan, r), table[i].peak);
        pp_plan_destroy(&plan);
    }
}

/* The longest time that a rank needs for its own list. */
static int64_t longest_span(const struct pp_plan *plan)
{
    static const struct ticks unit = {.f = 1, .i = 1, .w = 1, .fused_send = true};
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

TEST(dualpipev_gains_from_overlap_as_published)
{
    struct spans s;
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_v("dualpipev", 4, 10);
    /* F = 1, B = 2, in half ticks so that an overlapped pair can take 2.5 */
    spans_of(plan, &(struct times){.f = 2, .i = 2, .w = 2, .pair = 6}, &s);
    CHECK_INT_EQ(s.makespan, 2 * 66);
    spans_of(plan, &(struct times){.f = 2, .i = 2, .w = 2, .pair = 5}, &s);
    CHECK_INT_EQ(s.makespan, 2 * 59);
}

/* The F's message need not wait for the B of its pair: apart they are faster than as one piece. */
TEST(dualpipev_without_overlap_takes_the_time_of_zb_v)
{
    static const struct ticks unit = {.f = 1, .i = 1, .w = 1, .fused_send = true};
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

TEST(the_last_rank_of_dualpipev_idles_as_the_formula_says)
{
    /* F = I, as the formula takes for granted (else it is FB + F - 2W) */
    static const struct times table[] = {
        {.f = 1, .i = 1, .w = 1, .pair = 3},     {.f = 2, .i = 2, .w = 2, .pair = 5},
        {.f = 10, .i = 10, .w = 10, .pair = 21}, {.f = 10, .i = 10, .w = 9, .pair = 26},
        {.f = 10, .i = 10, .w = 7, .pair = 19},
    };
    for (size_t i = 0; i < LEN(table); i++) {
        for (int p = 1; p <= 8; p++) {
            const struct times *t = &table[i];
            struct spans s;
            PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_v("dualpipev", p, 2 * p + 3);
            int64_t work = 0;
            for (int k = 0; k < plan->ranks[p - 1].n_actions; k++) {
                const struct pp_action *a = &plan->ranks[p - 1].actions[k];
                work += a->overlap         ? t->pair - t->i - t->w
                        : a->op == PP_OP_F ? t->f
                        : a->op == PP_OP_I ? t->i
                        : a->op == PP_OP_W ? t->w
                                           : t->i + t->w;
            }
            spans_of(plan, t, &s);
            CHECK_INT_EQ(s.makespan - work, (p - 1) * (t->pair + t->i + t->w - 3 * t->w));
        }
    }
}

TEST(every_shape_runs_or_says_which_one_does)
{
    for (size_t i = 0; i < LEN(v_names); i++) {
        for (int p = 1; p <= 8; p++) {
            for (int m = 1; m <= 20; m++) {
                struct pp_geometry g = {.stages = p, .chunks = 2, .microbatches = m};
                PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
                if (!may_run(v_names[i], p, m)) {
                    char words[80];
                    snprintf(words, sizeof(words), "nearest legal: microbatches = %d", 2 * p);
                    CHECK_FAILS(pp_plan_build(v_names[i], &g, &plan), PP_ECONFIG, words);
                    continue;
                }
                CHECK_OK(pp_plan_build(v_names[i], &g, &plan));
                CHECK_OK(pp_plan_prove(plan));
                /* at least the longest chain, at most one micro-batch after the other */
                int64_t span = longest_span(plan);
                assert_in_range(span, 6 * (uint64_t)m, 6 * (uint64_t)p * (uint64_t)m);
            }
        }
    }
}

TEST(weight_gradients_ascend_on_every_stage)
{
    for (size_t i = 0; i < LEN(v_names); i++) {
        for (int p = 1; p <= 6; p++) {
            PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_v(v_names[i], p, 2 * p + 1);
            int next[2 * 6] = {0};
            for (int r = 0; r < p; r++) {
                for (int k = 0; k < plan->ranks[r].n_actions; k++) {
                    const struct pp_action *a = &plan->ranks[r].actions[k];
                    if (a->op == PP_OP_W || a->op == PP_OP_B)
                        CHECK_INT_EQ(a->mb, next[a->stage]++);
                }
            }
            for (int s = 0; s < 2 * p; s++)
                CHECK_INT_EQ(next[s], 2 * p + 1);
        }
    }
}

TEST(they_run_in_any_interleaving)
{
    for (size_t i = 0; i < LEN(v_names); i++) {
        for (int p = 1; p <= 5; p++) {
            for (int m = 1; m <= 12; m++) {
                if (may_run(v_names[i], p, m)) {
                    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_v(v_names[i], p, m);
                    run_in_all_ways(plan);
                }
            }
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
