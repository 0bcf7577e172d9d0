/* SPDX-License-Identifier: Apache-2.0 */
/* Measuring costs on this machine, and choosing a schedule and a cut by them. */
#ifndef PPCLI_TUNE_H
#define PPCLI_TUNE_H

#include "ppcli/bubble.h"
#include "ppcli/cluster.h"
#include "ppcli/run.h"

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

/* ---- planner
 *
 * What a step would take: the times of a model's pieces, measured on this machine with the real
 * backend and the real transport (measure), and the step time that follows for a plan (predict).
 * Knows layers, plans and times; what to compare is the search's business.
 */

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
    double *loss;                    /* [n_sizes] labels, loss and its gradient; after input */
    double optimizer;                /* one parameter */
    double add;                      /* one element of a sum over replicas */
    double action;                   /* what the executor adds to every action */
    double latency;                  /* of a transfer between two rank threads ... */
    double byte;                     /* ... and of each byte of it */
    double value_bytes;              /* of an element that is handed over */
    int *host; /* [n_hosts] of ranks 0 .. n_hosts-1 of the run; NULL: as host_ranks says */
    int n_hosts;
    int host_ranks;               /* ranks of one host, rank r is on host r / host_ranks; 0: all */
    double far_latency, far_byte; /* the same of a transfer between two hosts */
    double far_copy;              /* of either rank's own time, for each byte of it */
    bool one_wire;                /* the ranks of a host share its way to the others */
    int at_once;                  /* ranks that were measured at the same time */
    int cores;                    /* that this process may use, or those that were asked for */
    int threads;                  /* of each rank */
    int measured;                 /* with fewer threads, from which these follow; 0: with these */
    bool linked;                  /* latency, byte are measured (two cores), not assumed */
    double unsteady;       /* the factor between two measurements of a transfer that should agree */
    double took;           /* what measuring took */
    struct pp_costs *next; /* with more threads in each rank; owned */
};

/* The costs for ranks of this many threads; where there are none, the first of the list. */
const struct pp_costs *pp_costs_at(const struct pp_costs *c, int threads);

/*
 * What `threads` take, by Amdahl: t(n) = t(1) (s + (1 - s) / n). The serial share s of each time is
 * the one that `some` of k threads has, 0.01 to 1; 0.05 where that is `one` itself. Errors:
 * PP_ERESOURCE. The caller owns *out.
 */
int pp_costs_scale(const struct pp_costs *one, const struct pp_costs *some, int threads,
                   struct pp_costs **out);

/* All times 0, sizes copied. Errors: PP_ERESOURCE. The caller owns *out. */
int pp_costs_create(int n_layers, const int *sizes, int n_sizes, struct pp_costs **out);
void pp_costs_destroy(struct pp_costs **costs); /* accepts NULL in *costs */

/* The hosts of ranks 0 .. n-1 of the run. Errors: PP_ERESOURCE. */
int pp_costs_hosts(struct pp_costs *c, const int *host, int n);
/* Messages between the ranks of `hosts`, as a full preflight measured the slowest of its ways; without one
 * they stay as they are. Errors: PP_ERESOURCE. */
struct pp_hosts;
struct pp_preflight;
int pp_costs_ways(struct pp_costs *c, const struct pp_hosts *hosts, const struct pp_preflight *p);

/* One layer's F, I and W of `rows` rows. Never negative. */
struct pp_layer_seconds pp_costs_layer(const struct pp_costs *c, int layer, int rows);

/* cost[n_layers]: F + I + W, what `assignment = time` cuts by; input and loss go to the ends. */
void pp_costs_by_layer(const struct pp_costs *c, int rows, double *cost);

/* ---- links between the processes of a run */

struct pp_link_cost {
    bool measured;
    double latency, byte, copy, unsteady; /* as in struct pp_costs */
};

struct pp_links {
    int n;      /* ranks */
    int *host;  /* [n] equal where ranks are on one host; owned: pp_free() */
    int beside; /* ranks of rank 0's host */
    struct pp_link_cost near,
        far; /* rank 0's to one beside it, to one on another host; at rank 0 */
};

/* Measure: about a second when a link is slow. Collective, pairwise. Errors: PP_ERESOURCE, those of
 * the transport. The caller owns out->host. */
int pp_links_measure(struct pp_transport *tp, struct pp_links *out);

struct pp_measure_spec {
    const struct pp_model *model;
    struct pp_backend_choice backend;
    int optimizer;    /* enum pp_optimizer_kind */
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
 * is a median or, of transfers, a quartile. With MPI the transfer is not measured: the figures
 * are those of threads. Local. Errors: PP_ERESOURCE, those of the backend.
 */
int pp_costs_measure(const struct pp_measure_spec *spec, struct pp_costs **out);

/* Flops of a sample and the values that it has there: what tells layers of one name apart. */
double pp_layer_work(const struct pp_model *m, int layer);

struct pp_cluster_use { /* what runs there */
    const struct pp_model *model;
    enum pp_precision precision;
    int optimizer; /* enum pp_optimizer_kind */
    int rows;      /* the most of one micro-batch */
    int ranks;     /* of the run */
};

/*
 * What the pieces of a model would take on a machine: every node takes as long as its flops or its
 * bytes need, whichever is longer, and its launch. Products, attention and convolutions reach their
 * shares of the peak of `precision`, bytes theirs of the bandwidth; values are bf16 where `precision`
 * is, everything else in memory f32. The optimizer is bytes. Layers that the machine file has
 * measured take that, in proportion to the rows of the nearest size. Errors: PP_ECONFIG (no such
 * precision there), PP_ERESOURCE. The caller owns *out.
 */
int pp_costs_of_cluster(const struct pp_cluster *c, const struct pp_cluster_use *use,
                        struct pp_costs **out);

struct pp_predict_spec {
    const struct pp_plan *plan; /* of training */
    const struct pp_model *model;
    const struct pp_costs *costs;
    const int *first, *last; /* [n_virtual] layers of each virtual stage */
    const int *tied;         /* [n_ties of the plan] see struct pp_layout */
    int rows;                /* of the share of a batch that the plan's M micro-batches make up */
    int replicas;
    bool pieces;          /* logits come in pieces: pp_layout_logits_rows() */
    bool zero;            /* each replica updates its part of the parameters */
    bool clips;           /* all ranks meet once a step for the norm of the gradients */
    bool shares_sums;     /* then: pp_layout_shares_sums() */
    const double *slower; /* [stages] times as slow as measured, of each rank; NULL: 1 */
    bool across;          /* rank = stage * replicas + replica; else replica * stages + stage */
    enum pp_sim_vote vote;
    /* All ranks wait for each other after so many steps, 0: any number, or after about so many
     * seconds, 0: any time, whichever is first. */
    int meet_every;
    double meet_after;
    bool explain;  /* the bubble too: three times the work */
    double enough; /* where a rank's work alone takes as long, that is the answer; 0: simulate */
    /* Gets the costs that are simulated, for a drawing; NULL: not wanted. */
    int (*see)(const struct pp_plan *plan, const struct pp_sim_costs *costs, void *ctx);
    void *ctx;
};

struct pp_prediction {
    double step;             /* seconds from step to step, in the long run */
    double sums;             /* of them, with replicas: for sums of gradients, the mean of ranks */
    struct pp_bubble bubble; /* with spec.explain; else all 0 */
};

/* The bubble of a layout if time followed flops and transfers were free, with ranks that never
 * meet; advice as of pp_advice(). Errors: PP_ERESOURCE. */
int pp_predict_flops(const struct pp_layout *l, struct pp_bubble *out, char advice[PP_ADVICE_MAX]);

/*
 * Predict the step as the executor runs it: gradients sent before the weights' half, message slots,
 * the vote and then the optimizer at each rank's end of a step. With more ranks than cores no less
 * than all work shared by all cores. Errors: PP_ERESOURCE.
 */
int pp_predict(const struct pp_predict_spec *spec, struct pp_prediction *out);

/* ---- best
 *
 * The search for the fastest way to run a config: schedules, micro-batch counts, chunks and cuts,
 * each as the plans and the memory that would really run, with the step time predicted from
 * measured costs.
 */

struct pp_candidate { /* a division and its price */
    struct pp_division d;
    int order;         /* of its schedule in the list of schedules */
    bool timed;        /* cut by times; else as the config says */
    bool chooses_redo; /* d.again is the search's; else as the config says */
    bool fitted;       /* its order is made for the times of its cut, for at most d.memory_cap */
    int together;      /* W of so many are one product, by d.coalesce or by itself */
    struct pp_prediction time;
    size_t peak_bytes; /* of the rank that holds most */
    bool over;         /* which is more than a rank may hold */
    uint64_t identity; /* equal for equal lists of actions on equal layers */
    char also[256];    /* other schedules that are the same plan here: "gpipe, naive" */
};

struct pp_best_spec {
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
    int one_threads;        /* of struct pp_best's `one`; 0: the config's */
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
struct pp_best_spec pp_best_spec_of(const struct pp_config *cfg, const struct pp_model *model,
                                    int train_n, int test_n);

struct pp_best {
    struct pp_candidate *items; /* best first */
    int n;
    /* One stage, one replica: the fastest row of such a shape, else with the config's micro-batches;
     * step 0: it cannot run. */
    struct pp_candidate one;
    struct pp_candidate as_is; /* what the config says; step 0: it cannot run, or leaves it open */
    struct pp_candidate smallest; /* of those over the memory limit */
    int tried;                    /* shapes that were asked for */
    int same;                     /* of them the same plan as another */
    int refused;                  /* of them not legal for their schedule or this config */
    char why[768];                /* the first of these, and the reason; empty: none was refused */
    int too_large;                /* of them legal, but over the memory limit */
    bool limited;                 /* some would be, if nothing were recomputed */
};

/*
 * The micro-batch counts that are looked at: the config's own; and with all_m the divisors of a
 * replica's share of the batch and the powers of two, at least 4 rows each, at most 64 or 8 for
 * every stage, and not two within a sixth of each other. out[max], ascending; returns how many.
 */
int pp_best_counts(const struct pp_best_spec *spec, int *out, int max);
#define PP_BEST_COUNTS_MAX 64

/* Whether a search may choose run.threads: the user gave no number, and any gives the same bits. */
bool pp_best_open_threads(const struct pp_config *cfg);

/* How many cores a prediction for this spec counts with. */
int pp_best_cores(const struct pp_best_spec *spec);

/*
 * Add ways to divide those cores into stages x replicas x threads to items[n], which the caller owns.
 * They are spec's base otherwise. Stages and replicas are as asked; 0: divisors of the number of cores and powers of two. Threads, if
 * they are open: as many as there is room for, and 1 of a single rank. Errors: PP_ERESOURCE.
 */
int pp_best_shapes(const struct pp_best_spec *spec, int stages, int replicas,
                   struct pp_division **items, int *n);

bool pp_best_is(const struct pp_candidate *c, int stages, int replicas, int threads);

/* Measure what the search of this spec needs within about `seconds`: with 1, 2, 4, ... threads in a
 * rank and as many as there are cores, as far as its shapes want them; other numbers follow by
 * pp_costs_scale(). Errors: those of pp_costs_measure() and pp_backend_resolve(). The caller owns
 * *out. */
int pp_best_measure(const struct pp_best_spec *spec, double seconds, struct pp_costs **out);

/*
 * Try every shape x schedule x count x chunks (the config's; when it says 0: 1, 2, 4 and the
 * schedule's own) x cut, and sort by predicted step time. What holds too much has the cheapest chunks of each
 * rank recomputed. Of each shape, best first, products of 1, 2, 4, ... W are tried; then all cuts are
 * simulated where they are few; else pieces of the cut are moved for as long as that helps, until so
 * much was simulated: a count, no clock, so that equal costs give equal plans. Times within a
 * thousandth count as equal: then fewer threads in all, less memory, fewer chunks, fewer
 * micro-batches, the order of the list of schedules. Finding nothing is not a failure. Errors: PP_ERESOURCE. Local. The caller owns
 * out->items: pp_best_fini().
 */
int pp_best_search(const struct pp_best_spec *spec, const struct pp_costs *costs,
                   struct pp_best *out);
void pp_best_fini(struct pp_best *best);

/*
 * Measure and search. Where spec->memory is short, again without packed weights, with costs of
 * its own; the better one is told, and spec's training says so. A value that somebody gave stays. Errors: those of both; *costs is the caller's even then.
 */
int pp_best_find(struct pp_best_spec *spec, double seconds, struct pp_costs **costs,
                 struct pp_best *out);

/* Set time.step, peak_bytes, over, together and identity of a candidate whose shape is said. Errors:
 * PP_ECONFIG (it cannot run), PP_ERESOURCE. */
int pp_best_try(const struct pp_best_spec *spec, const struct pp_costs *costs,
                struct pp_candidate *c);

/* Set c->time.bubble; advice, where not NULL: one sentence about what limits it. Errors:
 * PP_ERESOURCE. */
int pp_best_explain(const struct pp_best_spec *spec, const struct pp_costs *costs,
                    struct pp_candidate *c, char advice[PP_ADVICE_MAX]);

/* The whole division of a candidate: with what cfg says of its cut and recomputation, and, where its
 * order is made for costs, those, in ticks[PP_NUMBERS_MAX]. Errors: PP_ECONFIG, PP_ERESOURCE. */
int pp_best_division(const struct pp_best_spec *spec, const struct pp_costs *costs,
                     const struct pp_candidate *c, int64_t *ticks, struct pp_division *out);

/* Rows of the largest micro-batch when a replica's share of a full batch is cut into m. */
int pp_best_rows(const struct pp_best_spec *spec, int m);

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

/* ---- handover
 *
 * What it costs to hand a block of memory from one rank to another, through the calls that the
 * executor makes: the producer writes it where it is, the consumer reads all of it there.
 */

struct pp_handover {
    size_t bytes;
    double one_way;   /* seconds from before writing to after reading, half of there and back */
    double fastest;   /* the best block of it; one_way is the median */
    double same_core; /* seconds of the same writing and reading by one rank alone */
    double hidden;    /* part of one_way that passes while both compute and make no calls */
    double copy;      /* seconds of a memcpy of as many bytes by one rank alone */
};

/*
 * Fill in items[n], whose `bytes` (a multiple of 8, at least 64) the caller has set, on rank 0.
 * Collective over the two ranks of `tp`, whose channels it opens. Errors: those of the transport;
 * PP_EINTERNAL when other bytes arrived than were sent.
 */
int pp_handover_measure(struct pp_transport *tp, struct pp_handover *items, int n);

/* The same between two threads, each bound to a core of those that this thread may use; of the
 * whole machine's, where a launcher has bound this process to one. Local. Errors: also
 * PP_ERESOURCE. */
int pp_handover_threads(struct pp_handover *items, int n, bool whole_machine);

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

#endif
