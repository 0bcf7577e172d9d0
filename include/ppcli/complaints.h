/* SPDX-License-Identifier: Apache-2.0 */
/* What mpirun writes to standard error, kept apart from what its ranks write. */
#ifndef PPCLI_COMPLAINTS_H
#define PPCLI_COMPLAINTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#define PP_BLOCK_DASHES 50 /* a line of so many begins and ends a block of text */
#define PP_COMPLAINT_MAX 360

struct pp_complaints {
    int from;             /* a pipe that mpirun and its ranks write to */
    bool all;             /* pass everything on */
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

bool pp_complaints_any(struct pp_complaints *c);
/* Whether it is about MPI_Init. */
bool pp_complaints_of_start(struct pp_complaints *c);
/* One line of what it wrote first, "" when it wrote nothing; returns out. */
const char *pp_complaints_first(struct pp_complaints *c, char out[PP_COMPLAINT_MAX]);

#endif
