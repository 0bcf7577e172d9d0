/* SPDX-License-Identifier: Apache-2.0 */
/* A process that asks whether the hosts of a run still answer while mpirun waits for its first
 * rank: mpirun waits a minute for an orted that never came. */
#ifndef PPCLI_CLUSTER_ASKER_H
#define PPCLI_CLUSTER_ASKER_H

#include <sys/types.h>

#include "tries.h"

struct asker {
    pid_t pid;
    int fd; /* a byte makes it ask; it answers a byte if a host is lost; -1: no such process */
};

/* Starts the process that asks. The caller must have one thread. If `ask` is NULL, nothing is
 * started. */
void asker_start(const struct launch_ask *ask, struct asker *out);

/* Makes the process ask the hosts once, now. */
void asker_ask(const struct asker *a);

/* Returns whether the process has found that a host is lost. It returns true only once. */
bool asker_found_lost(const struct asker *a);

void asker_end(struct asker *a);

#endif
