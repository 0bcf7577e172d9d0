/* SPDX-License-Identifier: Apache-2.0 */
/* Interrupted and resumed is the same as uninterrupted, whatever shape the ranks have before and
 * after. */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

#include "../unit/test.h"
#include "command.h"
#include "ppcli/log.h"
#include "ppcli/model.h"
#include "ppcli/train.h"

#define SETTINGS_MAX 32

/* 24 steps in 3 epochs; the last batch of an epoch has 3 samples, some micro-batches one less. */
static const char *const common[] = {
    "data.dataset=synthetic", "data.train_samples=227",  "data.test_samples=41",
    "model.sizes=12 9*7 5",   "train.batch_size=32",     "train.epochs=3",
    "train.lr=0.01",          "pipeline.microbatches=5", NULL};

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    return remove(path);
}

static void remove_dir(const char *dir)
{
    nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Two of the weights of a model are one from here on. */
static bool tied;
int __real_pp_model_create(const struct pp_config *cfg, const struct pp_data_input *data,
                           struct pp_model **out);
int __wrap_pp_model_create(const struct pp_config *cfg, const struct pp_data_input *data,
                           struct pp_model **out);
int __wrap_pp_model_create(const struct pp_config *cfg, const struct pp_data_input *data,
                           struct pp_model **out)
{
    int rc = __real_pp_model_create(cfg, data, out);
    if (rc == 0 && tied)
        pp_model_tie(*out, 2, 12);
    return rc;
}

/* One run in `dir`; settings: NULL-terminated. */
static int train(const char *dir, const char *resume, const char *const *settings)
{
    char keys[SETTINGS_MAX][PP_NAME_MAX];
    struct pp_setting list[SETTINGS_MAX];
    int n = 0;
    list[n++] = (struct pp_setting){"run.dir", dir, "test"};
    for (int part = 0; part < 2; part++) {
        const char *const *from = part == 0 ? common : settings;
        for (int i = 0; from[i]; i++, n++) {
            const char *eq = strchr(from[i], '=');
            assert_true(eq && n < SETTINGS_MAX);
            snprintf(keys[n], sizeof(keys[n]), "%.*s", (int)(eq - from[i]), from[i]);
            list[n] = (struct pp_setting){keys[n], eq + 1, "test"};
        }
    }
    pp_log_set_level(PP_LOG_QUIET);
    FILE *sink = fopen("/dev/null", "w");
    assert_non_null(sink);
    struct pp_config *cfg = NULL;
    int rc = pp_config_load(NULL, list, n, pp_cli_names(), &cfg);
    if (rc == 0) {
        struct pp_train_options options = {
            .name = "test", .out = sink, .quiet = true, .resume = resume};
        bool speaks;
        rc = pp_train(cfg, &options, &speaks);
    }
    pp_config_destroy(&cfg);
    fclose(sink);
    return rc;
}

static void train_ok(const char *dir, const char *resume, const char *const *settings)
{
    if (train(dir, resume, settings) < 0)
        fail_msg("%s", pp_error_get()->text);
}

/* All numbers of a run that must not depend on an interruption, from summary.json. */
struct numbers {
    char text[2048];
};

static void read_numbers(const char *dir, struct numbers *out)
{
    static const char *const keys[] = {"\"test_accuracy\"",  "\"test_loss\"", "\"train_accuracy\"",
                                       "\"train_loss\"",     "\"steps\"",     "\"samples\"",
                                       "\"weights_sha256\"", "\"epochs\""};
    char path[PP_PATH_MAX], line[4096];
    CHECK_OK(pp_path_format(path, "%s/summary.json", dir));
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t used = 0;
    int found = 0;
    while (fgets(line, sizeof(line), f)) {
        for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
            if (strncmp(line + strspn(line, " "), keys[i], strlen(keys[i])) == 0) {
                used += (size_t)snprintf(out->text + used, sizeof(out->text) - used, "%s", line);
                found++;
            }
        }
    }
    fclose(f);
    CHECK_INT_EQ(found, (int)(sizeof(keys) / sizeof(keys[0])));
}

static void same_numbers(const char *dir, const struct numbers *expected)
{
    struct numbers n;
    read_numbers(dir, &n);
    assert_string_equal(n.text, expected->text);
}

/* A folder, and in it the run that nobody interrupted. */
static struct {
    char top[16], dir[64], from[64];
    struct numbers whole;
} t;

static void open_case(const char *run, const char *const *settings)
{
    strcpy(t.top, "resume-XXXXXX");
    assert_non_null(mkdtemp(t.top));
    snprintf(t.dir, sizeof(t.dir), "%s/%s", t.top, run);
    snprintf(t.from, sizeof(t.from), "%s/save", t.top);
    train_ok(t.dir, NULL, settings);
    read_numbers(t.dir, &t.whole);
}

static void close_case(void)
{
    same_numbers(t.dir, &t.whole);
    remove_dir(t.top);
}

/* Save in the middle of an epoch with `at` stages, go on with each of 1 to 4. */
static void check_pairs(const char *const *optimizer)
{
    static const char *const schedules[] = {"naive", "1f1b", "gpipe", "zb-h1"};
    char stages[32], schedule[48];
    const char *settings[16];
    int n = 0;
    for (; optimizer[n]; n++)
        settings[n] = optimizer[n];
    settings[n] = NULL;
    open_case("whole", settings);
    for (int save = 1; save <= 4; save++) {
        snprintf(stages, sizeof(stages), "pipeline.stages=%d", save);
        settings[n] = stages;
        settings[n + 1] = "train.max_steps=11";
        settings[n + 2] = NULL;
        train_ok(t.from, NULL, settings);
        for (int load = 1; load <= 4; load++) {
            snprintf(t.dir, sizeof(t.dir), "%s/load", t.top);
            snprintf(stages, sizeof(stages), "pipeline.stages=%d", load);
            snprintf(schedule, sizeof(schedule), "pipeline.schedule=%s",
                     schedules[(save + load) % 4]);
            settings[n + 1] = schedule;
            train_ok(t.dir, t.from, settings);
            same_numbers(t.dir, &t.whole);
            remove_dir(t.dir);
        }
        remove_dir(t.from);
    }
    remove_dir(t.top);
}

TEST(all_16_pairs_of_stages_with_adam_and_clipping_give_the_bits_of_one_run)
{
    check_pairs((const char *const[]){"train.optimizer=adam", "train.clip_norm=0.5", NULL});
}

TEST(all_16_pairs_of_stages_with_momentum_give_the_bits_of_one_run)
{
    check_pairs((const char *const[]){"train.optimizer=momentum", NULL});
}

/* Saved once, with the state of its optimizer, and read by both places. */
TEST(a_tied_weight_goes_on_in_both_its_places)
{
    tied = true;
    check_pairs((const char *const[]){"train.optimizer=adam", "train.clip_norm=0.5", NULL});
    tied = false;
}

TEST(replicas_and_chunks_go_on_with_the_same_bits)
{
    open_case("whole", (const char *const[]){"pipeline.replicas=2", "pipeline.stages=2", NULL});
    remove_dir(t.dir);
    train_ok(t.from, NULL,
             (const char *const[]){"pipeline.replicas=2", "train.max_steps=12",
                                   "pipeline.schedule=interleaved", "pipeline.stages=2",
                                   "pipeline.chunks=2", "pipeline.microbatches=5", NULL});
    train_ok(t.dir, t.from,
             (const char *const[]){"pipeline.replicas=2", "pipeline.stages=3", NULL});
    close_case();
}

TEST(augmented_pictures_go_on_with_the_same_bits)
{
    check_pairs((const char *const[]){"data.dataset=cifar10-sample", "model.sizes=768 9*7 10",
                                      "data.resize=16", "data.augment=crop flip autoaugment",
                                      "data.mean=0.49 0.48 0.45", "data.std=0.2", NULL});
}

/* Stop after every single step, go on in the same folder: samples come once each, or the bits and
 * the sums of the epochs would differ. */
TEST(a_run_that_stops_after_every_step_is_the_same_run)
{
    char limit[48];
    open_case("whole", (const char *const[]){"train.max_steps=18", NULL});
    remove_dir(t.dir);
    for (int step = 1; step <= 18; step++) {
        snprintf(limit, sizeof(limit), "train.max_steps=%d", step);
        train_ok(t.dir, "auto", (const char *const[]){limit, NULL});
    }
    close_case();
}

TEST(a_finished_run_that_is_resumed_tells_the_same_again)
{
    open_case("run", (const char *const[]){NULL});
    train_ok(t.dir, "auto", (const char *const[]){"pipeline.stages=2", NULL});
    close_case();
}

TEST(more_epochs_go_on_as_if_they_had_been_asked_for_at_once)
{
    open_case("whole", (const char *const[]){"train.epochs=4", NULL});
    remove_dir(t.dir);
    train_ok(t.dir, NULL, (const char *const[]){"train.epochs=2", NULL});
    train_ok(t.dir, "auto", (const char *const[]){"train.epochs=4", NULL});
    close_case();
}

TEST(other_settings_are_refused_by_name_and_the_folder_stays)
{
    open_case("run", (const char *const[]){NULL});
    CHECK_INT_EQ(train(t.dir, "auto", (const char *const[]){"train.lr=0.02", "train.seed=2", NULL}),
                 PP_ECONFIG);
    assert_non_null(strstr(pp_error_get()->text, "train.lr was 0.01, is 0.02; train.seed was 1"));
    CHECK_INT_EQ(train(t.dir, "auto", (const char *const[]){"model.sizes=12 9*6 8 5", NULL}),
                 PP_ECONFIG);
    close_case();
}

TEST(weights_of_another_run_begin_a_new_one)
{
    char init[128], other[64];
    struct numbers second;
    open_case("run", (const char *const[]){"train.optimizer=sgd", "train.epochs=1", NULL});
    snprintf(init, sizeof(init), "train.init=%s", t.dir);
    snprintf(other, sizeof(other), "%s/other", t.top);
    /* A learning rate of 0 changes no weight. */
    train_ok(other, NULL,
             (const char *const[]){"train.optimizer=sgd", "train.epochs=1", "train.lr=0",
                                   "pipeline.stages=3", init, NULL});
    read_numbers(other, &second);
    const char *sha = strstr(t.whole.text, "weights_sha256");
    assert_non_null(sha);
    assert_non_null(strstr(second.text, "weights_sha256"));
    assert_memory_equal(sha, strstr(second.text, "weights_sha256"), 80);
    CHECK_INT_EQ(
        train(other, NULL, (const char *const[]){"model.sizes=12 9*6 8 5", "run.dir=", init, NULL}),
        PP_EFORMAT);
    assert_non_null(strstr(pp_error_get()->text, "layers.6.weight has shape [9,9]"));
    remove_dir(t.top);
}
