/* SPDX-License-Identifier: Apache-2.0 */
/* What outcome.c counts and outcome_text.c prints. */
#ifndef PPCLI_SRC_RUNLOG_OUTCOME_H
#define PPCLI_SRC_RUNLOG_OUTCOME_H

#include "ppcli/data/preprocessing.h"
#include "ppcli/runlog/outcome.h"

#define OUTCOME_BINS 10

struct pp_outcome {
    enum pp_loss_kind kind;
    int outputs;
    double threshold;
    struct pp_preprocessing names; /* zeroed: outputs have numbers only */
    double *p;                     /* [outputs] probabilities of the current sample; owned */
    int64_t n, hits, top5; /* samples; right ones, with bce right outputs; in the first five */
    int64_t n_marks;       /* bce: outputs of all samples */
    struct outcome_class {
        int64_t samples, predicted, hits;
    } * classes;         /* [outputs], owned; NULL: numbers */
    struct outcome_bin { /* samples whose prediction has a probability from i / 10 on */
        int64_t n, hits;
        double confidence; /* sum of the probabilities */
    } bins[OUTCOME_BINS];
    uint64_t *wrong; /* [n_wrong] label * 2^32 + prediction; owned */
    size_t n_wrong, wrong_max;
    struct outcome_pair {
        int label, prediction;
        int64_t n;
    } * pairs; /* [n_pairs] the most frequent first; owned; after outcome_count_pairs() */
    int n_pairs;
    struct outcome_number {
        double first, sum, squares, errors, square_errors; /* as the model has them */
        int64_t yes, said, both;                           /* bce */
    } * numbers;                                           /* [outputs], owned; NULL: classes */
    struct pp_mistake worst[PP_MISTAKES_MAX + 1];
    int n_worst;
};

/* Counts the pairs of label and prediction; no sample may be added after it. Errors:
 * PP_ERESOURCE. */
int outcome_count_pairs(struct pp_outcome *o);

struct outcome_shares { /* NAN: of nothing */
    double precision, recall, f1;
};
struct outcome_shares outcome_shares_of(int64_t hits, int64_t samples, int64_t predicted);

/* Returns the expected calibration error: the mean difference of probability and accuracy over ten
 * bins. */
double outcome_calibration_error(const struct pp_outcome *o);

struct outcome_errors { /* in units of the target */
    double r2, mae, rmse;
};
struct outcome_errors outcome_errors_of(const struct pp_outcome *o, int i);

/* Returns an output or target in its units. */
double outcome_in_units(const struct pp_outcome *o, int i, float x);

/* Computes Wilson's interval of 95 % for a share of hits among n. */
void outcome_interval(int64_t hits, int64_t n, double out[2]);

#endif
