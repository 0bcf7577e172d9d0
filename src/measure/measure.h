/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files of this module share. */
#ifndef PPCLI_SRC_MEASURE_MEASURE_H
#define PPCLI_SRC_MEASURE_MEASURE_H

#include "ppcli/measure/measure.h"
#include "ppcli/base/cores.h"

/* ---- measure.c starts the workers, which run measure_layers.c and measure_link.c */

struct measurement {
    const struct pp_measure_spec *spec;
    const struct pp_layer **classes; /* [n_classes] one layer of each shape */
    int n_classes;
    int *class_of;     /* [n_layers] the shape of each layer */
    int *first, *last; /* [workers] layers of each worker */
    int workers;
    struct pp_places places;
    uint64_t deadline_ns, visit_ns; /* of the measurement; of a visit to the link, about */
    uint64_t room;                  /* bytes that all workers may take */
    const char *room_of;            /* the limit that these are left of */
    _Atomic uint64_t *taken;        /* bytes that they have taken */
};

/* The figures of a link, which several visits some time apart measure. */
enum {
    LINK_LATENCY,
    LINK_CALLS, /* seconds that a rank spends on a message: its calls, or its copy of each byte */
    LINK_BYTE,
    LINK_FIGURES,
    LINK_VISITS = 24,
    LINK_AGAIN = 8 /* further visits to a link that is not steady */
};

struct link_visits {
    double t[LINK_FIGURES][LINK_VISITS];
    int n;
};

/* Sets each figure to the lower quartile of its visits, because other programs can only add time.
 * Returns the factor by which the next larger value differs from it. */
double link_settle(const struct link_visits *v, double low[LINK_FIGURES]);

/* One pinned thread, with sums over its measurements, which it alone writes. */
struct worker {
    const struct measurement *m;
    int rank;
    struct pp_transport *tp;
    struct pp_backend *be;
    struct pp_layer_seconds *sums; /* [n_sizes][n_classes] */
    int *counts;                   /* [n_sizes][n_classes] */
    double *input, *loss;          /* [n_sizes] of worker 0; 0: not measured */
    double optimizer, add;         /* seconds of one parameter */
    struct link_visits visits;     /* the same in workers 0 and 1 */
    bool opened;
    struct pp_arena link; /* message slots, kept until all workers have ended */
};

/* Returns the seconds that reading a clock takes. */
double measure_clock(uint64_t (*clock_ns)(void));

/* Measure all layers, with visits to the link in between (measure_layers), and visit the link once
 * (measure_link). Both are collective over the workers. */
int measure_layers(struct worker *w);
int measure_link(struct worker *w);

/* ---- measure_link.c: messages between rank 0 and rank 1 */

/* Opens channel 0 from rank 0 to rank 1 with `slots` slots of `bytes`, and channel 1 back with one.
 * The caller destroys *memory, this rank's slots, when no rank uses them any more. Collective;
 * ranks above 1 have no channels. */
struct pp_arena;
int link_open(struct pp_transport *tp, int slots, size_t bytes, struct pp_arena *memory);

/* Make ranks 0 and 1 wait for each other. link_swap() sets *x to the other rank's number,
 * link_share() sets it to rank 0's. */
int link_swap(struct pp_transport *tp, double *x);
int link_share(struct pp_transport *tp, double *x);

/* Makes costs of these sizes with all times 0. Errors: PP_ERESOURCE. The caller owns *out. */
int pp_costs_create(int n_layers, const int *sizes, int n_sizes, struct pp_costs **out);

#endif
