/* SPDX-License-Identifier: Apache-2.0 */
/* Interrupted and resumed is the same as uninterrupted, whatever shape the ranks have before and
 * after. */
#include "train_run.h"

#include <stdio.h>
#include <stdlib.h>

/* 24 steps in 3 epochs; the last batch of an epoch has 3 samples, some micro-batches one less. */
static const char *const common[] = {"data.train_samples=227", "data.test_samples=41",
                                     "model.sizes=12 9*7 5",   "train.batch_size=32",
                                     "train.epochs=3",         "train.lr=0.01",
                                     "pipeline.microbatches=5"};

/* One run in `dir`; settings: NULL-terminated. */
static int train(const char *dir, const char *resume, const char *const *settings,
                 struct outcome *out)
{
    const char *list[32];
    int n = 0;
    for (size_t i = 0; i < LEN(common); i++)
        list[n++] = common[i];
    for (int i = 0; settings[i]; i++)
        list[n++] = settings[i];
    list[n] = NULL;
    train_in(dir, resume, list, out);
    return out->rc;
}

static void must(const char *dir, const char *resume, const char *const *settings,
                 struct outcome *out)
{
    if (train(dir, resume, settings, out) < 0)
        fail_msg("%s", pp_error_get()->text);
}

/* All numbers of a run that must not depend on an interruption. */
static void same_numbers(const struct outcome *out, const struct outcome *expected)
{
    CHECK_STR_EQ(out->sha, expected->sha);
    assert_true(out->test_loss == expected->test_loss && out->train_loss == expected->train_loss);
    assert_true(out->test_accuracy == expected->test_accuracy);
    assert_true(out->steps == expected->steps && out->samples == expected->samples);
    assert_true(out->epochs == expected->epochs);
    assert_true(out->train_accuracy == expected->train_accuracy);
}

/* A folder, and in it the run that nobody interrupted. */
static struct {
    char top[16], dir[64], from[64];
    struct outcome whole, out;
} t;

static void open_case(const char *run, const char *const *settings)
{
    strcpy(t.top, "resume-XXXXXX");
    assert_non_null(mkdtemp(t.top));
    snprintf(t.dir, sizeof(t.dir), "%s/%s", t.top, run);
    snprintf(t.from, sizeof(t.from), "%s/save", t.top);
    must(t.dir, NULL, settings, &t.whole);
}

static void close_case(void)
{
    same_numbers(&t.out, &t.whole);
    remove_folder(t.top);
}

TEST(replicas_and_chunks_go_on_with_the_same_bits)
{
    open_case("whole", (const char *const[]){"pipeline.replicas=2", "pipeline.stages=2", NULL});
    remove_folder(t.dir);
    must(t.from, NULL,
         (const char *const[]){"pipeline.replicas=2", "train.max_steps=12",
                               "pipeline.schedule=interleaved", "pipeline.stages=2",
                               "pipeline.chunks=2", "pipeline.microbatches=5", NULL},
         &t.out);
    must(t.dir, t.from, (const char *const[]){"pipeline.replicas=2", "pipeline.stages=3", NULL},
         &t.out);
    close_case();
}

/* Stop after every single step, go on in the same folder: samples come once each, or the bits and
 * the sums of the epochs would differ. */
TEST(a_run_that_stops_after_every_step_is_the_same_run)
{
    char limit[48];
    open_case("whole", (const char *const[]){"train.max_steps=18", NULL});
    remove_folder(t.dir);
    for (int step = 1; step <= 18; step++) {
        snprintf(limit, sizeof(limit), "train.max_steps=%d", step);
        must(t.dir, "auto", (const char *const[]){limit, NULL}, &t.out);
    }
    close_case();
}

TEST(a_finished_run_that_is_resumed_tells_the_same_again)
{
    open_case("run", (const char *const[]){NULL});
    must(t.dir, "auto", (const char *const[]){"pipeline.stages=2", NULL}, &t.out);
    close_case();
}

TEST(more_epochs_go_on_as_if_they_had_been_asked_for_at_once)
{
    open_case("whole", (const char *const[]){"train.epochs=4", NULL});
    remove_folder(t.dir);
    must(t.dir, NULL, (const char *const[]){"train.epochs=2", NULL}, &t.out);
    must(t.dir, "auto", (const char *const[]){"train.epochs=4", NULL}, &t.out);
    close_case();
}

TEST(other_settings_are_refused_by_name_and_the_folder_stays)
{
    open_case("run", (const char *const[]){NULL});
    CHECK_INT_EQ(
        train(t.dir, "auto", (const char *const[]){"train.lr=0.02", "train.seed=2", NULL}, &t.out),
        PP_ECONFIG);
    assert_non_null(strstr(pp_error_get()->text, "train.lr"));
    assert_non_null(strstr(pp_error_get()->text, "train.seed"));
    CHECK_INT_EQ(
        train(t.dir, "auto", (const char *const[]){"model.sizes=12 9*6 8 5", NULL}, &t.out),
        PP_ECONFIG);
    read_outcome(t.dir, &t.out);
    close_case();
}

TEST(weights_of_another_run_begin_a_new_one)
{
    char init[128], other[64];
    open_case("run", (const char *const[]){"train.optimizer=sgd", "train.epochs=1", NULL});
    snprintf(init, sizeof(init), "train.init=%s", t.dir);
    snprintf(other, sizeof(other), "%s/other", t.top);
    /* A learning rate of 0 changes no weight. */
    must(other, NULL,
         (const char *const[]){"train.optimizer=sgd", "train.epochs=1", "train.lr=0",
                               "pipeline.stages=3", init, NULL},
         &t.out);
    CHECK_STR_EQ(t.out.sha, t.whole.sha);
    CHECK_INT_EQ(train(other, NULL,
                       (const char *const[]){"model.sizes=12 9*6 8 5", "run.dir=", init, NULL},
                       &t.out),
                 PP_EFORMAT);
    assert_non_null(strstr(pp_error_get()->text, "layers.6.weight"));
    remove_folder(t.top);
}
