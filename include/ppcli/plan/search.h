/* SPDX-License-Identifier: Apache-2.0 */
/* What a step takes for given costs, and the search for the fastest way to run a model. */
#ifndef PPCLI_PLAN_SEARCH_H
#define PPCLI_PLAN_SEARCH_H

#include "ppcli/measure/measure.h"
#include "ppcli/sim/sim.h"

/* ---- search */

/* What a step would take for given costs, and the search for the fastest way to run a model. */

/* ---- advice
 *
 * One sentence about a bubble: what limits the pipeline (cut, schedule, transfer, or a busy
 * machine), and what would help. Local.
 */

#define PP_ADVICE_MAX 512
#define PP_ADVICE_OVER 0.05 /* a bubble so far over the ideal one deserves advice */

struct pp_advice_spec { /* nothing is owned */
    const struct pp_layout *layout;
    const struct pp_bubble *bubble;
    const double *cost; /* [n_layers] time of each layer: F + I + W, in any unit */
    bool searched;      /* this is the best of all schedules and micro-batch counts */
    double waited;      /* share of the ranks' time that they waited for a core; < 0: unknown */
};

/* Errors: PP_ERESOURCE. One stage: "". */
int pp_advice(const struct pp_advice_spec *spec, char out[PP_ADVICE_MAX]);

/* cost[n_layers] from times of virtual stages: each layer gets its part of the stage's flops. */
void pp_advice_costs(const struct pp_layout *l, const double *f, const double *i, const double *w,
                     double *cost);

/* ---- price.c: the step of a plan */

struct pp_prediction {
    double step;             /* seconds from step to step, in the long run */
    double sums;             /* of them, with replicas: for sums of gradients, the mean of ranks */
    struct pp_bubble bubble; /* with spec.explain; else all 0 */
};

/* The bubble of a layout if time followed flops and transfers were free, with ranks that never
 * meet; advice as of pp_advice(). Errors: PP_ERESOURCE. */
int pp_predict_flops(const struct pp_layout *l, struct pp_bubble *out, char advice[PP_ADVICE_MAX]);

/* ---- best
 *
 * The search for the fastest way to run a config: schedules, micro-batch counts, chunks and cuts,
 * each as the plans and the memory that would really run, with the step time predicted from
 * measured costs.
 */

/* What a rank's time and memory go to, of divisions that a machine file prices. */
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

struct pp_row { /* a division and its price */
    struct pp_division d;
    int order;         /* of its schedule in the list of schedules */
    bool timed;        /* cut by times; else as the config says */
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
    bool own;     /* ppcli trains it; else other systems do, and time and memory are those of e */
    int group;    /* from 1: rows that the model cannot tell apart */
    bool fastest; /* of its group */
};

struct pp_space {
    const struct pp_config *cfg;
    const struct pp_model *model;
    struct pp_training training;
    struct pp_division base;          /* what all candidates share: numbers that are given */
    int chunks;                       /* given; 0: the search tries several */
    bool timed;                       /* cuts by times only */
    const struct pp_division *shapes; /* [n_shapes] bases to search over; none: `base` */
    int n_shapes;
    struct pp_division own; /* base of as_is, where cfg has another; stages 0: `base` */
    int cores;              /* to predict for; 0: those that are there */
    int one_threads;        /* of struct pp_rows's `one`; 0: the config's */
    size_t memory;          /* bytes a rank may hold; 0: any number */
    bool all_m;             /* micro-batch counts other than the config's too */
    bool cuts;              /* other cuts than the config's too */
    double actions;         /* that finding them may simulate; 0: what suits one search */
    bool recompute;         /* the search decides what is recomputed, not pipeline.recompute */
    bool coalesce; /* so is how many W are one product, where train.coalesce leaves it open */
    /* of pp_best_explain(): see struct pp_predict_spec */
    int (*see)(const struct pp_plan *plan, const struct pp_sim_costs *costs, void *ctx);
    void *ctx;
    const struct pp_links *links; /* of processes; NULL: ranks are threads */
    bool places;                  /* try also what run.rank_order = replicas would do */
    bool endless;                 /* ranks meet by time alone: how long a training is, is unknown */
};

/* What a config says of it; all of the search's own is off. */
struct pp_space pp_space_of(const struct pp_config *cfg, const struct pp_model *model, int train_n,
                            int test_n);

struct pp_rows {
    struct pp_row *items; /* [n] best first */
    int n, room;
    bool keeps_large; /* rows that hold too much stay in the list: they may be made to fit */
    /* One stage, one replica: the fastest row of such a shape, else with the config's micro-batches;
     * step 0: it cannot run. */
    struct pp_row one;
    struct pp_row as_is;    /* what the config says; step 0: it cannot run, or leaves it open */
    struct pp_row smallest; /* of those over the memory limit */
    long tried;             /* shapes that were asked for */
    int same;               /* of them the same plan as another */
    int refused;            /* of them not legal for their schedule or this config */
    char why[768];          /* the first of these, and the reason; empty: none was refused */
    long too_large;         /* of them legal, but over the memory limit */
    bool limited;           /* some would be, if nothing were recomputed */
};

#define PP_BEST_COUNTS_MAX 64

/* Whether a search may choose run.threads: the user gave no number, and any gives the same bits. */
bool pp_best_open_threads(const struct pp_config *cfg);

bool pp_best_is(const struct pp_row *c, int stages, int replicas, int threads);

/* Measure what the search of this spec needs within about `seconds`: with 1, 2, 4, ... threads in a
 * rank and as many as there are cores, as far as its shapes want them; other numbers follow by
 * pp_costs_scale(). Errors: those of pp_costs_measure() and pp_backend_resolve(). The caller owns
 * *out. */
int pp_best_measure(const struct pp_space *spec, double seconds, struct pp_costs **out);

/*
 * Try every shape x schedule x count x chunks (the config's; when it says 0: 1, 2, 4 and the
 * schedule's own) x cut, and sort by predicted step time. What holds too much has the cheapest chunks of each
 * rank recomputed. Of each shape, best first, products of 1, 2, 4, ... W are tried; then all cuts are
 * simulated where they are few; else pieces of the cut are moved for as long as that helps, until so
 * much was simulated: a count, no clock, so that equal costs give equal plans. Times within a
 * thousandth count as equal: then fewer threads in all, less memory, fewer chunks, fewer
 * micro-batches, the order of the list of schedules. Finding nothing is not a failure. Errors: PP_ERESOURCE. Local. The caller owns
 * out->items: pp_rows_fini().
 */
int pp_search(const struct pp_space *spec, const struct pp_costs *costs, struct pp_rows *out);
void pp_rows_fini(struct pp_rows *best);

/* Set c->time.bubble; advice, where not NULL: one sentence about what limits it. Errors:
 * PP_ERESOURCE. */
int pp_best_explain(const struct pp_space *spec, const struct pp_costs *costs, struct pp_row *c,
                    char advice[PP_ADVICE_MAX]);

/* The whole division of a candidate: with what cfg says of its cut and recomputation, and, where its
 * order is made for costs, those, in ticks[PP_NUMBERS_MAX]. Errors: PP_ECONFIG, PP_ERESOURCE. */
int pp_best_division(const struct pp_space *spec, const struct pp_costs *costs,
                     const struct pp_row *c, int64_t *ticks, struct pp_division *out);

/*
 * Replace `schedule = auto`, `assignment = time`, `recompute = auto` and, for 1f1b-eager, `eager = 0`
 * by what measuring on this machine chooses, at the config's own micro-batch count (so that the
 * weights do not depend on a measurement); with the schedule also its chunks and eager where they
 * are 0, the cut where `assignment = auto`, and train.coalesce where it is 0 and changes no bit; where
 * memory is short, run.packed = off. One line on stderr says what and why. Nothing to do for other
 * configs. tp: NULL, or collective over tp: rank 0 measures, all take its choice. Errors: PP_ECONFIG
 * when nothing can run, PP_ERESOURCE, also when nothing fits run.memory.
 */
int pp_choose(struct pp_config *cfg, enum pp_run_need need, struct pp_transport *tp);
/* Does the config leave anything to pp_choose()? */
bool pp_choose_wanted(const struct pp_config *cfg);

/* Will a plan of this shape fit into the memory that is left, and if not, which would? times: with start and
 * end of each action. Errors: PP_ERESOURCE. Local. */
int pp_plan_check_room(const struct pp_geometry *g, bool times);

/* ---- init_stages.c: whether stages pay, without a measurement, so that equal configs give equal answers */

#define PP_STAGES_WORTH 1.2 /* times as fast as one stage, for the price of other cores */

/* out: how many times as fast the stages of cfg are simulated to be as one stage with as many micro-batches.
 * 1F1B and the best cut stand for the config's. Local. Errors: those of pp_best_try(). */
int pp_stages_gain(const struct pp_config *cfg, const struct pp_model *model, int train_n,
                   double *out);

/* The config that `ppcli init` prints. */

#define PP_INIT_MICROBATCHES "4"
#define PP_INIT_SCHEDULE "1f1b"
#define PP_INIT_OPTIMIZER "adam"

/*
 * Of a perceptron of widths[0] inputs, two layers of widths[1] and widths[2] classes.
 * out: 2 where the simulated step of two stages is so much shorter than that of one that a second
 * core pays, else 1. Errors: those of pp_best_try().
 */
int pp_init_stages(const int widths[3], int samples, int batch, const struct pp_names *names,
                   int *out);

/* ---- best result */

/* What `tune` finds: the search over a config, how its first rows ran, and why they are so fast. */

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

/* The bubbles of the candidates that are shown, and the advice. Errors: PP_ERESOURCE. */
int pp_best_result_explain(struct pp_best_result *r);

/* 0 where something can run. Errors: PP_ECONFIG, why nothing can. memory: --memory as written; NULL:
 * not given. */
int pp_best_result_verdict(const struct pp_best_result *r, const char *memory);

/* The candidate that ran fastest, or is predicted to; there is at least one. */
int pp_best_result_first(const struct pp_best_result *r);
/* How that one ran: as one of the first, or as one stage; measured.step 0: it did not. */
const struct pp_checked *pp_best_result_ran(const struct pp_best_result *r, int first);
/* Whether the config as it is was measured, and no candidate was faster. */
bool pp_best_result_keeps(const struct pp_best_result *r);

#endif
