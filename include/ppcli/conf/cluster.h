/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine that need not be here, as a machine file says it: one device for each rank, as many
 * ranks a host, a link within hosts and one between them. What it takes to run a model there:
 * pp_costs_of_cluster() of ppcli/tune.h.
 */
#ifndef PPCLI_CONF_CLUSTER_H
#define PPCLI_CONF_CLUSTER_H

#include <stdio.h>

#include "ppcli/conf/config.h"

struct pp_link {
    double latency, bandwidth; /* seconds, bytes a second of one rank each way */
};

/* Measured: F, I and W of a micro-batch of so many rows, in seconds. */
struct pp_cluster_layer {
    char name[48]; /* as the model calls it */
    int rows;
    double t[3];
    double work; /* pp_layer_work(): a layer with another is not the one; 0: any */
};

struct pp_cluster {
    char name[PP_NAME_MAX];    /* of the file, without .ini */
    char kernels[PP_NAME_MAX]; /* whose: what the shares are of; "": it does not say */
    double peak[3];            /* flop/s of products, by enum pp_precision; 0: it has none such */
    double fp8;                /* the same of fp8 factors; 0: none such */
    double reserve;            /* bytes of its memory that no plan may fill */
    double bandwidth, memory;  /* of its memory: bytes/s read and written, bytes for one rank */
    double product, attention, conv;   /* share of the peak that each kind of op reaches */
    double own_product, own_attention; /* the same of ppcli's own kernels; 0: as of those */
    double passes; /* share of the bandwidth that everything else reaches, optimizer included */
    double launch; /* seconds that every op takes beside */
    double ranks;  /* of a host */
    double busy;   /* load of other programs while the file was measured; 0: none, or unknown */
    struct pp_link within, between; /* between.bandwidth 0: there is only one host */
    double hidden;                  /* share of tensor parallelism's messages that products hide */
    double shared;                  /* 1: the ranks of a host share its link to the others */
    struct pp_cluster_layer
        *layers; /* [n_layers] owned; these layers are not computed from shares */
    int n_layers;
};

/*
 * Read a machine file: an INI file with the sections device, host, within, between and layers, of
 * at most 1 MiB. Numbers may end in k, M, G, T, P or Ki, Mi, Gi, Ti. Errors: those of
 * pp_file_read(), PP_ECONFIG with file and line (what is wrong, missing or absurd, and what would
 * do), PP_ERESOURCE. The caller owns *out: pp_cluster_fini().
 */
int pp_cluster_read(const char *path, struct pp_cluster *out);
void pp_cluster_fini(struct pp_cluster *c);

/* A whole number as config files have it, such as 12, 1k or 4Ki. False: it is none, or too large. */
bool pp_whole_parse(const char *text, int64_t *out);

/* As pp_cluster_read() reads it, digits that matter. Errors: PP_EIO. */
int pp_cluster_write(const struct pp_cluster *c, FILE *f);

#endif
