/* SPDX-License-Identifier: Apache-2.0 */
/* What both ends of ppcli/cluster/pulse.h know. A beat is one struct, its answer one byte. A process that could
 * not run does not count the time: stopped and woken up, it finds the others well. */
#ifndef PPCLI_CLUSTER_BEAT_H
#define PPCLI_CLUSTER_BEAT_H

#include "ppcli/base/cores.h"
#include "ppcli/cluster/pulse.h"

#define BEAT_MARGIN_NS 2000000000u /* a link that comes back is used again only after a while */
/* Until a rank has come; less than PP_DEADLINE_MPI_START. */
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

/* What passes at most between two looks, also when this process was stopped. */
uint64_t beat_passed(uint64_t *last_ns);

/* One that does not block; -1: there is none. Closed, it is -1. */
int beat_socket(void);
void beat_drop(int *fd);

#endif
