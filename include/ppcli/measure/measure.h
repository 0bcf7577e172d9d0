/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of costs: what the layers of a model and the links between ranks take. It is filled by
 * measuring this machine with the real backend and the real transport, or from a machine file.
 */
#ifndef PPCLI_MEASURE_MEASURE_H
#define PPCLI_MEASURE_MEASURE_H

#include "ppcli/conf/cluster.h"
#include "ppcli/pipe/layout.h"

/* ---- costs.c: the table */

struct pp_layer_seconds {
    double f, i, w;
};

/* All times are seconds. Sizes are rows of a micro-batch: between two sizes a time lies on the line
 * through both, outside on the line through the nearest two. */
struct pp_costs {
    int n_layers, n_sizes;
    int *sizes;                      /* [n_sizes] ascending */
    struct pp_layer_seconds *layers; /* [n_sizes][n_layers] */
    double *input;                   /* [n_sizes] gathers rows of the data set */
    double *loss;                    /* [n_sizes] gathers labels, computes loss and gradient */
    double optimizer;                /* of one parameter */
    double add;                      /* of one element of a sum over replicas */
    double action;                   /* that the executor adds to every action */
    struct pp_link near, far;        /* between ranks of one host, and between two hosts */
    double value_bytes;              /* of an element of a message */
    int *host; /* [n_hosts] hosts of ranks 0 .. n_hosts-1; NULL: as host_ranks says */
    int n_hosts;
    int host_ranks;        /* rank r is on host r / host_ranks; 0: there is one host */
    bool one_wire;         /* the ranks of a host share its link to the others */
    int at_once;           /* ranks that were measured at the same time */
    int cores;             /* that the process may use, or that were asked for */
    int threads;           /* of each rank */
    int measured;          /* threads of the measurement that these were scaled from; 0: measured */
    double took;           /* seconds that measuring took */
    struct pp_costs *next; /* the same with more threads in each rank; owned */
};

/* Returns the costs for ranks of so many threads; if the list has none, its first. */
const struct pp_costs *pp_costs_at(const struct pp_costs *c, int threads);

/* Computes the costs of `threads` threads by Amdahl's law: t(n) = t(1) (s + (1 - s) / n). The
 * serial share s of each time follows from `some`, which was measured with k threads, and is
 * limited to 0.01 to 1; it is 0.05 if `some` is `one`. Errors: PP_ERESOURCE. The caller owns
 * *out. */
int pp_costs_scale(const struct pp_costs *one, const struct pp_costs *some, int threads,
                   struct pp_costs **out);

void pp_costs_destroy(struct pp_costs **costs); /* accepts NULL in *costs */

/* Copies host[n], the hosts of ranks 0 .. n-1, into the costs. Errors: PP_ERESOURCE. */
int pp_costs_hosts(struct pp_costs *c, const int *host, int n);

/* Returns the seconds that F, I and W of a layer take for `rows` rows, none of them negative. */
struct pp_layer_seconds pp_costs_layer(const struct pp_costs *c, int layer, int rows);

/* Sets cost[n_layers] to F + I + W of each layer, by which `assignment = time` cuts. The first
 * layer also has the time of the input, and the last one that of the loss. */
void pp_costs_by_layer(const struct pp_costs *c, int rows, double *cost);

/* Computes F, I and W of `rows` rows of layers `first` to `last`, with input and loss if these
 * layers have them. W is a k-th of that of k micro-batches together. `pieces` is as in struct
 * pp_predict_spec. */
void pp_costs_stage(const struct pp_costs *c, int first, int last, int rows, int k, bool pieces,
                    double out[3]);

/* ---- links */

/* One side of a link: how its messages leave and arrive, over whatever transport. */
struct pp_link_end {
    bool leads;             /* sends first; the other side answers */
    int (*meet)(void *ctx); /* waits for the other side before each round; NULL: it need not */
    int (*send)(void *ctx);
    int (*receive)(void *ctx);
    void *ctx;
};

/* Measures the time of one message, which is half of a round trip: each of t[rounds] is the mean of
 * `trips`. Both sides call it. Pairwise. Errors: those of the callbacks. */
int pp_link_time(const struct pp_link_end *end, int trips, int rounds, double *t);

#define PP_LINK_STEADY 2.0 /* measurements of a link that differ by less agree */

struct pp_links {             /* between the processes of a run */
    int n;                    /* ranks */
    int *host;                /* [n] equal where ranks are on one host; owned: pp_free() */
    int beside;               /* ranks on rank 0's host */
    struct pp_link near, far; /* from rank 0 to a rank of its host, of another host; at rank 0 */
};

/* Measures the links, in about a second if one of them is slow. Collective. Errors: PP_ERESOURCE,
 * those of the transport. The caller owns out->host. */
int pp_links_measure(struct pp_transport *tp, struct pp_links *out);

/* Replaces the costs of messages between threads by those of the links between processes. Errors:
 * PP_ERESOURCE. */
int pp_links_put(const struct pp_links *l, struct pp_costs *c);

struct pp_measure_spec {
    const struct pp_model *model;
    struct pp_backend_choice backend;
    int optimizer;    /* enum pp_optimizer_kind */
    int ranks;        /* that will compute at the same time */
    int samples;      /* of the data set, from all over which rows are gathered */
    const int *sizes; /* [n_sizes] micro-batch sizes, >= 1, ascending, no two the same */
    int n_sizes;
    double seconds; /* that it may take; larger sizes are extrapolated where it is short */
};

/*
 * Measures this machine. As many pinned threads as there are ranks, at most one for each core,
 * compute at the same time with a piece of the model and memory of their own, so the times include
 * what ranks cost each other in caches and memory. Layers of equal shape share a time. The time of
 * a layer is a median, that of a transfer a quartile. Transfers are measured between threads, even
 * if the ranks will be processes. Local. Errors: PP_ERESOURCE, those of the backend.
 */
int pp_costs_measure(const struct pp_measure_spec *spec, struct pp_costs **out);

/* Returns the sum of the flops and the values of a sample in a layer, which distinguishes layers of
 * the same name in different models. */
double pp_layer_work(const struct pp_model *m, int layer);

/* ---- cluster_costs.c: from a machine file */

/* Returns whether the ranks of the machine are devices: only devices have tf32; a processor may
 * have bf16, too. */
static inline bool pp_cluster_has_devices(const struct pp_cluster *c)
{
    return c->peak[PP_PRECISION_TF32] > 0;
}

struct pp_node_use { /* how a node of a micro-batch uses a machine */
    const struct pp_cluster *cluster;
    const struct pp_model *model;
    double samples;     /* that a rank computes */
    size_t value_bytes; /* of an element of a value */
    double weights;     /* bytes of a rank's weights */
    double gradients;   /* bytes of a gradient for each byte of a weight */
    double peak, share; /* flop/s, and the part of it that the node reaches */
};

/* Returns the seconds of the node's F, I or W (k = 0, 1, 2): the time for its flops or for its
 * bytes, whichever is longer, and its launch; 0 if it computes nothing there. */
double pp_price_node(const struct pp_node_use *u, const struct pp_node *n, int k);

/* Returns the seconds that the optimizer needs for one parameter: it reads and writes the parameter
 * and its moments, and reads the gradient. All of them are f32. */
double pp_price_optimizer(const struct pp_cluster *c, int optimizer);

/* Returns the seconds that the loss needs for so many logits of `value_bytes`: it reads them for
 * their sum and for the gradient, and writes the gradient. */
double pp_price_loss(const struct pp_cluster *c, double logits, double value_bytes);

struct pp_cluster_use { /* what runs on a machine */
    const struct pp_model *model;
    enum pp_precision precision;
    int optimizer; /* enum pp_optimizer_kind */
    int rows;      /* of the largest micro-batch */
    int ranks;     /* of the run */
};

/*
 * Computes the costs of a model on a machine from pp_price_node() of each node. Products, attention
 * and convolutions reach their shares of the peak of `precision`, and bytes their share of the
 * bandwidth. Activations are bf16 on devices if `precision` is; all other memory is f32. The
 * optimizer's time is that of its bytes. A layer that the machine file has measured takes its
 * measured time, in proportion to the rows of the nearest size. Errors: PP_ECONFIG (the machine has
 * no such precision), PP_ERESOURCE. The caller owns *out.
 */
int pp_costs_of_cluster(const struct pp_cluster *c, const struct pp_cluster_use *use,
                        struct pp_costs **out);

/* ---- transfers of each size, for `bench` */

/* The time of a message between two ranks through the calls that the executor makes: the sender
 * writes all of it into the slot, and the receiver reads all of it there. */

struct pp_handover {
    size_t bytes;
    double one_way;   /* seconds from before writing to after reading: a median of blocks */
    double fastest;   /* the same of the fastest block */
    double same_core; /* seconds that one rank alone takes to write and read as much */
    double hidden;    /* part of one_way that passes while both ranks compute */
    double copy;      /* seconds that one rank takes for a memcpy of as many bytes */
};

/* Measures items[n] on rank 0; the caller has set `bytes` (a multiple of 8, at least 64) on both
 * ranks. Collective over the two ranks of `tp`, whose channels it opens. Errors: those of the
 * transport; PP_EINTERNAL if other bytes arrived than were sent. */
int pp_handover_measure(struct pp_transport *tp, struct pp_handover *items, int n);

/* Measures items[n] between two threads. Each is bound to one of the cores that this thread may use
 * or, with whole_machine, to any core, because a launcher has bound this process to one. Local.
 * Errors: those of pp_handover_measure(), PP_ERESOURCE. */
int pp_handover_threads(struct pp_handover *items, int n, bool whole_machine);

#endif
