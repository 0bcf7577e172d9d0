/* SPDX-License-Identifier: Apache-2.0 */
/* A process that asks whether the hosts of a run are there, while mpirun waits for its first rank: an
 * orted that never came keeps it waiting for a minute. */
#ifndef PPCLI_CLUSTER_ASKER_H
#define PPCLI_CLUSTER_ASKER_H

#include <sys/types.h>

#include "tries.h"

struct asker {
    pid_t pid;
    int fd; /* a byte makes it ask, and one comes back where a host is lost; -1: there is none */
};

/* From a process of one thread. ask NULL: there is none. */
void asker_start(const struct launch_ask *ask, struct asker *out);

/* Ask now, once. */
void asker_ask(const struct asker *a);

/* Whether it has asked and found a host lost: true once. */
bool asker_found_lost(const struct asker *a);

void asker_end(struct asker *a);

#endif
