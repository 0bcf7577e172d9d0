/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides from the results of tests: which checkpoint is the best, when train.patience ends the run,
 * and when lr_schedule = plateau lowers the learning rate. Pure functions of values that all ranks
 * have gathered, so all ranks decide the same; the state is saved with checkpoints.
 */
#ifndef PPCLI_TRAIN_PROGRESS_H
#define PPCLI_TRAIN_PROGRESS_H

#include "ppcli/ckpt/checkpoint.h"
#include "ppcli/runlog/runlog.h"

struct progress {
    struct {
        double value;
        int64_t step; /* -1: there was no test so far */
        int64_t epoch;
    } best;
    /* counts tests in a row that were not better than `value` */
    struct progress_wait {
        double value;
        bool any;
        int64_t tests;
    } patience, plateau;
    int64_t falls; /* how often plateau has lowered the learning rate */
};

/* What a test has changed. */
struct progress_news {
    bool best; /* it is the best so far */
    bool fell; /* plateau has lowered the learning rate */
    bool over; /* train.patience ends the run */
};

#define PROGRESS_NONE                                                                              \
    {                                                                                              \
        .best = {.step = -1 }                                                                      \
    }

/* Returns the metric that decides: that of checkpoint.best, else the test loss. Its name; whether
 * larger values are better. */
enum pp_metric progress_metric(const struct pp_config *cfg);
const char *progress_metric_name(const struct pp_config *cfg);
/* Returns the value of the metric. */
double progress_value(const struct pp_config *cfg, const struct pp_epoch_result *e);

/* Takes the result of a test. regular: a longer run would have made this test too; else it cannot
 * end the run or change the learning rate. */
struct progress_news progress_take(const struct pp_config *cfg, const struct pp_epoch_result *e,
                                   bool regular, struct progress *p);

/* Returns whether train.patience has ended the run. */
bool progress_is_over(const struct pp_config *cfg, const struct progress *p);

/* Add the progress to the state of a checkpoint; read it from there. *out_reset, which may be NULL:
 * the checkpoint's run had another metric, so only the falls are taken over. */
void progress_save(const struct pp_config *cfg, const struct progress *p, struct pp_ckpt_state *s);
void progress_load(const struct pp_config *cfg, const struct pp_ckpt_state *s, struct progress *p,
                   bool *out_reset);

#endif
