/* SPDX-License-Identifier: Apache-2.0 */
/* Run a whole training inside a test and read what it left behind. */
#ifndef PPCLI_TESTS_PIPE_TRAIN_RUN_H
#define PPCLI_TESTS_PIPE_TRAIN_RUN_H

#include "../unit/test.h"

#define OUTCOME_STEPS_MAX 4096

struct outcome {
    int rc;
    char sha[65];
    double test_accuracy, test_loss, train_accuracy, train_loss, bubble_ideal, bubble_measured;
    double epochs, steps, samples;
    double step_loss[OUTCOME_STEPS_MAX]; /* of every recorded step */
    int n_steps;
};

/* Trains in `dir`, which stays. resume: as that of ppcli train, or NULL. `settings` is a list of
 * "section.key=value", ended by NULL; later ones win. Unless they say otherwise the run is quiet and
 * on the synthetic data set. */
void train_in(const char *dir, const char *resume, const char *const *settings,
              struct outcome *out);

/* The same in a folder that is removed again. */
void train_run(const char *const *settings, struct outcome *out);

/* As train_run(); a failure of the run fails the test. */
void train_ok(const char *const *settings, struct outcome *out);

/* Reads what a run left in its folder. */
void read_outcome(const char *dir, struct outcome *out);

void remove_folder(const char *dir);

#endif
