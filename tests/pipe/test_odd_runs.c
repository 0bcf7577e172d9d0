/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that are legal and unusual: hardly any data, and sizes that no machine holds. */
#include "train_run.h"

#include <stdio.h>
#include <unistd.h>

#include "command.h"
#include "ppcli/config.h"
#include "ppcli/plan.h"
#include "ppcli/run.h"

/* Runs `common` and then `more`. */
static void run_with(const char *const *more, struct outcome *out)
{
    const char *list[16] = {"model.sizes=12 9*7 5", "train.batch_size=32", "data.test_samples=1"};
    int n = 3;
    for (; *more; more++)
        list[n++] = *more;
    list[n] = NULL;
    train_ok(list, out);
}

#define RUN(out, ...) run_with((const char *const[]){__VA_ARGS__, NULL}, (out))

TEST(fewer_samples_than_a_batch_train_under_every_schedule)
{
    static const char *const rows[] = {"data.train_samples=1", "data.train_samples=5",
                                       "data.train_samples=31"};
    for (int i = 0; i < 3; i++) {
        struct outcome one, many;
        RUN(&one, rows[i], "pipeline.stages=1");
        for (const char *const *name = pp_schedule_names(); *name; name++) {
            char schedule[PP_NAME_MAX + 32];
            const struct pp_schedule_ops *ops = pp_schedule_find(*name);
            struct pp_geometry g = {
                .stages = 2, .chunks = pp_schedule_default_chunks(ops), .microbatches = 4};
            struct pp_plan *plan = NULL;
            if (pp_plan_build(*name, &g, &plan) < 0)
                continue; /* cannot run this shape with whole batches either */
            pp_plan_destroy(&plan);
            snprintf(schedule, sizeof(schedule), "pipeline.schedule=%s", *name);
            RUN(&many, rows[i], "pipeline.stages=2", schedule);
            CHECK_STR_EQ(many.sha, one.sha);
        }
    }
}

TEST(fewer_samples_than_a_batch_train_with_a_table)
{
    static const char table[] = "odd-runs-table-test.csv";
    struct pp_geometry g = {.stages = 2, .chunks = 1, .microbatches = 4};
    struct pp_plan *plan = NULL;
    CHECK_OK(pp_plan_build("1f1b", &g, &plan));
    FILE *f = fopen(table, "w");
    assert_non_null(f);
    CHECK_OK(pp_plan_print_csv(plan, f));
    fclose(f);
    pp_plan_destroy(&plan);
    struct outcome one, many;
    RUN(&one, "data.train_samples=5", "pipeline.stages=1");
    RUN(&many, "data.train_samples=5", "pipeline.stages=2",
        "pipeline.schedule=file:odd-runs-table-test.csv");
    CHECK_STR_EQ(many.sha, one.sha);
    unlink(table);
}

TEST(more_replicas_than_samples_train)
{
    struct outcome o, zero;
    RUN(&o, "data.train_samples=3", "pipeline.replicas=8", "pipeline.stages=2",
        "train.clip_norm=1");
    assert_true(o.train_loss > 0);
    RUN(&zero, "data.train_samples=3", "pipeline.replicas=8", "pipeline.stages=2",
        "train.clip_norm=1", "train.zero=1");
    CHECK_STR_EQ(zero.sha, o.sha);
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
            struct pp_exec_spec spec = {.layout = run.layout, .rank = r};
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
