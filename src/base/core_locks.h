/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs of one user leave each other's cores alone: an advisory lock on a small file for each core,
 * in $XDG_RUNTIME_DIR/ppcli or /tmp/ppcli-UID, which ends with its process.
 */
#ifndef PPCLI_BASE_CORE_LOCKS_H
#define PPCLI_BASE_CORE_LOCKS_H

#include "ppcli/base/cores.h"

struct core_locks {
    int folder, gate;
};

/* Between begin and end no other run takes cores, but where one has held the gate for 2 s: then two may
 * share what is left. False: the folder cannot be used. Local. */
bool core_locks_begin(struct core_locks *out);
void core_locks_end(struct core_locks *locks);

/* The descriptor that holds the lock of a core; -1: another run has it. */
int core_locks_take(const struct core_locks *locks, int core);
/* Leave out the processors of cores that others have. Returns how many are left. */
int core_locks_filter(const struct core_locks *locks, struct pp_cpu *cpus, int n);

#endif
