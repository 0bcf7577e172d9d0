/* SPDX-License-Identifier: Apache-2.0 */
/* What `ppcli plan` is asked for, and what it finds. Local to cli/. */
#ifndef PPCLI_CLI_PLAN_H
#define PPCLI_CLI_PLAN_H

#include "ppcli/show/results.h"
#include "ppcli/plan/machine_plan.h"
#include "ppcli/sim/sim.h"
#include "command.h"

#define PLAN_CORES_MAX 1024 /* as run.threads */
#define PLAN_MACHINE_LISTS 3

/* The words as written; NULL: not given. */
struct plan_asked {
    struct pp_cli_settings settings;
    const char *config, *csv, *costs[PP_COSTS];
    const char *par;    /* --csv: the table is marked */
    const char *check;  /* how many to run for real; "auto": without a number */
    const char *memory; /* --best, --machine, --profile: bytes */
    const char *machine, *lists[PLAN_MACHINE_LISTS], *layout, *compare;
    const char *profile, *against, *html, *output;
    struct pp_look look;
    bool best, fp8, measure;
    int cores, ranks; /* INT_MIN: not given */
    int format;
    int only, emit; /* numbers of choices; -1: not given */
};

/* Is it --format json, or (*json false) no --format? Others are for plans alone. */
bool plan_prints_result(const struct plan_asked *a, bool *json);

/* Can the file be written, before the work whose result it shall hold? */
int plan_check_file(const char *option, const char *path);

/* ---- plan_request.c
 *
 * What `ppcli plan` was asked to plan: from options, from a config with options on top, or from a
 * table, with costs for every stage.
 */

struct plan_request {
    bool times;                       /* it will be simulated with start and end of each action */
    bool is_shaped;                   /* schedule and g are given, whatever else is asked */
    const char *schedule, *recompute; /* of options; recompute: --recompute, NULL: off */
    struct pp_geometry g;             /* its memory_cap: forwards that a rank may hold; 0: any */
    const struct plan_asked *asked;   /* all of these are set by plan_request_make(): */
    struct pp_cost_list lists[PP_COSTS];
    struct pp_plan *plan;        /* proved */
    struct pp_stage_costs costs; /* of its stages and boundaries */
    size_t *bytes;               /* [stages] memory of each rank of a config's run; else NULL */
};

/* Errors: PP_EUSAGE; PP_ERESOURCE when the plan is larger than the memory that is left; as of
 * the config, the table and the schedule. plan_request_fini() whatever it returns. */
int plan_request_make(const struct plan_asked *asked, struct plan_request *q);
void plan_request_fini(struct plan_request *q);

/* The most micro-batches of activations that a rank holds, and which one. */
double plan_request_peak(const struct plan_request *q, const struct pp_sim_result *result,
                         int *rank);

/* ---- what is asked beside a plan; a->best and the like say which of them */

/* Is the table legal, as fast as the schedule `par` ("best": as the fastest that fits) of its shape, and
 * within --memory-cap? PP_ECHECK when it does not pass; else as plan_request_make(). */
int plan_mark(const struct plan_asked *a);

/* Measure, search, print the table and the winner's lines. */
int plan_best(const struct plan_asked *a);

/* What to run on a machine that is not here. */
int plan_machine(const struct plan_asked *a);

/* A pipeline that was measured elsewhere. Errors: PP_EUSAGE, as of pp_profile_read(). */
int plan_profile(const struct plan_asked *a);

/* A machine file of this machine, with the times of the config's layers. */
int plan_measure(const struct plan_asked *a);

#endif
