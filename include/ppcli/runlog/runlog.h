/* SPDX-License-Identifier: Apache-2.0 */
/* The files that a run writes about itself: metrics, the timeline of a step, a trace. */
#ifndef PPCLI_RUNLOG_RUNLOG_H
#define PPCLI_RUNLOG_RUNLOG_H

#include <math.h>
#include <stdio.h>

#include "ppcli/pipe/exec.h"
#include "ppcli/pipe/layout.h"
#include "ppcli/sim/sim.h"

/*
 * ---- forecast
 *
 * Simulates the plan of a full batch with the run's own mean times of F, I and W of every virtual
 * stage and of the optimizer. The measured step takes longer by the time of transfers, of waking
 * threads, and of other programs.
 */

struct pp_forecast {
    const struct pp_layout *layout; /* not owned */
    const struct pp_plan *plan;     /* of a full batch; not owned */
    bool known;                     /* false: a stage computed no micro-batch of full size */
    struct pp_stage_costs stages;   /* mean seconds over replicas; between: the optimizer's */
    struct pp_sim_result result;    /* of a step in the middle of a run of steps */
    double meet_every;              /* steps between two synchronizations of all ranks */
    double step_seconds;            /* seconds from step to step */
    double least_seconds;           /* lower bound for every schedule on these ranks */
    double bubble;                  /* 1 - sum of work / (ranks * time), as the measured bubble */
};

/* Computes the mean times of the run so far and simulates a step with them. `meet_every` is the
 * number of steps between two synchronizations of all ranks, at which the pipeline drains. The
 * caller owns *out. Collective. Errors: PP_ERESOURCE. */
int pp_forecast_create(const struct pp_layout *l, const struct pp_exec *x, struct pp_transport *tp,
                       double meet_every, struct pp_forecast **out);

/* Divides a measured idle share into its causes, with this run's own times. If there is no
 * forecast, all of it counts as waiting. Errors: PP_ERESOURCE. Local. */
int pp_forecast_explain(const struct pp_forecast *f, double idle, struct pp_bubble *out);
void pp_forecast_destroy(struct pp_forecast **f); /* accepts NULL in *f */

/* ---- scores: how good outputs are, beside their loss */

enum pp_score {
    PP_SCORE_ACCURACY, /* classes, bce: share of the targets that are right */
    PP_SCORE_R2,       /* mse, mae, huber: share of the targets' variance that is explained */
    PP_SCORE_MAE,      /* mean absolute error */
    PP_SCORE_RMSE,     /* root of the mean squared error */
    PP_SCORES
};

/* All are computed; which of them say something, follows from the loss. */
struct pp_scores {
    double of[PP_SCORES];
};

#define PP_SCORES_TEXT 160

const char *pp_score_key(enum pp_score score); /* "accuracy" */

/* Returns the scores of these targets; errors in units of the targets, if a difference of 1 is
 * `unit` of them. Of several targets, the scores are over all together. */
struct pp_scores pp_scores_of(const struct pp_loss_sums *sums, double unit);

/* Write the scores of a loss: "accuracy 0.9103" (returns out), or members of an open object, each
 * key after `prefix`. */
const char *pp_scores_text(enum pp_loss_kind kind, const struct pp_scores *s,
                           char out[PP_SCORES_TEXT]);
/* Prints the line of a test with n samples, which begins with its first score. */
void pp_scores_print(enum pp_loss_kind kind, const struct pp_scores *s, double loss, int n,
                     FILE *f);
void pp_scores_json(enum pp_loss_kind kind, const char *prefix, const struct pp_scores *s,
                    struct pp_json *j);

/* ---- metrics */

/*
 * Reports a run: log lines and a status line for people, metrics.jsonl and summary.json for
 * programs. Only rank 0 has one.
 */

#define PP_METRICS_SCHEMA 1 /* version of metrics.jsonl and summary.json */

struct pp_metrics;
struct pp_file_write;
struct pp_lock;

/* One window of training, over all ranks. */
struct pp_window {
    int epoch;   /* 1, 2, ... */
    int step;    /* step of the epoch, 1, 2, ... */
    int64_t t;   /* step of the run, 1, 2, ... */
    double loss; /* mean over the window's samples */
    struct pp_scores scores;
    double seconds; /* without `paused` */
    double paused;  /* seconds in which a process was stopped */
    int64_t samples;
    double bubble;        /* 1 - sum of busy / (ranks * wall) over the window */
    double lr;            /* of the window's last step */
    int64_t skipped;      /* batches of the run that were not used because a number was not
                             finite */
    int64_t samples_done; /* samples of the run so far */
    /* Since the last sync point: */
    int64_t sync_steps;
    double sync_seconds;
    const double *busy;        /* [ranks] busy share of sync_seconds */
    struct pp_norm_sums norms; /* of the window; steps 0: they are not needed */
};

struct pp_epoch_result {
    int epoch;
    int64_t t; /* last step of the run so far */
    double train_loss, test_loss;
    struct pp_scores train_scores, test_scores;
    bool tested;
    bool best;      /* the best so far by checkpoint.best */
    double seconds; /* of training, without `paused` */
    double paused;  /* seconds in which a process was stopped */
    int64_t samples;
    double bubble;
    struct pp_norm_sums norms; /* of the epoch's steps that this process ran */
};

struct pp_rank_total { /* one rank over the whole run */
    double busy;       /* fraction of the training time */
    double waited;     /* fraction of the time that it was ready but had no core; < 0: unknown */
    struct pp_exec_bytes bytes;
};

struct pp_summary {
    double test_loss, train_loss;
    struct pp_scores test_scores, train_scores;
    bool tested;
    struct {
        const char *metric; /* that of checkpoint.best, which decided; NULL: no best one */
        double value;
        int64_t step, epoch;
    } best;
    bool ended_by_patience;
    double samples_per_second; /* of this process, as are all measurements */
    struct pp_bubble bubble;   /* as measured */
    double bubble_ideal; /* of the schedule: equal stages, B = 2F, ranks that start together */
    const struct pp_forecast *forecast;
    const char *advice;    /* what limits the pipeline; "": no advice */
    double load, waited;   /* load of the machine before the run; mean of ranks[]; < 0: unknown */
    double schedule_bound; /* least time of any schedule / measured time, for a full batch */
    double train_seconds, wall_seconds; /* of the whole run; of this process */
    double test_seconds, save_seconds;  /* of this process, and not part of train_seconds */
    double input_seconds; /* of this process: steps waited for input, as part of train_seconds */
    struct pp_norm_sums norms; /* of the last epoch */
    int64_t steps, samples;
    struct {
        int64_t steps, samples;
        double seconds;
    } before; /* the part of these that earlier processes did; zeros unless the run was resumed */
    int64_t skipped, rewinds; /* batches that were not used because a number was not finite; see
                                 train.nonfinite */
    int epochs;
    const struct pp_rank_total *ranks; /* [run->layout->ranks] */
    const char *weights_sha256;
    const char *schedule_sha256; /* pp_plan_digest() of a full batch's plan */
};

/* Writes a mean loss or accuracy: 0.1234, 1.0291e+26, or "none" if no target counted. Returns
 * out. */
static inline const char *pp_mean_text(double x, char out[16])
{
    snprintf(out, 16, isnan(x) ? "none" : fabs(x) < 1e6 ? "%.4f" : "%.4e", x);
    return out;
}

struct pp_pace;

/* The steps at which a run that repeats another one saves and logs, because that one did. Nothing is
 * owned. */
struct pp_replay {
    const int64_t *saves, *records; /* [n_saves], [n_records] steps, ascending */
    int n_saves, n_records;
    int64_t
        end; /* the run saves and stops after this step: PP_ESTOPPED if it is not its last one */
};

struct pp_metrics_start { /* nothing is owned; all of it outlives the metrics */
    const struct pp_run *run;
    const char *name;                 /* name of the config, for runs without a folder */
    FILE *out;                        /* log lines and summary */
    bool quiet;                       /* print only the summary */
    const char *dir;                  /* run folder; "": nothing is written */
    const struct pp_lock *lock;       /* lock of the run folder */
    const struct pp_dataset *data[2]; /* by split; their remarks are printed; NULL: not on this
                                         rank */
    int64_t total_steps;              /* steps of the run */
    int epochs;                       /* number of epochs, of which the last may be cut short */
    int64_t step;                     /* steps done before; 0: the run begins */
    bool goes_on;                     /* metrics.jsonl exists and ends with that step */
    const uint32_t (*data_crc)[2];    /* by split: CRC-32 of images, of labels; 0: none */
    const char *changes;              /* see struct pp_ckpt_state; NULL: no changes */
    const char *graphs;               /* result of pp_exec_graphs() */
    struct pp_pace *pace;             /* which ranks are slow; owned by the metrics */
};

/* A key that a resumed run changed with --allow. */
struct pp_change {
    long long step; /* the last step with the old value */
    const char *key, *was, *is;
};

/* Calls visit() for each line of pp_ckpt_state.changes, which is NULL if there are none. Errors:
 * PP_ERESOURCE, PP_EFORMAT. Local. */
int pp_changes_visit(const char *changes, void (*visit)(void *ctx, const struct pp_change *c),
                     void *ctx);

/* Opens the files in the run folder and describes the run in the log. Errors: PP_EIO, PP_EPERM. */
int pp_metrics_open(const struct pp_backend *be, const struct pp_transport *tp,
                    const struct pp_metrics_start *from, struct pp_metrics **out);
void pp_metrics_close(struct pp_metrics **m);

void pp_metrics_window(struct pp_metrics *m, const struct pp_window *w, int steps_per_epoch,
                       bool record);
void pp_metrics_epoch(struct pp_metrics *m, const struct pp_epoch_result *e);

/* Reports that step t was bad; `why` describes it. `to` is the step whose weights were restored, or
 * -1 if the batch was skipped. */
void pp_metrics_nonfinite(struct pp_metrics *m, int epoch, int64_t t, int64_t to, const char *why);

/* Reports that the run ends early, after step t, with the recorded failure. m may be NULL. */
void pp_metrics_end(struct pp_metrics *m, int64_t t, bool stopped);

/* Writes all records up to this step to the disk, before a checkpoint counts. */
void pp_metrics_sync(struct pp_metrics *m);

/* Removes the records after `step`, the summary and a partial line from metrics.jsonl in the run
 * folder: writes a new file, which the caller commits. out->f is NULL if there is no metrics.jsonl.
 * Errors: PP_EIO, PP_EPERM. */
int pp_metrics_cut(const char *dir, int64_t step, struct pp_file_write *out);

/* Writes summary.json and prints the summary. Errors: PP_EIO if earlier data were lost, or if the
 * folder now belongs to another run. */
int pp_metrics_finish(struct pp_metrics *m, const struct pp_summary *s);

/* ---- timeline */

/*
 * timeline.json of a run: one step as it ran and, next to it, as it would run with the mean times
 * of its actions. Every run with a folder writes one; it costs a copy of the ring per epoch.
 */

struct pp_timeline;

/* Allocates memory for the last steps of an epoch in the ring. Local. The caller owns *out. Errors:
 * PP_ERESOURCE. */
int pp_timeline_create(const struct pp_ring *ring, struct pp_timeline **out);
void pp_timeline_destroy(struct pp_timeline **t); /* accepts NULL in *t */

/* Copies the training steps that are in the ring, before an evaluation overwrites them. Allocates
 * nothing. Local. */
void pp_timeline_keep(struct pp_timeline *t, const struct pp_ring *ring);

struct pp_timeline_spec { /* nothing is owned */
    const struct pp_layout *layout;
    const char *schedule; /* as in the config */
    struct pp_transport *tp;
    const struct pp_forecast *forecast;
    const char *dir;     /* run folder */
    int64_t epoch_steps; /* training steps of an epoch */
    /* step t of the run is the last of an epoch if epoch_steps divides t - offset */
    int64_t offset;
    int test_steps;
};

/* Writes one of the kept steps, on rank 0: the one of median length among the steps of full batches
 * that all ranks have completely. If there is none, writes nothing. Collective. Errors: PP_EIO,
 * PP_EPERM, PP_ERESOURCE. */
int pp_timeline_write(const struct pp_timeline *t, const struct pp_timeline_spec *spec);

/* ---- trace */

/*
 * train --trace: writes the actions of all ranks over a range of steps as trace events into one
 * file. Every rank records its actions anyway; in that range, rank 0 collects new records at sync
 * points and appends them. So a run that is killed leaves a trace that ends shortly before.
 */

struct pp_tracer;

/* Trace events of all ranks for steps first to last go to `file` (see ppcli/sim/trace.h); 0: the
 * first 50 steps that are trained now. file NULL: no trace. */
struct pp_trace_wish {
    const char *file;
    int64_t first, last;
};

struct pp_tracer_spec { /* nothing is owned */
    const struct pp_layout *layout;
    const char *schedule; /* as in the config */
    struct pp_trace_wish wish;
    struct pp_transport *tp;
    const struct pp_ring *ring; /* this rank's */
    int64_t done, total_steps;  /* steps of the run before this process, and in all */
    int test_steps;             /* batches of one evaluation */
};

/* Returns how many complete steps the ring should hold, if memory allows. */
int64_t pp_tracer_ring_steps(const struct pp_trace_wish *wish);

/* Opens the trace. *out stays NULL if no trace is wanted; all functions below accept NULL.
 * Collective. Errors: PP_EUSAGE (the run has no such steps), PP_EIO, PP_EPERM, PP_ENOINPUT,
 * PP_ERESOURCE. */
int pp_tracer_open(const struct pp_tracer_spec *spec, struct pp_tracer **out);

/* Begins step t. Local. */
void pp_tracer_step(struct pp_tracer *tc, int64_t t);

/* Returns whether the run is in the traced range. Local. */
bool pp_tracer_is_on(const struct pp_tracer *tc);

/* Returns memory for the losses of the micro-batches of step t, for pp_exec_keep_losses(); NULL if
 * the step is not traced, or on a rank without the last stage. Local. */
double *pp_tracer_losses(struct pp_tracer *tc, int64_t t);

/* Returns whether the ranks must synchronize after step t, so that no record is overwritten. It is
 * the same on every rank. */
bool pp_tracer_wants_sync(const struct pp_tracer *tc, int64_t t);

/* Collects new records after step t at a sync point, and after an evaluation. Collective. */
int pp_tracer_drain(struct pp_tracer *tc, int64_t t);

/* Ends a batch of an evaluation that follows step t. Collective. */
int pp_tracer_test_step(struct pp_tracer *tc, int64_t t);

/* Ends the trace of a run of t steps and reports it. Collective. Errors: PP_EIO. */
int pp_tracer_finish(struct pp_tracer *tc, int64_t t);

/* Destroys the tracer. The file stays and is valid. Local. */
void pp_tracer_destroy(struct pp_tracer **tc);

#endif
