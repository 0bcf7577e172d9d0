/* SPDX-License-Identifier: Apache-2.0 */
/* The search against all that it could have found: every schedule, number of chunks, cut and set of
 * recomputed chunks, laid out and simulated one by one. */
#include "test.h"
#include "../../src/pipe/layout.h"
#include "../../src/pipe/division.h"
#include "../../src/measure/measure.h"

#include <stdio.h>

#include "ppcli/base/base.h"
#include "../../src/plan/search.h"

struct world {
    struct pp_config *cfg;
    struct pp_model *model;
    struct pp_costs *costs;
    struct pp_space spec;
};

/* Layers of 24 values that take `times` a row for F, and about as long for I and W. */
static struct world world_of(int stages, const double *times, int layers)
{
    struct world w = {.cfg = pp_alloc(1, sizeof(*w.cfg))};
    struct pp_config *cfg = w.cfg;
    assert_non_null(cfg);
    snprintf(cfg->model.type, sizeof(cfg->model.type), "mlp");
    snprintf(cfg->data.dataset, sizeof(cfg->data.dataset), "synthetic");
    snprintf(cfg->run.backend, sizeof(cfg->run.backend), "cpu");
    cfg->run.gemm = PP_GEMM_CBLAS; /* weight gradients one by one: memory follows the order alone */
    cfg->model.n_sizes = layers + 1;
    for (int i = 0; i <= layers; i++)
        cfg->model.sizes[i] = 24;
    snprintf(cfg->pipeline.schedule, sizeof(cfg->pipeline.schedule), "1f1b");
    cfg->pipeline.stages = stages;
    cfg->pipeline.replicas = 1;
    cfg->pipeline.microbatches = 6;
    cfg->pipeline.eager = 2;
    cfg->train.batch_size = 600;
    cfg->train.exact = true;
    CHECK_OK(pp_model_create(cfg, NULL, &w.model));
    CHECK_OK(pp_costs_create(layers, (int[]){1, 100}, 2, &w.costs));
    for (int s = 0; s < 2; s++) {
        for (int l = 0; l < layers; l++) {
            double t = times[l] * w.costs->sizes[s];
            w.costs->layers[s * layers + l] =
                (struct pp_layer_seconds){t, t * (1 + l % 2), t * 0.8};
        }
    }
    w.costs->cores = 64;
    w.costs->near.latency = 3;
    w.costs->near.byte = 1e-3;
    w.spec = pp_space_of(cfg, w.model, 6000, 0);
    w.spec.cuts = true;
    return w;
}

static void end(struct world *w)
{
    pp_costs_destroy(&w->costs);
    pp_model_destroy(&w->model);
    pp_free(w->cfg);
}

/* ---- all there is */

static double step_of(const struct world *w, const struct pp_config *cfg, size_t *peak)
{
    const struct pp_training training = pp_training_of(cfg, 6000, 0);
    struct pp_layout *l = NULL;
    struct pp_prediction p = {0};
    struct pp_division d;
    const char *key;
    *peak = 0;
    if (pp_division_of(cfg, w->model, NULL, &d, &key) == 0 &&
        pp_layout_create(w->model, &d, &training, &l, &key) == 0) {
        struct pp_predict_spec spec = {.plan = l->plans[0].plan,
                                       .model = w->model,
                                       .costs = w->costs,
                                       .first = l->first,
                                       .last = l->last,
                                       .rows = cfg->train.batch_size,
                                       .replicas = 1,
                                       .meet_every = pp_run_meet_every(cfg, 6000),
                                       .meet_after = PP_RUN_MEET_NS * 1e-9};
        CHECK_OK(pp_predict(&spec, &p));
        for (int r = 0; r < l->stages; r++) {
            struct pp_exec_spec exec = {
                .cfg = cfg, .layout = l, .rank = r, .caps.shared_slots = true};
            struct pp_exec_bytes bytes;
            CHECK_OK(pp_exec_predict(&exec, &bytes));
            *peak = bytes.total > *peak ? bytes.total : *peak;
        }
    }
    pp_error_clear();
    pp_layout_destroy(&l);
    return p.step;
}

/* The bits of `cuts` say behind which layers a piece ends, those of `again` which are recomputed. */
static int write_shape(struct pp_config *cfg, int layers, unsigned cuts, unsigned again)
{
    size_t used = 0, said = 0;
    int n = 0;
    cfg->pipeline.recompute[0] = '\0';
    for (int i = 0, first = 0; i < layers; i++) {
        if (i < layers - 1 && !(cuts >> i & 1))
            continue;
        used +=
            (size_t)snprintf(cfg->pipeline.ranges + used, 64, "%s%d-%d", n ? " | " : "", first, i);
        if (again >> n & 1)
            said += (size_t)snprintf(cfg->pipeline.recompute + said, 64, "%s%d-%d", said ? " " : "",
                                     first, i);
        first = i + 1;
        n++;
    }
    cfg->pipeline.assignment = PP_ASSIGN_EXPLICIT;
    return n;
}

static double brute_force(const struct world *w, size_t memory)
{
    int layers = w->model->n_layers, p = w->cfg->pipeline.stages;
    PP_OWN_MEMORY struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    double best = 0;
    assert_non_null(cfg);
    *cfg = *w->cfg;
    for (const char *const *name = pp_schedule_names(); *name; name++) {
        if (pp_schedule_find(*name)->fits)
            continue; /* another order for other costs: the search may find more than this */
        snprintf(cfg->pipeline.schedule, sizeof(cfg->pipeline.schedule), "%s", *name);
        for (unsigned cuts = 0; cuts < 1u << (layers - 1); cuts++) {
            int n = __builtin_popcount(cuts) + 1, own = w->cfg->pipeline.chunks;
            if (n % p != 0 || (own > 0 ? n / p != own : n / p == 3)) /* looked at: 1, 2 and 4 */
                continue;
            cfg->pipeline.chunks = n / p;
            for (unsigned again = 0; again < (memory > 0 ? 1u << n : 1u); again++) {
                size_t peak;
                write_shape(cfg, layers, cuts, again);
                double step = step_of(w, cfg, &peak);
                if (step > 0 && (memory == 0 || peak <= memory) && (best == 0 || step < best))
                    best = step;
            }
        }
    }
    return best;
}

/* ---- tests */

static const double uneven[] = {5, 1, 1, 2, 7, 1, 3, 1};
static const double falling[] = {9, 8, 6, 5, 3, 2, 1};
static const double many[] = {3, 2, 3, 2, 4, 2, 3, 2, 3, 2, 3, 2, 3, 2};

static void check_exact(struct world w)
{
    struct pp_rows best;
    double least = brute_force(&w, 0);
    CHECK_OK(pp_search(&w.spec, w.costs, &best));
    assert_true(best.n > 10);
    /* rows are sorted by thousandths: the first is among those of the least time */
    if (best.items[0].time.step > least * 1.001)
        fail_msg("found %g with %s, there is %g", best.items[0].time.step,
                 pp_division_schedule(&best.items[0].d), least);
    assert_true(best.as_is.time.step >= least * (1 - 1e-9));
    pp_rows_fini(&best);
    end(&w);
}

TEST(few_cuts_are_all_looked_at)
{
    check_exact(world_of(2, uneven, 8));
    check_exact(world_of(2, falling, 7));
    check_exact(world_of(3, uneven, 8));
    check_exact(world_of(4, uneven, 8));
}

TEST(what_is_printed_is_what_was_predicted)
{
    struct world w = world_of(2, uneven, 8);
    struct pp_rows best;
    struct pp_config *cfg = NULL;
    struct pp_division d;
    static int64_t ticks[PP_NUMBERS_MAX];
    size_t peak;
    w.spec.recompute = true;
    w.spec.memory = 180000;
    CHECK_OK(pp_search(&w.spec, w.costs, &best));
    for (int i = 0; i < best.n; i++) {
        CHECK_OK(pp_best_division(&w.spec, w.costs, &best.items[i], ticks, &d));
        CHECK_OK(pp_division_config(&d, w.model, w.cfg, &cfg));
        assert_float_equal(step_of(&w, cfg, &peak), best.items[i].time.step, 1e-9);
        CHECK_INT_EQ(peak, best.items[i].peak_bytes);
        pp_free(cfg);
    }
    pp_rows_fini(&best);
    end(&w);
}

/* Under a limit that the config's own shape is far over. */
TEST(a_limit_is_kept_at_little_more_than_the_least_time)
{
    for (int k = 0; k < 3; k++) {
        struct world w = world_of(2, falling, 6);
        struct pp_rows best;
        CHECK_OK(pp_search(&w.spec, w.costs, &best));
        size_t most = best.as_is.peak_bytes, none = 0;
        pp_rows_fini(&best);
        w.spec.recompute = true;
        w.spec.memory = most * (size_t)(9 - k) / 10;
        CHECK_OK(pp_search(&w.spec, w.costs, &best));
        double least = brute_force(&w, w.spec.memory);
        print_message("# %zu of %zu bytes: found %g, there is %g\n", w.spec.memory, most,
                      best.n > 0 ? best.items[0].time.step : 0, least);
        CHECK_INT_EQ(best.n > 0, least > 0);
        for (int i = 0; i < best.n; i++)
            none += best.items[i].peak_bytes > w.spec.memory;
        CHECK_INT_EQ(none, 0);
        assert_true(best.n == 0 || best.items[0].time.step <= least * 1.02);
        pp_rows_fini(&best);
        end(&w);
    }
}

/* Of an order that is made for a cap: every cap with every set of recomputed chunks. */
static double brute_fit(const struct world *w, const struct pp_row *like, bool again)
{
    double best = 0;
    for (double cap = 1; cap <= 8; cap += cap < 4 ? 1 : 4) {
        for (unsigned set = 0; set < (again ? 1u << pp_division_pieces(&like->d) : 1u); set++) {
            struct pp_row c = *like;
            c.d.memory_cap = cap;
            c.chooses_redo = true;
            for (int s = 0; s < pp_division_pieces(&c.d); s++)
                c.d.recompute[s] = set >> s & 1;
            if (pp_best_try(&w->spec, w->costs, &c) == 0 && !c.over &&
                (best == 0 || c.time.step < best))
                best = c.time.step;
        }
    }
    return best;
}

TEST(a_cap_and_what_is_recomputed_are_found_together)
{
    int needed = 0;
    for (int k = 12; k < 20; k++) {
        struct world w = world_of(4, many, 14);
        struct pp_rows best;
        w.cfg->pipeline.chunks = w.spec.chunks = 1;
        w.spec.cuts = false;
        CHECK_OK(pp_search(&w.spec, w.costs, &best));
        w.spec.memory = best.as_is.peak_bytes * (size_t)k / 20;
        pp_rows_fini(&best);
        w.spec.recompute = true;
        CHECK_OK(pp_search(&w.spec, w.costs, &best));
        for (int i = 0; i < best.n; i++) {
            const struct pp_row *c = &best.items[i];
            if (!c->fitted)
                continue;
            double least = brute_fit(&w, c, true);
            if (c->time.step > 1.001 * least)
                fail_msg("%s, %zu bytes: found %g with a cap of %g, there is %g",
                         pp_division_schedule(&c->d), w.spec.memory, c->time.step, c->d.memory_cap,
                         least);
            needed += brute_fit(&w, c, false) > 1.3 * least;
        }
        pp_rows_fini(&best);
        end(&w);
    }
    print_message("# needed %d\n", needed);
    assert_true(needed >= 6); /* that would take as long without recomputing */
}

/* Many layers: moved boundaries come as near as a search of all cuts, where that can still be done. */
TEST(moved_boundaries_find_what_all_cuts_have)
{
    double times[20];
    uint32_t x = 12345;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 20; i++) {
            x = x * 1664525u + 1013904223u;
            times[i] = 1 + (x >> 24) % 9;
        }
        struct world w = world_of(4, times, 20); /* 969 cuts */
        struct pp_rows best;
        w.cfg->pipeline.chunks = w.spec.chunks = 1;
        double least = brute_force(&w, 0);
        CHECK_OK(pp_search(&w.spec, w.costs, &best));
        print_message("# found %g (%s), there is %g, as it is %g\n", best.items[0].time.step,
                      pp_division_schedule(&best.items[0].d), least, best.as_is.time.step);
        assert_true(best.items[0].time.step <= least * 1.02);
        pp_rows_fini(&best);
        end(&w);
    }
}

/* As often as the training itself, or a plan promises a smaller bubble than train measures. */
TEST(ranks_meet_for_records_checkpoints_and_epochs)
{
    PP_OWN_MEMORY struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    assert_non_null(cfg);
    cfg->train.batch_size = 128;
    cfg->train.epochs = 5;
    CHECK_INT_EQ(pp_run_steps(cfg, 60000), 2345);
    CHECK_INT_EQ(pp_run_meet_every(cfg, 60000), 469); /* no folder: the epoch */
    snprintf(cfg->run.dir, sizeof(cfg->run.dir), "auto");
    CHECK_INT_EQ(pp_run_meet_every(cfg, 60000), 46); /* 50 records */
    cfg->checkpoint.every = 20;
    CHECK_INT_EQ(pp_run_meet_every(cfg, 60000), 20);
    cfg->run.log_every = 7;
    CHECK_INT_EQ(pp_run_meet_every(cfg, 60000), 7);
    cfg->train.max_steps = 5;
    CHECK_INT_EQ(pp_run_steps(cfg, 60000), 5);
    CHECK_INT_EQ(pp_run_meet_every(cfg, 60000), 5);
    CHECK_INT_EQ(pp_run_meet_every(cfg, 100), 1); /* a step an epoch */
}

/* ---- more threads than there are cores */

/* A layer whose half is serial, one that scales fully, one that gets slower; what one core says. */
TEST(times_of_more_threads_follow_from_the_serial_share)
{
    struct pp_costs *one = NULL, *two = NULL, *eight = NULL, *alone = NULL;
    CHECK_OK(pp_costs_create(3, (int[]){4}, 1, &one));
    CHECK_OK(pp_costs_create(3, (int[]){4}, 1, &two));
    one->layers[0] = one->layers[1] = one->layers[2] = (struct pp_layer_seconds){8, 8, 8};
    two->layers[0] = (struct pp_layer_seconds){6, 6, 6};
    two->layers[1] = (struct pp_layer_seconds){4, 3.5, 4};
    two->layers[2] = (struct pp_layer_seconds){9, 9, 9};
    one->loss[0] = 16;
    two->loss[0] = 12;
    two->threads = 2;
    CHECK_OK(pp_costs_scale(one, two, 8, &eight));
    CHECK_INT_EQ(eight->threads, 8);
    CHECK_INT_EQ(eight->measured, 2);
    assert_float_equal(eight->layers[0].w, 8 * (0.5 + 0.5 / 8), 1e-6);
    assert_float_equal(eight->layers[1].i, 8 * (0.01 + 0.99 / 8), 1e-6);
    assert_float_equal(eight->layers[2].f, 8, 1e-6);
    assert_float_equal(eight->loss[0], 16 * (0.5 + 0.5 / 8), 1e-6);
    CHECK_OK(pp_costs_scale(one, one, 8, &alone));
    assert_float_equal(alone->layers[2].f, 8 * (0.05 + 0.95 / 8), 1e-6);
    one->next = two; /* which one owns then */
    two->next = eight;
    assert_ptr_equal(pp_costs_at(one, 8), eight);
    assert_ptr_equal(pp_costs_at(one, 3), one);
    pp_costs_destroy(&one);
    pp_costs_destroy(&alone);
}
