/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans that a command line describes: `ppcli plan` shows one, `ppcli mark` compares one with
 * others. Local to cli/.
 */
#ifndef PPCLI_CLI_PLAN_H
#define PPCLI_CLI_PLAN_H

#include "ppcli/show/results.h"
#include "ppcli/sim/sim.h"
#include "command.h"

/* The words that describe a plan; NULL: not given. */
struct plan_asked {
    struct pp_cli_settings settings;
    const char *config, *csv, *costs[PP_COSTS];
};

/* The plan of options, of a config with options on top, or of a table, with the costs of its
 * stages. */
struct plan_request {
    bool times;                     /* the start and end of each action will be simulated */
    struct pp_geometry g;           /* its memory_cap: forwards that a rank may hold; 0: any */
    const struct plan_asked *asked; /* all of these are set by plan_request_make(): */
    const char *schedule;           /* of options */
    struct pp_cost_list lists[PP_COSTS];
    struct pp_plan *plan;        /* proved */
    struct pp_stage_costs costs; /* of its stages and boundaries */
    size_t *bytes;               /* [stages] memory of each rank of a config's run; else NULL */
};

/* Makes the plan that was asked for. Call plan_request_fini() whatever it returns. Errors:
 * PP_EUSAGE; PP_ERESOURCE if the plan is larger than the memory that is left; those of the config,
 * the table and the schedule. */
int plan_request_make(const struct plan_asked *asked, struct plan_request *q);
void plan_request_fini(struct plan_request *q);

/* Returns the most micro-batches of activations that a rank holds, and sets *rank to that rank. */
double find_plan_peak(const struct pp_plan *plan, const struct pp_sim_result *result, int *rank);

#endif
