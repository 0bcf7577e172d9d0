/* SPDX-License-Identifier: Apache-2.0 */
/* Steps on the emulated GPU that are not finite. The bits of whole trainings: tests/bits. */
#include "../pipe/train_run.h"
#include "../../src/dev/backend.h"
#include "../../src/comm/transport.h"

#include "command.h"
#include "ppcli/pipe/exec.h"
#include "ppcli/pipe/layout.h"

TEST(a_diverged_run_is_noticed)
{
    struct outcome o;
    static const char *const list[] = {"run.backend=cuda",       "model.sizes=20 17 33 8 5",
                                       "data.train_samples=107", "train.batch_size=32",
                                       "train.optimizer=sgd",    "train.lr=1000",
                                       "train.weight_decay=1",   "train.epochs=40",
                                       "pipeline.stages=2",      NULL};
    train_run(list, &o);
    CHECK_INT_EQ(o.rc, PP_EDIVERGED);
}

/* A bad step is as late as it is before the step that was asked for last, whoever finds it: also what
 * only reads counters or begins an epoch, which once counted from step 0. */
TEST(a_bad_step_is_late_by_the_steps_asked_for_since)
{
    for (int after = 0; after < 3; after++) {
        PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
        PP_OWN(pp_run_fini) struct pp_run run = {0};
        PP_OWN(pp_backend_close) struct pp_backend *be = NULL;
        PP_OWN(pp_threads_destroy) struct pp_threads *group = NULL;
        PP_OWN(pp_transport_destroy) struct pp_transport *tp = NULL;
        PP_OWN(pp_dataset_destroy) struct pp_dataset *train = NULL;
        PP_OWN(pp_dataset_destroy) struct pp_dataset *test = NULL;
        PP_OWN(pp_ring_destroy) struct pp_ring *ring = NULL;
        PP_OWN(pp_exec_destroy) struct pp_exec *x = NULL;
        const struct pp_setting list[] = {
            {"run.backend", "cuda", "test"},      {"model.sizes", "20 17 5", "test"},
            {"data.train_samples", "96", "test"}, {"data.test_samples", "32", "test"},
            {"train.batch_size", "32", "test"},   {"train.optimizer", "sgd", "test"},
            {"data.dataset", "synthetic", "test"}};
        CHECK_OK(pp_config_load(NULL, list, sizeof(list) / sizeof(list[0]), pp_cli_names(), &cfg));
        CHECK_OK(pp_run_prepare(cfg, PP_RUN_REAL, &run));
        CHECK_OK(pp_threads_create(1, NULL, &group));
        CHECK_OK(pp_threads_attach(group, 0, &tp));
        CHECK_OK(pp_backend_open(run.backend, 1, &be));
        const struct pp_shape in = {1, {20, 1, 1}};
        const int parts = PP_DATA_IMAGES | PP_DATA_LABELS;
        CHECK_OK(pp_dataset_open(cfg, PP_SPLIT_TRAIN, parts, &in, 5, &train));
        CHECK_OK(pp_dataset_open(cfg, PP_SPLIT_TEST, parts, &in, 5, &test));
        CHECK_OK(pp_ring_create(NULL, 0, 1, pp_exec_events_per_step(run.layout), &ring));
        struct pp_exec_spec spec = {
            .cfg = run.cfg, .layout = run.layout, .caps = tp->caps, .ring = ring};
        CHECK_OK(pp_exec_create(&spec, be, tp, train, test, &x));
        CHECK_OK(pp_exec_start_epoch(x, 0, NULL));
        int64_t t = 7;
        CHECK_OK(pp_exec_train_step(x, 0, 1e30, t, 6)); /* overflows all weights */
        for (int k = 0; k <= after; k++)                /* and the next step finds them */
            CHECK_OK(pp_exec_train_step(x, 1, 0.01, ++t, 7 + k));
        struct pp_exec_counters counters;
        int rc = after == 2 ? pp_exec_start_epoch(x, 1, NULL) : pp_exec_take_counters(x, &counters);
        CHECK_INT_EQ(rc, PP_EDIVERGED);
        CHECK_INT_EQ(pp_exec_lag(x), after);
    }
}
