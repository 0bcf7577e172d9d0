/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the search share. */
#ifndef PPCLI_SRC_PLAN_SEARCH_H
#define PPCLI_SRC_PLAN_SEARCH_H

#include "ppcli/plan/search.h"

/* ---- best.c, counts.c, candidate.c, refine.c: the search and its candidates */

/* Rows of a replica's share of a full batch: the first has most, the last least. */
int best_share(const struct pp_space *spec, int replica);

/* Of those that are searched over. */
int best_most_stages(const struct pp_space *spec);

/* Let d have so many replicas, whose micro-batches keep their rows where that goes, and threads; 0:
 * as it has. */
void best_divide(struct pp_division *d, int replicas, int threads);

#define REFINE_ACTIONS 1e8 /* that finding better cuts may simulate; more for many stages */

/* Give the candidate a cut of its own: the one by time, or what the config says. Errors: those of
 * pp_partition(). */
int best_cut(const struct pp_space *spec, const struct pp_costs *costs, bool by_time,
             struct pp_row *c);

/* The candidate as it would run. Errors: PP_ECONFIG (not legal), PP_ERESOURCE. The caller owns *l.
 * */
int best_lay_out(const struct pp_space *spec, const struct pp_costs *costs, const struct pp_row *c,
                 struct pp_layout **l);

/* Bytes of each rank, peaks[stages] (or NULL), and the most of them. */
int best_peaks(const struct pp_space *spec, const struct pp_layout *l, size_t *peaks, size_t *most);

/* The step of a layout; enough, explain: see struct pp_predict_spec. */
int best_predict(const struct pp_space *spec, const struct pp_costs *costs,
                 const struct pp_layout *l, double enough, bool explain, struct pp_prediction *out);

/* ---- rows.c */

/* Tells whether a list has use for only one of two rows: they are the same plan; they have the same
 * stages and micro-batches and take as long; they are divisions of one kind for other systems; they
 * have the same shape, and exactly the same step and memory. */
typedef bool rows_same(const struct pp_row *x, const struct pp_row *y);
rows_same rows_are_one_plan, rows_take_as_long, rows_are_one_kind, rows_are_priced_alike;

/* Adds a row. Of two rows that are the same the better one stays, the first if they cost the same,
 * and gets the other's name in `also`. A row that holds too much is only counted. are_same NULL: no
 * two rows are. Errors: PP_ERESOURCE. */
int rows_add(struct pp_rows *rows, const struct pp_row *row, rows_same *are_same);

/* Compares for qsort(), the better row first: fits memory, step (to a thousandth), threads in all,
 * train.zero, memory, then fewer stages, replicas, threads, chunks and micro-batches, then the
 * order of the list of schedules. */
int rows_compare(const void *a, const void *b);
void rows_sort(struct pp_rows *rows);

/* The most W of m micro-batches that the search puts in one product; 1: it has no say. */
int best_most_sums(const struct pp_space *spec, int m);

/* Of an evaluated candidate: a better number of W in a product, evaluated. left: see best_refine().
 * */
int best_sums(const struct pp_space *spec, const struct pp_costs *costs, struct pp_row *c,
              double *left);

/* What the rank that holds most has in its memory. Errors: as pp_best_try(). */
struct pp_exec_bytes;
int best_bytes(const struct pp_space *spec, const struct pp_costs *costs, const struct pp_row *c,
               struct pp_exec_bytes *out);

/* Of an evaluated candidate that holds more than spec->memory: recompute the chunks of each rank
 * that take least time and make it fit, and evaluate. Where nothing fits: what holds least. Errors:
 * those of pp_best_try(). */
int best_fit(const struct pp_space *spec, const struct pp_costs *costs, struct pp_row *c);

/* Of an evaluated candidate with a cut of its own: a better cut, evaluated. *left: what may still
 * be simulated, in actions; what was is taken off. Errors: PP_ERESOURCE. */
int best_refine(const struct pp_space *spec, const struct pp_costs *costs, struct pp_row *c,
                double *left);

/* The k of 1f1b-eager for m micro-batches: pipeline.eager, or what the measured costs ask for. */
int best_eager(const struct pp_space *spec, const struct pp_costs *costs, int stages, int m);

/* Sets what messages of `bytes` take on a channel: between two hosts, whose link `sharing` of them
 * share at a time; with 0 within a host. */
void price_channel(struct pp_stage_costs *q, int channel, double bytes, int sharing,
                   const struct pp_link *near, const struct pp_link *far);

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

/*
 * Predict the step as the executor runs it: gradients sent before the weights' half, message slots,
 * the vote and then the optimizer at each rank's end of a step. With more ranks than cores no less
 * than all work shared by all cores. Errors: PP_ERESOURCE.
 */
int pp_predict(const struct pp_predict_spec *spec, struct pp_prediction *out);

/*
 * The micro-batch counts that are looked at: the config's own; and with all_m the divisors of a
 * replica's share of the batch and the powers of two, at least 4 rows each, at most 64 or 8 for
 * every stage, and not two within a sixth of each other. out[max], ascending; returns how many.
 */
int pp_best_counts(const struct pp_space *spec, int *out, int max);

/* How many cores a prediction for this spec counts with. */
int pp_best_cores(const struct pp_space *spec);

/*
 * Add ways to divide those cores into stages x replicas x threads to items[n], which the caller
 * owns. They are spec's base otherwise. Stages and replicas are as asked; 0: divisors of the number
 * of cores and powers of two. Threads, if they are open: as many as there is room for, and 1 of a
 * single rank. Errors: PP_ERESOURCE.
 */
int pp_best_shapes(const struct pp_space *spec, int stages, int replicas,
                   struct pp_division **items, int *n);

/*
 * Measure and search. Where spec->memory is short, again without packed weights, with costs of its
 * own; the better one is told, and spec's training says so. A value that somebody gave stays.
 * Errors: those of both; *costs is the caller's even then.
 */
int pp_best_find(struct pp_space *spec, double seconds, struct pp_costs **costs,
                 struct pp_rows *out);

/* Set time.step, peak_bytes, over, together and identity of a candidate whose shape is said.
 * Errors: PP_ECONFIG (it cannot run), PP_ERESOURCE. */
int pp_best_try(const struct pp_space *spec, const struct pp_costs *costs, struct pp_row *c);

/* Rows of the largest micro-batch when a replica's share of a full batch is cut into m. */
int pp_best_rows(const struct pp_space *spec, int m);

#endif
