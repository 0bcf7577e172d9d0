/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the measurement share. */
#ifndef PPCLI_SRC_MEASURE_MEASURE_H
#define PPCLI_SRC_MEASURE_MEASURE_H

#include "ppcli/measure/measure.h"
#include "ppcli/base/cores.h"

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

/* ---- measure_link.c: messages between rank 0 and rank 1 that are measured */

/* Channel 0 goes from rank 0 to rank 1, channel 1 back: `slots` and one slots of `bytes`. *memory
 * gets what this rank provides, for pp_arena_destroy() when no rank uses it any more. Collective;
 * ranks above 1 take part without channels. */
struct pp_arena;
int link_open(struct pp_transport *tp, int slots, size_t bytes, struct pp_arena *memory);

/* Ranks 0 and 1 meet; each has the other's number then, or both have rank 0's. */
int link_swap(struct pp_transport *tp, double *x);
int link_share(struct pp_transport *tp, double *x);

int pp_costs_create(int n_layers, const int *sizes, int n_sizes, struct pp_costs **out);

#endif
