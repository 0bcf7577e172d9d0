/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank that fails in the middle of a step, where the others cannot know: the run ends, with that
 * rank's own words and only once, and nobody touches memory that is gone. The linker puts the
 * forward pass below in place of the real one (--wrap).
 */
#include "train_run.h"

#include <stdatomic.h>
#include <time.h>

#include "ppcli/nn/chunk.h"
#include "ppcli/train/train.h"

int __real_pp_chunk_forward(struct pp_chunk *c, struct pp_backend *be, int slot,
                            const struct pp_pass *pass, const float *x, float *y);
int __wrap_pp_chunk_forward(struct pp_chunk *c, struct pp_backend *be, int slot,
                            const struct pp_pass *pass, const float *x, float *y);

static atomic_int last_stage_runs; /* forwards of the last stage */
static atomic_bool broken;
static int good_runs; /* before the last stage fails; negative: never */

static void sleep_ms(int ms)
{
    struct timespec t = {.tv_nsec = ms * 1000000L};
    nanosleep(&t, NULL);
}

int __wrap_pp_chunk_forward(struct pp_chunk *c, struct pp_backend *be, int slot,
                            const struct pp_pass *pass, const float *x, float *y)
{
    bool is_last = c->last == c->model->n_layers - 1;
    if (is_last && good_runs >= 0 && atomic_fetch_add(&last_stage_runs, 1) >= good_runs) {
        sleep_ms(20); /* until the first stage is in its next forward */
        broken = true;
        return pp_fail(PP_ECHECK, "the test broke this forward");
    }
    if (!is_last && good_runs >= 0 && last_stage_runs > good_runs) {
        /* The first stage is about to write y, which lies with the last stage, after that failed.
         */
        for (int i = 0; i < 1000 && !broken; i++)
            sleep_ms(1);
        sleep_ms(30);
    }
    return __real_pp_chunk_forward(c, be, slot, pass, x, y);
}

static void run_and_break(int after, struct outcome *out)
{
    static const char *const list[] = {
        "model.sizes=12 64*7 5",   "data.train_samples=150",  "data.test_samples=40",
        "train.batch_size=32",     "pipeline.microbatches=8", "pipeline.stages=2",
        "pipeline.schedule=gpipe", "train.epochs=2",          NULL};
    last_stage_runs = 0;
    broken = false;
    good_runs = after;
    pp_error_clear();
    train_run(list, out);
}

TEST(the_run_ends_with_the_words_of_the_rank_that_failed)
{
    static const int moments[] = {0, 1, 3, 8, 21};
    for (size_t i = 0; i < sizeof(moments) / sizeof(moments[0]); i++) {
        struct outcome o;
        run_and_break(moments[i], &o);
        CHECK_INT_EQ(o.rc, PP_ECHECK);
        CHECK_STR_EQ(pp_error_get()->text, "the test broke this forward");
        assert_true(broken);
    }
}

TEST(a_run_after_a_broken_one_is_as_good_as_new)
{
    struct outcome broken_run, a, b;
    run_and_break(-1, &a);
    CHECK_INT_EQ(a.rc, 0);
    run_and_break(2, &broken_run);
    CHECK_INT_EQ(broken_run.rc, PP_ECHECK);
    run_and_break(-1, &b);
    CHECK_INT_EQ(b.rc, 0);
    CHECK_STR_EQ(b.sha, a.sha);
}
