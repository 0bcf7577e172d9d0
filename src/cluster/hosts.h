/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of this module: a ppcli on every host answers questions, one line each, on
 * its standard input and output; the agent carries them. Other output of a login shell is ignored.
 *   question  WORD \t argument \t ... \n
 *   answer    "pp> " or, on an error, "pp! "; the seconds of its clock; \t text \n
 */
#ifndef PPCLI_SRC_CLUSTER_HOSTS_H
#define PPCLI_SRC_CLUSTER_HOSTS_H

#include <sys/types.h>

#include "ppcli/cluster/hosts.h"

#define HOSTS_GOOD "pp> "
#define HOSTS_BAD "pp! "
#define HOSTS_TOKEN 16    /* bytes at the start of every connection, which identify it */
#define HOSTS_PORTS 64    /* most ports that are tried; of a larger range, spread over it */
#define HOSTS_BLOCK 65536 /* bytes; more than a packet of any network */

/* A helper on a host, and its last answer. */
struct remote {
    const char *name;
    pid_t pid;       /* 0: not running */
    int to, from;    /* from: stdout and stderr of the helper and its agent */
    char text[4096]; /* an unfinished line read from `from` */
    size_t used;
    char last[256];                 /* the last line that was not an answer */
    char question[2 * PP_PATH_MAX]; /* empty: no question */
    char answer[2048];
    bool asked, good;
    uint64_t asked_ns, trip_ns; /* trip_ns: round trip of the fastest answer, by which clock_s was
                                   measured */
    double clock_s;             /* its clock minus ours */
    char wrong[512];            /* not empty: why it cannot be asked any more */
};

/* Lists the addresses of this machine except the loopback's: "10.77.0.1,10.78.0.1". Local. */
void hosts_list_addresses(char *out, size_t bytes);

/* Checks that this machine can connect to all of these ports ("52000,52001") of a host. Errors:
 * PP_ERESOURCE. Local. */
int hosts_reach(const char *name, const char *ports);

/* Starts a helper, or sets r->wrong. If `here` is true, it runs on this machine, without the agent.
 * Local. */
void remote_start(struct remote *r, const char *agent, bool here);

/* Sends every helper its question, and waits for the answers for at most `seconds`. Sets `wrong` of
 * a helper that ends or does not answer, and clears the questions. Local. */
void remote_ask(struct remote *r, int n, double seconds);

/* Lets all helpers end, and kills those that have not ended after `seconds`. Local. */
void remote_end(struct remote *r, int n, double seconds);

/* Removes from the n bytes the mark by which a rank tells that it has begun. Returns how many bytes
 * are left. Sets *seen if the mark was there. */
size_t pp_take_rank_mark(char *text, size_t n, atomic_bool *seen);

struct pp_complaints {
    int from; /* pipe to which mpirun and its ranks write */
    bool all; /* pass on everything */
    /* Set when rank 0's mark was read: Open MPI 5 may write here what a rank writes first to
     * standard output. */
    atomic_bool *started;
    pthread_mutex_t lock; /* protects `kept` */
    char kept[8192];      /* the first text of mpirun */
    /* the line being read: */
    bool in_block;
    int kind;
    char line[1024];
    size_t used;
};

/* Passes on to standard error, as a thread, what the ranks write, until the pipe is closed. */
void *pp_complaints_relay(void *complaints);

/* Returns whether mpirun's text contains `text`, in upper or lower case. Each line ends with
 * "\n". */
bool pp_complaints_have(struct pp_complaints *c, const char *text);
/* Writes mpirun's first complaint as one line, or "" if it has not complained. Returns out. */
const char *pp_complaints_first(struct pp_complaints *c, char out[PP_COMPLAINT_MAX]);

/* Parses a range of ports such as "52000-52031". Sets *first to 0 for "auto", which is any port.
 * Errors: PP_ECONFIG. Local. */
int pp_ports_parse(const char *text, int *first, int *last);

/* Returns the program that runs a command on another host, as `AGENT HOST WORD...`: run.agent, else
 * PPCLI_HOST_AGENT of the environment, else "ssh". Valid as long as cfg. Local. */
const char *pp_host_agent(const struct pp_config *cfg);

/* Returns whether the variable in NAME=VALUE is passed to other hosts. */
bool pp_host_variable(const char *text);

/* The route from this machine to a host. IPv4. */
struct pp_route {
    char peer[16], own[16]; /* addresses */
    char network[20];       /* of `own`: "10.77.0.0/24" */
    char device[16];        /* the interface with address `own`: "eth0" */
};

/* Returns whether a name means this machine: its own name, or an address of one of its
 * interfaces. */
bool pp_host_is_here(const char *name);

/* Finds the route to a host by asking the resolver and the kernel; it sends nothing to the host.
 * Errors: PP_ERESOURCE with advice: no such name, an address of this machine, no route. Local. */
int pp_route_find(const char *host, struct pp_route *out);

/* Finds the address of this machine for messages of a run. `network` is the value of run.network: a
 * list of networks ("10.77.0.0/24") or interfaces, of which the first that exists here is used.
 * Errors: PP_ECONFIG, also if the text is not a network; it lists the existing ones. Local. */
int pp_network_find(const char *network, char out_address[16]);

/* Returns whether this machine has a fabric for which MPI chooses better than by addresses:
 * InfiniBand, RoCE, EFA or Slingshot. Local. */
bool pp_fabric_here(void);

/* Checks that mpirun can start `ranks` ranks on this machine. Errors: PP_ERESOURCE, which names
 * what is missing. Local. */
int pp_mpirun_can_start(int ranks);

/* Runs a full preflight of cfg's hosts for `ranks` ranks. If a host does not answer, or cannot
 * connect to this host and to earlier hosts with ranks, its hosts->items[].ranks becomes 0 and
 * out->hosts[].wrong says why. Errors: those of pp_hosts_parse(), PP_ERESOURCE (memory). */
int pp_preflight_left(const struct pp_config *cfg, const char *path, int ranks,
                      struct pp_hosts *hosts, struct pp_preflight *out);

/* Returns the memory for a rank: nine tenths of the free memory per rank of the host with the
 * least, but not more than `most` if that is not 0. Returns 0 if it is unknown. */
size_t pp_preflight_memory(const struct pp_preflight *p, const struct pp_hosts *hosts, size_t most);

#endif
