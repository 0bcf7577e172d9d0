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

#endif
