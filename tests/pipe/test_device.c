/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training on a device with streams and memory of its own, made of threads (tests/lazy): captures,
 * bad steps and failures. The bits: tests/bits.
 */
#include "train_run.h"

#include <stdio.h>

#include "../../src/pipe/exec_internal.h"
#include "../lazy/lazy.h"

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

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

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

/* Pictures that the host made ahead of the device are made again for a step that was bad. */
TEST(pictures_of_a_bad_step_come_again)
{
    struct outcome out, again;
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
    return "leak:exec_flights_create\n";
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
