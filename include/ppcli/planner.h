/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a step would take: the times of a model's pieces, measured on this machine with the real
 * backend and the real transport (measure), and the step time that follows for a plan (predict).
 * Knows layers, plans and times; what to compare is the search's business (ppcli/best.h).
 */
#ifndef PPCLI_PLANNER_H
#define PPCLI_PLANNER_H

#include <stdbool.h>
#include <stddef.h>

#include "ppcli/advice.h"
#include "ppcli/backend.h"
#include "ppcli/model.h"
#include "ppcli/plan.h"

struct pp_layer_seconds {
    double f, i, w;
};

/* All times in seconds. Sizes are rows of a micro-batch; between two of them a time is on the line
 * through both, outside on the line through the nearest two. */
struct pp_costs {
    int n_layers, n_sizes;
    int *sizes;                      /* [n_sizes] ascending */
    struct pp_layer_seconds *layers; /* [n_sizes][n_layers] */
    double *input;                   /* [n_sizes] rows of the data set -> the model's input */
    double *loss;                    /* [n_sizes] labels, loss and its gradient; behind input */
    double optimizer;                /* one parameter */
    double add;                      /* one element of a sum over replicas */
    double action;                   /* what the executor adds to every action */
    double latency;                  /* of a hand-over between two rank threads ... */
    double byte;                     /* ... and of each byte of it */
    int at_once;                     /* rank threads that were measured at the same time */
    int cores;                       /* that this process may use */
    bool linked;                     /* latency, byte are measured (two cores), not assumed */
    double took;                     /* what measuring took */
};

/* All times 0, sizes copied. Errors: PP_ERESOURCE. The caller owns *out. */
int pp_costs_create(int n_layers, const int *sizes, int n_sizes, struct pp_costs **out);
void pp_costs_destroy(struct pp_costs **costs); /* accepts NULL in *costs */

/* One layer's F, I and W of `rows` rows. Never negative. */
struct pp_layer_seconds pp_costs_layer(const struct pp_costs *c, int layer, int rows);

/* cost[n_layers]: F + I + W, what `assignment = time` cuts by; input and loss go to the ends. */
void pp_costs_by_layer(const struct pp_costs *c, int rows, double *cost);

struct pp_measure_spec {
    const struct pp_model *model;
    struct pp_backend_choice backend;
    enum pp_optimizer_kind optimizer;
    int ranks;        /* that will run at once */
    int samples;      /* of the data set: rows are gathered from all over it */
    const int *sizes; /* [n_sizes] micro-batch sizes, >= 1, ascending, no two the same */
    int n_sizes;
    double seconds; /* budget; what does not fit is extrapolated from smaller sizes */
};

/*
 * Measure. As many pinned threads as there are ranks, at most one a core, each with a piece of the
 * model and memory of its own, compute at the same time, as the ranks of a run do: what they cost
 * each other in caches and memory is in the times. Layers of equal shape share a time. Every figure
 * is a median or, of hand-overs, a quartile. With MPI the hand-over is not measured: the figures
 * are those of threads. Local. Errors: PP_ERESOURCE, those of the backend.
 */
int pp_costs_measure(const struct pp_measure_spec *spec, struct pp_costs **out);

struct pp_predict_spec {
    const struct pp_plan *plan; /* of training */
    const struct pp_model *model;
    const struct pp_costs *costs;
    const int *first, *last; /* [n_virtual] layers of each virtual stage */
    int rows;                /* of the share of a batch that the plan's M micro-batches make up */
    int replicas;
    int meet_every;    /* all ranks wait for each other after so many steps; 0: */
    double meet_after; /* after about so many seconds; 0: never */
    bool explain;      /* the bubble too: three times the work */
};

struct pp_prediction {
    double step;             /* seconds from step to step, in the long run */
    struct pp_bubble bubble; /* with spec.explain; else all 0 */
};

/* The bubble of a layout if time followed flops and hand-overs were free, with ranks that never
 * meet; advice as of pp_advice(). Errors: PP_ERESOURCE. */
int pp_predict_flops(const struct pp_layout *l, struct pp_bubble *out, char advice[PP_ADVICE_MAX]);

/*
 * Predict the step as the executor runs it: gradients sent before the weights' half, message slots,
 * no meeting between steps unless there is one, the optimizer at each rank's end of a step. With
 * more ranks than cores no less than all work shared by all cores. Errors: PP_ERESOURCE.
 */
int pp_predict(const struct pp_predict_spec *spec, struct pp_prediction *out);

#endif
