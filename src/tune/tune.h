/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of tuning share. */
#ifndef PPCLI_TUNE_TUNE_H
#define PPCLI_TUNE_TUNE_H

#include "ppcli/places.h"
#include "ppcli/tune.h"

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

/* Are its ranks devices? tf32 is theirs alone; a processor may have bf16 too. */
static inline bool has_devices(const struct pp_cluster *c)
{
    return c->peak[PP_PRECISION_TF32] > 0;
}

/* ---- cluster_costs.c */

struct node_use { /* of a machine, by a node of a micro-batch */
    const struct pp_cluster *cluster;
    const struct pp_model *model;
    double samples;     /* that reach it, of a rank */
    size_t value_bytes; /* of an element */
    double weights;     /* bytes of those of a rank */
    double gradients;   /* bytes of a gradient for each of them */
    double peak, share; /* flop/s, and what part of it the node reaches */
};

/* Seconds of its F, I or W (k = 0, 1, 2): as long as its flops or its bytes need, whichever is longer,
 * and its launch. 0: it does nothing. */
double price_node(const struct node_use *u, const struct pp_node *n, int k);

/* ---- planner.c */

/* F, I and W of layers first to last of a model, with its input and its loss; of `rows` rows, W of k
 * times as many together. pieces: see struct pp_predict_spec. */
void costs_stage(const struct pp_costs *c, int first, int last, int rows, int k, bool pieces,
                 double out[3]);

/* ---- measure.c
 *
 * What the files of the measurement share: measure.c starts the workers, measure_layers.c and
 * measure_link.c are what they do.
 */

struct measurement {
    const struct pp_measure_spec *spec;
    const struct pp_layer **classes; /* [n_classes] one of each shape */
    int n_classes;
    int *class_of;     /* [n_layers] */
    int *first, *last; /* [workers] layers of each worker */
    int workers;
    struct pp_places places;
    uint64_t deadline_ns, visit_ns; /* of all; and how long a visit to the link may take, about */
    uint64_t room;                  /* bytes that may be taken ... */
    const char *room_of;            /* ... of which limit */
    _Atomic uint64_t *taken;        /* by all workers */
};

/* Figures of a link, from several visits some time apart. */
enum {
    LINK_LATENCY,
    LINK_CALLS, /* seconds of a rank's own for a message: its calls, or its copy of each byte */
    LINK_BYTE,
    LINK_FIGURES,
    LINK_VISITS = 24,
    LINK_AGAIN = 8 /* of them those of a link that is not steady */
};
#define LINK_STEADY 2.0 /* nearer than by this factor two visits agree */

struct link_visits {
    double t[LINK_FIGURES][LINK_VISITS];
    int n;
};

/* What counts of at least one visit: the lower quartile, as other programs only add to it. Returns
 * by which factor the next above it differs. */
double link_settle(const struct link_visits *v, double low[LINK_FIGURES]);

/* One pinned thread. Sums over what it measured; written by it alone. */
struct worker {
    const struct measurement *m;
    int rank;
    struct pp_transport *tp;
    struct pp_backend *be;
    struct pp_layer_seconds *sums; /* [n_sizes][n_classes] */
    int *counts;                   /* [n_sizes][n_classes] */
    double *input, *loss;          /* [n_sizes], 0: not measured; worker 0 */
    double optimizer, add;         /* one parameter */
    struct link_visits visits;     /* workers 0 and 1, the same */
    bool opened;
    struct pp_arena link; /* message slots: kept until all workers are gone */
};

/* Seconds that reading a clock takes. */
double measure_clock(uint64_t (*clock_ns)(void));

/* Both collective over the workers: all layers, with visits to the link in between; and one visit. */
int measure_layers(struct worker *w);
int measure_link(struct worker *w);

/* ---- links.c */

/* What was measured between processes, in place of what threads would take. Errors: PP_ERESOURCE.
 */
int links_put(const struct pp_links *l, struct pp_costs *c);

/* ---- measure_link.c: messages between rank 0 and rank 1 that are measured */

/* Channel 0 goes from rank 0 to rank 1, channel 1 back: `slots` and one slots of `bytes`. *memory
 * gets what this rank provides, for pp_arena_destroy() when no rank uses it any more. Collective;
 * ranks above 1 take part without channels. */
struct pp_arena;
int link_open(struct pp_transport *tp, int slots, size_t bytes, struct pp_arena *memory);

/* Ranks 0 and 1 meet; each has the other's number then, or both have rank 0's. */
int link_swap(struct pp_transport *tp, double *x);
int link_share(struct pp_transport *tp, double *x);

#endif
