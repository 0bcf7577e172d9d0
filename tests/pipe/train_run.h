/* SPDX-License-Identifier: Apache-2.0 */
/* Run a whole training inside a test and read what it left behind. */
#ifndef PPCLI_TESTS_PIPE_TRAIN_RUN_H
#define PPCLI_TESTS_PIPE_TRAIN_RUN_H

#include "../unit/test.h"

#define OUTCOME_STEPS_MAX 4096

struct outcome {
    int rc;
    char sha[65];
    double test_accuracy, test_loss, train_loss, bubble_ideal, bubble_measured;
    double step_loss[OUTCOME_STEPS_MAX]; /* of every recorded step */
    int n_steps;
};

/* `settings` is a list of "section.key=value", ended by NULL; later ones win. Unless they say
 * otherwise the run is quiet, on the synthetic data set, and writes into a folder that is removed
 * again. */
void train_run(const char *const *settings, struct outcome *out);

/* As train_run(); a failure of the run fails the test. */
void train_ok(const char *const *settings, struct outcome *out);

#endif
