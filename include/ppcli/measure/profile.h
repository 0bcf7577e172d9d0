/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measured pipelines: when each action of each rank began and ended, as ppcli and other programs
 * write it. From that follow the plan that ran, what its actions take, and how near a simulation
 * comes to it. Local, no clock, no device. Times are seconds, memory is bytes.
 */
#ifndef PPCLI_MEASURE_PROFILE_H
#define PPCLI_MEASURE_PROFILE_H

#include "ppcli/conf/config.h"
#include "ppcli/sim/sim.h"

struct pp_profile {
    const char *source;    /* the program that wrote the files */
    const char *schedule;  /* that was recognised; NULL: an order of its own */
    int replicas;          /* found in the files; the first is read */
    int steps;             /* complete ones in the same order */
    int first;             /* the first step that counts; those before it warm up */
    struct pp_plan *plan;  /* that ran, with its P, V and M */
    double **start, **end; /* [steps * P] of each action of the plan */
    double **after;        /* seconds of calls after it, during which its rank does nothing else */
    double *total;         /* [steps] seconds from step to step; 0: unknown */
    double *memory;        /* [P] the most of the steps that count; 0: unknown */
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
    double least, low, mean, high, most; /* low, high: one of 20 values is below, one above */
};

struct pp_profile_fit {
    double latency;               /* of a transfer */
    double launch;                /* between two actions of a rank, with its calls for messages */
    double *latencies, *launches; /* the same in each step that counts, without calls */
    double step, step_least, step_most; /* measured: first start to last end; the median */
    double outside;          /* median of a step's time before and after it; 0: unknown */
    double each;             /* a step simulated with each action's time: the median */
    double error;            /* simulated / measured - 1 of a step: the median */
    double means;            /* the step simulated with the means of each stage */
    double idle;             /* measured share of time in which ranks do not compute */
    struct pp_bubble bubble; /* of the simulation with means, whose waiting is transfers */
    double jitter;           /* the part of idle that the simulation does not explain */
    double memory_base, memory_slope, memory_error; /* of a rank: base + slope * micro-batches */
    int typical;                                    /* the step of median length */
    struct pp_profile_range *ranges;                /* [P][PP_OPS] of one action */
    double *busy;                                   /* [P] mean share of the step */
    double *peak;                                   /* [P] micro-batches held */
    double *costs; /* [3 * n_virtual] F, I, W of a micro-batch: medians of the steps' means */
    bool split;    /* I and W were measured separately; else each is half a B */
};

/* Fits the simulator to a profile. The caller calls pp_profile_fit_fini(). Errors: PP_ERESOURCE. */
int pp_profile_fit_make(const struct pp_profile *p, struct pp_profile_fit *out);
void pp_profile_fit_fini(struct pp_profile_fit *f);

/* Simulates a step with the times of its own actions, or, if `step` is -1, with mean times. Sets
 * *costs to the means. Errors: PP_ERESOURCE. */
int pp_profile_simulate(const struct pp_profile *p, const struct pp_profile_fit *f, int step,
                        bool with_times, struct pp_sim_costs *costs, struct pp_sim_result *out);

#endif
