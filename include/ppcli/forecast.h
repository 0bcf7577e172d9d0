/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run should have taken, from what its own actions took: the plan of a full batch simulated
 * with the mean time of every virtual stage's F, I and W and of the optimizer. What is missing
 * between this and the measurement is hand-over, waking up and a machine that did other things.
 */
#ifndef PPCLI_FORECAST_H
#define PPCLI_FORECAST_H

#include "ppcli/bubble.h"
#include "ppcli/exec.h"

struct pp_forecast {
    const struct pp_layout *layout; /* not owned */
    const struct pp_plan *plan;     /* of a full batch; not owned */
    bool known;                     /* false: no micro-batch of full size was seen on some stage */
    double *f, *i, *w;              /* [n_virtual] mean seconds, over replicas */
    double *update;                 /* [stages] mean seconds of the optimizer */
    double *rows;                   /* [M] of the plan, in parts of a full micro-batch */
    struct pp_sim_costs costs;      /* of the arrays above */
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

#endif
