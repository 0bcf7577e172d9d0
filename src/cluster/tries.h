/* SPDX-License-Identifier: Apache-2.0 */
/* Inside launch: one try of a run under mpirun, and the tries of a run. */
#ifndef PPCLI_CLUSTER_TRIES_H
#define PPCLI_CLUSTER_TRIES_H

#include "ppcli/cluster/launch.h"

struct launch_end {
    int code;            /* of mpirun, where nothing else is wrong */
    bool started, asked; /* mpirun; the user wanted the end */
    bool ranks;          /* rank 0 has begun */
    bool full;           /* code is PP_EIO, of a full disk */
};

/* As pp_launch_mpirun(), with `more` words (NULL-terminated; NULL: none) after those of the user, and it
 * returns: launch_leave() then ends this process where the ranks have said why. */
int launch_once(const struct pp_config *cfg, const char *word, int ranks, const char *const *more,
                struct launch_end *out);
int launch_leave(int rc, const struct launch_end *end);

/* Whether a host of the run is lost, asked in a process of its own where no rank begins. */
struct launch_ask {
    bool (*host_lost)(const void *ctx);
    const void *ctx;
};

/*
 * Run args[0] (NULL-terminated words) and wait for it. TERM, INT, HUP and USR1 become USR1 for it,
 * USR2 stays USR2; a second INT ends it and all it has started. It ends with this process.
 * What it writes to its standard output goes through this process's stdout, so that a failure to
 * write is known here: mpirun forgets it. listener: of its ranks; NULL: none. ask: how to find
 * out that a host is lost; NULL: it is not asked. Local.
 * Errors: PP_ERESOURCE, also when it ended without having started a rank; PP_ENOINPUT when there is
 * no such program; PP_ESTOPPED when it was told to end before it could listen; PP_ELOST when it or
 * one of its ranks was ended by a signal, or when its ranks are gone and it does not end; the text
 * names the rank. A second INT does not return, nor a signal after which the ranks had nothing to
 * save: this process ends by it.
 */
int supervise(const char *const *args, struct pp_listener *listener, const struct launch_ask *ask,
              struct launch_end *out);

/* Sets the links between hosts to the slowest that a full preflight measured; without one they stay as
 * they are. Errors: PP_ERESOURCE. */
struct pp_costs;
struct pp_hosts;
struct pp_preflight;
int hosts_set_links(struct pp_costs *c, const struct pp_hosts *hosts, const struct pp_preflight *p);

#endif
