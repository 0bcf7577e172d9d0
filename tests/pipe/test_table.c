/* SPDX-License-Identifier: Apache-2.0 */
/* schedule = file:TABLE.csv: tables that do not fit the run are refused. The bits: tests/bits. */
#include "train_run.h"

#include <stdio.h>
#include <unistd.h>

#include "ppcli/sched/plan.h"

#define TABLE "schedule-table-test.csv"

static void write_table(void)
{
    struct pp_geometry g = {.stages = 2, .chunks = 1, .microbatches = 4};
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    CHECK_OK(pp_plan_build("1f1b", &g, &plan));
    FILE *f = fopen(TABLE, "w");
    assert_non_null(f);
    CHECK_OK(pp_plan_print_csv(plan, f));
    fclose(f);
}

static void run_with(const char *schedule, const char *stages, const char *microbatches,
                     struct outcome *out)
{
    const char *list[] = {"model.sizes=12 9*7 5",
                          "data.train_samples=150",
                          "data.test_samples=40",
                          "train.batch_size=32",
                          "train.epochs=1",
                          schedule,
                          stages,
                          microbatches,
                          NULL};
    train_run(list, out);
}

TEST(a_table_of_another_shape_is_refused_with_the_keys_to_change)
{
    struct outcome o;
    write_table();
    run_with("pipeline.schedule=file:" TABLE, "pipeline.stages=3", "pipeline.microbatches=4", &o);
    CHECK_INT_EQ(o.rc, PP_ECONFIG);
    assert_non_null(strstr(pp_error_get()->text, "pipeline.stages = 2"));
    run_with("pipeline.schedule=file:" TABLE, "pipeline.stages=2", "pipeline.microbatches=8", &o);
    CHECK_INT_EQ(o.rc, PP_ECONFIG);
    assert_non_null(strstr(pp_error_get()->text, "pipeline.microbatches = 4"));
    unlink(TABLE);
    run_with("pipeline.schedule=file:" TABLE, "pipeline.stages=2", "pipeline.microbatches=4", &o);
    CHECK_INT_EQ(o.rc, PP_ENOINPUT);
}

TEST(a_table_that_would_hang_is_refused)
{
    struct outcome o;
    FILE *f = fopen(TABLE, "w");
    assert_non_null(f);
    fputs("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", f);
    fclose(f);
    run_with("pipeline.schedule=file:" TABLE, "pipeline.stages=2", "pipeline.microbatches=2", &o);
    CHECK_INT_EQ(o.rc, PP_EFORMAT);
    assert_non_null(strstr(pp_error_get()->text, TABLE));
    unlink(TABLE);
}
