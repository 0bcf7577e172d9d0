/* SPDX-License-Identifier: Apache-2.0 */
/* The hosts of a run and the routes between them. */
#ifndef PPCLI_CLUSTER_HOSTS_H
#define PPCLI_CLUSTER_HOSTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ppcli/conf/cluster.h"
#include "ppcli/conf/config.h"

/* ---- complaints */

/* Text that mpirun writes to standard error, separated from what its ranks write. */

#define PP_BLOCK_DASHES 50 /* a line of that many dashes begins and ends a block of text */
#define PP_COMPLAINT_MAX 360

/* The first thing that rank 0 writes, on any host: it shows that a rank runs. Removed from the
 * output. */
#define PP_RANK_MARK "\006ppcli\006"

/* ---- hosts */

/*
 * The machines of a run over several hosts: their list, the routes between them, and what they have
 * in common.
 */

#define PP_HOSTS_MAX 256
#define PP_HOST_NAME_MAX 64
#define PP_HOST_TEXT 512

struct pp_host {
    char name[PP_HOST_NAME_MAX];
    int ranks;
};

/* Ranks are numbered in the order of the list: those of items[0] come first. */
struct pp_hosts {
    struct pp_host items[PP_HOSTS_MAX];
    int n;
};

/*
 * Parses run.hosts: "h0:2,h1:2", or "file:PATH" with lines "h0 slots=2". If no host has a count,
 * the hosts share `ranks` in equal parts, the first ones one more; else a host without a count has
 * 1 rank. ranks 0: any number. Errors: PP_ECONFIG, also if the counts do not add up to `ranks`;
 * those of pp_file_read(). *out is lost on failure. Local.
 */
int pp_hosts_parse(const char *text, int ranks, struct pp_hosts *out);

/* Finds the name of this machine's interface in run.network, such as "eth0". Errors: those of
 * pp_network_find(). Local. */
int pp_network_device(const char *network, char *out, size_t bytes);

/* ---- preflight
 * The agent starts a helper on every host; it answers questions and connects to the other hosts.
 * Needs no MPI and no shared files, and at most about ten seconds for eight hosts. */

/* Facts that should be equal on all hosts. */
enum pp_host_fact {
    PP_HOST_PROGRAM, /* SHA-256 of ppcli */
    PP_HOST_MPI,     /* library */
    PP_HOST_CONFIG,  /* SHA-256 of the config file */
    PP_HOST_DATA,    /* of the data set's files, by their sizes and first bytes */
    PP_HOST_CPU,     /* the instructions that determine the bits */
    PP_HOST_FACTS
};

struct pp_host_facts {
    char name[PP_HOST_NAME_MAX];
    char wrong[512];               /* not empty: why it cannot be asked or used */
    bool here;                     /* this process runs on it */
    char fact[PP_HOST_FACTS][256]; /* "": unknown */
    char boot[64];                 /* equal for two names of one machine */
    char calls_itself[64];         /* its host name */
    char addresses[512];           /* addresses of its interfaces: "10.77.0.1,10.78.0.1" */
    int cores, cores_there;        /* cores that ranks can be bound to; all cores */
    uint64_t free_bytes;           /* free memory; UINT64_MAX: unknown */
    double clock_s;                /* its clock minus ours */
    int64_t newest;                /* step of the newest checkpoint in its run folder; -1: none */
};

/* The route from one host to another. */
struct pp_way {
    enum pp_way_state {
        PP_WAY_UNKNOWN,
        PP_WAY_OPEN,
        PP_WAY_NARROW, /* short messages arrive, full packets do not */
        PP_WAY_CLOSED
    } state;
    char from[16], device[16], to[16]; /* addresses, and the interface of `from` */
    double connect_s;
    struct pp_link link; /* byte 0: only the latency was measured */
    char wrong[320];     /* why it is not open */
};

struct pp_preflight {
    int n;
    struct pp_host_facts *hosts; /* [n] */
    struct pp_way *ways;         /* [n][n] from, to */
    char network[512];           /* networks of all routes: "10.77.0.0/24,10.78.0.0/16" */
    bool one_machine;            /* some of the hosts are one machine */
    bool folder_shared;          /* all hosts see the run folder, or there will be none */
    double seconds;              /* duration of the preflight */
    char wrong[1024];            /* the first error, with advice */
};

/*
 * Asks all hosts of a run what they have, and whether they reach each other. `path` is the config
 * file; if it is NULL, neither config nor data are compared. With `full` it continues after the
 * first error and measures bandwidths. *out is set also after a failure, whose text is out->wrong;
 * free it with pp_preflight_fini(). Errors: PP_ERESOURCE (a host or a route), PP_ECONFIG (something
 * differs). Local.
 */
int pp_preflight(const struct pp_config *cfg, const char *path, const struct pp_hosts *hosts,
                 bool full, struct pp_preflight *out);
void pp_preflight_fini(struct pp_preflight *p);

/* Writes "2 cores, 3.5 GiB free, ...". Returns out. */
const char *pp_host_text(const struct pp_host_facts *h, char out[PP_HOST_TEXT]);
/* Writes "10.77.0.1 by eth0, 10.77.0.2: connect ...", or "no: " and the reason; "" if unknown.
 * Returns out. */
const char *pp_way_text(const struct pp_way *w, char out[PP_HOST_TEXT]);

/* Runs the helper: answers on standard input and output until they close. Local. */
int pp_hosts_answer(void);

#endif
