/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training on a device with streams and memory of its own, made of threads (tests/lazy): the bits
 * of the CPU, whatever the schedule, with steps captured or not.
 */
#include "train_run.h"

#include <stdio.h>
#include <stdlib.h>

#include "../../src/pipe/exec_internal.h"
#include "../lazy/lazy.h"
#include "ppcli/schedule.h"

#define MOST 40

/* A small network, an uneven last batch; more settings follow. */
static int run_on(const char *backend, const char *const *more, struct outcome *out)
{
    char be[64];
    snprintf(be, sizeof(be), "run.backend=%s", backend);
    const char *list[MOST] = {
        "model.sizes=12 9*7 5", "data.train_samples=150", "data.test_samples=57",
        "train.batch_size=32",  "train.epochs=2",         "train.optimizer=adam",
        "train.lr=0.01",        "run.log_every=1",        be};
    int n = 9;
    for (int i = 0; more[i]; i++)
        list[n++] = more[i];
    list[n] = NULL;
    train_run(list, out);
    return out->rc;
}

static void must(const char *backend, const char *const *more, struct outcome *out)
{
    if (run_on(backend, more, out) < 0)
        fail_msg("%s: %s", backend, pp_error_get()->text);
}

static void same(const struct outcome *a, const struct outcome *b)
{
    CHECK_STR_EQ(a->sha, b->sha);
    CHECK_INT_EQ(a->n_steps, b->n_steps);
    assert_memory_equal(a->step_loss, b->step_loss, (size_t)b->n_steps * sizeof(b->step_loss[0]));
    assert_true(a->test_loss == b->test_loss && a->test_accuracy == b->test_accuracy);
}

/* On both, with the same settings. */
static void same_on_both(const char *const *more)
{
    struct outcome cpu, device;
    must("cpu", more, &cpu);
    must("cuda", more, &device);
    same(&device, &cpu);
}

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

TEST(one_rank_has_the_bits_of_the_cpu)
{
    same_on_both(LIST("pipeline.microbatches=4"));
    same_on_both(LIST("train.optimizer=sgd", "train.clip_norm=0.5"));
    same_on_both(LIST("train.optimizer=momentum", "model.activation=gelu", "train.exact=off",
                      "pipeline.microbatches=8"));
}

TEST(a_graph_belongs_to_batches_of_one_kind_and_size)
{
    struct exec_graphs g = {.on = true};
    struct exec_graph *full = exec_graph_of(&g, PP_SPLIT_TRAIN, 32);
    struct exec_graph *last = exec_graph_of(&g, PP_SPLIT_TRAIN, 22);
    struct exec_graph *test = exec_graph_of(&g, PP_SPLIT_TEST, 32);
    assert_true(full != last && full != test && last != test);
    full->runs = 3;
    assert_ptr_equal(exec_graph_of(&g, PP_SPLIT_TRAIN, 32), full);
    assert_ptr_equal(exec_graph_of(&g, PP_SPLIT_TRAIN, 22), last);
    assert_ptr_equal(exec_graph_of(&g, PP_SPLIT_TEST, 32), test);
    CHECK_INT_EQ(full->runs, 3);
    CHECK_INT_EQ(last->runs, 0);
    CHECK_INT_EQ(g.n, 3);
}

TEST(steps_are_captured_once_and_replayed)
{
    struct lazy_counts a = lazy_counts();
    struct outcome out;
    must("cuda", LIST("pipeline.stages=2", "pipeline.microbatches=4", "train.epochs=4"), &out);
    struct lazy_counts b = lazy_counts();
    /* Full and last batches of training and evaluation; 4 epochs of 5 and 2 batches, of which the
     * first two training steps are timed and of each kind one warms up. */
    CHECK_INT_EQ(b.captures - a.captures, 4);
    assert_in_range(b.launches - a.launches, 20, 24);
    must("cuda", LIST("pipeline.stages=2", "run.graphs=off"), &out);
    CHECK_INT_EQ(lazy_counts().captures, b.captures);
}

TEST(every_schedule_has_the_bits_of_the_cpu)
{
    static const char *const microbatches[] = {"pipeline.microbatches=8",
                                               "pipeline.microbatches=5"};
    static const int stages[] = {2, 3, 4};
    int ran = 0;
    for (int m = 0; m < 2; m++) {
        struct outcome one;
        must("cpu", LIST(microbatches[m], "train.clip_norm=1", "train.epochs=1"), &one);
        /* 8 on 2 and 4 ranks, 5 on 3 */
        for (int s = m; s < 3; s += 2) {
            for (const char *const *name = pp_schedule_names(); *name; name++) {
                const struct pp_schedule_ops *ops = pp_schedule_find(*name);
                struct pp_geometry g = {.stages = stages[s],
                                        .chunks = pp_schedule_default_chunks(ops),
                                        .microbatches = atoi(strchr(microbatches[m], '=') + 1)};
                if (g.stages * g.chunks > 8 || pp_schedule_check(ops, &g) < 0)
                    continue;
                char st[32], sc[96];
                struct outcome many;
                snprintf(st, sizeof(st), "pipeline.stages=%d", stages[s]);
                snprintf(sc, sizeof(sc), "pipeline.schedule=%s", *name);
                must("cuda", LIST(microbatches[m], "train.clip_norm=1", "train.epochs=1", st, sc),
                     &many);
                if (strcmp(many.sha, one.sha) != 0) {
                    fail_msg("%s, %d stages, %s: other weights than one rank of the CPU", *name,
                             stages[s], microbatches[m]);
                }
                same(&many, &one);
                ran++;
            }
        }
    }
    assert_in_range(ran, 20, 1000);
}

TEST(replicas_sum_in_the_order_of_the_cpu)
{
    static const char *const replicas[] = {"pipeline.replicas=2", "pipeline.replicas=3"};
    for (int r = 0; r < 2; r++) {
        same_on_both(LIST(replicas[r], "pipeline.stages=2", "pipeline.microbatches=4"));
        same_on_both(LIST(replicas[r], "train.clip_norm=0.3", "pipeline.schedule=1f1b"));
    }
    /* 150 = 4 * 37 + 2: the last batch leaves the third replica nothing */
    same_on_both(LIST("pipeline.replicas=3", "train.batch_size=37", "pipeline.stages=2"));
}

TEST(graphs_off_and_on_have_the_same_bits)
{
    struct outcome off, on, without;
    const char *const more[] = {"pipeline.stages=3", "pipeline.microbatches=4", "run.graphs=off",
                                NULL};
    must("cuda", more, &off);
    must("cuda", LIST("pipeline.stages=3", "pipeline.microbatches=4", "run.graphs=on"), &on);
    same(&on, &off);
    lazy_without_graphs(true);
    must("cuda", LIST("pipeline.stages=3", "pipeline.microbatches=4"), &without);
    same(&without, &off);
    CHECK_INT_EQ(run_on("cuda", LIST("run.graphs=on"), &on), PP_ERESOURCE);
    assert_non_null(strstr(pp_error_get()->text, "run.graphs"));
    lazy_without_graphs(false);
}

#define PICTURES                                                                                   \
    "data.dataset=cifar10-sample", "model.sizes=768 9*7 10", "data.resize=16",                     \
        "data.augment=crop flip autoaugment", "data.mean=0.49 0.48 0.45"

/* Made on the host, a step ahead or more, and uploaded: captured or not, shared by replicas, and
 * once more for a step that was bad. */
TEST(pictures_are_those_of_the_cpu)
{
    struct outcome out, again;
    same_on_both(LIST(PICTURES, "pipeline.microbatches=4"));
    same_on_both(LIST(PICTURES, "pipeline.stages=3", "pipeline.microbatches=4",
                      "pipeline.schedule=zb-h1", "run.graphs=off"));
    same_on_both(LIST(PICTURES, "pipeline.replicas=2", "pipeline.stages=2"));
    same_on_both(LIST(PICTURES, "data.augment=flip", "data.resize=0", "model.sizes=3072 9*7 10"));
    same_on_both(LIST(PICTURES, "data.augment=none", "run.log_every=0"));
    lazy_spoil_at(110);
    must("cuda", LIST(PICTURES, "run.log_every=0", "run.graphs=off", "train.nonfinite=skip"),
         &again);
    lazy_spoil_at(110);
    must("cuda", LIST(PICTURES, "run.graphs=off", "train.nonfinite=skip"), &out);
    lazy_spoil_at(0);
    CHECK_STR_EQ(again.sha, out.sha);
}

/* A NaN somewhere in the middle, whoever computes it: the step changes nothing, and with skip the
 * run goes on behind it. The host learned of it late, so some steps were computed twice. */
/* A step brings its windows along, on the stage that reads them and on the one with the loss. */
TEST(windows_of_texts_are_those_of_the_cpu)
{
    const char *backends[] = {"run.backend=cpu", "run.backend=cuda"};
    const char *stages[] = {"pipeline.stages=1", "pipeline.stages=2"};
    struct outcome out[4];
    for (int i = 0; i < 4; i++) {
        train_run(LIST("data.dataset=shakespeare-sample", "data.test_samples=13", "model.type=gpt",
                       "model.n_layer=1", "model.n_head=2", "model.n_embd=16",
                       "model.block_size=12", "train.batch_size=10", "train.eval_interval=4",
                       "train.max_steps=9", "pipeline.microbatches=3", "pipeline.replicas=2",
                       "run.log_every=1", backends[i % 2], stages[i / 2]),
                  &out[i]);
        if (out[i].rc < 0)
            fail_msg("%s: %s", backends[i % 2], pp_error_get()->text);
        same(&out[i], &out[0]);
    }
}

/* In captured steps as well: pictures and windows are still there, the loss is counted once. */
TEST(forwards_computed_again_have_the_bits_of_the_cpu)
{
    const char *stages[] = {"pipeline.stages=1", "pipeline.stages=2"};
    struct outcome out, again;
    must("cpu", LIST(PICTURES, "pipeline.microbatches=4"), &out);
    for (int i = 0; i < 2; i++) {
        must("cuda",
             LIST(PICTURES, "pipeline.microbatches=4", "pipeline.schedule=gpipe",
                  "pipeline.recompute=all", stages[i]),
             &again);
        same(&again, &out);
        must("cuda",
             LIST(PICTURES, "pipeline.microbatches=4", "pipeline.schedule=zb-h1",
                  "pipeline.recompute=all", "run.graphs=off", stages[i]),
             &again);
        same(&again, &out);
    }
}

TEST(a_bad_step_changes_nothing)
{
    struct outcome out;
    for (int stages = 1; stages <= 3; stages++) {
        char st[32];
        snprintf(st, sizeof(st), "pipeline.stages=%d", stages);
        /* 8 layers and 4 micro-batches: the third step */
        lazy_spoil_at(70);
        CHECK_INT_EQ(run_on("cuda", LIST(st, "pipeline.microbatches=4", "run.graphs=off"), &out),
                     PP_EDIVERGED);
        assert_non_null(strstr(pp_error_get()->text, "step 3 "));
        lazy_spoil_at(70);
        must("cuda", LIST(st, "pipeline.microbatches=4", "train.nonfinite=skip"), &out);
        assert_true(out.test_loss == out.test_loss);
        /* the second and last step, of which every action is timed */
        lazy_spoil_at(40);
        CHECK_INT_EQ(run_on("cuda",
                            LIST(st, "pipeline.microbatches=4", "train.max_steps=2",
                                 "pipeline.schedule=zb-h1"),
                            &out),
                     PP_EDIVERGED);
        assert_non_null(strstr(pp_error_get()->text, "step 2 "));
    }
    lazy_spoil_at(0);
}

/* Ranks that do not meet after every step are steps ahead of their devices: pinned memory is used
 * again and again, and a bad step is told when later ones are enqueued. */
TEST(being_ahead_changes_nothing)
{
    static const char *const graphs[] = {"run.graphs=off", "run.graphs=on"};
    const char *const more[] = {"run.log_every=0", "data.train_samples=1500", "train.epochs=1",
                                "pipeline.microbatches=2", NULL};
    struct outcome cpu, ahead, together;
    must("cpu", more, &cpu);
    for (int g = 0; g < 2; g++) {
        const char *const list[] = {more[0], more[1], more[2], more[3], graphs[g], NULL};
        must("cuda", list, &ahead);
        CHECK_STR_EQ(ahead.sha, cpu.sha);
    }
    /* 16 products a step: the 20th */
    const char *const skip[] = {
        more[0], more[1], more[2], more[3], "run.graphs=off", "train.nonfinite=skip", NULL};
    const char *const met[] = {more[1], more[2], more[3], "run.graphs=off", "train.nonfinite=skip",
                               NULL};
    lazy_spoil_at(310);
    must("cuda", met, &together);
    lazy_spoil_at(310);
    must("cuda", skip, &ahead);
    lazy_spoil_at(0);
    CHECK_STR_EQ(ahead.sha, together.sha);
    assert_string_not_equal(ahead.sha, cpu.sha);
}

/* What diverges on the CPU diverges on the device in the same step, with the same words. */
TEST(divergence_is_told_as_on_the_cpu)
{
    const char *const more[] = {"pipeline.stages=2", "train.optimizer=sgd", "train.lr=1000", NULL};
    struct outcome out;
    char cpu[sizeof(pp_error_get()->text)];
    CHECK_INT_EQ(run_on("cpu", more, &out), PP_EDIVERGED);
    memcpy(cpu, pp_error_get()->text, sizeof(cpu));
    CHECK_INT_EQ(run_on("cuda", more, &out), PP_EDIVERGED);
    char *end = strchr(strstr(cpu, "step "), ':');
    assert_non_null(end);
    *end = '\0';
    assert_non_null(strstr(pp_error_get()->text, strstr(cpu, "step ")));
}

/* Wherever it is: in the first step, in a capture, in a replay, in the evaluation. */
TEST(a_device_that_fails_ends_the_run_on_all_ranks)
{
    static const long at[] = {3, 100, 190, 260, 400};
    for (int i = 0; i < 5; i++) {
        struct outcome out;
        lazy_fail_at(at[i]);
        CHECK_INT_EQ(run_on("cuda", LIST("pipeline.stages=3", "pipeline.microbatches=4"), &out),
                     PP_ERESOURCE);
        assert_non_null(strstr(pp_error_get()->text, "told to fail"));
    }
    lazy_fail_at(0);
}

/* What such a device may still write to is never freed. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:exec_turns_create\n";
}

TEST(a_device_that_hangs_ends_the_run)
{
    struct outcome out;
    lazy_hang_at(300);
    CHECK_INT_EQ(run_on("cuda", LIST("run.hang_timeout=1", "run.graphs=off"), &out), PP_ELOST);
    assert_non_null(strstr(pp_error_get()->text, "has not finished"));
    lazy_hang_at(300);
    CHECK_INT_EQ(run_on("cuda", LIST("pipeline.stages=2", "run.hang_timeout=1"), &out), PP_ELOST);
}
