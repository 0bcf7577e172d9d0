/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The outcome of a test: hits, errors and the worst mistakes, counted sample by sample. The memory
 * depends on the numbers of classes and of kept mistakes, not on the number of samples.
 */
#ifndef PPCLI_RUNLOG_OUTCOME_H
#define PPCLI_RUNLOG_OUTCOME_H

#include <stdint.h>
#include <stdio.h>

#include "ppcli/conf/config.h"

struct pp_json;
struct pp_preprocessing;

/* Computes the probability of each output: softmax of logits, or with bce the sigmoid of each.
 * Outputs of other losses are not probabilities. */
void pp_probabilities(enum pp_loss_kind kind, const float *outputs, int n, double *out);

#define PP_MISTAKES_MAX 12

/* A sample that the model got wrong and was most certain of, or of numbers, one with a large
 * error. */
struct pp_mistake {
    uint32_t sample;
    int label, prediction; /* classes; -1: numbers */
    double weight;         /* probability of the prediction, or largest error in deviations */
    double *numbers; /* [2][outputs] targets and outputs in their units; owned; NULL: classes */
    char *shown;     /* the sample as a JSON value; the caller sets it, owned; NULL: not shown */
};

struct pp_outcome;

/*
 * Makes an empty outcome of a loss with so many outputs. `names` is the text of struct pp_dataset's
 * `preprocessing`, or NULL. With bce an output is yes above the probability `threshold`. Errors:
 * those of pp_preprocessing_parse(). Local. The caller owns *out.
 */
int pp_outcome_create(enum pp_loss_kind kind, int outputs, double threshold, const char *names,
                      struct pp_outcome **out);
void pp_outcome_destroy(struct pp_outcome **o); /* accepts NULL inside */

/* Returns the names with which it was made. */
const struct pp_preprocessing *pp_outcome_names(const struct pp_outcome *o);

/* Counts a sample with the class `label`, or of numbers with targets[outputs] as the model has
 * them. Errors: PP_ERESOURCE. */
int pp_outcome_add(struct pp_outcome *o, uint32_t sample, uint32_t label, const float *targets,
                   const float *outputs);

/* Returns the worst mistakes so far, the worst first. */
struct pp_mistake *pp_outcome_mistakes(struct pp_outcome *o, int *out_n);

/* Prints for people what follows the line of loss and accuracy. Errors: PP_ERESOURCE. */
int pp_outcome_print(struct pp_outcome *o, FILE *f);

/* Writes all of it as keys of the current object. Errors: PP_ERESOURCE. */
int pp_outcome_json(struct pp_outcome *o, struct pp_json *j);

#endif
