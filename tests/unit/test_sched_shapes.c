/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every schedule at every shape: proved or refused with a way out, and run in random interleavings.
 * The 1F1B and ZB-H families on a loop: time and memory by formula.
 */
#include "test_sched_oracle.h"
#include "../../src/sched/plan.h"
#include "test_sched_line.h"

#include <math.h>

/* Whether the documented rule of a schedule (ppcli keys pipeline.schedule) allows a shape. A schedule
 * that is not listed here has only its own check(). */
static bool may_run(const char *name, int p, int v, int m)
{
    static const char *const documented[] = {
        "naive",      "gpipe",          "1f1b",    "1f1b-eager", "interleaved",
        "looped-bfs", "zb-h1",          "zb-h2",   "zb-v",       "v-half",
        "v-min",      "interleaved-zb", "zb-auto", "zb-fit",     "zb-fit-v",
        "zb-exact",   "zb-exact-v",     "1f1b-v",  "dualpipev",  "hanayo"};
    const struct pp_schedule_ops *ops = pp_schedule_find(name);
    bool is_documented = false;
    for (int i = 0; i < COUNT(documented); i++)
        is_documented = is_documented || strcmp(name, documented[i]) == 0;
    if (!is_documented) {
        struct pp_geometry g = {.stages = p, .chunks = v, .microbatches = m};
        return pp_schedule_check(ops, &g) == 0;
    }
    if (strcmp(name, "hanayo") == 0)
        return v % 2 == 0;
    if (strncmp(name, "zb-fit", 6) == 0 || ops->proves)
        return !ops->proves || p * v * m <= 48;
    if (ops->placement == PP_PLACE_V)
        return v == 2 && (m >= 2 * p || strcmp(name, "dualpipev") != 0);
    return v == 1 || pp_schedule_default_chunks(ops) > 1;
}

static void check_same_rows(const char *a, const char *b, int p, int v, int m)
{
    struct pp_plan *pa = build_plan(a, p, v, m);
    struct pp_plan *pb = build_plan(b, p, v, m);
    char *ta = printed(pa, pp_plan_print_csv);
    char *tb = printed(pb, pp_plan_print_csv);
    CHECK_STR_EQ(ta, tb);
    free(ta);
    free(tb);
    pp_plan_destroy(&pa);
    pp_plan_destroy(&pb);
}

/* The shape that a refusal names runs. */
static void check_nearest_shape(const char *name, struct pp_geometry g)
{
    const struct {
        const char *key;
        int *value;
    } keys[] = {{"stages = ", &g.stages},
                {"chunks = ", &g.chunks},
                {"microbatches = ", &g.microbatches},
                {"group = ", &g.group}};
    const char *said = pp_error_get()->text, *way_out = strstr(said, "nearest legal: ");
    if (!way_out && (strstr(said, "set chunks = ") || strstr(said, "at most 48 ")))
        return;
    if (!way_out)
        fail_msg("'%s' names no way out", said);
    for (int i = 0; i < COUNT(keys); i++) {
        const char *at = strstr(way_out, keys[i].key);
        if (at)
            *keys[i].value = atoi(at + strlen(keys[i].key));
    }
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    CHECK_OK(pp_plan_build(name, &g, &plan));
}

/* With chunks as fast as each other a list takes at least the work of a rank, at most all of it in a
 * row. */
TEST(every_shape_is_proved_or_refused_with_a_way_out)
{
    int n = 0;
    for (const char *const *name = pp_schedule_names(); *name; name++) {
        int before = n;
        for (int p = 1; p <= 8; p++) {
            for (int m = 1; m <= 20; m++) {
                for (int v = 1; v <= 4; v++) {
                    struct pp_geometry g = {.stages = p, .chunks = v, .microbatches = m};
                    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
                    if (may_run(*name, p, v, m)) {
                        CHECK_OK(pp_plan_build(*name, &g, &plan));
                        CHECK_OK(pp_plan_prove(plan));
                        assert_in_range(makespan_of(plan, unit), 3 * m * v, 3 * p * m * v);
                        n++;
                        continue;
                    }
                    print_message("# %s p%d v%d m%d\n", *name, p, v, m);
                    CHECK_FAILS(pp_plan_build(*name, &g, &plan), PP_ECONFIG, *name);
                    check_nearest_shape(*name, g);
                }
            }
        }
        if (n == before)
            fail_msg("%s runs at none of these shapes", *name);
    }
    print_message("# %d shapes\n", n);
}

TEST(with_one_chunk_the_names_agree)
{
    for (int p = 1; p <= 8; p++) {
        for (int m = 1; m <= 20; m++) {
            check_same_rows("interleaved", "1f1b", p, 1, m);
            check_same_rows("1f1b-eager", "1f1b", p, 1, m);
            check_same_rows("interleaved-zb", "zb-h1", p, 1, m);
        }
    }
}

/* What a refusal says is the nearest legal group must be legal, and none nearer. */
static void check_way_out(const char *name, struct pp_geometry g)
{
    const char *words = "nearest legal: group = ";
    const char *at = strstr(pp_error_get()->text, words);
    assert_non_null(at);
    int nearest = atoi(at + strlen(words));
    int wished = g.group;
    for (int group = 1; group <= g.microbatches; group++) {
        PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
        g.group = group;
        int rc = pp_plan_build(name, &g, &plan);
        assert_true(rc == 0 || rc == PP_ECONFIG);
        assert_true(rc < 0 || abs(group - wished) >= abs(nearest - wished));
        assert_true(rc == 0 || group != nearest);
    }
}

TEST(a_wished_group_is_proved_or_refused_with_a_way_out)
{
    static const char *const names[] = {"interleaved", "interleaved-zb"};
    int proved[2] = {0};
    int refused[2] = {0};
    for (int i = 0; i < 2; i++) {
        for (int p = 1; p <= 8; p++) {
            for (int v = 1; v <= 4; v++) {
                for (int m = 1; m <= 20; m++) {
                    for (int group = 1; group <= 12; group++) {
                        PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
                        struct pp_geometry g = {
                            .stages = p, .chunks = v, .microbatches = m, .group = group};
                        int rc = pp_plan_build(names[i], &g, &plan);
                        if (rc == 0) {
                            proved[i]++;
                        } else {
                            CHECK_INT_EQ(rc, PP_ECONFIG);
                            if (refused[i]++ % 37 == 0)
                                check_way_out(names[i], g);
                        }
                    }
                }
            }
        }
        print_message("# %s: %d proved, %d refused\n", names[i], proved[i], refused[i]);
        assert_true(proved[i] > refused[i] && refused[i] > 100);
    }
}

/* The rule refuses nothing that would run: what it forbids hangs. */
TEST(what_a_refused_group_would_do_is_hang)
{
    struct pp_plan *plan = NULL;
    struct pp_geometry g = {.stages = 4, .chunks = 3, .microbatches = 5, .group = 4};
    CHECK_FAILS(pp_plan_build("interleaved", &g, &plan), PP_ECONFIG,
                "schedule interleaved: needs at least 6 micro-batches in any two groups in a row "
                "(group = 4 gives 4 and 1, and ranks that wait for each other), not 4 stages, 3 "
                "chunks, 5 micro-batches; nearest legal: group = 5");

    /* the same lists, made past the check */
    struct lists l;
    lists_init(&l, 4, 3, 5, PP_PLACE_LOOP);
    static const int order[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
    for (int r = 0; r < 4; r++) {
        int w = least(15, 2 * 4 + 2 * (3 - r));
        for (int k = 0; k < 15 + w; k++) {
            for (int back = 0; back < 2; back++) {
                int at = back ? k - w : k;
                if (at < 0 || at >= 15)
                    continue;
                int c = order[at] < 12 ? order[at] / 4 : order[at] - 12;
                int mb = order[at] < 12 ? order[at] % 4 : 4;
                add(&l, r, back ? PP_OP_B : PP_OP_F, (back ? 2 - c : c) * 4 + r, mb);
            }
        }
    }
    CHECK_FAILS(lists_plan(&l, &plan), PP_EFORMAT, "these ranks wait for each other");
    lists_free(&l);
}

TEST(wishes_that_mean_nothing_are_refused)
{
    struct pp_plan *plan = NULL;
    struct pp_geometry g = {.stages = 4, .chunks = 1, .microbatches = 8, .eager = -1, .group = -1};
    CHECK_FAILS(pp_plan_build("1f1b-eager", &g, &plan), PP_ECONFIG, "eager = -1, must be at least");
    CHECK_FAILS(pp_plan_build("interleaved", &g, &plan), PP_ECONFIG,
                "group = -1, must be at least");
    CHECK_FAILS(pp_plan_build("interleaved-zb", &g, &plan), PP_ECONFIG, "group = -1");
    g.eager = 0;
    g.costs.comm = -1;
    CHECK_FAILS(pp_plan_build("1f1b-eager", &g, &plan), PP_ECONFIG, "comm = -1: each must be");
    g.costs.comm = NAN;
    CHECK_FAILS(pp_plan_build("1f1b-eager", &g, &plan), PP_ECONFIG, "each must be a number");
    g.chunks = 2;
    CHECK_FAILS(pp_plan_build("zb-h1", &g, &plan), PP_ECONFIG, "keeps 1 chunk per rank, not 2");
    CHECK_FAILS(pp_plan_build("zb-h2", &g, &plan), PP_ECONFIG, "set chunks = 1");
    CHECK_FAILS(pp_plan_build("1f1b-eager", &g, &plan), PP_ECONFIG, "set chunks = 1");
    g.microbatches = 0;
    CHECK_FAILS(pp_schedule_print_csv(pp_schedule_find("looped-bfs"), &g, stderr), PP_ECONFIG,
                "0 micro-batches");
    assert_null(plan);
}

TEST(eager_follows_the_costs)
{
    struct pp_geometry g = {.stages = 4, .chunks = 1, .microbatches = 64};
    CHECK_INT_EQ(pp_schedule_eager(&g), 1); /* nothing known */
    g.costs.comm = 0.1;                     /* F = I = W = 1 */
    CHECK_INT_EQ(pp_schedule_eager(&g), 2);
    g.costs.comm = 1.5;
    CHECK_INT_EQ(pp_schedule_eager(&g), 2);
    g.costs.comm = 1.6;
    CHECK_INT_EQ(pp_schedule_eager(&g), 3);
    g.costs = (struct pp_schedule_costs){.f = 2, .i = 3, .w = 1, .comm = 6};
    CHECK_INT_EQ(pp_schedule_eager(&g), 3);
    g.costs.comm = 1e300;
    CHECK_INT_EQ(pp_schedule_eager(&g), 64); /* never more than M */
    g.eager = 7;
    CHECK_INT_EQ(pp_schedule_eager(&g), 7);
    g.eager = INT32_MAX;
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    CHECK_OK(pp_plan_build("1f1b-eager", &g, &plan));
    CHECK_INT_EQ(peak_of(plan, 0), 64);
    CHECK_INT_EQ(peak_of(plan, 3), 1);
}

TEST(eager_holds_what_hides_all_transfers)
{
    static const struct times costs[] = {
        {.f = 4, .i = 4, .w = 4}, {.f = 3, .i = 5, .w = 4}, {.f = 7, .i = 2, .w = 3}};
    for (int p = 1; p <= 8; p++) {
        for (int m = 1; m <= 40; m += 3) {
            for (int i = 0; i < 3; i++) {
                for (int comm = 0; comm <= 18; comm += 3) {
                    struct pp_geometry g = {.stages = p, .chunks = 1, .microbatches = m};
                    struct times t = costs[i];
                    t.comm = comm;
                    g.costs = (struct pp_schedule_costs){(double)t.f, (double)t.i, (double)t.w,
                                                         (double)t.comm};
                    int k = 1 + (2 * comm + 11) / 12;
                    CHECK_INT_EQ(pp_schedule_eager(&g), least(k, m));
                    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
                    CHECK_OK(pp_plan_build("1f1b-eager", &g, &plan));
                    for (int r = 0; r < p; r++)
                        CHECK_INT_EQ(peak_of(plan, r), least(m, k * (p - 1 - r) + 1));
                }
            }
        }
    }
}

/* Excess of the makespan over a rank's work, for ticks that differ; W takes no longer than F and I.
 */
TEST(bubbles_are_those_of_the_formulas)
{
    static const struct ticks costs[] = {
        {1, 1, 1, true}, {5, 7, 3, true}, {4, 8, 4, true}, {9, 6, 6, true}};
    for (size_t i = 0; i < LEN(costs); i++) {
        int64_t f = costs[i].f;
        int64_t b = costs[i].i;
        int64_t w = costs[i].w;
        for (int p = 1; p <= 8; p++) {
            for (int m = 1; m <= 24; m++) {
                struct pp_plan *plan = build_plan("zb-h1", p, 1, m);
                int64_t h1 = makespan_of(plan, costs[i]);
                if (m >= p)
                    CHECK_INT_EQ(h1, m * (f + b + w) + (p - 1) * (f + b - w));
                else
                    CHECK_INT_EQ(h1, (m + p - 1) * (f + b) + w);
                pp_plan_destroy(&plan);

                plan = build_plan("zb-h2", p, 1, m);
                struct times t = {.f = f, .i = b, .w = w};
                struct spans s;
                spans_of(plan, &t, &s);
                if (m >= 2 * p - 1 && f + b >= 2 * w)
                    CHECK_INT_EQ(s.longest, m * (f + b + w) + (p - 1) * (f + b - 2 * w));
                if (f == b && b == w) {
                    assert_true(s.makespan <= h1);
                    CHECK_INT_EQ(s.longest, m >= 2 * p - 1 ? 3 * m : 2 * (m + p) - 1);
                }
                pp_plan_destroy(&plan);
            }
        }
    }
}

TEST(chunks_divide_the_bubble)
{
    static const struct ticks costs[] = {{1, 1, 1, true}, {5, 7, 3, true}, {5, 5, 4, true}};
    for (size_t i = 0; i < LEN(costs); i++) {
        int64_t f = costs[i].f;
        int64_t b = costs[i].i;
        int64_t w = costs[i].w;
        for (int p = 1; p <= 6; p++) {
            for (int v = 1; v <= 4; v++) {
                for (int m = p; m <= 4 * p; m += p) {
                    int64_t work = m * v * (f + b + w);
                    struct pp_plan *plan = build_plan("interleaved", p, v, m);
                    CHECK_INT_EQ(makespan_of(plan, costs[i]), work + (p - 1) * (f + b + w));
                    pp_plan_destroy(&plan);
                    plan = build_plan("interleaved-zb", p, v, m);
                    CHECK_INT_EQ(makespan_of(plan, costs[i]), work + (p - 1) * (f + b - w));
                    pp_plan_destroy(&plan);
                    plan = build_plan("looped-bfs", p, v, m);
                    CHECK_INT_EQ(makespan_of(plan, costs[i]), work + (p - 1) * (f + b + w));
                    pp_plan_destroy(&plan);
                }
            }
        }
    }
}

TEST(memory_is_that_of_the_formulas)
{
    for (int p = 1; p <= 8; p++) {
        for (int m = p; m <= 20; m++) {
            PP_OWN(pp_plan_destroy) struct pp_plan *h1 = build_plan("zb-h1", p, 1, m);
            PP_OWN(pp_plan_destroy) struct pp_plan *h2 = build_plan("zb-h2", p, 1, m);
            for (int r = 0; r < p; r++) {
                CHECK_INT_EQ(peak_of(h1, r), p);
                CHECK_INT_EQ(h1->state_slots[r], p);
                if (m >= 2 * p - 1)
                    CHECK_INT_EQ(peak_of(h2, r), 2 * p - 1);
                assert_true(peak_of(h2, r) <= 2 * p - 1);
            }
        }
        for (int v = 2; v <= 4; v++) {
            for (int m = 2 * p; m <= 4 * p; m += p) {
                PP_OWN(pp_plan_destroy) struct pp_plan *in = build_plan("interleaved", p, v, m);
                PP_OWN(pp_plan_destroy) struct pp_plan *zb = build_plan("interleaved-zb", p, v, m);
                PP_OWN(pp_plan_destroy) struct pp_plan *bfs = build_plan("looped-bfs", p, v, m);
                for (int r = 0; r < p; r++) {
                    CHECK_INT_EQ(peak_of(in, r), (v - 1) * p + 2 * (p - 1 - r) + 1);
                    CHECK_INT_EQ(peak_of(zb, r), v * p);
                    CHECK_INT_EQ(peak_of(bfs, r), v * m);
                }
            }
        }
    }
}

/* Groups of even size: no M, however uneven, loses what the chunks gain. */
TEST(uneven_counts_keep_the_small_bubble)
{
    for (int v = 1; v <= 4; v++) {
        for (int p = 1; p <= 8; p++) {
            for (int m = p; m <= 33; m++) {
                struct pp_plan *plan = build_plan("interleaved", p, v, m);
                CHECK_INT_EQ(makespan_of(plan, unit), 3 * (m * v + p - 1));
                pp_plan_destroy(&plan);
                plan = build_plan("interleaved-zb", p, v, m);
                CHECK_INT_EQ(makespan_of(plan, unit), 3 * m * v + p - 1);
                pp_plan_destroy(&plan);
            }
        }
    }
}

/* More ranks than the plan's walk takes in one block. */
TEST(hundreds_of_ranks_are_proved_too)
{
    static const struct {
        const char *name;
        int v;
        int64_t idle; /* per rank ahead */
    } table[] = {{"gpipe", 1, 3},       {"1f1b", 1, 3},          {"1f1b-eager", 1, 3},
                 {"interleaved", 3, 3}, {"looped-bfs", 2, 3},    {"zb-h1", 1, 1},
                 {"zb-h2", 1, 1},       {"interleaved-zb", 2, 1}};
    for (size_t i = 0; i < LEN(table); i++) {
        int m = 331;
        int p = i % 2 ? 127 : 129;
        int v = table[i].v;
        PP_OWN(pp_plan_destroy) struct pp_plan *plan = build_plan(table[i].name, p, v, m);
        CHECK_INT_EQ(makespan_of(plan, unit), 3 * m * v + table[i].idle * (p - 1));
        CHECK_OK(pp_plan_prove(plan));
    }
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = build_plan("naive", 200, 1, 2);
    CHECK_INT_EQ(makespan_of(plan, unit), 3 * 200 * 2);
}

TEST(every_schedule_runs_in_any_interleaving)
{
    static const int microbatches[] = {1, 2, 3, 5, 8, 11, 16};
    for (const char *const *name = pp_schedule_names(); *name; name++) {
        for (int p = 1; p <= 6; p++) {
            for (size_t i = 0; i < LEN(microbatches); i++) {
                for (int v = 1; v <= 4; v++) {
                    int m = microbatches[i];
                    struct pp_geometry g = {
                        .stages = p, .chunks = v, .microbatches = m, .eager = 1 + m % 3};
                    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
                    if (!may_run(*name, p, v, m) || v * m > 32)
                        continue;
                    CHECK_OK(pp_plan_build(*name, &g, &plan));
                    run_in_all_ways(plan);
                }
            }
        }
    }
}

TEST(forward_only_plans_run_in_any_interleaving)
{
    for (int p = 1; p <= 5; p++) {
        for (int v = 1; v <= 3; v++) {
            for (int m = 1; m <= 12; m++) {
                struct pp_geometry g = {.stages = p, .chunks = v, .microbatches = m};
                PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
                CHECK_OK(pp_plan_build_eval(&g, m % 2 ? PP_PLACE_LOOP : PP_PLACE_V, &plan));
                run_in_all_ways(plan);
            }
        }
    }
}
