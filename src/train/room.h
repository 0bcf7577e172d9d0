/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a run fits into the memory there is. Local to train/. */
#ifndef PPCLI_TRAIN_ROOM_H
#define PPCLI_TRAIN_ROOM_H

#include <stdint.h>

#include "ppcli/run.h"

struct room {
    uint64_t bytes;   /* what this process may still take; UINT64_MAX: nobody says */
    const char *what; /* the limit that is the nearest; static storage */
};

/*
 * The smallest of: memory available on this machine, what the control groups of this process (both
 * versions, each level) and its address space have left. root: "" or, in tests, a folder with proc/
 * and sys/ in it. What cannot be read is no limit. Local.
 */
void room_find(const char *root, struct room *out);

/*
 * PP_ERESOURCE, with both numbers and what would help, when the memory that this process's ranks
 * will take is not there: before anything is allocated or read. rank: of this process; -1: all are
 * its threads. Local.
 */
int room_check(const struct pp_run *run, const struct pp_train_options *options, int rank);

#endif
