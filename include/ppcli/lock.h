/* SPDX-License-Identifier: Apache-2.0 */
/* One process at a time: the lock of a run folder. The kernel lets go of it when its holder dies.
 */
#ifndef PPCLI_LOCK_H
#define PPCLI_LOCK_H

#include "ppcli/file.h"

#define PP_LOCK_NAME ".lock"

struct pp_lock {
    int fd; /* < 0: not held */
    char path[PP_PATH_MAX];
    int64_t since_ns; /* when it was taken, by the clock that dates the files beside it */
};

#define PP_LOCK_NONE                                                                               \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

/*
 * Take the lock of a run folder. Of MPI ranks only one may ask. What a dead process left is taken over
 * without a word to the user. Where the file system knows no locks, a warning is all.
 * Errors: PP_ERESOURCE when another process holds it, naming its number and host; PP_ECONFIG (the folder is
 * within the checkpoints of a run); PP_EPERM, PP_EIO.
 */
int pp_lock_take(const char *dir, struct pp_lock *out);
/* Before something is written under the folder's name: does it name the folder whose lock this is? It was
 * moved, or another run has it, where not: PP_EIO. Errors: those of pp_path_stat(), too. */
int pp_lock_check(const struct pp_lock *l);
void pp_lock_release(struct pp_lock *l); /* accepts one that is not held */

#endif
