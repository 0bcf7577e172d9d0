/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the search share. */
#ifndef PPCLI_SRC_PLAN_SEARCH_H
#define PPCLI_SRC_PLAN_SEARCH_H

#include "ppcli/plan/search.h"

/* ---- best.c, counts.c, candidate.c, refine.c: the search and its candidates */

/* Rows of a replica's share of a full batch: the first has most, the last least. */
int best_share(const struct pp_best_spec *spec, int replica);

/* Of those that are searched over. */
int best_most_stages(const struct pp_best_spec *spec);

/* Let d have so many replicas, whose micro-batches keep their rows where that goes, and threads; 0: as
 * it has. */
void best_divide(struct pp_division *d, int replicas, int threads);

#define REFINE_ACTIONS 1e8 /* that finding better cuts may simulate; more for many stages */

/* Give the candidate a cut of its own: the one by time, or what the config says. Errors: those of
 * pp_partition(). */
int best_cut(const struct pp_best_spec *spec, const struct pp_costs *costs, bool by_time,
             struct pp_candidate *c);

/* The candidate as it would run. Errors: PP_ECONFIG (not legal), PP_ERESOURCE. The caller owns *l. */
int best_lay_out(const struct pp_best_spec *spec, const struct pp_costs *costs,
                 const struct pp_candidate *c, struct pp_layout **l);

/* Bytes of each rank, peaks[stages] (or NULL), and the most of them. */
int best_peaks(const struct pp_best_spec *spec, const struct pp_layout *l, size_t *peaks,
               size_t *most);

/* The step of a layout; enough, explain: see struct pp_predict_spec. */
int best_predict(const struct pp_best_spec *spec, const struct pp_costs *costs,
                 const struct pp_layout *l, double enough, bool explain, struct pp_prediction *out);

/* For qsort(): the better candidate first. */
int best_compare(const void *a, const void *b);

/* The most W of m micro-batches that the search puts in one product; 1: it has no say. */
int best_most_sums(const struct pp_best_spec *spec, int m);

/* Of an evaluated candidate: a better number of W in a product, evaluated. left: see best_refine(). */
int best_sums(const struct pp_best_spec *spec, const struct pp_costs *costs, struct pp_candidate *c,
              double *left);

/* What the rank that holds most has in its memory. Errors: as pp_best_try(). */
struct pp_exec_bytes;
int best_bytes(const struct pp_best_spec *spec, const struct pp_costs *costs,
               const struct pp_candidate *c, struct pp_exec_bytes *out);

/* Of an evaluated candidate that holds more than spec->memory: recompute the chunks of each rank that
 * take least time and make it fit, and evaluate. Where nothing fits: what holds least. Errors: those
 * of pp_best_try(). */
int best_fit(const struct pp_best_spec *spec, const struct pp_costs *costs, struct pp_candidate *c);

/* Of an evaluated candidate with a cut of its own: a better cut, evaluated. *left: what may still be
 * simulated, in actions; what was is taken off. Errors: PP_ERESOURCE. */
int best_refine(const struct pp_best_spec *spec, const struct pp_costs *costs,
                struct pp_candidate *c, double *left);

/* The k of 1f1b-eager for m micro-batches: pipeline.eager, or what the measured costs ask for. */
int best_eager(const struct pp_best_spec *spec, const struct pp_costs *costs, int stages, int m);

#endif
