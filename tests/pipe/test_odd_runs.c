/* SPDX-License-Identifier: Apache-2.0 */
/* What whole runs report, how they end, and sizes that no machine holds. */
#include "train_run.h"

#include <math.h>

#include "command.h"
#include "ppcli/conf/config.h"
#include "ppcli/pipe/layout.h"

/* Trains a small network, on which come these settings. */
static void run_with(const char *const *more, struct outcome *out)
{
    const char *list[24] = {"model.sizes=20 17 33 8 5", "data.train_samples=203",
                            "data.test_samples=57",     "train.batch_size=32",
                            "train.epochs=2",           "run.log_every=1"};
    int n = 6;
    for (; *more; more++)
        list[n++] = *more;
    list[n] = NULL;
    train_run(list, out);
}

#define RUN(out, ...) run_with((const char *const[]){__VA_ARGS__, NULL}, (out))

TEST(the_ideal_bubble_is_the_textbook_figure)
{
    struct outcome o;
    RUN(&o, "pipeline.microbatches=8", "pipeline.stages=4", "pipeline.schedule=gpipe",
        "train.coalesce=1");
    assert_true(fabs(o.bubble_ideal - 3.0 / 11.0) < 1e-12);
    assert_true(o.bubble_measured > 0 && o.bubble_measured < 1);
}

TEST(max_steps_ends_in_the_middle_of_an_epoch)
{
    struct outcome o;
    RUN(&o, "train.max_steps=10");
    CHECK_INT_EQ(o.n_steps, 10);
    assert_true(o.test_loss > 0);
}

TEST(divergence_is_reported_by_all_ranks_together)
{
    struct outcome o;
    /* A decay of a thousand times the weight grows without bound, whatever the gradients do. */
    RUN(&o, "model.sizes=20 16 16 5", "data.train_samples=1024", "data.test_samples=64",
        "train.optimizer=sgd", "train.lr=1000", "train.weight_decay=1", "pipeline.stages=2");
    CHECK_INT_EQ(o.rc, PP_EDIVERGED);
    assert_non_null(strstr(pp_error_get()->text, "train.lr"));
}

static int prepare(const char *sizes, const char *samples, const char *batch,
                   const char *microbatches)
{
    const struct pp_setting list[] = {
        {"data.dataset", "synthetic", "test"},   {"model.sizes", sizes, "test"},
        {"data.train_samples", samples, "test"}, {"train.batch_size", batch, "test"},
        {"pipeline.stages", "2", "test"},        {"pipeline.microbatches", microbatches, "test"}};
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    CHECK_OK(pp_config_load(NULL, list, 6, pp_cli_names(), &cfg));
    PP_OWN(pp_run_fini) struct pp_run run = {0};
    int rc = pp_run_prepare(cfg, PP_RUN_EXPLAIN, &run);
    if (rc == 0) {
        for (int r = 0; r < run.layout->stages; r++) {
            struct pp_exec_spec spec = {.cfg = run.cfg, .layout = run.layout, .rank = r};
            struct pp_exec_bytes bytes;
            CHECK_OK(pp_exec_predict(&spec, &bytes));
            assert_true(bytes.total >= bytes.parameters && bytes.parameters > 0);
        }
    } else {
        CHECK_INT_EQ(pp_config_problem_count(cfg), 1);
        assert_non_null(strstr(pp_config_problem_text(cfg, 0), "more than any machine has"));
    }
    return rc;
}

TEST(sizes_beyond_every_machine_are_a_problem_of_the_config)
{
    CHECK_INT_EQ(prepare("16777216*16 10", "300", "32", "4"), 0);
    CHECK_INT_EQ(prepare("16777216*4096 10", "300", "32", "4"), PP_ECONFIG);
    CHECK_INT_EQ(prepare("16777216*4096 10", "2147483647", "1073741824", "1"), PP_ECONFIG);
    CHECK_INT_EQ(prepare("16777216*4096 10", "2147483647", "1073741824", "64"), PP_ECONFIG);
    CHECK_INT_EQ(prepare("1000*8 10", "2147483647", "1073741824", "1"), 0);
}
