/* SPDX-License-Identifier: Apache-2.0 */
/* What mpirun writes to standard error, kept apart from what its ranks write. */
#ifndef PPCLI_COMPLAINTS_H
#define PPCLI_COMPLAINTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define PP_BLOCK_DASHES 50 /* a line of so many begins and ends a block of text */
#define PP_COMPLAINT_MAX 360

/* The first thing that rank 0 writes, wherever it runs: there is a rank. Not for the reader. */
#define PP_RANK_MARK "\006ppcli\006"
/* Takes the mark out of n bytes; returns how many are left. seen: set when it was there. */
size_t pp_take_rank_mark(char *text, size_t n, atomic_bool *seen);

struct pp_complaints {
    int from; /* a pipe that mpirun and its ranks write to */
    bool all; /* pass everything on */
    /* The mark of rank 0 was there: Open MPI 5 may put here what a rank writes first to standard output. */
    atomic_bool *started;
    pthread_mutex_t lock; /* of kept */
    char kept[8192];      /* what mpirun wrote, the first of it */
    /* of the line that is being read: */
    bool in_block;
    int kind;
    char line[1024];
    size_t used;
};

/* A thread: until nobody can write any more, what the ranks write goes to standard error. */
void *pp_complaints_relay(void *complaints);

/* Whether this text is in what it wrote, in upper or lower case. Each line ends with "\n". */
bool pp_complaints_have(struct pp_complaints *c, const char *text);
/* One line of what it wrote first, "" when it wrote nothing; returns out. */
const char *pp_complaints_first(struct pp_complaints *c, char out[PP_COMPLAINT_MAX]);

#endif
