/* SPDX-License-Identifier: Apache-2.0 */
/* What `ppcli plan` was asked to plan: from options, from a config with options on top, or from a
 * table, with costs for every stage. */
#ifndef PPCLI_CLI_PLAN_REQUEST_H
#define PPCLI_CLI_PLAN_REQUEST_H

#include "ppcli/sim.h"
#include "command.h"

enum {
    PLAN_COST_F,
    PLAN_COST_I,
    PLAN_COST_W,
    PLAN_COST_COMM,
    PLAN_COST_OVERLAP,
    PLAN_COSTS
};

struct plan_words {
    const char *config, *csv;
    const char *costs[PLAN_COSTS]; /* as written; NULL: not given */
};

struct plan_request {
    struct pp_plan *plan;      /* proved */
    struct pp_sim_costs costs; /* of its stages and boundaries */
    double *arrays, *transfer; /* behind `costs` */
    size_t *bytes;             /* [stages] memory of each rank of a config's run; else NULL */
};

/* Errors: PP_EUSAGE; PP_ERESOURCE when the plan is larger than the memory that is left; those of
 * the config, the table and the schedule. plan_request_fini() whatever it returns. */
int plan_request_make(const struct plan_words *words, const struct pp_cli_settings *settings,
                      bool times, struct plan_request *out);
void plan_request_fini(struct plan_request *q);

#endif
