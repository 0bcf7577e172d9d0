/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The project's strongest promise: with equal micro-batches every number of stages, every schedule
 * and every cut trains to the bits of one rank.
 */
#include "train_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "command.h"
#include "ppcli/backend.h"
#include "ppcli/config.h"
#include "ppcli/schedule.h"

/* One training with `extra` settings on top of a small network with an uneven last batch. */
static void run_with(const char *const *extra, struct outcome *out)
{
    const char *list[40] = {
        "model.sizes=20 17 33 8 5",
        "data.train_samples=203",
        "data.test_samples=57",
        "train.batch_size=32",
        "train.epochs=2",
        "train.optimizer=adam",
        "train.lr=0.01",
        "run.log_every=1",
    };
    int n = 8;
    for (int i = 0; extra[i]; i++)
        list[n++] = extra[i];
    list[n] = NULL;
    train_ok(list, out);
}

/* Compare stages 2..4 x the schedules of one chunk with one rank; three more settings. */
static void same_bits(const char *a, const char *b, const char *c)
{
    static const char *const schedules[] = {"naive", "gpipe", "1f1b"};
    struct outcome one, many;
    const char *extra[8] = {a, b, c, NULL};
    run_with(extra, &one);
    for (int stages = 2; stages <= 4; stages++) {
        for (int s = 0; s < 3; s++) {
            char st[32], sc[32];
            snprintf(st, sizeof(st), "pipeline.stages=%d", stages);
            snprintf(sc, sizeof(sc), "pipeline.schedule=%s", schedules[s]);
            const char *with[8] = {a, b, c, st, sc, NULL};
            run_with(with, &many);
            CHECK_STR_EQ(many.sha, one.sha);
            CHECK_INT_EQ(many.n_steps, one.n_steps);
            assert_memory_equal(many.step_loss, one.step_loss,
                                (size_t)one.n_steps * sizeof(one.step_loss[0]));
            assert_true(many.test_loss == one.test_loss);
            assert_true(many.test_accuracy == one.test_accuracy);
        }
    }
}

/* A model of 16 layers, so that 8 ranks can hold two chunks each. more: up to 4 settings. */
static void run_deep(const char *schedule, int stages, int chunks, const char *microbatches,
                     const char *const *more, struct outcome *out)
{
    char sc[64], st[32], ch[32];
    snprintf(sc, sizeof(sc), "pipeline.schedule=%s", schedule);
    snprintf(st, sizeof(st), "pipeline.stages=%d", stages);
    snprintf(ch, sizeof(ch), "pipeline.chunks=%d", chunks);
    const char *with[16] = {"model.sizes=12 9*15 5",
                            "model.activation=tanh",
                            "train.epochs=1",
                            "data.train_samples=150",
                            microbatches,
                            sc,
                            st,
                            ch};
    for (int i = 0; more[i]; i++)
        with[8 + i] = more[i];
    run_with(with, out);
}

/* Every schedule of the list that may run this shape; returns how many did. A shape that the
 * schedule's own rule forbids is refused with a sentence, never with other bits. */
static int every_schedule(int stages, const char *microbatches, const char *const *more,
                          const struct outcome *one)
{
    int ran = 0;
    for (const char *const *name = pp_schedule_names(); *name; name++) {
        for (int chunks = 0; chunks <= 4 && stages * chunks <= 16;
             chunks += chunks == 0 ? 1 : chunks) {
            const struct pp_schedule_ops *ops = pp_schedule_find(*name);
            int v = chunks > 0 ? chunks : pp_schedule_default_chunks(ops);
            struct pp_geometry g = {
                .stages = stages, .chunks = v, .microbatches = atoi(strchr(microbatches, '=') + 1)};
            if (stages * v > 16 || pp_schedule_check(ops, &g) < 0)
                continue;
            struct outcome many;
            run_deep(*name, stages, chunks, microbatches, more, &many);
            if (strcmp(many.sha, one->sha) != 0) {
                fail_msg("%s, %d stages, %d chunks, %s: other weights than one rank", *name, stages,
                         v, microbatches);
            }
            assert_true(many.test_loss == one->test_loss);
            ran++;
        }
    }
    return ran;
}

TEST(all_schedules_on_up_to_8_ranks_give_the_bits_of_one)
{
    /* 150 = 4 * 32 + 22: the last batch has fewer micro-batches, too few for some schedules */
    static const char *const microbatches[] = {"pipeline.microbatches=16",
                                               "pipeline.microbatches=5"};
    static const int stages[] = {2, 3, 4, 8};
    static const char *const more[] = {"train.clip_norm=1", NULL};
    for (int m = 0; m < 2; m++) {
        struct outcome one;
        run_deep("gpipe", 1, 1, microbatches[m], more, &one);
        int ran = 0;
        for (int i = 0; i < 4; i++)
            ran += every_schedule(stages[i], microbatches[m], more, &one);
        assert_in_range(ran, 40, 1000);
    }
}

TEST(all_schedules_work_with_replicas)
{
    struct outcome one;
    static const char *const more[] = {"pipeline.replicas=2", NULL};
    run_deep("gpipe", 1, 1, "pipeline.microbatches=8", more, &one);
    assert_in_range(every_schedule(2, "pipeline.microbatches=8", more, &one), 10, 1000);
}

/* The same groups everywhere: the same bits, which with the reference backend (it sums a group in
 * double precision) are others than those of one micro-batch at a time. */
TEST(coalesced_weight_gradients_have_the_same_bits_for_all_schedules)
{
    static const struct {
        int stages;
        const char *microbatches;
        const char *more[5];
    } shapes[] = {
        /* groups of 3 and a last one of 1; the last batch has other groups */
        {2, "pipeline.microbatches=16", {"train.coalesce=3"}},
        {4, "pipeline.microbatches=16", {"train.coalesce=3", "run.backend=reference"}},
        {8, "pipeline.microbatches=16", {"train.clip_norm=1", "run.backend=reference"}},
        {3, "pipeline.microbatches=5", {"train.coalesce=2", "run.backend=reference"}},
        {2,
         "pipeline.microbatches=8",
         {"train.coalesce=4", "pipeline.replicas=2", "run.backend=reference"}},
    };
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct outcome one;
        const char *more[5] = {"train.exact=off"};
        for (int k = 0; shapes[i].more[k]; k++)
            more[1 + k] = shapes[i].more[k];
        run_deep("gpipe", 1, 1, shapes[i].microbatches, more, &one);
        int ran = every_schedule(shapes[i].stages, shapes[i].microbatches, more, &one);
        assert_in_range(ran, 8, 1000);
    }
}

TEST(groups_are_really_summed_at_once)
{
    struct outcome exact, off;
    const char *plain[] = {"run.backend=reference", NULL};
    const char *with[] = {"run.backend=reference", "train.exact=off", "train.coalesce=2", NULL};
    run_with(plain, &exact);
    run_with(with, &off);
    assert_string_not_equal(off.sha, exact.sha);
}

TEST(groups_of_one_have_the_bits_of_exact_mode)
{
    struct outcome exact, off;
    const char *plain[] = {"pipeline.stages=2", NULL};
    const char *with[] = {"pipeline.stages=2", "train.exact=off", "train.coalesce=1", NULL};
    run_with(plain, &exact);
    run_with(with, &off);
    CHECK_STR_EQ(off.sha, exact.sha);
}

/* What rounding can do in 20 steps, and no more; also with a norm over all gradients. */
TEST(coalesced_losses_stay_near_those_of_exact_mode)
{
    static const char *const optimizers[] = {"train.optimizer=sgd", "train.optimizer=momentum",
                                             "train.optimizer=adam", "train.optimizer=adamw"};
    for (int i = 0; i < 4; i++) {
        struct outcome exact, off;
        const char *plain[] = {optimizers[i],
                               "train.clip_norm=0.5",
                               "train.epochs=3",
                               "train.max_steps=20",
                               "pipeline.microbatches=8",
                               "run.backend=reference",
                               NULL};
        const char *with[] = {optimizers[i],        "train.clip_norm=0.5",     "train.epochs=3",
                              "train.max_steps=20", "pipeline.microbatches=8", "train.exact=off",
                              "pipeline.stages=2",  "run.backend=reference",   NULL};
        run_with(plain, &exact);
        run_with(with, &off);
        CHECK_INT_EQ(off.n_steps, 20);
        for (int t = 0; t < 20; t++) {
            double error = fabs(off.step_loss[t] - exact.step_loss[t]) / exact.step_loss[t];
            if (error > 1e-5) {
                fail_msg("%s, step %d: loss %.9g, exact %.9g", optimizers[i], t + 1,
                         off.step_loss[t], exact.step_loss[t]);
            }
        }
    }
}

TEST(every_schedule_gives_the_bits_of_one_rank)
{
    same_bits("pipeline.microbatches=4", "model.activation=relu", "train.seed=1");
}

TEST(more_stages_than_microbatches_give_the_same_bits)
{
    same_bits("pipeline.microbatches=1", "model.activation=tanh", "train.seed=2");
    same_bits("pipeline.microbatches=2", "model.activation=relu", "train.optimizer=momentum");
}

TEST(uneven_microbatches_give_the_same_bits)
{
    same_bits("pipeline.microbatches=5", "model.activation=gelu", "train.batch_size=33");
    /* 203 = 29 * 7: a last batch of full size; 203 = 202 + 1: a last batch of one sample */
    same_bits("pipeline.microbatches=7", "train.batch_size=29", "train.optimizer=sgd");
    same_bits("pipeline.microbatches=3", "train.batch_size=101", "train.optimizer=adamw");
    same_bits("pipeline.microbatches=3", "train.batch_size=500", "train.optimizer=adamw");
}

TEST(clipping_decay_and_warm_up_give_the_same_bits)
{
    same_bits("train.clip_norm=0.1", "train.weight_decay=0.01", "train.warmup_steps=5");
    same_bits("train.clip_norm=0.5", "train.lr_schedule=cosine", "train.optimizer=momentum");
    same_bits("train.nesterov=true", "train.label_smoothing=0.1", "train.optimizer=momentum");
    same_bits("train.decay=weights", "train.weight_decay=0.1", "model.init=torch");
    same_bits("train.microbatch_loss=sum", "train.batch_size=33", "train.optimizer=sgd");
}

/* Both providers of matrix products, whichever the others of this file get by default. */
TEST(cblas_gives_the_same_bits)
{
    same_bits("run.gemm=cblas", "pipeline.microbatches=4", NULL);
}

TEST(own_products_give_the_same_bits_for_every_number_of_microbatches)
{
    struct outcome one, many;
    const char *alone[] = {"run.gemm=fma", "pipeline.microbatches=1", NULL};
    struct pp_config *cfg = NULL;
    const struct pp_setting fma = {"run.gemm", "fma", "test"};
    CHECK_OK(pp_config_load(NULL, &fma, 1, pp_cli_names(), &cfg));
    struct pp_backend_choice choice = pp_backend_choice_of(cfg);
    pp_config_destroy(&cfg);
    if (pp_backend_packed_floats(&choice, 16, 16) == 0) {
        print_message("# this processor has none\n");
        skip();
    }
    run_with(alone, &one);
    static const char *const counts[] = {"pipeline.microbatches=2", "pipeline.microbatches=5",
                                         "pipeline.microbatches=32"};
    for (int i = 0; i < 3; i++) {
        const char *with[] = {"run.gemm=fma", counts[i], "pipeline.stages=3", NULL};
        run_with(with, &many);
        CHECK_STR_EQ(many.sha, one.sha);
        assert_true(many.test_loss == one.test_loss);
    }
}

TEST(replicas_repeat_their_bits_and_follow_one_replica)
{
    struct outcome one, first, again;
    static const char *const shapes[][2] = {
        {"pipeline.replicas=2", "pipeline.stages=1"},
        {"pipeline.replicas=2", "pipeline.stages=2"},
        {"pipeline.replicas=4", "pipeline.stages=1"},
        {"pipeline.replicas=4", "pipeline.stages=2"},
    };
    const char *plain[] = {"pipeline.microbatches=2", NULL};
    run_with(plain, &one);
    for (int i = 0; i < 4; i++) {
        const char *with[] = {"pipeline.microbatches=2", shapes[i][0], shapes[i][1], NULL};
        run_with(with, &first);
        run_with(with, &again);
        CHECK_STR_EQ(first.sha, again.sha);
        CHECK_INT_EQ(first.n_steps, one.n_steps);
        for (int t = 0; t < one.n_steps; t++) {
            double error = fabs(first.step_loss[t] - one.step_loss[t]) / one.step_loss[t];
            if (error > 1e-5) {
                fail_msg("%s %s, step %d: loss %.9g, one replica %.9g", shapes[i][0], shapes[i][1],
                         t + 1, first.step_loss[t], one.step_loss[t]);
            }
        }
    }
}

TEST(a_replica_without_a_share_of_the_last_batch_still_takes_part)
{
    struct outcome one, four;
    /* 203 = 6 * 33 + 5 = 40 * 5 + 3: three samples for four replicas */
    const char *plain[] = {"train.batch_size=5", "pipeline.microbatches=1", "train.epochs=1",
                           "train.optimizer=sgd", NULL};
    const char *with[] = {"train.batch_size=5",  "pipeline.microbatches=1", "train.epochs=1",
                          "train.optimizer=sgd", "pipeline.replicas=4",     NULL};
    run_with(plain, &one);
    run_with(with, &four);
    CHECK_INT_EQ(one.n_steps, 41);
    for (int t = 0; t < one.n_steps; t++)
        assert_true(fabs(four.step_loss[t] - one.step_loss[t]) <= 1e-5 * one.step_loss[t]);
    assert_true(fabs(four.test_loss - one.test_loss) <= 1e-5 * one.test_loss);
}

TEST(explicit_cuts_give_the_same_bits)
{
    struct outcome one, cut;
    const char *plain[] = {"pipeline.microbatches=4", NULL};
    const char *with[] = {"pipeline.microbatches=4", "pipeline.stages=2",
                          "pipeline.assignment=0 | 1-3", NULL};
    run_with(plain, &one);
    run_with(with, &cut);
    CHECK_STR_EQ(cut.sha, one.sha);
}

TEST(the_ideal_bubble_is_the_textbook_figure)
{
    struct outcome o;
    const char *with[] = {"pipeline.microbatches=8", "pipeline.stages=4", "pipeline.schedule=gpipe",
                          "train.coalesce=1", NULL};
    run_with(with, &o);
    assert_true(fabs(o.bubble_ideal - 3.0 / 11.0) < 1e-12);
    assert_true(o.bubble_measured > 0 && o.bubble_measured < 1);
}

TEST(max_steps_ends_in_the_middle_of_an_epoch)
{
    struct outcome o;
    const char *with[] = {"train.max_steps=10", NULL};
    run_with(with, &o);
    CHECK_INT_EQ(o.n_steps, 10);
    assert_true(o.test_loss > 0);
}

TEST(divergence_is_reported_by_all_ranks_together)
{
    struct outcome o;
    /* A decay of a thousand times the weight grows without bound, whatever the gradients do. */
    const char *with[] = {
        "model.sizes=20 16 16 5", "data.train_samples=1024", "data.test_samples=64",
        "train.optimizer=sgd",    "train.lr=1000",           "train.weight_decay=1",
        "pipeline.stages=2",      "train.batch_size=32",     NULL};
    train_run(with, &o);
    CHECK_INT_EQ(o.rc, PP_EDIVERGED);
    assert_non_null(strstr(pp_error_get()->text, "train.lr"));
}
