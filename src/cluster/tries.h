/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the launch files: one try of a run under mpirun, and the tries of a run. */
#ifndef PPCLI_CLUSTER_TRIES_H
#define PPCLI_CLUSTER_TRIES_H

#include "ppcli/cluster/launch.h"

struct launch_end {
    int code;            /* of mpirun, if there is no other error */
    bool started, asked; /* mpirun has started; the user asked to end */
    bool ranks;          /* rank 0 has begun */
    bool full;           /* code is PP_EIO, because a disk is full */
};

/* Runs mpirun as pp_launch_mpirun() does, but returns in any case. `added` has the words after the
 * user's, each ended by a NUL, and an empty word at the end. launch_leave() then ends this process
 * if the ranks have reported the error. */
int launch_once(const struct pp_config *cfg, const char *word, int ranks, const char *added,
                struct launch_end *out);
int launch_leave(int rc, const struct launch_end *end);

/* Finds whether a host of the run is lost; called in its own process if no rank begins. */
struct launch_ask {
    bool (*host_lost)(const void *ctx);
    const void *ctx;
};

/*
 * Runs args[0] (NULL-terminated words) and waits for it. It receives TERM, INT, HUP and USR1 as
 * USR1, USR2 as USR2; a second INT ends it and everything it has started. It ends with this
 * process. Its standard output goes through this process's stdout, so that a write error is known
 * here: mpirun forgets it.
 *   listener  of its ranks; NULL: none
 *   ask       how to find out that a host is lost; NULL: not asked
 * Local. Errors: PP_ERESOURCE, also if it ended without having started a rank; PP_ENOINPUT: no such
 * program; PP_ESTOPPED: it was told to end before it could listen; PP_ELOST: it or one of its ranks
 * was ended by a signal, or its ranks are gone and it does not end; the text names the rank. After
 * a second INT, or a signal after which the ranks had nothing to save, it does not return: this
 * process ends by the signal.
 */
int supervise(const char *const *args, struct pp_listener *listener, const struct launch_ask *ask,
              struct launch_end *out);

/* Sets the links between hosts to the slowest that a full preflight measured; without a measurement
 * they stay. Errors: PP_ERESOURCE. */
struct pp_costs;
struct pp_hosts;
struct pp_preflight;
int hosts_set_links(struct pp_costs *c, const struct pp_hosts *hosts, const struct pp_preflight *p);

#endif
