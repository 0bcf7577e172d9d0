/* SPDX-License-Identifier: Apache-2.0 */
/* train.coalesce: how large the groups are, what they cost in memory, and that the executor
 * computes each of them at once. The bits: tests/bits. */
#include "train_run.h"
#include "../../src/dev/backend.h"
#include "../../src/comm/transport.h"

#include "command.h"
#include "ppcli/pipe/exec.h"
#include "ppcli/pipe/layout.h"

/* The config of a list "section.key=value", ended by NULL. */
static struct pp_config *config_of(const char *const *settings)
{
    static char keys[16][PP_NAME_MAX];
    struct pp_setting list[16];
    struct pp_config *cfg = NULL;
    int n = 0;
    for (; settings[n]; n++) {
        const char *eq = strchr(settings[n], '=');
        snprintf(keys[n], sizeof(keys[n]), "%.*s", (int)(eq - settings[n]), settings[n]);
        list[n] = (struct pp_setting){keys[n], eq + 1, "test"};
    }
    CHECK_OK(pp_config_load(NULL, list, n, pp_cli_names(), &cfg));
    return cfg;
}

static int group_of(const char *exact, const char *coalesce, const char *batch, const char *m,
                    const char *replicas)
{
    const char *list[] = {exact, coalesce, batch, m, replicas, NULL};
    PP_OWN(pp_config_destroy) struct pp_config *cfg = config_of(list);
    PP_OWN(pp_model_destroy) struct pp_model *model = NULL;
    CHECK_OK(pp_model_create(cfg, NULL, &model));
    const struct pp_division d = pp_division_shape(cfg);
    const struct pp_training training = pp_training_of(cfg, 0, 0);
    return pp_layout_coalesce(&d, &training, model);
}

static bool own_products(void)
{
    struct pp_backend_choice choice = {.threads = 1};
    CHECK_OK(pp_backend_resolve("cpu", &choice.ops));
    return pp_backend_sums_in_order(&choice);
}

TEST(groups_are_as_small_as_256_rows_allow)
{
    const struct {
        const char *exact, *coalesce, *batch, *m, *replicas;
        int k;
    } cases[] = {
#define OFF "train.exact=off", "train.coalesce=0"
        {OFF, "train.batch_size=512", "pipeline.microbatches=16", "pipeline.replicas=1", 8},
        {OFF, "train.batch_size=128", "pipeline.microbatches=4", "pipeline.replicas=1", 4},
        {OFF, "train.batch_size=4096", "pipeline.microbatches=16", "pipeline.replicas=1", 1},
        {OFF, "train.batch_size=4080", "pipeline.microbatches=16", "pipeline.replicas=1", 2},
        {OFF, "train.batch_size=4096", "pipeline.microbatches=16", "pipeline.replicas=2", 2},
        /* 33 rows in the largest: 8 of them have 264 */
        {OFF, "train.batch_size=513", "pipeline.microbatches=16", "pipeline.replicas=1", 8},
        {OFF, "train.batch_size=1", "pipeline.microbatches=1", "pipeline.replicas=1", 1},
#undef OFF
        {"train.exact=off", "train.coalesce=5", "train.batch_size=512", "pipeline.microbatches=16",
         "pipeline.replicas=1", 5},
        {"run.gemm=cblas", "train.coalesce=0", "train.batch_size=512", "pipeline.microbatches=16",
         "pipeline.replicas=1", 1},
        {"run.gemm=auto", "train.coalesce=1", "train.batch_size=512", "pipeline.microbatches=16",
         "pipeline.replicas=1", 1},
        /* where the bits are the same, exact does not forbid it */
        {"run.gemm=auto", "train.coalesce=0", "train.batch_size=512", "pipeline.microbatches=16",
         "pipeline.replicas=1", own_products() ? 8 : 1},
        {"pipeline.recompute=all", "train.coalesce=0", "train.batch_size=512",
         "pipeline.microbatches=16", "pipeline.replicas=1", 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int k = group_of(cases[i].exact, cases[i].coalesce, cases[i].batch, cases[i].m,
                         cases[i].replicas);
        if (k != cases[i].k) {
            fail_msg("%s %s %s: groups of %d, expected %d", cases[i].batch, cases[i].m,
                     cases[i].coalesce, k, cases[i].k);
        }
    }
}

static size_t bytes_of(const char *exact)
{
    const char *list[] = {"model.sizes=8 64 64 5",
                          "data.dataset=synthetic",
                          "data.train_samples=64",
                          "train.batch_size=64",
                          "pipeline.stages=1",
                          "pipeline.schedule=1f1b",
                          "pipeline.microbatches=8",
                          exact,
                          NULL};
    struct pp_config *cfg = config_of(list);
    struct pp_run run;
    struct pp_exec_bytes bytes;
    CHECK_OK(pp_run_prepare(cfg, PP_RUN_EXPLAIN, &run));
    struct pp_exec_spec spec = {
        .cfg = run.cfg, .layout = run.layout, .caps = {.shared_slots = true}};
    CHECK_OK(pp_exec_predict(&spec, &bytes));
    pp_run_fini(&run);
    pp_config_destroy(&cfg);
    return bytes.activations;
}

/* A position of a text is a row. */
TEST(texts_have_more_rows_than_samples)
{
    const char *list[] = {"model.type=gpt",      "model.vocab_size=11",      "model.n_layer=1",
                          "model.n_head=1",      "model.n_embd=8",           "model.block_size=64",
                          "train.batch_size=16", "pipeline.microbatches=16", NULL};
    PP_OWN(pp_config_destroy) struct pp_config *cfg = config_of(list);
    PP_OWN(pp_model_destroy) struct pp_model *model = NULL;
    CHECK_OK(pp_model_create(cfg, NULL, &model));
    const struct pp_division d = pp_division_shape(cfg);
    const struct pp_training training = pp_training_of(cfg, 0, 0);
    CHECK_INT_EQ(pp_layout_coalesce(&d, &training, model), own_products() ? 4 : 1);
}

TEST(the_memory_of_groups_is_predicted)
{
    size_t exact = bytes_of("train.coalesce=1"), off = bytes_of("train.exact=off");
    /* 7 micro-batches of 8 rows more are held: input, two activations, two gradients, logits */
    size_t one = 8 * (8 + 4 * 64) * sizeof(float) + 192;
    CHECK_INT_EQ(off, exact + 7 * one);
}

/* The micro-batches of the W records of one step, in order; *timed: those whose time counts. */
static int weights_of_step(struct pp_config *cfg, int *mb, int *timed)
{
    PP_OWN(pp_run_fini) struct pp_run run = {0};
    PP_OWN(pp_threads_destroy) struct pp_threads *group = NULL;
    PP_OWN(pp_transport_destroy) struct pp_transport *tp = NULL;
    PP_OWN(pp_backend_close) struct pp_backend *be = NULL;
    PP_OWN(pp_dataset_destroy) struct pp_dataset *data = NULL;
    PP_OWN(pp_ring_destroy) struct pp_ring *ring = NULL;
    PP_OWN(pp_exec_destroy) struct pp_exec *x = NULL;
    struct pp_event events[256];
    int n = 0;
    CHECK_OK(pp_run_prepare(cfg, PP_RUN_REAL, &run));
    CHECK_OK(pp_threads_create(1, NULL, &group));
    CHECK_OK(pp_threads_attach(group, 0, &tp));
    CHECK_OK(pp_backend_open(run.backend, 1, &be));
    CHECK_OK(pp_dataset_open(cfg, PP_SPLIT_TRAIN, PP_DATA_IMAGES | PP_DATA_LABELS,
                             &(struct pp_shape){1, {8, 1, 1}}, 5, &data));
    CHECK_OK(pp_ring_create(NULL, 0, 1, pp_exec_events_per_step(run.layout), &ring));
    struct pp_exec_spec spec = {
        .cfg = run.cfg, .layout = run.layout, .caps = tp->caps, .ring = ring};
    CHECK_OK(pp_exec_create(&spec, be, tp, data, NULL, &x));
    CHECK_OK(pp_exec_train_step(x, 0, 0.1, 1, 0));
    size_t got = pp_ring_copy(ring, 0, events, 256, NULL, NULL);
    for (size_t i = 0; i < got; i++)
        if (events[i].kind == PP_EVENT_W)
            mb[n++] = events[i].mb;
    struct pp_exec_times times;
    assert_true(pp_exec_times(x, 0, &times));
    *timed = (int)times.n[PP_OP_W];
    return n;
}

TEST(a_group_is_one_piece_of_work_and_one_record)
{
    const char *list[] = {"model.sizes=8 9 5",       "data.dataset=synthetic",
                          "data.train_samples=24",   "data.test_samples=0",
                          "train.batch_size=24",     "train.optimizer=sgd",
                          "pipeline.microbatches=8", "train.exact=off",
                          "train.coalesce=3",        NULL};
    static const int last[] = {2, 5, 7};
    struct pp_config *cfg = config_of(list);
    int mb[64], timed;
    CHECK_INT_EQ(weights_of_step(cfg, mb, &timed), 3);
    CHECK_INT_EQ(timed, 8);
    for (int i = 0; i < 3; i++)
        CHECK_INT_EQ(mb[i], last[i]);
    pp_config_destroy(&cfg);
    list[7] = "train.coalesce=1";
    list[8] = NULL;
    cfg = config_of(list);
    CHECK_INT_EQ(weights_of_step(cfg, mb, &timed), 8);
    CHECK_INT_EQ(timed, 8);
    pp_config_destroy(&cfg);
}

TEST(groups_that_end_with_smaller_microbatches_are_timed_too)
{
    /* 4 3 3 3 | 3 3 3 3: of the second group none is of full size */
    const char *list[] = {"model.sizes=8 9 5",       "data.dataset=synthetic",
                          "data.train_samples=25",   "data.test_samples=0",
                          "train.batch_size=25",     "train.optimizer=sgd",
                          "pipeline.microbatches=8", "train.exact=off",
                          "train.coalesce=4",        NULL};
    PP_OWN(pp_config_destroy) struct pp_config *cfg = config_of(list);
    int mb[64], timed;
    CHECK_INT_EQ(weights_of_step(cfg, mb, &timed), 2);
    CHECK_INT_EQ(timed, 4);
}
