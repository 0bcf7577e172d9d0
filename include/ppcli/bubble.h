/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bubble: the mean idle share of all ranks, from step to step, and what it comes from. train,
 * bench, plan --best, explain and summary.json all take it from here. Local, no clock, no device.
 */
#ifndef PPCLI_BUBBLE_H
#define PPCLI_BUBBLE_H

#include "ppcli/json.h"
#include "ppcli/sim.h"

struct pp_bubble {
    double idle;         /* the bubble; the three parts below add up to it, none below 0 */
    double schedule;     /* the plan with equal stages (measured means) and free transfers */
    double imbalance;    /* what the times of the real stages add; of an order that is made for
                            them: the least that any has, and schedule what this one adds */
    double waiting;      /* the rest: transfer, waking up, waiting for a core */
    int stages, busiest; /* the stage with most work, */
    double work;         /* and its share of all work */
};

/* Share of the ranks' time waiting for a core that spoils figures. */
#define PP_BUBBLE_WAITED 0.02

/* Idle share of `ranks` ranks that computed `busy` together within `time`, in the same unit. */
double pp_bubble_idle(double busy, double time, int ranks);

/*
 * The ideal bubble, as textbooks have it: of the plan's schedule with equal chunks, F = I = W = 1, fused
 * B, free transfers, one batch, nothing merged and nothing recomputed. (P-1)/(M+P-1) for gpipe and
 * 1f1b. Errors: PP_ERESOURCE.
 */
int pp_bubble_ideal(const struct pp_plan *plan, double *out);
/* The same of the plan itself. */
int pp_bubble_equal(const struct pp_plan *plan, double *out);

/* Work of each rank in one step, with the optimizer and costs->launch: work[P]. Returns the sum. */
double pp_sim_work(const struct pp_plan *plan, const struct pp_sim_costs *costs, double *work);

/*
 * The time from step to step when the same batch repeats. The ranks wait for each other every n
 * steps: then the pipeline drains and fills. n is meet_every, or as many as take
 * meet_after if those are fewer; both 0: never. Errors: PP_ERESOURCE.
 */
int pp_sim_step(const struct pp_plan *plan, const struct pp_sim_costs *costs, double meet_every,
                double meet_after, double *out);

/*
 * Take an idle share apart. costs: mean times of the virtual stages; latency, transfer and launch
 * count as waiting. What one part explains is no longer there for the next, so that the sum is
 * `idle` also where that is less than simulated. Errors: PP_ERESOURCE.
 */
int pp_bubble_explain(const struct pp_plan *plan, const struct pp_sim_costs *costs,
                      double meet_every, double idle, struct pp_bubble *out);

/* The parts, the busiest stage and its share, into the open object. */
void pp_bubble_json(const struct pp_bubble *b, struct pp_json *j);

/* In percent, parts that add up to a tenth: "31.2 = 20.0 + 8.1 + 3.1", of one stage "0.8". */
#define PP_BUBBLE_TEXT_MAX 160
char *pp_bubble_parts(const struct pp_bubble *b, char out[PP_BUBBLE_TEXT_MAX]);
/* The same in words: "31.2 %: schedule 20.0 + imbalance 8.1 + transfers and waiting 3.1; stage 0
 * has 67 % of the work". Both return out. */
char *pp_bubble_text(const struct pp_bubble *b, char out[PP_BUBBLE_TEXT_MAX]);

#endif
