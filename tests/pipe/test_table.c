/* SPDX-License-Identifier: Apache-2.0 */
/* schedule = file:TABLE.csv trains with a table, to the bits of everything else. */
#include "train_run.h"

#include <stdio.h>
#include <unistd.h>

#include "ppcli/exchange.h"
#include "ppcli/plan.h"

#define TABLE "schedule-table-test.csv"

static void write_table(const char *schedule, int stages, int chunks, int microbatches, bool comms)
{
    struct pp_geometry g = {.stages = stages, .chunks = chunks, .microbatches = microbatches};
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    CHECK_OK(pp_plan_build(schedule, &g, &plan));
    FILE *f = fopen(TABLE, "w");
    assert_non_null(f);
    if (comms)
        CHECK_OK(pp_plan_print_csv_comms(plan, f));
    else
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

TEST(a_table_trains_to_the_bits_of_one_rank)
{
    static const struct {
        const char *schedule;
        int chunks;
        bool comms;
    } tables[] = {{"1f1b", 1, false},           {"zb-h1", 1, true},   {"interleaved", 2, true},
                  {"interleaved-zb", 4, false}, {"zb-v", 2, false},   {"dualpipev", 2, false},
                  {"looped-bfs", 2, false},     {"hanayo", 4, false}, {"zb-fit-v", 3, false}};
    struct outcome one, many;
    run_with("pipeline.schedule=gpipe", "pipeline.stages=1", "pipeline.microbatches=4", &one);
    CHECK_INT_EQ(one.rc, 0);
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        write_table(tables[i].schedule, 2, tables[i].chunks, 4, tables[i].comms);
        run_with("pipeline.schedule=file:" TABLE, "pipeline.stages=2", "pipeline.microbatches=4",
                 &many);
        if (many.rc < 0)
            fail_msg("%s: %s", tables[i].schedule, pp_error_get()->text);
        CHECK_STR_EQ(many.sha, one.sha);
    }
    unlink(TABLE);
}

static void run_coalesced(const char *schedule, const char *stages, struct outcome *out)
{
    const char *list[] = {"model.sizes=12 9*7 5",
                          "data.train_samples=128",
                          "data.test_samples=40",
                          "train.batch_size=32",
                          "train.epochs=1",
                          "train.exact=off",
                          "train.coalesce=3",
                          "pipeline.microbatches=4",
                          schedule,
                          stages,
                          NULL};
    train_ok(list, out);
}

TEST(a_table_is_coalesced_as_a_schedule_is)
{
    struct outcome one, many;
    run_coalesced("pipeline.schedule=gpipe", "pipeline.stages=1", &one);
    write_table("zb-v", 2, 2, 4, false);
    run_coalesced("pipeline.schedule=file:" TABLE, "pipeline.stages=2", &many);
    CHECK_STR_EQ(many.sha, one.sha);
    unlink(TABLE);
}

TEST(a_table_of_another_shape_is_refused_with_the_keys_to_change)
{
    struct outcome o;
    write_table("1f1b", 2, 1, 4, false);
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
