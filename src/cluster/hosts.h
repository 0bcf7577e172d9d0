/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside hosts: a ppcli on every host answers questions, a line for a line, on its standard input and
 * output; the agent carries them. What else a login prints there is passed over.
 *   question  WORD \t argument \t ... \n
 *   answer    "pp> " or, when something is wrong, "pp! "; the seconds of its clock; \t text \n
 */
#ifndef PPCLI_SRC_CLUSTER_HOSTS_H
#define PPCLI_SRC_CLUSTER_HOSTS_H

#include <sys/types.h>

#include "ppcli/cluster/hosts.h"

#define HOSTS_GOOD "pp> "
#define HOSTS_BAD "pp! "
#define HOSTS_TOKEN 16    /* bytes that a connection begins with: it is ours */
#define HOSTS_PORTS 64    /* that are tried, of a larger range spread over it */
#define HOSTS_BLOCK 65536 /* bytes: more than a packet of any network */

/* A helper, and its last answer. */
struct remote {
    const char *name;
    pid_t pid;       /* 0: none */
    int to, from;    /* from: stdout and stderr of the helper and its agent */
    char text[4096]; /* of `from`: an unfinished line */
    size_t used;
    char last[256];                 /* complaint */
    char question[2 * PP_PATH_MAX]; /* empty: none is asked */
    char answer[2048];
    bool asked, good;
    uint64_t asked_ns, trip_ns; /* trip_ns: of the fastest answer, by which ... */
    double clock_s;             /* ... its clock is so far from ours */
    char wrong[512];            /* not empty: it cannot be asked any more, and why */
};

/* The addresses of this machine, but for the loopback's: "10.77.0.1,10.78.0.1". Local. */
void hosts_list_addresses(char *out, size_t bytes);

/* Whether this machine can connect to all of these ports ("52000,52001") of a host. Errors: PP_ERESOURCE.
 * Local. */
int hosts_reach(const char *name, const char *ports);

/* Start a helper, or say in r->wrong why not. here: without the agent. Local. */
void remote_start(struct remote *r, const char *agent, bool here);

/* Put every helper its question and wait for the answers, or `seconds`. A helper that ends or does
 * not answer gets `wrong`. Questions are cleared. Local. */
void remote_ask(struct remote *r, int n, double seconds);

/* All helpers end: by themselves, or after `seconds`. Local. */
void remote_end(struct remote *r, int n, double seconds);

/* Takes the mark out of n bytes; returns how many are left. seen: set when it was there. */
size_t pp_take_rank_mark(char *text, size_t n, atomic_bool *seen);

struct pp_complaints {
    int from; /* a pipe that mpirun and its ranks write to */
    bool all; /* pass everything on */
    /* The mark of rank 0 was there: Open MPI 5 may put here what a rank writes first to standard output. */
    atomic_bool *started;
    pthread_mutex_t lock; /* of kept */
    char kept[8192];      /* what mpirun wrote, the first of it */
    /* of the line that is being read: */
    bool in_block;
    int kind;
    char line[1024];
    size_t used;
};

/* A thread: until nobody can write any more, what the ranks write goes to standard error. */
void *pp_complaints_relay(void *complaints);

/* Whether this text is in what it wrote, in upper or lower case. Each line ends with "\n". */
bool pp_complaints_have(struct pp_complaints *c, const char *text);
/* One line of what it wrote first, "" when it wrote nothing; returns out. */
const char *pp_complaints_first(struct pp_complaints *c, char out[PP_COMPLAINT_MAX]);

/* "52000-52031". *first 0: "auto", any port. Errors: PP_ECONFIG. Local. */
int pp_ports_parse(const char *text, int *first, int *last);

/* The program that starts a command on another host, as `AGENT HOST WORD...`: run.agent, else
 * PPCLI_HOST_AGENT of the environment, else "ssh". Valid as long as cfg. Local. */
const char *pp_host_agent(const struct pp_config *cfg);

/* Whether NAME=VALUE goes to other hosts. */
bool pp_host_variable(const char *text);

/* The way from this machine to a host. IPv4. */
struct pp_route {
    char peer[16], own[16]; /* addresses */
    char network[20];       /* of `own`: "10.77.0.0/24" */
    char device[16];        /* the interface that has it: "eth0" */
};

/* Whether a name means this machine: its own name, or an address of one of its interfaces. */
bool pp_host_is_here(const char *name);

/* Errors: PP_ERESOURCE with what to do: no such name, an address of the machine itself, no route.
 * Asks the resolver and the kernel; nothing is sent to the host. Local. */
int pp_route_find(const char *host, struct pp_route *out);

/* The address of this machine by which a run's messages come to it. network: run.network, networks
 * ("10.77.0.0/24") or interfaces, the first of which that it has counts. Errors: PP_ECONFIG, also when the text
 * is not a network; it says what there is. Local. */
int pp_network_find(const char *network, char out_address[16]);

/* Whether this machine has a fabric that MPI chooses better than by addresses: InfiniBand, RoCE,
 * EFA, Slingshot. Local. */
bool pp_fabric_here(void);

/* Whether mpirun can start so many ranks on this machine. Errors: PP_ERESOURCE, with what is missing.
 * Local. */
int pp_mpirun_can_start(int ranks);

/* A full one of cfg's hosts for so many ranks. Of a host that does not answer, or does not reach this one
 * and those before it that have ranks, hosts->items[].ranks is 0 and out->hosts[].wrong says why.
 * Errors: those of pp_hosts_parse(), PP_ERESOURCE (memory). */
int pp_preflight_left(const struct pp_config *cfg, const char *path, int ranks,
                      struct pp_hosts *hosts, struct pp_preflight *out);

/* What a rank may hold: nine tenths of the free memory of the host that has least for each of its ranks,
 * at most `most` (0: any). 0: unknown. */
size_t pp_preflight_memory(const struct pp_preflight *p, const struct pp_hosts *hosts, size_t most);

#endif
