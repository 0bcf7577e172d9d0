/* SPDX-License-Identifier: Apache-2.0 */
/* The hosts of a run and the ways between them. */
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

/* What mpirun writes to standard error, kept apart from what its ranks write. */

#define PP_BLOCK_DASHES 50 /* a line of so many begins and ends a block of text */
#define PP_COMPLAINT_MAX 360

/* The first thing that rank 0 writes, wherever it runs: there is a rank. Not for the reader. */
#define PP_RANK_MARK "\006ppcli\006"

/* ---- hosts */

/*
 * The machines of a run over several hosts: their list, the ways between them, and what they have in
 * common.
 */

#define PP_HOSTS_MAX 256
#define PP_HOST_NAME_MAX 64
#define PP_HOST_TEXT 512

struct pp_host {
    char name[PP_HOST_NAME_MAX];
    int ranks;
};

/* Ranks follow each other in the order of the list: those of items[0] come first. */
struct pp_hosts {
    struct pp_host items[PP_HOSTS_MAX];
    int n;
};

/*
 * `text` as run.hosts has it: "h0:2,h1:2", or "file:PATH" of lines "h0 slots=2". Without any count
 * the hosts share `ranks` in equal parts, the first ones more; else a host without one has 1 rank.
 * ranks 0: any number will do. Errors: PP_ECONFIG, also when the counts are not `ranks` in all;
 * those of pp_file_read(). *out is lost then. Local.
 */
int pp_hosts_parse(const char *text, int ranks, struct pp_hosts *out);

/* The interface that has this address: "eth0". Errors: as above. Local. */
int pp_network_device(const char *network, char *out, size_t bytes);

/* ---- preflight: a helper on every host, which the agent starts, answers questions and connects to
 * the others. No MPI, no file that all see, at most about ten seconds for eight hosts. */

/* What should be the same on all hosts. */
enum pp_host_fact {
    PP_HOST_PROGRAM, /* SHA-256 of ppcli */
    PP_HOST_MPI,     /* library */
    PP_HOST_CONFIG,  /* SHA-256 of the file */
    PP_HOST_DATA,    /* of the data set's files, by their sizes and first bytes */
    PP_HOST_CPU,     /* what computes the bits */
    PP_HOST_FACTS
};

struct pp_host_facts {
    char name[PP_HOST_NAME_MAX];
    char wrong[512];               /* not empty: it cannot be asked, or used, and why */
    bool here;                     /* this process runs on it */
    char fact[PP_HOST_FACTS][256]; /* "": not known */
    char boot[64];                 /* equal where two are one machine */
    char calls_itself[64];         /* its host name */
    char addresses[512];           /* of its interfaces: "10.77.0.1,10.78.0.1" */
    int cores, cores_there;        /* that ranks can be bound to, of so many */
    uint64_t free_bytes;           /* of memory; UINT64_MAX: not known */
    double clock_s;                /* its clock less ours */
    int64_t newest;                /* step of the newest checkpoint in its run folder; -1: none */
};

/* The way from one host to another. */
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
    char wrong[320];     /* of one that is not open */
};

struct pp_preflight {
    int n;
    struct pp_host_facts *hosts; /* [n] */
    struct pp_way *ways;         /* [n][n] from, to */
    char network[512];           /* of all the ways between them: "10.77.0.0/24,10.78.0.0/16" */
    bool one_machine;            /* some of them are one */
    bool folder_shared;          /* all see the run folder, or there will be none */
    double seconds;              /* it took */
    char wrong[1024];            /* the first thing wrong, and what to do */
};

/*
 * Ask all hosts. path: the config file; NULL: neither it nor data are looked at. full: go on after
 * the first thing wrong, and measure bandwidths. *out is set also after a failure, whose text is
 * out->wrong. Errors: PP_ERESOURCE (a host or a way), PP_ECONFIG (something differs). Local; the
 * caller has pp_preflight_fini().
 */
int pp_preflight(const struct pp_config *cfg, const char *path, const struct pp_hosts *hosts,
                 bool full, struct pp_preflight *out);
void pp_preflight_fini(struct pp_preflight *p);

/* "2 cores, 3.5 GiB free, ..." Returns out. */
const char *pp_host_text(const struct pp_host_facts *h, char out[PP_HOST_TEXT]);
/* "10.77.0.1 by eth0, 10.77.0.2: connect ...", or "no: " and why. Returns out; "" of one that is unknown. */
const char *pp_way_text(const struct pp_way *w, char out[PP_HOST_TEXT]);

/* Be the helper: answer on standard input and output until that ends. Local. */
int pp_hosts_answer(void);

#endif
