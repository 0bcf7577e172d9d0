/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run tells: log lines and a live line for people, metrics.jsonl and summary.json for
 * machines. Only rank 0 has one.
 */
#ifndef PPCLI_TRAIN_METRICS_H
#define PPCLI_TRAIN_METRICS_H

#include "forecast.h"
#include "ppcli/json.h"
#include "ppcli/train.h"

#define METRICS_SCHEMA 1 /* of metrics.jsonl and summary.json */

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
    double bubble;        /* 1 - sum of busy / (ranks * wall) over the window */
    double lr;            /* of its last step */
    int64_t skipped;      /* batches of the run that were not used: not finite */
    int64_t samples_done; /* of the run */
    const double *busy;   /* [ranks] share of the time since the last sync point */
};

struct epoch_result {
    int epoch;
    int64_t t; /* last step, of the run */
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
    const struct forecast *forecast;
    double schedule_bound; /* the least time of any schedule / the measured time, of a full batch */
    double train_seconds, wall_seconds;
    int64_t steps, samples;
    int64_t skipped, rewinds; /* batches that were not used, as not finite; see train.nonfinite */
    int epochs;
    const struct rank_total *ranks; /* [run->layout->ranks] */
    const char *weights_sha256;
};

/* Into the object that is open in j. Local. */
void summary_json(const struct pp_run *run, const struct summary *s, struct pp_json *j);
/* For people. dir: the run folder, "": none. Local. */
void summary_print(const struct pp_run *run, const struct summary *s, const char *dir, FILE *f);

struct metrics_start {
    int64_t step;       /* steps done before; 0: the run begins */
    bool goes_on;       /* metrics.jsonl is there, cut behind that step */
    const char *graphs; /* what pp_exec_graphs() says */
};

/* Open the files in the run folder dir (empty: none); says where ranks sit. Errors: PP_EIO,
 * PP_EPERM. */
int metrics_open(const struct pp_run *run, const struct pp_train_options *options,
                 const struct pp_backend *be, const struct pp_transport *tp, const char *dir,
                 int64_t total_steps, const struct metrics_start *from, struct metrics **out);
void metrics_close(struct metrics **m);

void metrics_window(struct metrics *m, const struct window *w, int steps_per_epoch, bool record);
void metrics_epoch(struct metrics *m, const struct epoch_result *e);

/* Step t was bad, `why` says how. to: the step that the weights were taken back to; -1: the batch
 * was skipped. */
void metrics_nonfinite(struct metrics *m, int epoch, int64_t t, int64_t to, const char *why);

/* Before a checkpoint counts: what was told of the steps up to it is on the disk. */
void metrics_sync(struct metrics *m);

/* Take what lies behind `step` out of metrics.jsonl in the run folder, the summary, and a line that
 * was never finished. Errors: PP_EIO, PP_EPERM. */
int metrics_cut(const char *dir, int64_t step);

/* Writes summary.json and prints the summary. Errors: PP_EIO when something written on the way was
 * lost. */
int metrics_finish(struct metrics *m, const struct summary *s);

#endif
