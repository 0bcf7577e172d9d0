/* SPDX-License-Identifier: Apache-2.0 */
/* What a run writes about itself: metrics, the timeline of a step, a trace. */
#ifndef PPCLI_RUNLOG_RUNLOG_H
#define PPCLI_RUNLOG_RUNLOG_H

#include <math.h>
#include <stdio.h>

#include "ppcli/pipe/exec.h"
#include "ppcli/pipe/layout.h"
#include "ppcli/sim/sim.h"

/* ---- forecast
 *
 * What a run should have taken, from what its own actions took: the plan of a full batch simulated
 * with the mean time of every virtual stage's F, I and W and of the optimizer. What is missing
 * between this and the measurement is transfer, waking up and a machine that did other things.
 */

struct pp_forecast {
    const struct pp_layout *layout; /* not owned */
    const struct pp_plan *plan;     /* of a full batch; not owned */
    bool known;                     /* false: no micro-batch of full size was seen on some stage */
    struct pp_stage_costs stages;   /* mean seconds over replicas; between: of the optimizer */
    struct pp_sim_result result;    /* with times of a step that has others before it */
    double meet_every;              /* steps from one meeting of all ranks to the next */
    double step_seconds;            /* from step to step */
    double least_seconds;           /* that no schedule on these ranks could be below */
    double bubble;                  /* as the measured one: 1 - sum of work / (ranks * time) */
};

/*
 * Collective: means over the run so far. meet_every: steps from one meeting of all ranks, where the
 * pipeline drains, to the next. The caller owns *out. Errors: PP_ERESOURCE.
 */
int pp_forecast_create(const struct pp_layout *l, const struct pp_exec *x, struct pp_transport *tp,
                       double meet_every, struct pp_forecast **out);

/* What a measured idle share comes from, with this run's own times. Not known: all of it is
 * waiting. Errors: PP_ERESOURCE. Local. */
int pp_forecast_explain(const struct pp_forecast *f, double idle, struct pp_bubble *out);
void pp_forecast_destroy(struct pp_forecast **f); /* accepts NULL in *f */

/* ---- metrics */

/*
 * What a run tells: log lines and a live line for people, metrics.jsonl and summary.json for
 * machines. Only rank 0 has one.
 */

#define PP_METRICS_SCHEMA 1 /* of metrics.jsonl and summary.json */

struct pp_metrics;
struct pp_file_write;
struct pp_lock;

/* One window of training, over all ranks. */
struct pp_window {
    int epoch;       /* 1.. */
    int step;        /* of the epoch, 1.. */
    int64_t t;       /* of the run, 1.. */
    double loss;     /* mean over the window's samples */
    double accuracy; /* 0..1 */
    double seconds;  /* without ... */
    double paused;   /* ... those in which a process was stopped */
    int64_t samples;
    double bubble;        /* 1 - sum of busy / (ranks * wall) over the window */
    double lr;            /* of its last step */
    int64_t skipped;      /* batches of the run that were not used: not finite */
    int64_t samples_done; /* of the run */
    /* Since the last sync point: */
    int64_t sync_steps;
    double sync_seconds;
    const double *busy; /* [ranks] share of that time */
};

struct pp_epoch_result {
    int epoch;
    int64_t t; /* last step, of the run */
    double train_loss, train_accuracy;
    bool tested;
    double test_loss, test_accuracy;
    double seconds; /* training only, without ... */
    double paused;  /* ... those in which a process was stopped */
    int64_t samples;
    double bubble;
};

struct pp_rank_total { /* of one rank, over the whole run */
    double busy;       /* fraction of the training time */
    double waited;     /* fraction of the time that it was ready but had no core; < 0: unknown */
    struct pp_exec_bytes bytes;
};

struct pp_summary {
    double test_loss, test_accuracy, train_loss, train_accuracy;
    bool tested;
    double samples_per_second; /* by this process, as all that was measured is */
    struct pp_bubble bubble;   /* as measured */
    double bubble_ideal; /* of the schedule: equal stages, B = 2F, ranks that start together */
    const struct pp_forecast *forecast;
    const char *advice;    /* what limits the pipeline; "": nothing to say */
    double load, waited;   /* of the machine before the run; mean of ranks[]; < 0: unknown */
    double schedule_bound; /* the least time of any schedule / the measured time, of a full batch */
    double train_seconds, wall_seconds; /* of the whole run; of this process */
    int64_t steps, samples;
    struct {
        int64_t steps, samples;
        double seconds;
    } before; /* of these, what earlier processes did: zeros, unless the run was resumed */
    int64_t skipped, rewinds; /* batches that were not used, as not finite; see train.nonfinite */
    int epochs;
    const struct pp_rank_total *ranks; /* [run->layout->ranks] */
    const char *weights_sha256;
    const char *schedule_sha256; /* pp_plan_digest() of a full batch's plan */
};

/* A mean loss or accuracy: 0.1234, 1.0291e+26, "none" where no target counted. Returns out. */
static inline const char *pp_mean_text(double x, char out[16])
{
    snprintf(out, 16, isnan(x) ? "none" : fabs(x) < 1e6 ? "%.4f" : "%.4e", x);
    return out;
}

struct pp_pace;

struct pp_metrics_start { /* nothing is owned, all of it outlives the metrics */
    const struct pp_run *run;
    const char *name;                 /* of the config, for outputs of runs without a folder */
    FILE *out;                        /* log lines and summary */
    bool quiet;                       /* the summary only */
    const char *dir;                  /* run folder; "": nothing is written */
    const struct pp_lock *lock;       /* of it */
    const struct pp_dataset *data[2]; /* by split; remarks are printed; NULL: not here */
    int64_t total_steps;              /* of the run */
    int epochs;                       /* that these are, the last one may be cut short */
    int64_t step;                     /* steps done before; 0: the run begins */
    bool goes_on;                     /* metrics.jsonl is there, cut after that step */
    const char *changes;              /* as in struct pp_ckpt_state; NULL: none */
    const char *graphs;               /* what pp_exec_graphs() says */
    struct pp_pace *pace;             /* which ranks are slow; the metrics' own */
};

/* A key that a resumed run changed, as --allow named it. */
struct pp_change {
    long long step; /* after which */
    const char *key, *was, *is;
};

/* Call visit() for each line of pp_ckpt_state.changes; NULL: there is none. Errors: PP_ERESOURCE,
 * PP_EFORMAT. Local. */
int pp_changes_visit(const char *changes, void (*visit)(void *ctx, const struct pp_change *c),
                     void *ctx);

/* Open the files in the run folder; says where ranks sit. Errors: PP_EIO, PP_EPERM. */
int pp_metrics_open(const struct pp_backend *be, const struct pp_transport *tp,
                    const struct pp_metrics_start *from, struct pp_metrics **out);
void pp_metrics_close(struct pp_metrics **m);

void pp_metrics_window(struct pp_metrics *m, const struct pp_window *w, int steps_per_epoch,
                       bool record);
void pp_metrics_epoch(struct pp_metrics *m, const struct pp_epoch_result *e);

/* Step t was bad, `why` says how. to: the step that the weights were taken back to; -1: the batch
 * was skipped. */
void pp_metrics_nonfinite(struct pp_metrics *m, int epoch, int64_t t, int64_t to, const char *why);

/* The run ends before its last step, after step t, with the recorded failure. m may be NULL. */
void pp_metrics_end(struct pp_metrics *m, int64_t t, bool stopped);

/* Before a checkpoint counts: what was told of the steps up to it is on the disk. */
void pp_metrics_sync(struct pp_metrics *m);

/* Take what lies after `step` out of metrics.jsonl in the run folder, the summary, and a line that
 * was never finished: a file for the caller to commit; out->f NULL: there is no metrics.jsonl.
 * Errors: PP_EIO, PP_EPERM. */
int pp_metrics_cut(const char *dir, int64_t step, struct pp_file_write *out);

/* Writes summary.json and prints the summary. Errors: PP_EIO when something written on the way was
 * lost, or the folder is not this run's any more. */
int pp_metrics_finish(struct pp_metrics *m, const struct pp_summary *s);

/* ---- timeline */

/*
 * timeline.json of a run: one step as it was and, beside it, as it should have been from the mean
 * times of its actions. Every run with a folder leaves one; it costs a copy of the ring per epoch.
 */

struct pp_timeline;

/* What the last step of an epoch leaves in the ring. Local. The caller owns *out.
 * Errors: PP_ERESOURCE. */
int pp_timeline_create(const struct pp_ring *ring, struct pp_timeline **out);
void pp_timeline_destroy(struct pp_timeline **t); /* accepts NULL in *t */

/* Remember the training steps that are in the ring now, before an evaluation overwrites them.
 * Local; allocates nothing. */
void pp_timeline_keep(struct pp_timeline *t, const struct pp_ring *ring);

struct pp_timeline_spec { /* nothing is owned */
    const struct pp_layout *layout;
    const char *schedule; /* as the config has it */
    struct pp_transport *tp;
    const struct pp_forecast *forecast;
    const char *dir;     /* run folder */
    int64_t epoch_steps; /* of training, in an epoch */
    int64_t
        offset; /* step t of the run is the last of an epoch where epoch_steps divides t - offset */
    int test_steps;
};

/*
 * Collective: of the remembered steps of a full batch that all ranks have whole, the one of median
 * length is written by rank 0; nothing when there is none. Errors: PP_EIO, PP_EPERM, PP_ERESOURCE.
 */
int pp_timeline_write(const struct pp_timeline *t, const struct pp_timeline_spec *spec);

/* ---- trace */

/*
 * train --trace: the actions of all ranks over a range of steps, as trace events in one file. Every
 * rank records anyway; at sync points, in that range, rank 0 collects what is new and appends it,
 * so a run that is killed leaves what it did until shortly before.
 */

struct pp_tracer;

/* Trace events of all ranks go to this file (see ppcli/sim/trace.h), of the steps from first to last;
 * 0: the first 50 that are trained now. file NULL: no trace. */
struct pp_trace_wish {
    const char *file;
    int64_t first, last;
};

struct pp_tracer_spec { /* nothing is owned */
    const struct pp_layout *layout;
    const char *schedule; /* as the config has it */
    struct pp_trace_wish wish;
    struct pp_transport *tp;
    const struct pp_ring *ring; /* this rank's */
    int64_t done, total_steps;  /* of the run: before this process, at its end */
    int test_steps;             /* of one evaluation */
};

/* Whole steps that the ring should hold, when nothing speaks against it. */
int64_t pp_tracer_ring_steps(const struct pp_trace_wish *wish);

/* Collective. *out stays NULL when no trace is wanted; all the functions below accept that. Errors:
 * PP_EUSAGE (the run has no such steps), PP_EIO, PP_EPERM, PP_ENOINPUT, PP_ERESOURCE. */
int pp_tracer_open(const struct pp_tracer_spec *spec, struct pp_tracer **out);

/* Step t begins. Local. */
void pp_tracer_step(struct pp_tracer *tc, int64_t t);

/* Is the run in the traced range? Local. */
bool pp_tracer_is_on(const struct pp_tracer *tc);

/* Must the ranks meet after step t, so that nothing is overwritten? The same on every rank. */
bool pp_tracer_wants_sync(const struct pp_tracer *tc, int64_t t);

/* Collective: after step t at a sync point, and after an evaluation. */
int pp_tracer_drain(struct pp_tracer *tc, int64_t t);

/* Collective: after a batch of an evaluation that follows step t. */
int pp_tracer_test_step(struct pp_tracer *tc, int64_t t);

/* Collective: the end of a run of t steps. Says what there is. Errors: PP_EIO. */
int pp_tracer_finish(struct pp_tracer *tc, int64_t t);

/* Local; what is in the file stays, and is valid. */
void pp_tracer_destroy(struct pp_tracer **tc);

#endif
