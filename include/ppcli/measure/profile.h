/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measured pipelines: when each action of each rank began and ended, as other programs write it and
 * as ppcli does. From that: the plan that ran, what its actions take, what a simulation of it gives,
 * and what another plan would have taken with the same times. Local, no clock, no device. Times are
 * seconds, memory is bytes.
 */
#ifndef PPCLI_MEASURE_PROFILE_H
#define PPCLI_MEASURE_PROFILE_H

#include "ppcli/conf/config.h"
#include "ppcli/sim/sim.h"

struct pp_profile {
    const char *source;    /* whose files these are */
    const char *schedule;  /* what was recognised; NULL: an order of its own */
    int replicas;          /* that were found; the first is shown */
    int steps;             /* that are whole and in one order */
    int first;             /* of them, from which on they count */
    struct pp_plan *plan;  /* what ran, with its P, V and M */
    double **start, **end; /* [steps * P] of each action of the plan */
    double **after;        /* of the calls after it: its rank does nothing else */
    double *total;         /* [steps] from step to step; 0: unknown */
    double *memory;        /* [P] largest of the steps that count; 0: unknown */
    double shift;          /* the largest correction of a rank's clock */
};

/*
 * Read `path`: a folder with a file for each rank, or a file of all ranks.
 *   Primus     pp_rank_N.json beside config.json (--dump_pp_data)
 *   PyTorch    Chrome traces of its profiler, .json or .json.gz, of torch.distributed.pipelining
 *   Megatron   event_times_PP*_pp_rank_N_rank_N.json of its pipeline timer
 *   ppcli      a run folder, its timeline.json, or what train --trace wrote
 *   CSV        "rank,action,start_ms,end_ms", actions as torch writes them ("0F3")
 * Errors: PP_ENOINPUT, PP_EFORMAT (what is missing in which file), PP_EPERM, PP_EIO, PP_ERESOURCE.
 * The caller owns *out.
 */
int pp_profile_read(const char *path, struct pp_profile **out);
void pp_profile_close(struct pp_profile **p); /* accepts NULL */

struct pp_profile_range {
    double least, low, mean, high, most; /* low, high: of 20 values one is below, one above */
};

struct pp_profile_fit {
    double latency;               /* of a transfer */
    double launch;                /* between two actions of a rank, calls for messages in it */
    double *latencies, *launches; /* the same of each step that counts, without calls */
    double step, step_least, step_most; /* measured: first start to last end; the median */
    double outside;                     /* median of the rest of a step; 0: unknown */
    double each;             /* simulated with each action's time, of the step of median error */
    double error;            /* that median, each / step - 1 of one step */
    double means;            /* simulated with the means of each stage */
    double idle;             /* measured share that ranks do not compute */
    struct pp_bubble bubble; /* of the simulation with means: transfers are its waiting */
    double jitter;           /* what is left of idle */
    double memory_base, memory_slope, memory_error; /* of a rank: base + slope * micro-batches */
    int typical;                                    /* the step of median length */
    struct pp_profile_range *ranges;                /* [P][PP_OPS] of one action */
    double *busy;                                   /* [P] mean share of the step */
    double *peak;                                   /* [P] micro-batches held */
    double *costs; /* [3 * n_virtual] F, I, W of a micro-batch, medians of the steps' means */
    bool split;    /* I and W were measured apart; else each is half a B */
};

/* Errors: PP_ERESOURCE. pp_profile_fit_fini(). */
int pp_profile_fit_make(const struct pp_profile *p, struct pp_profile_fit *out);
void pp_profile_fit_fini(struct pp_profile_fit *f);

/* Another plan with the times of `f`, a rank's own divided among its chunks. */
struct pp_profile_other {
    char schedule[PP_NAME_MAX];
    int chunks, microbatches;
    double cap;  /* of those that have one; 0: none */
    bool even;   /* as if all ranks had the same work */
    double step; /* without what is outside */
    double idle;
    double memory; /* of the rank that holds most; 0: unknown */
};

/* One plan, `plan` of the same P; the rows of a micro-batch follow from its M. */
int pp_profile_predict(const struct pp_profile *p, const struct pp_profile_fit *f,
                       const struct pp_plan *plan, struct pp_profile_other *out,
                       double *memory /* [P] or NULL */);

/* All schedules, 1, 2 and 4 chunks and the profile's own, half, as many and twice as many
 * micro-batches, with at most `memory` bytes a rank (0: any): best first. The caller frees *out. */
int pp_profile_others(const struct pp_profile *p, const struct pp_profile_fit *f, double memory,
                      struct pp_profile_other **out, int *n);

/* Simulate step `step` with each action's time, -1 with the means. *costs are the means. Errors:
 * PP_ERESOURCE. */
int pp_profile_simulate(const struct pp_profile *p, const struct pp_profile_fit *f, int step,
                        bool with_times, struct pp_sim_costs *costs, struct pp_sim_result *out);

#endif
