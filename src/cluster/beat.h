/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by both ends of ppcli/cluster/pulse.h. A heartbeat is one struct, its answer one byte.
 * Time in which a process could not run does not count: after it was stopped, it finds the others
 * alive. */
#ifndef PPCLI_CLUSTER_BEAT_H
#define PPCLI_CLUSTER_BEAT_H

#include "ppcli/base/cores.h"
#include "ppcli/cluster/pulse.h"

#define BEAT_MARGIN_NS 2000000000u /* a link that recovers is used again only after a while */
/* Time for a rank to come; less than PP_DEADLINE_MPI_START. */
#define BEAT_COME_NS(timeout_ns) (2 * (timeout_ns) + 8000000000u)
#define BEAT_WELL '.'
#define BEAT_END 'E'

struct beat {
    uint64_t token;
    int64_t pid;
    uint64_t idle_ns, timeout_ns;
    int32_t rank;
    uint8_t waits, over;
    char host[PP_HOST_MAX], what[256];
};

/* Returns the time since *last_ns, limited to what passes between two calls if the process was not
 * stopped. */
uint64_t beat_passed(uint64_t *last_ns);

/* Makes a socket that does not block. Returns -1 on failure. beat_drop() closes it and sets it to
 * -1. */
int beat_socket(void);
void beat_drop(int *fd);

#endif
