/* SPDX-License-Identifier: Apache-2.0 */
/* From given times to the time of a step: the arithmetic, by hand. And measuring, as far as a test
 * may judge it: everything there, nothing negative, the budget kept. */
#include "test.h"
#include "../../src/measure/measure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../../src/cluster/tries.h"
#include "ppcli/conf/config.h"
#include "../../src/cluster/hosts.h"
#include "ppcli/base/base.h"
#include "../../src/plan/search.h"

/* A model of equal layers, 4 wide. */
static struct pp_model *model_of(int layers)
{
    PP_OWN_MEMORY struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    struct pp_model *m = NULL;
    assert_non_null(cfg);
    snprintf(cfg->model.type, sizeof(cfg->model.type), "mlp");
    cfg->model.n_sizes = layers + 1;
    for (int i = 0; i <= layers; i++)
        cfg->model.sizes[i] = 4;
    CHECK_OK(pp_model_create(cfg, NULL, &m));
    return m;
}

/* Every layer takes f, i, w a row. */
static struct pp_costs *costs_of(int layers, double f, double i, double w)
{
    struct pp_costs *c = NULL;
    CHECK_OK(pp_costs_create(layers, (int[]){1, 100}, 2, &c));
    for (int s = 0; s < 2; s++) {
        for (int l = 0; l < layers; l++) {
            double rows = c->sizes[s];
            c->layers[s * layers + l] = (struct pp_layer_seconds){f * rows, i * rows, w * rows};
        }
    }
    c->cores = 64;
    return c;
}

struct shape {
    const char *schedule;
    int stages, chunks, microbatches, rows;
};

/* Of the next prediction. */
static int replicas = 1;
static bool zero;
static bool across;
static const double *slower;
static bool pieces;

/* Equal cuts of a model with one layer per virtual stage; weight gradients of k at a time. */
static struct pp_prediction predict_in_groups(const struct shape *shape, int k,
                                              const struct pp_costs *c, int meet_every,
                                              double meet_after)
{
    struct pp_geometry g = {.stages = shape->stages,
                            .chunks = shape->chunks,
                            .microbatches = shape->microbatches,
                            .coalesce = k};
    struct pp_plan *plan = NULL;
    struct pp_model *m = model_of(c->n_layers);
    int first[16];
    for (int s = 0; s < 16; s++)
        first[s] = s;
    CHECK_OK(pp_plan_build(shape->schedule, &g, &plan));
    CHECK_INT_EQ(plan->n_virtual, c->n_layers);
    struct pp_predict_spec spec = {.plan = plan,
                                   .model = m,
                                   .costs = c,
                                   .first = first,
                                   .last = first,
                                   .rows = shape->rows,
                                   .replicas = replicas,
                                   .zero = zero,
                                   .across = across,
                                   .slower = slower,
                                   .pieces = pieces,
                                   .explain = true,
                                   .meet_every = meet_every,
                                   .meet_after = meet_after};
    struct pp_prediction p;
    CHECK_OK(pp_predict(&spec, &p));
    pp_plan_destroy(&plan);
    pp_model_destroy(&m);
    return p;
}

static struct pp_prediction predict(const struct shape *shape, const struct pp_costs *c,
                                    int meet_every, double meet_after)
{
    return predict_in_groups(shape, 1, c, meet_every, meet_after);
}

TEST(a_slower_rank_takes_longer_for_its_stages)
{
    const double factors[] = {1, 1.5};
    PP_OWN(pp_costs_destroy) struct pp_costs *c = costs_of(2, 1, 2, 3);
    struct shape shape = {"1f1b", 2, 1, 1, 1};
    double equal = predict(&shape, c, 1, 0).step;
    slower = factors;
    /* one micro-batch: F0 F1 I1 I0 W0, and W1 meanwhile */
    assert_float_equal(equal, 1 + 1 + 2 + 2 + 3, 1e-9);
    assert_float_equal(predict(&shape, c, 1, 0).step, 1 + 1.5 * (1 + 2) + 2 + 3, 1e-9);
    shape.microbatches = shape.rows = 1000;
    slower = NULL;
    equal = predict(&shape, c, 1, 0).step;
    slower = factors;
    assert_float_equal(predict(&shape, c, 1, 0).step / equal, 1.5, 0.01);
    slower = NULL;
}

/* As the executor does it: F of the last stage has no logits, its W nothing to do. */
TEST(in_pieces_the_last_layer_is_done_in_its_input_gradient)
{
    PP_OWN(pp_costs_destroy) struct pp_costs *c = costs_of(2, 1, 2, 3);
    const struct shape shape = {"1f1b", 2, 1, 1, 1}, zb = {"zb-h1", 2, 1, 4, 4};
    c->loss[0] = 10;
    c->loss[1] = 1000;
    /* one micro-batch: F0 F1 I1 I0 W0, and W1 meanwhile */
    assert_float_equal(predict(&shape, c, 1, 0).step, 1 + (1 + 10) + 2 + 2 + 3, 1e-9);
    double all_at_once = predict(&zb, c, 1, 0).step;
    pieces = true;
    assert_float_equal(predict(&shape, c, 1, 0).step, 1 + 0 + (1 + 10 + 2 + 3) + 2 + 3, 1e-9);
    /* rank 1 works without a pause from its first F on: F0, 4 times all of the last layer, I0, W0 */
    assert_float_equal(predict(&zb, c, 1, 0).step, 1 + 4 * (1 + 10 + 2 + 3) + 2 + 3, 1e-9);
    assert_true(all_at_once < 1 + 4 * (1 + 10 + 2 + 3) + 2 + 3);
    pieces = false;
}

TEST(a_time_between_two_sizes_is_on_their_line)
{
    struct pp_costs *c = NULL;
    CHECK_OK(pp_costs_create(2, (int[]){10, 20, 40}, 3, &c));
    const double f[] = {1, 3, 4};
    for (int s = 0; s < 3; s++)
        c->layers[2 * s + 1] = (struct pp_layer_seconds){f[s], 2 * f[s], 3 * f[s]};
    assert_float_equal(pp_costs_layer(c, 1, 10).f, 1, 1e-12);
    assert_float_equal(pp_costs_layer(c, 1, 15).i, 4, 1e-12);
    assert_float_equal(pp_costs_layer(c, 1, 30).w, 10.5, 1e-12);
    assert_float_equal(pp_costs_layer(c, 1, 60).f, 5, 1e-12); /* beyond: the last line goes on */
    assert_float_equal(pp_costs_layer(c, 1, 1).f, 0, 1e-12);  /* -0.8: never negative */
    assert_float_equal(pp_costs_layer(c, 0, 15).f, 0, 1e-12);
    pp_costs_destroy(&c);

    CHECK_OK(pp_costs_create(1, (int[]){8}, 1, &c));
    c->layers[0].f = 4;
    assert_float_equal(pp_costs_layer(c, 0, 2).f, 1, 1e-12); /* one size: in proportion */
    pp_costs_destroy(&c);
}

TEST(a_hand_over_between_hosts_takes_the_other_link)
{
    PP_OWN(pp_costs_destroy) struct pp_costs *c = costs_of(4, 1, 1, 1);
    const struct shape shape = {"gpipe", 4, 1, 1,
                                1}; /* one micro-batch: F, I of all, and W of the first */
    c->near.latency = 0.5;
    c->near.byte = 0.25; /* 4 floats: 16 bytes */
    c->far.latency = 2;
    c->far.byte = 1;
    assert_float_equal(predict(&shape, c, 1, 0).step, 9 + 6 * (0.5 + 4), 1e-9);
    c->host_ranks = 2; /* ranks 1 and 2 are on two hosts */
    assert_float_equal(predict(&shape, c, 1, 0).step, 9 + 4 * (0.5 + 4) + 2 * (2 + 16), 1e-9);
    c->host_ranks = 4;
    assert_float_equal(predict(&shape, c, 1, 0).step, 9 + 6 * (0.5 + 4), 1e-9);
}

TEST(messages_to_another_host_leave_one_after_the_other)
{
    PP_OWN(pp_costs_destroy) struct pp_costs *c = costs_of(2, 1, 1, 1);
    const struct shape shape = {"gpipe", 2, 1, 2, 2};
    c->host_ranks = 1;
    c->far.byte = 1; /* 4 floats: 16 for each message; two in turn, both ways */
    assert_float_equal(predict(&shape, c, 1, 0).step, 1 + 2 * 16 + 1 + 1 + 2 * 16 + 2, 1e-9);
    c->host_ranks = 2;
    c->near.byte = 1; /* memory that both see: nothing queues */
    assert_float_equal(predict(&shape, c, 1, 0).step, 2 + 16 + 1 + 3 + 16 + 2, 1e-9);
}

TEST(copies_take_their_ranks_time_unless_it_waits)
{
    PP_OWN(pp_costs_destroy) struct pp_costs *c = costs_of(2, 1, 1, 1);
    const struct shape one = {"gpipe", 2, 1, 1, 1}, two = {"gpipe", 2, 1, 2, 2};
    c->host_ranks = 1;
    c->far.byte = 0.1; /* 1.6 for each message */
    double alone = predict(&one, c, 1, 0).step, pair = predict(&two, c, 1, 0).step;
    assert_float_equal(alone, 5 + 2 * 1.6, 1e-9);
    c->far.copy = 0.1;
    assert_float_equal(predict(&one, c, 1, 0).step, alone, 1e-9);
    /* rank 1: F when it is there, copies the next, F, I, copies what it sends, W, I; then rank 0 */
    assert_float_equal(predict(&two, c, 1, 0).step, 8 + 4 * 1.6, 1e-9);
    assert_true(predict(&two, c, 1, 0).step > pair);
}

TEST(sums_or_messages_cross_hosts)
{
    PP_OWN(pp_costs_destroy) struct pp_costs *c = costs_of(2, 1, 1, 1);
    const struct shape shape = {"gpipe", 2, 1, 1, 1};
    replicas = 2;
    double alone = predict(&shape, c, 1, 0).step;
    c->far.byte = 1; /* 4 x 4 weights and 4 biases: half of them there, half of them back */
    c->host_ranks = 2;
    assert_float_equal(predict(&shape, c, 1, 0).step, alone + 80, 1e-9);
    c->one_wire = true; /* of two stages */
    assert_float_equal(predict(&shape, c, 1, 0).step, alone + 160, 1e-9);
    across = true; /* two messages at once, there and back */
    assert_float_equal(predict(&shape, c, 1, 0).step, alone + 2 * 32, 1e-9);
    CHECK_OK(
        pp_costs_hosts(c, (int[]){7, 9, 7, 9}, 4)); /* as given: both replicas of rank 0 apart */
    across = false;
    assert_float_equal(predict(&shape, c, 1, 0).step, alone + 2 * 32, 1e-9);
    replicas = 1;
}

/* With train.zero half of what a stage sends leaves from its last W on, while its rank computes. */
TEST(gradients_travel_while_other_stages_compute)
{
    PP_OWN(pp_costs_destroy) struct pp_costs *c = costs_of(2, 1, 1, 1);
    const struct shape shape = {"looped-bfs", 1, 2, 1, 1}; /* F0 F1 I1 W1 I0 W0 */
    replicas = 2, zero = true;
    assert_float_equal(predict(&shape, c, 1, 0).step, 6, 1e-9);
    c->host_ranks = 1;
    c->far.byte = 0.01; /* 20 floats: 0.4 for half of them */
    assert_float_equal(predict(&shape, c, 1, 0).step, 6 + 0.4 + 0.8, 1e-9);
    c->far.byte = 0.1; /* W1's 4 end after 8, then W0's 4 */
    assert_float_equal(predict(&shape, c, 1, 0).step, 4 + 4 + 4 + 8, 1e-9);
    zero = false;
    assert_float_equal(predict(&shape, c, 1, 0).step, 6 + 16, 1e-9);
    replicas = 1;
}

TEST(input_and_loss_belong_to_the_ends)
{
    PP_OWN(pp_costs_destroy) struct pp_costs *c = costs_of(3, 1, 2, 3);
    double by_layer[3];
    for (int s = 0; s < 2; s++) {
        c->input[s] = 10 * c->sizes[s];
        c->loss[s] = 20 * c->sizes[s];
    }
    pp_costs_by_layer(c, 2, by_layer);
    assert_float_equal(by_layer[0], 12 + 20, 1e-9);
    assert_float_equal(by_layer[1], 12, 1e-9);
    assert_float_equal(by_layer[2], 12 + 40, 1e-9);
}

TEST(one_rank_takes_the_sum_of_everything)
{
    PP_OWN(pp_costs_destroy) struct pp_costs *c = costs_of(1, 1, 2, 3);
    struct shape one = {"1f1b", 1, 1, 4, 40};
    c->action = 0.5;
    c->optimizer = 0.1;     /* of 4 x 4 weights and 4 biases */
    c->near.latency = 1000; /* nobody to hand over to */
    for (int s = 0; s < 2; s++) {
        c->input[s] = 0.25 * c->sizes[s];
        c->loss[s] = 0.5 * c->sizes[s];
    }
    struct pp_prediction p = predict(&one, c, 0, 0);
    double actions = 8 * 0.5; /* F and B of each */
    assert_float_equal(p.step, 40 * (1 + 2 + 3 + 0.25 + 0.5) + actions + 2, 1e-6);
    assert_float_equal(p.bubble.idle, actions / p.step, 1e-9);
}

/* Uneven micro-batches: 10 rows in 4 are 3, 3, 2, 2, not four times 3. */
TEST(a_smaller_microbatch_takes_less)
{
    PP_OWN(pp_costs_destroy) struct pp_costs *c = costs_of(1, 1, 1, 1);
    struct shape uneven = {"gpipe", 1, 1, 4, 10};
    assert_float_equal(predict(&uneven, c, 0, 0).step, 30, 1e-9);
}

/* What a product costs whatever its rows is paid once for each group. */
TEST(a_group_of_weight_gradients_costs_one_product)
{
    PP_OWN(pp_costs_destroy) struct pp_costs *c = costs_of(1, 1, 1, 1);
    struct shape shape = {"gpipe", 1, 1, 4, 8};
    for (int s = 0; s < 2; s++)
        c->layers[s].w += 10;
    assert_float_equal(predict(&shape, c, 0, 0).step, 8 * 3 + 4 * 10, 1e-9);
    assert_float_equal(predict_in_groups(&shape, 2, c, 0, 0).step, 8 * 3 + 2 * 10, 1e-9);
    assert_float_equal(predict_in_groups(&shape, 100, c, 0, 0).step, 8 * 3 + 10, 1e-9);
}

TEST(the_textbook_bubble_comes_out)
{
    PP_OWN(pp_costs_destroy) struct pp_costs *c = costs_of(4, 1, 1, 1);
    struct shape gpipe = {"gpipe", 4, 1, 8, 8};
    struct pp_prediction p = predict(&gpipe, c, 1, 0);
    /* an input gradient leaves before its weight gradient: (P-1)(F+I) of bubble, not F+I+W */
    assert_float_equal(p.step, 8 * 3 + 3 * 2, 1e-9); /* met in every step */
    assert_float_equal(p.bubble.idle, 1 - 24.0 / 30, 1e-9);
    assert_float_equal(p.bubble.schedule, p.bubble.idle, 1e-9);
}

/* Without a meeting the next step's forwards fill what the last one's backwards leave idle. */
TEST(steps_overlap_unless_the_ranks_meet)
{
    PP_OWN(pp_costs_destroy) struct pp_costs *c = costs_of(4, 1, 1, 1);
    struct shape shape = {"zb-h2", 4, 1, 8, 8}; /* its ranks never idle in between */
    double free = predict(&shape, c, 0, 0).step;
    double met = predict(&shape, c, 1, 0).step;
    double pairs = predict(&shape, c, 2, 0).step;
    assert_true(free >= 24 - 1e-9); /* the work of a rank */
    assert_true(met > free);
    assert_true(pairs <= met + 1e-9 && pairs >= free - 1e-9);
    /* meeting by time: rarely is almost never, at once is always */
    assert_float_equal(predict(&shape, c, 0, 1e9).step, free, 1e-3);
    assert_float_equal(predict(&shape, c, 0, 1e-9).step, met, 1e-9);
    /* what is first */
    assert_float_equal(predict(&shape, c, 1, 1e9).step, met, 1e-9);
    assert_float_equal(predict(&shape, c, 1000, 1e-9).step, met, 1e-9);
}

TEST(a_hand_over_costs_its_latency_and_its_bytes)
{
    PP_OWN(pp_costs_destroy) struct pp_costs *c = costs_of(2, 1, 1, 1);
    struct shape naive = {"naive", 2, 1, 1, 10};
    double without = predict(&naive, c, 1, 0).step;
    c->near.latency = 5;
    assert_float_equal(predict(&naive, c, 1, 0).step, without + 2 * 5, 1e-9);
    c->near.byte = 0.01; /* 10 rows of 4 floats: 1.6 a message */
    assert_float_equal(predict(&naive, c, 1, 0).step, without + 2 * 5 + 2 * 1.6, 1e-9);
}

TEST(ranks_without_a_core_of_their_own_take_turns)
{
    PP_OWN(pp_costs_destroy) struct pp_costs *c = costs_of(4, 1, 1, 1);
    struct shape shape = {"1f1b", 4, 1, 8, 8};
    double own = predict(&shape, c, 0, 0).step;
    c->cores = 2;
    assert_float_equal(predict(&shape, c, 0, 0).step, 4 * 24 / 2.0, 1e-9);
    c->cores = 4;
    assert_float_equal(predict(&shape, c, 0, 0).step, own, 1e-9);
}

TEST(chunks_are_put_where_their_ranks_are)
{
    PP_OWN(pp_costs_destroy) struct pp_costs *c = costs_of(4, 1, 1, 1);
    /* layer 3 takes ten times as long: with V placement it is on rank 0, with loops on rank 1 */
    for (int s = 0; s < 2; s++) {
        c->layers[s * 4 + 3].f *= 10;
        c->layers[s * 4 + 3].i *= 10;
        c->layers[s * 4 + 3].w *= 10;
    }
    struct shape loops = {"interleaved", 2, 2, 4, 4}, v = {"zb-v", 2, 2, 4, 4};
    struct pp_bubble on_1 = predict(&loops, c, 0, 0).bubble, on_0 = predict(&v, c, 0, 0).bubble;
    CHECK_INT_EQ(on_1.busiest, 1);
    CHECK_INT_EQ(on_0.busiest, 0);
    assert_float_equal(on_1.work, 33.0 / 39, 1e-9);
    assert_float_equal(on_0.work, 33.0 / 39, 1e-9);
}

/* ---- measuring */

static void check_measured(int ranks, const char *backend, enum pp_optimizer_kind optimizer)
{
    PP_OWN_MEMORY struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    PP_OWN(pp_model_destroy) struct pp_model *m = NULL;
    PP_OWN(pp_costs_destroy) struct pp_costs *c = NULL;
    static const int widths[] = {20, 48, 48, 48, 7};
    static const int sizes[] = {3, 8, 40};
    assert_non_null(cfg);
    snprintf(cfg->model.type, sizeof(cfg->model.type), "mlp");
    cfg->model.n_sizes = 5;
    cfg->model.activation = PP_ACT_GELU; /* has saved values */
    memcpy(cfg->model.sizes, widths, sizeof(widths));
    CHECK_OK(pp_model_create(cfg, NULL, &m));
    struct pp_measure_spec spec = {.model = m,
                                   .backend.threads = 1,
                                   .optimizer = optimizer,
                                   .ranks = ranks,
                                   .samples = 50,
                                   .sizes = sizes,
                                   .n_sizes = 3,
                                   .seconds = 0.05};
    CHECK_OK(pp_backend_resolve(backend, &spec.backend.ops));
    CHECK_OK(pp_costs_measure(&spec, &c));
    CHECK_INT_EQ(c->n_layers, 4);
    CHECK_INT_EQ(c->n_sizes, 3);
    assert_true(c->at_once >= 1 && c->at_once <= ranks && c->at_once <= c->cores);
    for (int s = 0; s < 3; s++) {
        CHECK_INT_EQ(c->sizes[s], sizes[s]);
        for (int i = 0; i < 4; i++) {
            const struct pp_layer_seconds *t = &c->layers[4 * s + i];
            assert_true(t->f >= 0 && t->i >= 0 && t->w >= 0);
            /* of 3 rows it may be less than reading the clock takes, which is taken off */
            assert_true(s < 2 || t->f + t->w > 0);
            assert_true(t->f + t->i + t->w < 1);
        }
        /* equal shapes share a time */
        assert_memory_equal(&c->layers[4 * s + 1], &c->layers[4 * s + 2], sizeof(c->layers[0]));
        assert_true(c->input[s] >= 0 && c->loss[s] >= 0);
    }
    assert_true(c->optimizer >= 0 && c->optimizer < 1e-3);
    assert_true(c->action > 0 && c->near.latency > 0 && c->near.byte >= 0);
    CHECK_INT_EQ(c->near.unsteady > 0, c->at_once >= 2);
    assert_true(c->took > 0);
}

TEST(everything_is_measured_alone_and_together)
{
    check_measured(1, "cpu", PP_OPT_SGD);
    check_measured(2, "cpu", PP_OPT_ADAM);
    check_measured(64, "cpu", PP_OPT_MOMENTUM); /* more ranks than cores and layers */
    check_measured(2, "reference", PP_OPT_ADAMW);
}

/* A size that would take minutes is not measured but follows from the smaller ones. */
TEST(what_does_not_fit_the_budget_is_extrapolated)
{
    PP_OWN_MEMORY struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    PP_OWN(pp_model_destroy) struct pp_model *m = NULL;
    PP_OWN(pp_costs_destroy) struct pp_costs *c = NULL;
    assert_non_null(cfg);
    snprintf(cfg->model.type, sizeof(cfg->model.type), "mlp");
    cfg->model.n_sizes = 3;
    cfg->model.sizes[0] = cfg->model.sizes[1] = cfg->model.sizes[2] = 64;
    CHECK_OK(pp_model_create(cfg, NULL, &m));
    static const int sizes[] = {4, 8, 16384};
    struct pp_measure_spec spec = {.model = m,
                                   .backend.threads = 1,
                                   .ranks = 1,
                                   .samples = 10,
                                   .sizes = sizes,
                                   .n_sizes = 3,
                                   .seconds = 1e-6};
    CHECK_OK(pp_backend_resolve("reference", &spec.backend.ops));
    CHECK_OK(pp_costs_measure(&spec, &c));
    assert_true(c->layers[0].f > 0);
    /* 8 and 16384 do not fit a microsecond: both in proportion to 4 rows */
    assert_float_equal(c->layers[2].f, 2 * c->layers[0].f, 1e-12);
    assert_float_equal(c->layers[4].f, 4096 * c->layers[0].f, 1e-6);
}

/* ---- the hosts of a run, as a preflight found them */

/* So many on each of two hosts, on a way of 2 ms there and back and 1 MB/s; the way back is faster. */
static void two_hosts(int ranks, struct pp_hosts *hosts, struct pp_preflight *p)
{
    static struct pp_host_facts facts[2];
    static struct pp_way ways[4];
    facts[0].free_bytes = (uint64_t)8 << 30;
    facts[1].free_bytes = UINT64_MAX;
    ways[1] = (struct pp_way){.state = PP_WAY_OPEN, .link = {.latency = 1e-3, .byte = 1e-6}};
    ways[2] = (struct pp_way){.state = PP_WAY_OPEN, .link = {.latency = 5e-4, .byte = 1.0 / 9e6}};
    *hosts = (struct pp_hosts){.items = {{"h0", ranks}, {"h1", ranks}}, .n = 2};
    *p = (struct pp_preflight){.n = 2, .hosts = facts, .ways = ways};
}

TEST(links_between_hosts_cost_for_any_number_of_ranks)
{
    static struct pp_hosts hosts;
    for (int ranks = 1; ranks <= 4096; ranks *= 4) {
        struct pp_preflight p;
        struct pp_costs c = {.cores = 1};
        two_hosts(ranks, &hosts, &p);
        CHECK_OK(hosts_set_links(&c, &hosts, &p));
        CHECK_INT_EQ(c.n_hosts, 2 * ranks);
        CHECK_INT_EQ(c.host[ranks - 1], 0);
        CHECK_INT_EQ(c.host[ranks], 1);
        assert_true(fabs(c.far.latency - 1e-3) < 1e-9);
        assert_true(fabs(c.far.byte - 1e-6) < 1e-12);
        pp_free(c.host);
    }
}

TEST(a_rank_may_hold_its_part_of_the_host_that_has_least)
{
    static struct pp_hosts hosts;
    struct pp_preflight p;
    char text[PP_HOST_TEXT];
    two_hosts(4, &hosts, &p);
    CHECK_INT_EQ(pp_preflight_memory(&p, &hosts, 0), (int64_t)(0.9 * 2 * (1 << 30)));
    CHECK_INT_EQ(pp_preflight_memory(&p, &hosts, 1000), 1000);
    hosts.items[0].ranks = 0; /* it does not take part, and the other does not know */
    CHECK_INT_EQ(pp_preflight_memory(&p, &hosts, 0), 0);
    assert_non_null(strstr(pp_host_text(&p.hosts[0], text), "8.0 GiB free"));
    assert_null(strstr(pp_host_text(&p.hosts[1], text), "free"));
    CHECK_STR_EQ(pp_way_text(&p.ways[2], text),
                 " by , : connect 0.00 ms, round trip 1.000 ms, 9 MB/s");
}
