/* SPDX-License-Identifier: Apache-2.0 */
/* What tests decide: the best checkpoint, the end by patience, and the falls of the learning rate,
 * which are those of PyTorch's ReduceLROnPlateau on the same recorded curves. */
#include "../../src/train/progress.h"

#include <string.h>

#include "ppcli/nn/chunk.h"
#include "test.h"

#define N 40

static const double losses[N] = {
    2.139,    1.991039, 1.850021, 1.72052,  1.605112, 1.488077, 1.383912, 1.300537,
    1.196945, 1.113159, 1.055064, 0.962771, 0.953144, 0.942666, 0.934176, 0.924834,
    0.920981, 0.90643,  0.897366, 0.898042, 0.888348, 0.888303, 0.898588, 0.888215,
    0.88817,  0.869366, 0.888081, 0.888037, 0.896746, 0.887948, 0.887948, 0.904792,
    0.887948, 0.887948, 0.885733, 0.887948, 0.887948, 0.871846, 0.887948, 0.887948};
static const double accuracies[N] = {
    0.455,    0.5045,   0.542784, 0.589145, 0.625231, 0.657707, 0.683428, 0.713243,
    0.736919, 0.758227, 0.770584, 0.794664, 0.810197, 0.824178, 0.830047, 0.836771,
    0.836783, 0.836794, 0.827758, 0.836816, 0.836828, 0.836839, 0.828534, 0.836862,
    0.836873, 0.836884, 0.828356, 0.836907, 0.836918, 0.83693,  0.832836, 0.836952,
    0.836964, 0.836975, 0.828258, 0.836997, 0.837009, 0.83702,  0.829847, 0.837043};

/* Numbers of PyTorch 2: the rate after each result of ReduceLROnPlateau('min', factor=0.1,
 * patience=2, min_lr=1e-4), and of ('max', factor=0.5, patience=1, min_lr=2e-3). */
static double torch_rate_of_losses(int i)
{
    return i < 28   ? 0.1
           : i < 31 ? 0.010000000000000002
           : i < 34 ? 0.0010000000000000002
                    : 0.00010000000000000003;
}

static double torch_rate_of_accuracies(int i)
{
    return i < 17   ? 0.05
           : i < 19 ? 0.025
           : i < 21 ? 0.0125
           : i < 25 ? 0.00625
           : i < 27 ? 0.003125
                    : 0.002;
}

static struct progress_news take(const struct pp_config *cfg, struct progress *p, int i)
{
    struct pp_epoch_result e = {.epoch = i + 1,
                                .t = 10 * (i + 1),
                                .tested = true,
                                .train_loss = losses[i] / 2,
                                .test_loss = losses[i],
                                .test_scores.of[PP_SCORE_ACCURACY] = accuracies[i]};
    return progress_take(cfg, &e, true, p);
}

/* The state goes through a checkpoint between all tests. */
static void reload(const struct pp_config *cfg, struct progress *p)
{
    PP_OWN_MEMORY struct pp_ckpt_state *s = pp_alloc(1, sizeof(*s));
    bool reset;
    progress_save(cfg, p, s);
    memset(p, 0xff, sizeof(*p));
    progress_load(cfg, s, p, &reset);
    assert_false(reset);
}

static void check_plateau(enum pp_metric metric, double lr, double gamma, int patience,
                          double floor, double (*expected)(int i))
{
    PP_OWN_MEMORY struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    struct progress p = PROGRESS_NONE;
    cfg->checkpoint.best = metric;
    cfg->train.lr = lr;
    cfg->train.lr_schedule = PP_LR_PLATEAU;
    cfg->train.lr_gamma = gamma;
    cfg->train.lr_patience = patience;
    cfg->train.lr_floor = floor;
    for (int i = 0; i < N; i++) {
        double before = pp_lr_after_falls(cfg, lr, p.falls);
        struct progress_news news = take(cfg, &p, i);
        double rate = pp_lr_after_falls(cfg, lr, p.falls);
        if (rate != expected(i) || news.fell != (rate < before))
            fail_msg("test %d: %.17g, PyTorch: %.17g", i, rate, expected(i));
        reload(cfg, &p);
    }
}

TEST(plateau_lowers_the_rate_where_pytorch_does)
{
    check_plateau(PP_METRIC_TEST_LOSS, 0.1, 0.1, 2, 1e-4, torch_rate_of_losses);
    check_plateau(PP_METRIC_OFF, 0.1, 0.1, 2, 1e-4, torch_rate_of_losses);
    check_plateau(PP_METRIC_ACCURACY, 0.05, 0.5, 1, 2e-3, torch_rate_of_accuracies);
}

/* Returns the test after which the run ends; N if it does not. */
static int end_by(enum pp_metric metric, int patience, double min_delta, struct progress *p)
{
    PP_OWN_MEMORY struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    *p = (struct progress)PROGRESS_NONE;
    cfg->checkpoint.best = metric;
    cfg->train.patience = patience;
    cfg->train.min_delta = min_delta;
    for (int i = 0; i < N; i++) {
        struct progress_news news = take(cfg, p, i);
        assert_true(news.over == progress_is_over(cfg, p));
        assert_false(news.fell);
        if (news.over)
            return i;
        reload(cfg, p);
    }
    return N;
}

TEST(patience_counts_tests_that_are_not_better)
{
    struct progress p;
    CHECK_INT_EQ(end_by(PP_METRIC_TEST_LOSS, 5, 0, &p), 30); /* 5 after the one at 25 */
    CHECK_INT_EQ(p.best.step, 260);
    CHECK_INT_EQ(p.best.epoch, 26);
    assert_true(p.best.value == losses[25]);
    CHECK_INT_EQ(end_by(PP_METRIC_TRAIN_LOSS, 5, 0, &p), 30);
    CHECK_INT_EQ(end_by(PP_METRIC_TEST_LOSS, 20, 0, &p), N);
    CHECK_INT_EQ(end_by(PP_METRIC_ACCURACY, 2, 0, &p), N);
    CHECK_INT_EQ(p.best.epoch, N);
    /* a step of less than 0.1 is not better, whichever it was from; but the best is the best */
    CHECK_INT_EQ(end_by(PP_METRIC_TEST_LOSS, 4, 0.1, &p), 16);
    CHECK_INT_EQ(p.best.epoch, 17);
}

TEST(a_test_that_only_the_end_of_a_run_makes_ends_nothing)
{
    PP_OWN_MEMORY struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    struct progress p = PROGRESS_NONE;
    cfg->train.patience = 1;
    take(cfg, &p, 3);
    struct pp_epoch_result e = {.epoch = 9, .t = 90, .tested = true, .test_loss = 9};
    assert_false(progress_take(cfg, &e, false, &p).over);
    assert_true(progress_take(cfg, &e, true, &p).over);
    e.test_loss = 0.1; /* but it may be the best */
    assert_true(progress_take(cfg, &e, false, &p).best);
}

TEST(without_a_test_nothing_is_decided)
{
    PP_OWN_MEMORY struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    struct progress p = PROGRESS_NONE;
    struct pp_epoch_result e = {.epoch = 1, .t = 10, .train_loss = 1};
    cfg->train.patience = 1;
    for (int i = 0; i < 5; i++)
        assert_false(progress_take(cfg, &e, true, &p).over);
    CHECK_INT_EQ(p.best.step, -1);
}

TEST(another_metric_counts_from_the_beginning)
{
    PP_OWN_MEMORY struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    PP_OWN_MEMORY struct pp_ckpt_state *s = pp_alloc(1, sizeof(*s));
    struct progress p = PROGRESS_NONE;
    bool reset;
    cfg->checkpoint.best = PP_METRIC_TEST_LOSS;
    take(cfg, &p, 3);
    p.falls = 2;
    progress_save(cfg, &p, s);
    cfg->checkpoint.best = PP_METRIC_ACCURACY;
    progress_load(cfg, s, &p, &reset);
    assert_true(reset);
    CHECK_INT_EQ(p.best.step, -1);
    CHECK_INT_EQ(p.falls, 2);
    assert_false(p.patience.any);
    s->n_numbers = 0; /* of a checkpoint of an earlier version */
    progress_load(cfg, s, &p, &reset);
    assert_false(reset);
    CHECK_INT_EQ(p.best.step, -1);
}
