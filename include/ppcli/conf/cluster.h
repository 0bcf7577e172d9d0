/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine that need not be present, as a machine file describes it: one device for each rank, the
 * same number of ranks on each host, a link within hosts and one between them.
 * pp_costs_of_cluster() computes what it takes to run a model there.
 */
#ifndef PPCLI_CONF_CLUSTER_H
#define PPCLI_CONF_CLUSTER_H

#include <stdio.h>

#include "ppcli/conf/config.h"

/* The cost of a message between two ranks: latency + bytes * byte. From a machine file or measured. */
struct pp_link {
    double latency;  /* seconds until the first byte arrives */
    double byte;     /* seconds for each byte; 0: free, or there is no such link */
    double copy;     /* seconds for each byte that the sender and the receiver spend on copies */
    double unsteady; /* factor between two measurements that should agree; 0: not measured */
};

/* Measured times: F, I and W of a micro-batch of `rows` rows, in seconds. */
struct pp_cluster_layer {
    char name[128]; /* name in the model; as long as PP_LAYER_NAME_MAX */
    int rows;
    double t[3];
    /* pp_layer_work() of the measured layer: a layer with another work is a different one; 0:
     * any */
    double work;
};

struct pp_cluster {
    char name[PP_NAME_MAX];    /* file name without .ini */
    char kernels[PP_NAME_MAX]; /* owner of the kernels that the shares describe; "": not given */
    double peak[3];            /* flop/s of products, by enum pp_precision; 0: not supported */
    double fp8;                /* flop/s of products with fp8 factors; 0: not supported */
    double reserve;            /* bytes of memory that no plan may use */
    double bandwidth, memory;  /* memory: bytes/s read and written; bytes for one rank */
    double product, attention, conv;   /* share of the peak that each kind of op reaches */
    double own_product, own_attention; /* the same for ppcli's own kernels; 0: as above */
    double passes; /* share of the bandwidth that all other ops reach, optimizer included */
    double launch; /* fixed overhead of every op, in seconds */
    double ranks;  /* ranks of a host */
    double busy;   /* load of other programs during the measurement; 0: none, or unknown */
    struct pp_link within, between; /* between.byte 0: there is only one host */
    double hidden;                  /* share of tensor parallelism's messages that products hide */
    double shared;                  /* 1: the ranks of a host share its link to the others */
    struct pp_cluster_layer
        *layers; /* [n_layers] owned; the times of these layers are not computed from shares */
    int n_layers;
};

/*
 * Reads a machine file: an INI file with the sections device, host, within, between and layers, of
 * at most 1 MiB. Numbers may end in k, M, G, T, P or Ki, Mi, Gi, Ti. Errors: those of
 * pp_file_read(), PP_ECONFIG with file and line (what is wrong, missing or impossible, and what
 * would work), PP_ERESOURCE. The caller owns *out: pp_cluster_fini().
 */
int pp_cluster_read(const char *path, struct pp_cluster *out);
void pp_cluster_fini(struct pp_cluster *c);

/* Parses a whole number as config files have it, such as 12, 1k or 4Ki. Returns false if it is not
 * one or too large. */
bool pp_whole_parse(const char *text, int64_t *out);

/* Writes a machine file that pp_cluster_read() reads, with as many digits as are significant.
 * Errors: PP_EIO. */
int pp_cluster_write(const struct pp_cluster *c, FILE *f);

#endif
