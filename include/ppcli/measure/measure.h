/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the pieces of a model and the links between ranks cost: a table, and what fills it. Measured
 * here with the real backend and the real transport, or computed from a machine file.
 */
#ifndef PPCLI_MEASURE_MEASURE_H
#define PPCLI_MEASURE_MEASURE_H

#include "ppcli/conf/cluster.h"
#include "ppcli/pipe/layout.h"

/* ---- costs.c: the table */

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
void pp_costs_destroy(struct pp_costs **costs); /* accepts NULL in *costs */

/* The hosts of ranks 0 .. n-1 of the run. Errors: PP_ERESOURCE. */
int pp_costs_hosts(struct pp_costs *c, const int *host, int n);

/* One layer's F, I and W of `rows` rows. Never negative. */
struct pp_layer_seconds pp_costs_layer(const struct pp_costs *c, int layer, int rows);

/* cost[n_layers]: F + I + W, what `assignment = time` cuts by; input and loss go to the ends. */
void pp_costs_by_layer(const struct pp_costs *c, int rows, double *cost);

/* F, I and W of layers first to last of a model, with its input and its loss; of `rows` rows, W of k
 * times as many together. pieces: see struct pp_predict_spec. */
void pp_costs_stage(const struct pp_costs *c, int first, int last, int rows, int k, bool pieces,
                    double out[3]);

/* ---- links between the processes of a run */

#define PP_LINK_STEADY 2.0 /* nearer than by this factor two visits agree */

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

/* What was measured between processes, in place of what threads would take. Errors: PP_ERESOURCE. */
int pp_links_put(const struct pp_links *l, struct pp_costs *c);

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

/* ---- cluster_costs.c: from a machine file */

/* Are its ranks devices? tf32 is theirs alone; a processor may have bf16 too. */
static inline bool pp_cluster_has_devices(const struct pp_cluster *c)
{
    return c->peak[PP_PRECISION_TF32] > 0;
}

struct pp_node_use { /* of a machine, by a node of a micro-batch */
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
double pp_price_node(const struct pp_node_use *u, const struct pp_node *n, int k);

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

#endif
