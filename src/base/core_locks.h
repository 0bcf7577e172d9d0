/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps runs of one user off each other's cores: an advisory lock on a small file for each core, in
 * $XDG_RUNTIME_DIR/ppcli or /tmp/ppcli-UID, which ends with its process.
 */
#ifndef PPCLI_BASE_CORE_LOCKS_H
#define PPCLI_BASE_CORE_LOCKS_H

#include "ppcli/base/cores.h"

struct core_locks {
    int folder, gate;
};

/* Begin and end a section in which no other run takes cores. If another run holds the lock of the
 * section for 2 s, both may take the same cores. Returns false if the folder of locks cannot be
 * used. Local. */
bool core_locks_begin(struct core_locks *out);
void core_locks_end(struct core_locks *locks);

/* Locks a core; returns the descriptor that holds the lock, or -1 if another run has the core. */
int core_locks_take(const struct core_locks *locks, int core);
/* Removes the processors of cores that other runs hold. Returns how many are left. */
int core_locks_filter(const struct core_locks *locks, struct pp_cpu *cpus, int n);

#endif
