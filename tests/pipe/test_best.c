/* SPDX-License-Identifier: Apache-2.0 */
/* The search with times that are given, not measured: what is tried, what is left out, what comes
 * first. And what a config that leaves its schedule open trains to. */
#include "train_run.h"
#include "../../src/plan/search.h"
#include "../../src/measure/measure.h"

#include <stdio.h>
#include <stdlib.h>

#include "command.h"
#include "../../src/bench/bench.h"
#include "ppcli/base/base.h"

#define MAX_SETTINGS 16

/* A config of settings "section.key=value", its model, and a search spec of both. */
struct problem {
    struct pp_config *cfg;
    struct pp_model *model;
    struct pp_costs *costs;
    struct pp_space spec;
};

static void open_problem(const char *const *settings, struct problem *p)
{
    static char keys[MAX_SETTINGS][PP_NAME_MAX];
    struct pp_setting list[MAX_SETTINGS];
    int n = 0;
    for (; settings[n]; n++) {
        const char *eq = strchr(settings[n], '=');
        snprintf(keys[n], sizeof(keys[n]), "%.*s", (int)(eq - settings[n]), settings[n]);
        list[n] = (struct pp_setting){keys[n], eq + 1, "test"};
    }
    *p = (struct problem){0};
    CHECK_OK(pp_config_load(NULL, list, n, pp_cli_names(), &p->cfg));
    CHECK_OK(pp_model_create(p->cfg, NULL, &p->model));
    p->spec = pp_space_of(p->cfg, p->model, 1000, 100);
    p->spec.all_m = true;
    /* every layer: F, I and W one second a row */
    CHECK_OK(pp_costs_create(p->model->n_layers, (int[]){1, 1000}, 2, &p->costs));
    for (int s = 0; s < 2; s++) {
        for (int i = 0; i < p->model->n_layers; i++) {
            double t = p->costs->sizes[s];
            p->costs->layers[s * p->model->n_layers + i] = (struct pp_layer_seconds){t, t, t};
        }
    }
    p->costs->cores = 64;
}

/* After a change of the config. */
static void take_config(struct problem *p)
{
    const struct pp_space now = pp_space_of(p->cfg, p->model, p->spec.training.train_n, 100);
    p->spec.training = now.training;
    p->spec.base = now.base;
    p->spec.chunks = now.chunks;
}

static void close_problem(struct problem *p)
{
    pp_costs_destroy(&p->costs);
    pp_model_destroy(&p->model);
    pp_config_destroy(&p->cfg);
}

static const char *const eight_layers[] = {
    "data.dataset=synthetic",  "model.sizes=6 8*7 3",    "pipeline.stages=2",
    "pipeline.microbatches=4", "pipeline.schedule=auto", "train.batch_size=48",
    "train.clip_norm=1",       "train.coalesce=1",       NULL};

/* By its own name or by one of another schedule that is the same plan. */
static bool is_named(const struct pp_row *c, const char *schedule)
{
    char also[sizeof(c->also) + 4], name[PP_NAME_MAX + 4];
    snprintf(also, sizeof(also), ", %s,", c->also);
    snprintf(name, sizeof(name), " %s,", schedule);
    return strcmp(pp_division_schedule(&c->d), schedule) == 0 || strstr(also, name) != NULL;
}

static const struct pp_row *find(const struct pp_rows *b, const char *schedule, int m, int chunks,
                                 bool timed)
{
    for (int i = 0; i < b->n; i++) {
        const struct pp_row *c = &b->items[i];
        if (is_named(c, schedule) && c->d.microbatches == m && c->d.chunks == chunks &&
            c->timed == timed)
            return c;
    }
    return NULL;
}

TEST(counts_are_divisors_and_powers_with_rows_enough)
{
    struct problem p;
    int counts[PP_BEST_COUNTS_MAX];
    open_problem(eight_layers, &p);
    int n = pp_best_counts(&p.spec, counts, PP_BEST_COUNTS_MAX);
    static const int of_48[] = {1, 2, 3, 4, 6, 8, 12}; /* 16 would leave 3 rows */
    CHECK_INT_EQ(n, 7);
    assert_memory_equal(counts, of_48, sizeof(of_48));
    p.cfg->pipeline.microbatches = 5; /* the config's own is always there, in its place */
    take_config(&p);
    n = pp_best_counts(&p.spec, counts, PP_BEST_COUNTS_MAX);
    CHECK_INT_EQ(n, 8);
    CHECK_INT_EQ(counts[4], 5);
    p.cfg->pipeline.microbatches = 48; /* also with one row each */
    take_config(&p);
    n = pp_best_counts(&p.spec, counts, PP_BEST_COUNTS_MAX);
    CHECK_INT_EQ(counts[n - 1], 48);
    p.spec.all_m = false;
    CHECK_INT_EQ(pp_best_counts(&p.spec, counts, PP_BEST_COUNTS_MAX), 1);
    CHECK_INT_EQ(counts[0], 48);
    CHECK_INT_EQ(pp_best_rows(&p.spec, 5), 10);
    p.spec.all_m = true;
    p.cfg->train.batch_size = 1 << 20;
    p.spec.training.train_n = 1 << 20;
    take_config(&p);
    n = pp_best_counts(&p.spec, counts, PP_BEST_COUNTS_MAX);
    CHECK_INT_EQ(counts[n - 1], 64);
    for (int i = 1; i < n; i++)
        assert_true(counts[i] > counts[i - 1]);
    p.cfg->train.batch_size = 23; /* replicas of 12 and 11 samples: 12 cannot run */
    p.cfg->pipeline.microbatches = 2;
    p.cfg->pipeline.replicas = 2;
    p.cfg->run.packed = false;
    take_config(&p);
    n = pp_best_counts(&p.spec, counts, PP_BEST_COUNTS_MAX);
    CHECK_INT_EQ(counts[n - 1], 11);
    close_problem(&p);
}

TEST(hosts_hold_what_is_faster)
{
    struct problem p;
    struct pp_rows b;
    open_problem(eight_layers, &p);
    p.cfg->pipeline.replicas = 2;
    take_config(&p);
    p.spec.places = true;
    p.costs->far.byte = 1;
    CHECK_OK(pp_costs_hosts(p.costs, (int[]){0, 0, 2, 2}, 4));
    /* 280 weights of a stage are summed, 32 bytes go each way for a sample */
    for (int large = 0; large < 2; large++) {
        p.cfg->train.batch_size = large ? 480 : 8;
        take_config(&p);
        CHECK_OK(pp_search(&p.spec, p.costs, &b));
        bool seen[2] = {false, false};
        for (int i = 0; i < b.n; i++)
            seen[b.items[i].d.across] = true;
        assert_true(seen[false] && seen[true]);
        CHECK_INT_EQ(b.items[0].d.across, !large);
        pp_rows_fini(&b);
    }
    p.spec.places = false; /* they are placed */
    CHECK_OK(pp_search(&p.spec, p.costs, &b));
    for (int i = 0; i < b.n; i++)
        assert_false(b.items[i].d.across);
    pp_rows_fini(&b);
    close_problem(&p);
}

TEST(every_schedule_is_tried_in_every_shape)
{
    struct problem p;
    struct pp_rows b;
    open_problem(eight_layers, &p);
    CHECK_OK(pp_search(&p.spec, p.costs, &b));
    int schedules = 0, counts[PP_BEST_COUNTS_MAX];
    int n = pp_best_counts(&p.spec, counts, PP_BEST_COUNTS_MAX);
    for (const char *const *name = pp_schedule_names(); *name; name++, schedules++) {
        bool found = pp_schedule_find(*name)->proves;
        schedules -= found;
        for (int i = 0; i < b.n; i++)
            found = found || is_named(&b.items[i], *name);
        if (!found && strcmp(*name, "dualpipe") != 0 && strcmp(*name, "chimera") != 0)
            fail_msg("no shape of %s", *name);
    }
    /* chunks 1, 2 and 4: eight layers hold two ranks of four; a default of another number adds */
    assert_true(b.tried >= schedules * n * 3);
    CHECK_INT_EQ(b.n + b.refused + b.too_large + b.same, b.tried);
    CHECK_INT_EQ(b.too_large, 0);
    for (int k = 0; k < n; k++) {
        assert_non_null(find(&b, "gpipe", counts[k], 1, false));
        assert_non_null(find(&b, "1f1b", counts[k], 1, false));
        assert_null(find(&b, "1f1b", counts[k], 2, false)); /* refused */
    }
    assert_non_null(find(&b, "interleaved", 4, 4, false));
    assert_non_null(find(&b, "zb-v", 4, 2, false));
    for (int i = 1; i < b.n; i++) {
        /* a thousandth is within the tie */
        assert_true(b.items[i].time.step > b.items[i - 1].time.step * 0.998);
        assert_true(b.items[i].peak_bytes > 0);
    }
    pp_rows_fini(&b);

    p.cfg->pipeline.chunks = 2; /* given: nothing else is tried */
    take_config(&p);
    CHECK_OK(pp_search(&p.spec, p.costs, &b));
    CHECK_INT_EQ(b.tried, schedules * n);
    for (int i = 0; i < b.n; i++)
        CHECK_INT_EQ(b.items[i].d.chunks, 2);
    pp_rows_fini(&b);
    close_problem(&p);
}

/* Steps that meet (clip_norm), F = I = W: the formulas of the textbook rank them. */
TEST(the_times_are_those_of_the_formulas)
{
    struct problem p;
    struct pp_rows b;
    open_problem(eight_layers, &p);
    CHECK_OK(pp_search(&p.spec, p.costs, &b));
    /* 4 micro-batches of 12 rows, 4 layers a rank: F = I = W = 48; I leaves early */
    const struct pp_row *c = find(&b, "gpipe", 4, 1, false);
    assert_float_equal(c->time.step, 48 * (4 * 3 + 2), 1e-6);
    c = find(&b, "naive", 4, 1, false);
    assert_true(c->time.step > 48 * (4 * 3 + 2) * 1.3);
    c = find(&b, "zb-h1", 4, 1, false);
    assert_float_equal(c->time.step, 48 * (4 * 3 + 1), 1e-6); /* (P-1)(F+I-W) */
    /* every row costs the same and meetings cost nothing: most micro-batches win */
    CHECK_INT_EQ(b.items[0].d.microbatches, 12);
    pp_rows_fini(&b);
    close_problem(&p);
}

TEST(what_needs_too_much_memory_is_left_out)
{
    struct problem p;
    struct pp_rows all, some, none;
    open_problem(eight_layers, &p);
    CHECK_OK(pp_search(&p.spec, p.costs, &all));
    size_t least = SIZE_MAX, most = 0;
    for (int i = 0; i < all.n; i++) {
        size_t bytes = all.items[i].peak_bytes;
        least = bytes < least ? bytes : least;
        most = bytes > most ? bytes : most;
    }
    assert_true(least < most);
    p.spec.memory = (least + most) / 2;
    CHECK_OK(pp_search(&p.spec, p.costs, &some));
    CHECK_INT_EQ(some.n + some.same + some.too_large, all.n + all.same);
    assert_true(some.n > 0 && some.too_large > 0);
    for (int i = 0; i < some.n; i++)
        assert_true(some.items[i].peak_bytes <= p.spec.memory);
    p.spec.memory = most; /* up to the byte */
    pp_rows_fini(&some);
    CHECK_OK(pp_search(&p.spec, p.costs, &some));
    CHECK_INT_EQ(some.n, all.n);
    p.spec.memory = least - 1;
    CHECK_OK(pp_search(&p.spec, p.costs, &none));
    CHECK_INT_EQ(none.n, 0);
    CHECK_INT_EQ(none.same + none.too_large, all.n + all.same);
    assert_true(none.smallest.peak_bytes == least);
    pp_rows_fini(&all);
    pp_rows_fini(&some);
    pp_rows_fini(&none);
    close_problem(&p);
}

/* One stage: every schedule takes the same time; memory, then the order of the list decide. */
TEST(of_equal_times_less_memory_comes_first)
{
    struct problem p;
    struct pp_rows b;
    static const char *const one_stage[] = {"data.dataset=synthetic",
                                            "model.sizes=6 8*7 3",
                                            "pipeline.microbatches=4",
                                            "pipeline.chunks=1",
                                            "train.batch_size=48",
                                            "train.coalesce=1",
                                            NULL};
    open_problem(one_stage, &p);
    p.spec.all_m = false;
    CHECK_OK(pp_search(&p.spec, p.costs, &b));
    assert_true(b.n > 4);
    CHECK_STR_EQ(pp_division_schedule(&b.items[0].d), "naive");
    for (int i = 1; i < b.n; i++) {
        const struct pp_row *x = &b.items[i - 1], *y = &b.items[i];
        assert_float_equal(x->time.step, y->time.step, 1e-6);
        assert_true(x->peak_bytes < y->peak_bytes ||
                    (x->peak_bytes == y->peak_bytes && x->order < y->order));
    }
    pp_rows_fini(&b);
    close_problem(&p);
}

TEST(a_cut_by_time_is_tried_where_it_is_another)
{
    struct problem p;
    struct pp_rows b;
    open_problem(eight_layers, &p);
    p.spec.all_m = false;
    p.spec.cuts = true;
    /* by flops 0-3 | 4-7; the first layer in fact takes as long as all others together */
    for (int s = 0; s < 2; s++)
        p.costs->layers[s * 8].f *= 20;
    CHECK_OK(pp_search(&p.spec, p.costs, &b));
    const struct pp_row *flops = find(&b, "1f1b", 4, 1, false);
    const struct pp_row *timed = find(&b, "1f1b", 4, 1, true);
    assert_non_null(flops);
    assert_non_null(timed);
    assert_true(timed->time.step < flops->time.step);
    assert_true(b.items[0].timed);
    struct pp_config *cfg = NULL;
    struct pp_division d;
    CHECK_OK(pp_best_division(&p.spec, p.costs, timed, NULL, &d));
    CHECK_OK(pp_division_config(&d, p.model, p.cfg, &cfg));
    CHECK_INT_EQ(cfg->pipeline.assignment, PP_ASSIGN_EXPLICIT);
    CHECK_STR_EQ(cfg->pipeline.ranges, "0 | 1-7");
    CHECK_STR_EQ(cfg->pipeline.schedule, "1f1b");
    CHECK_STR_EQ(p.cfg->pipeline.schedule, "auto"); /* as it was */
    pp_free(cfg);
    pp_rows_fini(&b);
    close_problem(&p);
}

/* W of any rows: 40 seconds for a product, and one a row. */
TEST(products_of_more_weight_gradients_are_tried)
{
    (void)state;
    struct problem p;
    struct pp_rows b;
    char text[16];
    struct pp_division d;
    static int64_t ticks[PP_NUMBERS_MAX];
    const char *list[16];
    int n = 0, most;
    for (; strcmp(eight_layers[n], "train.coalesce=1") != 0; n++)
        list[n] = eight_layers[n];
    list[n] = NULL;
    open_problem(list, &p);
    p.spec.coalesce = true;
    p.spec.all_m = false;
    for (int i = 0; i < 2 * p.model->n_layers; i++)
        p.costs->layers[i].w += 40;
    most = pp_layout_coalesce_most(&p.spec.base, &p.spec.training, p.model);
    int alone = pp_layout_coalesce(&p.spec.base, &p.spec.training, p.model); /* without costs */
    CHECK_OK(pp_search(&p.spec, p.costs, &b));
    size_t held = b.items[0].peak_bytes;
    CHECK_INT_EQ(b.items[0].together, most); /* 1: no products here that sum in order */
    assert_true(b.items[0].time.step <= b.as_is.time.step || b.as_is.time.step == 0);
    CHECK_OK(pp_best_division(&p.spec, p.costs, &b.items[0], ticks, &d));
    CHECK_OK(pp_division_value(&d, p.model, p.cfg, "train.coalesce", text, sizeof(text)));
    CHECK_INT_EQ(atoi(text), alone == most ? 0 : most); /* 0: as it is by itself */
    pp_rows_fini(&b);
    /* what waits for its W is memory */
    p.spec.memory = held - 1;
    CHECK_OK(pp_search(&p.spec, p.costs, &b));
    bool fewer = false;
    for (int i = 0; i < b.n; i++) {
        assert_true(b.items[i].peak_bytes < held);
        fewer = fewer || b.items[i].together < most;
    }
    assert_true(fewer || most == 1);
    pp_rows_fini(&b);
    p.spec.memory = 0;
    /* nothing is saved: a W by itself fills the bubble */
    for (int i = 0; i < 2 * p.model->n_layers; i++)
        p.costs->layers[i].w -= 40;
    CHECK_OK(pp_search(&p.spec, p.costs, &b));
    CHECK_INT_EQ(b.items[0].together, 1);
    CHECK_OK(pp_best_division(&p.spec, p.costs, &b.items[0], ticks, &d));
    CHECK_OK(pp_division_value(&d, p.model, p.cfg, "train.coalesce", text, sizeof(text)));
    CHECK_INT_EQ(atoi(text), alone > 1);
    pp_rows_fini(&b);
    close_problem(&p);
}

TEST(the_eager_k_hides_the_measured_hand_over)
{
    struct problem p;
    struct pp_rows b;
    open_problem(eight_layers, &p);
    p.spec.all_m = false;
    CHECK_OK(pp_search(&p.spec, p.costs, &b));
    CHECK_INT_EQ(find(&b, "1f1b-eager", 4, 1, false)->d.eager, 2); /* 1 would be 1f1b */
    pp_rows_fini(&b);
    p.costs->near.latency = 120; /* F + B = 144: 1 + ceil(240 / 144) */
    CHECK_OK(pp_search(&p.spec, p.costs, &b));
    CHECK_INT_EQ(find(&b, "1f1b-eager", 4, 1, false)->d.eager, 3);
    assert_true(find(&b, "1f1b-eager", 4, 1, false)->time.step <
                find(&b, "1f1b", 4, 1, false)->time.step);
    pp_rows_fini(&b);
    close_problem(&p);
}

/* ---- whole runs */

TEST(what_was_chosen_stands_in_the_config)
{
    struct problem p;
    open_problem(eight_layers, &p);
    p.cfg->data.train_samples = 100;
    p.cfg->data.test_samples = 10;
    CHECK_OK(pp_config_choose(p.cfg, "pipeline.assignment", "time"));
    CHECK_OK(pp_choose(p.cfg, PP_RUN_EXPLAIN, NULL));
    assert_non_null(pp_schedule_find(p.cfg->pipeline.schedule));
    assert_true(p.cfg->pipeline.chunks >= 1);
    CHECK_INT_EQ(p.cfg->pipeline.microbatches, 4);
    CHECK_INT_EQ(p.cfg->pipeline.assignment, PP_ASSIGN_EXPLICIT);
    int ranges = 1;
    for (const char *c = p.cfg->pipeline.ranges; *c; c++)
        ranges += *c == '|';
    CHECK_INT_EQ(ranges, 2 * p.cfg->pipeline.chunks);
    CHECK_STR_EQ(pp_config_origin(p.cfg, "pipeline.schedule"), "chosen (test)");
    CHECK_STR_EQ(pp_config_origin(p.cfg, "pipeline.chunks"), "chosen (default)");
    CHECK_STR_EQ(pp_config_origin(p.cfg, "pipeline.microbatches"), "test");
    close_problem(&p);
}

TEST(a_config_that_nothing_can_run_says_so)
{
    struct problem p;
    open_problem(eight_layers, &p);
    p.cfg->pipeline.chunks = 5; /* 10 pieces of 8 layers */
    p.cfg->data.train_samples = 100;
    CHECK_FAILS(pp_choose(p.cfg, PP_RUN_EXPLAIN, NULL), PP_ECONFIG, "no schedule can run 2 stages");
    CHECK_STR_EQ(p.cfg->pipeline.schedule, "auto");
    close_problem(&p);
}

TEST(a_checked_candidate_tells_a_time_and_leaves_no_trace)
{
    struct problem p;
    struct pp_rows b;
    struct pp_checked got[2];
    open_problem(eight_layers, &p);
    p.cfg->data.train_samples = 1000;
    p.cfg->data.test_samples = 100;
    CHECK_OK(pp_search(&p.spec, p.costs, &b));
    const struct pp_row *items[] = {&b.items[0], &b.items[1]};
    const struct pp_bench_candidates spec = {
        .best = &p.spec, .costs = p.costs, .items = items, .n = 2, .seconds = 0.05};
    for (int single = 0; single < 2; single++) {
        CHECK_OK(pp_bench_candidates(&spec, got));
        for (int i = 0; i < 2; i++) {
            assert_true(got[i].measured.step > 0 && got[i].measured.bubble.idle < 1);
            assert_true(got[i].calibrated > 0 && got[i].error > -1);
            CHECK_INT_EQ(got[i].measured.bubble.stages, 2);
        }
        b.items[1].time.step = 1; /* so long that every round is a single step */
    }
    CHECK_STR_EQ(p.cfg->run.dir, "auto");
    CHECK_INT_EQ(pp_config_problem_count(p.cfg), 0);
    pp_rows_fini(&b);
    close_problem(&p);
}
