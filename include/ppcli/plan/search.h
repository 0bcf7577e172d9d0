/* SPDX-License-Identifier: Apache-2.0 */
/* What a step takes for given costs, and the search for the fastest way to run a model. */
#ifndef PPCLI_PLAN_SEARCH_H
#define PPCLI_PLAN_SEARCH_H

#include "ppcli/measure/measure.h"
#include "ppcli/measure/profile.h"
#include "ppcli/sim/sim.h"

/* ---- advice: one sentence that names what limits a pipeline and what would help. Local. */

#define PP_ADVICE_MAX 512
#define PP_ADVICE_OVER 0.05 /* a bubble that exceeds the ideal one by more than this gets advice */

struct pp_advice_spec { /* nothing is owned */
    const struct pp_layout *layout;
    const struct pp_bubble *bubble;
    const double *cost; /* [n_layers] time of each layer: F + I + W, in any unit */
    bool searched;      /* this is the best of all schedules and micro-batch counts */
    double waited;      /* share of the ranks' time that they waited for a core; < 0: unknown */
};

/* Writes the advice; "" for one stage. Errors: PP_ERESOURCE. */
int pp_advice(const struct pp_advice_spec *spec, char out[PP_ADVICE_MAX]);

/* Sets cost[n_layers] from the times of virtual stages: a layer gets its share of its stage by
 * flops. */
void pp_advice_costs(const struct pp_layout *l, const double *f, const double *i, const double *w,
                     double *cost);

/* ---- price.c: the step of a plan */

struct pp_prediction {
    double step;             /* seconds from step to step, in the long run */
    double sums;             /* of them, with replicas: for sums of gradients, the mean of ranks */
    struct pp_bubble bubble; /* with spec.explain; else all 0 */
};

/* Computes the bubble of a layout as if time followed flops, transfers were free and the ranks
 * never waited for all others; writes advice as pp_advice() does. Errors: PP_ERESOURCE. */
int pp_predict_flops(const struct pp_layout *l, struct pp_bubble *out, char advice[PP_ADVICE_MAX]);

/* ---- search
 *
 * A space says what is open: schedules, micro-batches, chunks, divisions, cuts, recomputation. The
 * search makes a row of each way to run the model in that space: a division, and its price from
 * measured or computed costs. The price is that of the plan and the memory that would really run.
 */

/* Says what a rank's time and memory are used for, in a row of a machine plan. */
struct pp_estimate {
    double step;   /* seconds */
    double tokens; /* a second and rank */
    double mfu;    /* of the peak of run.precision, or fp8: nothing computed again counts */
    double schedule, cut, transfer; /* shares of the ranks' time: the bubble */
    double tensor, sums; /* shares that messages of tensor parallelism and of replicas take */
    double weights, optimizer,
        activations; /* bytes of the fullest rank; optimizer: gradients too */
    double bytes;    /* their sum */
};

struct pp_row { /* one way to run a model: a division and its price */
    struct pp_division d;
    int order;         /* of its schedule in the list of schedules */
    bool timed;        /* cut by times; else as the config says, or as a profile ran */
    bool chooses_redo; /* d.recompute is the search's; else as the config says */
    bool fitted;       /* its order is made for the times of its cut, for at most d.memory_cap */
    int together;      /* W of so many are one product, by d.coalesce or by itself */
    struct pp_prediction time;
    size_t peak_bytes; /* of the rank that holds most */
    bool over;         /* which is more than a rank may hold */
    uint64_t identity; /* equal for equal lists of actions on equal layers */
    char also[256];    /* other schedules that are the same plan here: "gpipe, naive" */
    /* Of a machine plan: */
    struct pp_estimate e;
    bool own;     /* ppcli trains it; else only other systems do */
    int group;    /* from 1: rows that the model cannot tell apart */
    bool fastest; /* of its group */
};

struct pp_space { /* nothing is owned */
    const struct pp_config *cfg;
    const struct pp_model *model;
    struct pp_training training;
    struct pp_division base;          /* what all rows share: the numbers that the user gave */
    int chunks;                       /* given; 0: the search tries several */
    bool timed;                       /* cuts by times only */
    const struct pp_division *shapes; /* [n_shapes] bases to search over; none: `base` */
    int n_shapes;
    struct pp_division own; /* division of as_is, if it differs; stages 0: `base` */
    int cores;              /* of the machine that is predicted; 0: of this one */
    int one_threads;        /* of the row `one` of struct pp_rows; 0: the config's */
    size_t memory;          /* bytes that a rank may hold; 0: no limit */
    bool all_m;             /* tries other numbers of micro-batches than the config's */
    bool cuts;              /* tries other cuts than the config's */
    double actions;         /* the search for cuts may simulate; 0: enough for one search */
    bool recompute; /* the search chooses what is recomputed; else pipeline.recompute does */
    bool coalesce;  /* the search chooses how many W are one product, if train.coalesce = 0 */
    /* of pp_best_explain(): see struct pp_predict_spec */
    int (*see)(const struct pp_plan *plan, const struct pp_sim_costs *costs, void *ctx);
    void *ctx;
    const struct pp_links *links; /* between processes; NULL: the ranks are threads */
    bool places;                  /* tries run.rank_order = replicas too */
    bool endless; /* the number of steps is unknown: ranks wait for all others by time alone */
};

/* Returns the space that holds only the division of a config. */
struct pp_space pp_space_of(const struct pp_config *cfg, const struct pp_model *model, int train_n,
                            int test_n);

struct pp_rows {
    struct pp_row *items; /* [n] best first */
    int n, room;
    bool keeps_large; /* rows that hold too much stay in the list: they may be made to fit */
    /* The fastest row of one stage and one replica; without such a row, that with the config's
     * micro-batches. step 0: it cannot run. */
    struct pp_row one;
    struct pp_row as_is; /* the config as it is; step 0: it cannot run, or its schedule is open */
    struct pp_row smallest; /* holds least of all rows over the memory limit; stages 0: none */
    long tried;             /* ways to run that were priced */
    int same;               /* rows that were merged with another one */
    int refused;            /* ways that the schedule or the config forbids */
    char why[768];          /* the first refused way and the reason; "": all are allowed */
    long too_large;         /* rows over the memory limit */
    bool limited;           /* without recomputation some row would be over the memory limit */
};

#define PP_BEST_COUNTS_MAX 64

/* Tells whether a search may choose run.threads: the user gave no number, and any number gives the
 * same bits. */
bool pp_best_open_threads(const struct pp_config *cfg);

bool pp_best_is(const struct pp_row *c, int stages, int replicas, int threads);

/* Measures for about `seconds` what the search of this space needs, with each number of threads in
 * a rank that its divisions have; numbers above the cores of this machine follow by
 * pp_costs_scale(). Errors: those of pp_costs_measure() and pp_backend_resolve(). The caller owns
 * *out. */
int pp_best_measure(const struct pp_space *spec, double seconds, struct pp_costs **out);

/*
 * Prices every way to run the model in the space: divisions x schedules x micro-batches x chunks x
 * cuts, and sorts the rows, best first (rows_compare() in src/plan/search.h says which is better).
 * A row that holds too much recomputes the cheapest chunks of each rank. Then, best row first, the
 * search tries products of 1, 2, 4, ... W, and other cuts: all of them if they are few, else it
 * moves boundaries for as long as that helps. It stops after a number of simulated actions, not at
 * a time, so that equal costs give equal rows. An empty list is not an error. Errors: PP_ERESOURCE.
 * Local. The caller calls pp_rows_fini().
 */
int pp_search(const struct pp_space *spec, const struct pp_costs *costs, struct pp_rows *out);
void pp_rows_fini(struct pp_rows *best);

/* Sets c->time.bubble and, if not NULL, advice. Errors: PP_ERESOURCE. */
int pp_best_explain(const struct pp_space *spec, const struct pp_costs *costs, struct pp_row *c,
                    char advice[PP_ADVICE_MAX]);

/* Completes the division of a row: its cut and recomputation, from cfg if the search did not choose
 * them, and in ticks[PP_NUMBERS_MAX] the costs that its order depends on, if it does. Errors:
 * PP_ECONFIG, PP_ERESOURCE. */
int pp_best_division(const struct pp_space *spec, const struct pp_costs *costs,
                     const struct pp_row *c, int64_t *ticks, struct pp_division *out);

/* ---- profile_others.c: other plans with the times of a profile, those of a rank divided among its
 * chunks */

/* Predicts a plan with as many stages (P) as the profile; the rows of a micro-batch follow from its
 * M. Sets the step of the row, without the time outside of the pipeline, its idle share and its
 * peak_bytes (0: unknown). If row->timed is set, all ranks have the same work. Sets memory[P] if it
 * is not NULL and the memory is known. Errors: PP_EUSAGE (another P), PP_ERESOURCE. */
int pp_profile_predict(const struct pp_profile *p, const struct pp_profile_fit *f,
                       const struct pp_plan *plan, struct pp_row *row, double *memory);

/* Predicts all schedules with 1, 2, 4 and the profile's own number of chunks, and with half, as
 * many and twice as many micro-batches, that hold at most `memory` bytes a rank (0: any number).
 * The caller calls pp_rows_fini(). Errors: PP_ERESOURCE. */
int pp_profile_others(const struct pp_profile *p, const struct pp_profile_fit *f, size_t memory,
                      struct pp_rows *out);

/*
 * Replaces `schedule = auto`, `assignment = time`, `recompute = auto` and, for 1f1b-eager, `eager =
 * 0` by what measuring on this machine chooses, at the config's own micro-batch count (so that the
 * weights do not depend on a measurement); with the schedule also its chunks and eager where they
 * are 0, the cut where `assignment = auto`, and train.coalesce where it is 0 and changes no bit;
 * where memory is short, run.packed = off. One line on stderr says what and why. Nothing to do for
 * other configs. tp: NULL, or collective over tp: rank 0 measures, all take its choice. Errors:
 * PP_ECONFIG when nothing can run, PP_ERESOURCE, also when nothing fits run.memory.
 */
int pp_choose(struct pp_config *cfg, enum pp_run_need need, struct pp_transport *tp);
/* Tells whether the config leaves anything open for pp_choose(). */
bool pp_choose_wanted(const struct pp_config *cfg);

/* Checks that a plan of this shape fits into the memory that is left; the message names a shape
 * that would. times: the plan is simulated with the start and end of each action. Errors:
 * PP_ERESOURCE. Local. */
int pp_plan_check_room(const struct pp_geometry *g, bool times);

/* ---- schedules.c: the known schedules at a shape, without a model */

/*
 * Simulates schedules with the stages, chunks, micro-batches and memory cap of a shape and the costs
 * of `lists`, and calls see() for each. name NULL: all that searches try, in the order of their list,
 * without those that refuse the shape. A named schedule, which exists, gets its default chunks if it
 * does not allow those of the shape. Errors: PP_ECONFIG (the named one refuses the shape), PP_EUSAGE (a list has another
 * length), PP_ERESOURCE, those of see(). Local.
 */
int pp_schedules_simulate(const char *name, const struct pp_geometry *shape,
                          const struct pp_cost_list lists[PP_COSTS],
                          int (*see)(const struct pp_plan *plan, const struct pp_sim_result *result,
                                     void *ctx),
                          void *ctx);

/* ---- init_stages.c: whether stages pay, without a measurement, so that equal configs give equal
 * answers */

#define PP_STAGES_WORTH 1.2 /* times as fast as one stage, for the price of other cores */

/* Simulates the stages of cfg and one stage with as many micro-batches, both with 1F1B and the cut
 * by time. *out is the ratio of their speeds. Local. Errors: those of pp_best_try(). */
int pp_stages_gain(const struct pp_config *cfg, const struct pp_model *model, int train_n,
                   double *out);

/* The config that `ppcli init` prints. */

#define PP_INIT_MICROBATCHES "4"
#define PP_INIT_SCHEDULE "1f1b"
#define PP_INIT_OPTIMIZER "adam"
#define PP_INIT_SPLIT "0.2" /* share of one table or folder that the test takes */

/*
 * Chooses the stages of a perceptron with widths[0] inputs, two layers of widths[1] and widths[2]
 * classes. *out is 2 if two stages are simulated to be PP_STAGES_WORTH times as fast as one, else
 * 1. Errors: those of pp_best_try().
 */
int pp_init_stages(const int widths[3], int samples, int batch, const struct pp_names *names,
                   int *out);

/* ---- best result */

/* The result of `ppcli tune`: the rows, how the first of them ran, and what limits the best. */

#define PP_BEST_SHOWN 20 /* lines of the table */

/* A candidate that ran. Both times are medians over rounds in which all candidates take turns. */
struct pp_checked {
    struct pp_prediction measured;
    double calibrated; /* seconds of a step, simulated with the times of the actions of a round */
    double error;      /* of calibrated in two rounds beside the step measured between them */
    double waited; /* share of the ranks' time waiting for a core; -1: the system does not tell */
};

struct pp_best_result {
    struct pp_space spec;
    struct pp_division *shapes; /* owned, and so are model, costs and links.host */
    struct pp_model *model;
    struct pp_costs *costs;
    struct pp_links links; /* between processes; no host where ranks are threads */
    struct pp_rows best;
    int n_checked;                                        /* of the first ones */
    struct pp_checked checked[PP_BEST_SHOWN], as_is, one; /* measured.step 0: not checked */
    char advice[PP_ADVICE_MAX];
    int batch, ranks; /* most ranks of any candidate */
    const char *word; /* the config as it was given */
};

struct pp_best_asked {
    struct pp_config *const *configs; /* [n] that differ in stages and replicas, without problems */
    int n;
    bool stages, replicas; /* these are said, and not for the search to choose */
    enum pp_run_need need;
};

/* Measure this machine and search. Set before: spec.cores, .memory (0: run.memory) and .own, links,
 * word. Errors: as of the data, the model and pp_best_find(). pp_best_result_fini() even then. */
int pp_best_result_find(const struct pp_best_asked *asked, struct pp_best_result *out);
void pp_best_result_fini(struct pp_best_result *r);

/* Computes the bubbles of the candidates that are shown, and the advice. Errors: PP_ERESOURCE. */
int pp_best_result_explain(struct pp_best_result *r);

/* Returns 0 if something can run, else fails with the reason. `memory` is --memory as the user
 * wrote it, NULL if it was not given. Errors: PP_ECONFIG. */
int pp_best_result_verdict(const struct pp_best_result *r, const char *memory);

/* Returns the index of the candidate that ran fastest or, if none ran, is predicted to. The result
 * has at least one. */
int pp_best_result_first(const struct pp_best_result *r);
/* Returns how that candidate ran: as one of the first, or as the one stage. Its measured.step is 0
 * if it did not run. */
const struct pp_checked *pp_best_result_ran(const struct pp_best_result *r, int first);
/* Returns whether the config as it is was measured, and no candidate was faster. */
bool pp_best_result_keeps(const struct pp_best_result *r);

#endif
