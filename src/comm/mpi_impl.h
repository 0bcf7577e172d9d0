/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the two halves of the MPI transport share: mpi.c (messages) and mpi_start.c
 * (start and end). Only these two files and mpi_library.c include mpi.h. */
#ifndef PPCLI_COMM_MPI_IMPL_H
#define PPCLI_COMM_MPI_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "impl.h"
#include "mpi_library.h"

struct header {
    uint64_t bytes;
    uint32_t tag;
    uint32_t count; /* messages through this slot so far */
};

enum {
    HEADER,
    PAYLOAD,
    PARTS
};

struct mpi_slot {
    struct header header;
    bool large;               /* it is in flight and counted in `large` */
    MPI_Request parts[PARTS]; /* MPI_REQUEST_NULL when there is nothing to finish */
};

/* The private data of a channel's end. Its tags are unique among the messages from one rank to
 * another: each pair of ranks counts its own channels, so that a run may have any number of
 * them. */
struct mpi_end {
    int tag; /* tag of its first slot; the others follow */
};

struct mpi {
    MPI_Comm channels;     /* messages of slots */
    MPI_Comm control;      /* collectives and exchanges */
    int host;              /* the lowest rank on this machine */
    pthread_t thread;      /* the thread that calls MPI, as does ... */
    pthread_t mover;       /* ... this one while `thread` computes; only if `moves` */
    pthread_mutex_t lock;  /* held to call MPI and to change: */
    pthread_cond_t wake;   /* the mover */
    bool moves, over;      /* over: the mover ends */
    int large;             /* messages in flight that need the mover */
    _Atomic int stop;      /* not 0: end the job with this exit code */
    MPI_Request vote;      /* vote in flight, else MPI_REQUEST_NULL */
    int yes, all;          /* buffers of the vote */
    MPI_Request *requests; /* [2 * size], for an exchange */
};

/* Reports a failed MPI call with MPI's own text. Returns PP_EIO, or PP_EINTERNAL for a message that
 * is too long. */
int pp_mpi_failed(int mpi_rc, const char *call, const char *file, int line);

/* Returns from the function when an MPI call fails, with a code of ppcli. */
#define MPI_TRY(call)                                                                              \
    do {                                                                                           \
        int mpi_try_rc_ = (call);                                                                  \
        if (mpi_try_rc_ != MPI_SUCCESS)                                                            \
            return pp_mpi_failed(mpi_try_rc_, #call, __FILE__, __LINE__);                          \
    } while (0)

int pp_mpi_open(struct pp_transport *inner, uint64_t timeout_ns, struct pp_transport **out);

/* Starts the mover if the ranks are on several hosts: a thread that moves large messages while this
 * rank computes. */
int pp_mpi_start_mover(struct mpi *m);

/* Closes the transport; the last one also ends MPI. */
void pp_mpi_close(struct pp_transport *tp);

#endif
