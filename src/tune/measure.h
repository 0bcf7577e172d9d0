/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the measurement share: measure.c starts the workers, measure_layers.c and
 * measure_link.c are what they do. */
#ifndef PPCLI_TUNE_MEASURE_H
#define PPCLI_TUNE_MEASURE_H

#include "ppcli/mem.h"
#include "ppcli/planner.h"
#include "ppcli/transport.h"

/* Layers of equal shape. */
struct layer_class {
    const struct pp_layer *layer; /* one of them */
    int n;                        /* how many there are */
};

struct measurement {
    const struct pp_measure_spec *spec;
    struct layer_class *classes;
    int n_classes;
    int *class_of;     /* [n_layers] */
    int *first, *last; /* [workers] layers of each worker */
    int workers;
    uint64_t deadline_ns, link_deadline_ns; /* of all, and of the hand-overs at its beginning */
};

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
    double action, latency, byte;  /* worker 0 */
    bool linked;
    struct pp_arena link; /* message slots: kept until all workers are gone */
};

/* Seconds that reading the wall clock takes. */
double measure_clock(void);

/* Both collective over the workers. */
int measure_layers(struct worker *w);
int measure_link(struct worker *w);

#endif
