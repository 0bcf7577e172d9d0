/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run tells: log lines and a live line for people, metrics.jsonl and summary.json for
 * machines. Only rank 0 has one.
 */
#ifndef PPCLI_TRAIN_METRICS_H
#define PPCLI_TRAIN_METRICS_H

#include "ppcli/run.h"

struct metrics;

/* One window of training, over all ranks. */
struct window {
    int epoch;       /* 1.. */
    int step;        /* of the epoch, 1.. */
    int64_t t;       /* of the run, 1.. */
    double loss;     /* mean over the window's samples */
    double accuracy; /* 0..1 */
    double seconds;
    int64_t samples;
    double bubble; /* 1 - sum of busy / (ranks * wall) over the window */
    double lr;     /* of its last step */
};

struct epoch_result {
    int epoch;
    double train_loss, train_accuracy;
    bool tested;
    double test_loss, test_accuracy;
    double seconds; /* training only */
    int64_t samples;
    double bubble;
};

struct rank_total { /* of one rank, over the whole run */
    double busy;    /* fraction of the training time */
    struct pp_exec_bytes bytes;
};

struct summary {
    double test_loss, test_accuracy, train_loss, train_accuracy;
    bool tested;
    double samples_per_second;
    double bubble_measured, bubble_ideal;
    double train_seconds, wall_seconds;
    int64_t steps, samples;
    int epochs;
    const struct rank_total *ranks; /* [run->layout->ranks] */
    const char *weights_sha256;
};

/* Make the run directory and open the files; says where ranks sit. Errors: PP_EIO, PP_EPERM,
 * PP_ECONFIG (the directory is not empty). */
int metrics_open(const struct pp_run *run, const struct pp_train_options *options,
                 const struct pp_backend *be, const struct pp_transport *tp, int64_t total_steps,
                 struct metrics **out);
void metrics_close(struct metrics **m);

void metrics_window(struct metrics *m, const struct window *w, int steps_per_epoch, bool record);
void metrics_epoch(struct metrics *m, const struct epoch_result *e);

/* Writes summary.json and prints the summary. Errors: PP_EIO when something written on the way was
 * lost. */
int metrics_finish(struct metrics *m, const struct summary *s);

#endif
