/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first 20 losses on real digits equal PyTorch's within 1e-5, for every optimizer. The golden
 * file is made by experiments/golden-losses.py, which recomputes initial values and sample order from
 * their definition.
 */
#include "train_run.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "ppcli/base/files.h"

#define STEPS 20

struct golden_case {
    const char *name;
    const char *settings[8];
};

static const struct golden_case cases[] = {
    {"sgd", {"model.activation=relu", "train.optimizer=sgd", "train.lr=0.1"}},
    {"momentum",
     {"model.activation=tanh", "train.optimizer=momentum", "train.lr=0.05", "train.momentum=0.9",
      "train.weight_decay=0.001"}},
    {"adam", {"model.activation=gelu", "train.optimizer=adam", "train.lr=0.001"}},
    {"adamw",
     {"model.activation=relu", "train.optimizer=adamw", "train.lr=0.002",
      "train.weight_decay=0.1"}},
    {"adam-decay",
     {"model.activation=relu", "train.optimizer=adam", "train.lr=0.002",
      "train.weight_decay=0.01"}},
    {"clip",
     {"model.activation=relu", "train.optimizer=sgd", "train.lr=0.5", "train.clip_norm=0.25"}},
    {"smooth",
     {"model.activation=relu", "train.optimizer=momentum", "train.lr=0.05", "train.momentum=0.9",
      "train.nesterov=true", "train.label_smoothing=0.1"}},
    {"sum",
     {"model.activation=tanh", "train.optimizer=sgd", "train.lr=0.02", "train.microbatch_loss=sum",
      "train.lr_schedule=multistep", "train.lr_milestones=7 12"}},
    {"cosine",
     {"model.activation=tanh", "train.optimizer=sgd", "train.lr=0.2", "train.warmup_steps=5",
      "train.lr_schedule=cosine"}},
};

static void golden(const char *name, double out[STEPS])
{
    const char *root = getenv("PPCLI_SOURCE_DIR");
    char path[PP_PATH_MAX], line[1024];
    assert_non_null(root);
    CHECK_OK(pp_path_format(path, "%s/tests/golden/torch-losses.txt", root));
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t len = strlen(name);
    bool found = false;
    while (!found && fgets(line, sizeof(line), f))
        found = strncmp(line, name, len) == 0 && line[len] == ' ';
    fclose(f);
    assert_true(found);
    char *at = line + len;
    for (int t = 0; t < STEPS; t++) {
        out[t] = strtod(at, &at);
        assert_true(out[t] > 0);
    }
}

static void compare(const struct golden_case *c, const char *stages, const char *exact)
{
    const char *root = getenv("PPCLI_SOURCE_DIR");
    char path[PP_PATH_MAX];
    assert_non_null(root);
    CHECK_OK(pp_path_format(path, "data.path=%s/data/mnist-sample", root));
    const char *list[24] = {"data.dataset=mnist-sample",
                            path,
                            "model.sizes=784 64 48 32 10",
                            "train.batch_size=128",
                            "train.max_steps=20",
                            "train.seed=1",
                            "run.log_every=1",
                            "data.test_samples=100",
                            "pipeline.microbatches=4",
                            stages,
                            exact};
    int n = 11;
    for (int i = 0; c->settings[i]; i++)
        list[n++] = c->settings[i];
    struct outcome o;
    double expected[STEPS];
    train_ok(list, &o);
    golden(c->name, expected);
    CHECK_INT_EQ(o.n_steps, STEPS);
    for (int t = 0; t < STEPS; t++) {
        double error = fabs(o.step_loss[t] - expected[t]) / expected[t];
        if (error > 1e-5) {
            fail_msg("%s, step %d: loss %.9g, torch %.9g, relative difference %.2g", c->name, t + 1,
                     o.step_loss[t], expected[t], error);
        }
    }
}

TEST(the_first_losses_equal_those_of_torch)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        compare(&cases[i], "pipeline.stages=2", "train.exact=true");
}

TEST(so_do_those_with_coalesced_weight_gradients)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        compare(&cases[i], "pipeline.stages=2", "train.exact=off");
}
