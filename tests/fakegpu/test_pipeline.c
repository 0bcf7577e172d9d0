/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole trainings on the emulated GPU: every shape of the pipeline gives the bits of one rank, with
 * graphs and without, on parts of a device and on several; other precisions stay near. How many
 * devices there are, and how they shuffle what is not ordered, the environment says.
 */
#include "../pipe/train_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "command.h"
#include "ppcli/exec.h"
#include "ppcli/file.h"
#include "ppcli/run.h"
#include "ppcli/schedule.h"

#define SETTINGS_MAX 40

/* A small network with an uneven last batch on top of which come the settings of the case. */
static int settings(const char **list, const char *const *extra)
{
    static const char *const common[] = {"run.backend=cuda",       "model.sizes=20 17 33 8 5",
                                         "data.train_samples=107", "data.test_samples=29",
                                         "train.batch_size=32",    "train.epochs=2",
                                         "train.optimizer=adam",   "train.lr=0.01",
                                         "run.log_every=1"};
    int n = 0;
    for (size_t i = 0; i < sizeof(common) / sizeof(common[0]); i++)
        list[n++] = common[i];
    for (int i = 0; extra[i]; i++)
        list[n++] = extra[i];
    assert_true(n < SETTINGS_MAX);
    list[n] = NULL;
    return n;
}

static void run(const char *const *extra, struct outcome *out)
{
    const char *list[SETTINGS_MAX];
    settings(list, extra);
    train_ok(list, out);
}

#define RUN(out, ...) run((const char *const[]){__VA_ARGS__, NULL}, out)

static void same(const struct outcome *a, const struct outcome *b, const char *what)
{
    if (strcmp(a->sha, b->sha) != 0)
        fail_msg("%s: weights %.8s, expected %.8s", what, a->sha, b->sha);
    CHECK_INT_EQ(a->n_steps, b->n_steps);
    assert_memory_equal(a->step_loss, b->step_loss, (size_t)b->n_steps * sizeof(b->step_loss[0]));
    assert_true(a->test_loss == b->test_loss);
    assert_true(a->test_accuracy == b->test_accuracy);
}

/* Every step's loss within `part` of the other's. */
static void near(const struct outcome *a, const struct outcome *b, double part, const char *what)
{
    CHECK_INT_EQ(a->n_steps, b->n_steps);
    for (int t = 0; t < a->n_steps; t++) {
        double error = fabs(a->step_loss[t] - b->step_loss[t]) / b->step_loss[t];
        if (!(error <= part))
            fail_msg("%s, step %d: loss %.9g, expected %.9g", what, t + 1, a->step_loss[t],
                     b->step_loss[t]);
    }
    assert_true(fabs(a->test_loss - b->test_loss) <= part * b->test_loss);
}

TEST(stages_of_every_number_give_the_bits_of_one)
{
    static const char *const schedules[] = {"naive", "gpipe", "1f1b"};
    static const char *const activations[] = {"model.activation=relu", "model.activation=tanh",
                                              "model.activation=gelu"};
    struct outcome one, many;
    for (int a = 0; a < 3; a++) {
        RUN(&one, activations[a], "train.clip_norm=0.5");
        for (int stages = 2; stages <= 4; stages++) {
            char st[32], sc[32];
            snprintf(st, sizeof(st), "pipeline.stages=%d", stages);
            snprintf(sc, sizeof(sc), "pipeline.schedule=%s", schedules[(a + stages) % 3]);
            RUN(&many, activations[a], "train.clip_norm=0.5", st, sc);
            same(&many, &one, sc);
        }
    }
}

TEST(every_schedule_gives_the_bits_of_one)
{
    struct outcome one, many;
    int ran = 0;
#define DEEP "model.sizes=12 9*15 5", "pipeline.microbatches=8", "train.epochs=1"
    RUN(&one, DEEP);
    for (const char *const *name = pp_schedule_names(); *name; name++) {
        const struct pp_schedule_ops *ops = pp_schedule_find(*name);
        struct pp_geometry g = {
            .stages = 4, .chunks = pp_schedule_default_chunks(ops), .microbatches = 8};
        if (pp_schedule_check(ops, &g) < 0)
            continue;
        char sc[64], ch[32];
        snprintf(sc, sizeof(sc), "pipeline.schedule=%s", *name);
        snprintf(ch, sizeof(ch), "pipeline.chunks=%d", g.chunks);
        RUN(&many, DEEP, "pipeline.stages=4", sc, ch);
        same(&many, &one, sc);
        ran++;
    }
    assert_in_range(ran, 12, 1000);
}

/* The settings of a net of its own, over those of the case. */
static void run_net(const char *const *net, struct outcome *out, const char *const *extra)
{
    const char *list[SETTINGS_MAX];
    int n = 0;
    for (int i = 0; net[i]; i++)
        list[n++] = net[i];
    for (int i = 0; extra[i]; i++)
        list[n++] = extra[i];
    assert_true(n < SETTINGS_MAX);
    list[n] = NULL;
    train_ok(list, out);
}

#define RUN_NET(net, out, ...) run_net(net, out, (const char *const[]){__VA_ARGS__, NULL})

/* Whatever the cut, the schedule and the launch; with forwards computed again; near the CPU. */
static void check_net(const char *const *net)
{
    struct outcome cpu, one, many;
    RUN_NET(net, &cpu, "run.backend=cpu");
    RUN_NET(net, &one, "run.graphs=off");
    near(&one, &cpu, 1e-4, net[0]);
    RUN_NET(net, &many, "pipeline.stages=3", "pipeline.schedule=zb-h1", "run.graphs=on");
    same(&many, &one, net[0]);
    RUN_NET(net, &many, "pipeline.stages=2", "pipeline.schedule=gpipe", "pipeline.recompute=all",
            "run.graphs=on");
    same(&many, &one, net[0]);
    for (int i = 0; i < 2; i++) {
        const char *precision = i ? "run.precision=tf32" : "run.precision=bf16";
        RUN_NET(net, &cpu, precision);
        RUN_NET(net, &many, precision, "pipeline.stages=2", "pipeline.schedule=1f1b",
                "pipeline.recompute=all", "run.graphs=on");
        same(&many, &cpu, precision);
        near(&many, &one, 2e-2, precision);
        assert_string_not_equal(many.sha, one.sha);
        RUN_NET(net, &many, precision, "pipeline.stages=3", "pipeline.schedule=zb-h1",
                "run.graphs=off");
        same(&many, &cpu, precision);
    }
}

#define TEXT                                                                                       \
    "run.backend=cuda", "run.log_every=1", "data.dataset=synthetic-tokens",                        \
        "data.train_samples=18", "data.test_samples=3", "train.batch_size=8", "train.epochs=2",    \
        "train.optimizer=adamw", "train.lr=0.003", "train.clip_norm=1", "pipeline.microbatches=3", \
        "model.n_layer=2", "model.n_head=4", "model.n_embd=16", "model.block_size=7",              \
        "model.vocab_size=19"

TEST(transformers_give_the_bits_of_one_and_the_losses_of_the_cpu)
{
    check_net((const char *const[]){"model.type=gpt", TEXT, "model.dropout=0.1", NULL});
    check_net((const char *const[]){"model.type=llama", TEXT, "model.n_kv_head=2",
                                    "model.tie_weights=on", NULL});
    check_net((const char *const[]){"model.type=decoder", TEXT, "model.dropout=0.1", NULL});
}

/* A vocabulary whose rows of logits are padded: all of a micro-batch, and in pieces. */
TEST(padded_logits_give_the_bits_of_one)
{
    static const char *const pieces[] = {"model.logits_rows=0", "model.logits_rows=16"};
    for (int i = 0; i < 2; i++)
        check_net((const char *const[]){"model.type=gpt", TEXT, "model.n_layer=1",
                                        "model.vocab_size=1031", "train.epochs=1", pieces[i],
                                        NULL});
}

/* Micro-batches of 1,024 rows, as many as a weight gradient takes in slices. */
TEST(slices_of_weight_gradients_give_the_bits_of_one)
{
    check_net((const char *const[]){
        "model.sizes=20 16 33 8 5", "run.backend=cuda", "run.log_every=1",
        "data.train_samples=2048", "data.test_samples=5", "train.batch_size=2048", "train.epochs=2",
        "train.optimizer=adam", "train.lr=0.01", "pipeline.microbatches=2", NULL});
}

/* Every op of images; F and I of a batch norm, which keeps running statistics. */
static void check_images(const char *conv)
{
    const char *root = getenv("PPCLI_SOURCE_DIR");
    char path[PP_PATH_MAX];
    assert_non_null(root);
    CHECK_OK(pp_path_format(path, "data.path=%s/data/mnist-sample", root));
    check_net((const char *const[]){
        "model.type=sequential", path,
        "model.layers=conv:8x3/2,pad=same batchnorm relu maxpool:2 conv:8x3,groups=4 silu "
        "conv:8x3,bias=off groupnorm:4 add:2 relu conv:16x3/2,pad=1 batchnorm relu conv:8x1 tanh "
        "dropout:0.1 avgpool:2 layernorm flatten linear:20 relu linear:10",
        "run.backend=cuda", "run.log_every=1", "data.dataset=mnist-sample", "data.train_samples=36",
        "data.test_samples=5", "train.batch_size=16", "train.epochs=1", "train.optimizer=momentum",
        "train.lr=0.01", "pipeline.microbatches=2", conv, NULL});
}

TEST(images_give_the_bits_of_one_and_the_losses_of_the_cpu)
{
    check_images("run.conv=own");
}

TEST(convolutions_by_cudnn_do_too)
{
    check_images("run.conv=cudnn");
}

TEST(graphs_change_no_bit)
{
    static const char *const shapes[] = {"pipeline.stages=1", "pipeline.stages=3"};
    struct outcome on, off;
    for (int i = 0; i < 2; i++) {
        RUN(&off, shapes[i], "run.graphs=off", "train.clip_norm=0.1", "train.epochs=3");
        RUN(&on, shapes[i], "run.graphs=on", "train.clip_norm=0.1", "train.epochs=3");
        same(&on, &off, shapes[i]);
    }
}

TEST(replicas_repeat_their_bits_and_stay_near_one)
{
    struct outcome one, first, again;
    RUN(&one, "pipeline.microbatches=2");
    RUN(&first, "pipeline.microbatches=2", "pipeline.replicas=2", "pipeline.stages=2");
    RUN(&again, "pipeline.microbatches=2", "pipeline.replicas=2", "pipeline.stages=2");
    same(&again, &first, "again");
    near(&first, &one, 1e-5, "two replicas");
}

TEST(a_replica_without_samples_still_takes_part)
{
    struct outcome one, four;
    /* 107 = 21 * 5 + 2: two samples for four replicas */
    RUN(&one, "train.batch_size=5", "pipeline.microbatches=1", "train.epochs=1");
    RUN(&four, "train.batch_size=5", "pipeline.microbatches=1", "train.epochs=1",
        "pipeline.replicas=4");
    near(&four, &one, 1e-5, "four replicas");
}

TEST(the_cpu_trains_to_the_same_losses)
{
    static const char *const of[][3] = {
        {"train.optimizer=sgd", "train.weight_decay=0.01", "train.warmup_steps=3"},
        {"train.optimizer=momentum", "train.weight_decay=0.01", "train.warmup_steps=3"},
        {"train.optimizer=adam", "train.weight_decay=0.01", "train.warmup_steps=3"},
        {"train.optimizer=adamw", "train.weight_decay=0.01", "train.warmup_steps=3"},
        {"train.nesterov=true", "train.label_smoothing=0.1", "train.microbatch_loss=sum"}};
    struct outcome cpu, gpu;
    for (int i = 0; i < 5; i++) {
        const char *sums = i < 4 ? "run.backend=cuda" : "train.optimizer=momentum";
        RUN(&gpu, of[i][0], of[i][1], of[i][2], sums, "pipeline.stages=2");
        RUN(&cpu, of[i][0], of[i][1], of[i][2], sums, "run.backend=cpu");
        near(&gpu, &cpu, 1e-4, of[i][0]);
        assert_true(gpu.test_accuracy == cpu.test_accuracy);
    }
}

TEST(parts_of_a_device_give_the_bits_of_the_whole)
{
    struct outcome whole, parts;
    RUN(&whole, "pipeline.stages=3", "run.devices=0");
    RUN(&parts, "pipeline.stages=3", "run.devices=0", "run.partition_sms=on");
    same(&parts, &whole, "three parts");
}

TEST(a_diverged_run_is_noticed)
{
    struct outcome o;
    const char *list[SETTINGS_MAX];
    settings(list,
             (const char *const[]){"train.optimizer=sgd", "train.lr=1000", "train.weight_decay=1",
                                   "train.epochs=40", "pipeline.stages=2", NULL});
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
        struct pp_exec_spec spec = {.layout = run.layout, .caps = tp->caps, .ring = ring};
        CHECK_OK(pp_exec_create(&spec, be, tp, train, test, &x));
        CHECK_OK(pp_exec_start_epoch(x, 0, NULL));
        int64_t t = 7;
        CHECK_OK(pp_exec_train_step(x, 0, 1e30, t, 6)); /* overflows all weights */
        for (int k = 0; k <= after; k++)                /* and the next step finds them */
            CHECK_OK(pp_exec_train_step(x, 1, 0.01, ++t, 7 + k));
        struct pp_exec_counters counters;
        int rc = after == 2 ? pp_exec_start_epoch(x, 1, NULL) : pp_exec_take_counters(x, &counters);
        CHECK_INT_EQ(rc, PP_EDIVERGED);
        CHECK_INT_EQ(pp_exec_late(x), after);
    }
}

/* An argument: only what is different on several devices. */
int main(int argc, char **argv)
{
    const struct CMUnitTest few[] = {
        cmocka_unit_test(stages_of_every_number_give_the_bits_of_one),
        cmocka_unit_test(graphs_change_no_bit),
        cmocka_unit_test(replicas_repeat_their_bits_and_stay_near_one),
    };
    return argc > 1 ? cmocka_run_group_tests(few, NULL, NULL) : tests_run(NULL, NULL);
}
