/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the parts of the threads transport share: threads.c (group, collectives,
 * channels) and threads_stream.c (exchanges, memory of devices). */
#ifndef PPCLI_COMM_THREADS_H
#define PPCLI_COMM_THREADS_H

#include <pthread.h>
#include <sched.h>

#include "impl.h"
#include "ppcli/base/base.h"
#include "ppcli/base/cores.h"
#include "wait.h"

struct line {
    _Alignas(64) struct pp_word turn;
    uint32_t tag;  /* message of a channel */
    size_t bytes;  /* of the message */
    const void *p; /* mailboxes: address in the sender's memory */
    /* Channels between devices: points in the streams of the sender, after the message, and of the
     * receiver, after its last use; and the fences at which they were set. */
    void *sent, *freed;
    uint32_t sent_fence, freed_fence;
};

struct rank;

/* Points in a rank's stream, for collectives. */
enum point {
    POINT_READY, /* its data may be read by others */
    POINT_READ,  /* it has read the data of the others */
    POINT_JOINED,
    POINT_FORKED,
    POINTS
};

/* The data that a rank shows the others during a collective. */
struct board {
    _Alignas(64) const void *p;
    size_t bytes;
};

struct pp_threads {
    int size;
    const struct pp_places *places; /* places of the creator, or NULL */
    struct pp_places own_places;
    struct pp_arena memory;
    struct pp_arena *slot_lines; /* [size] lines of the channels that rank r receives from */
    struct rank **ranks;         /* [size], NULL before attach */
    struct board *board;         /* [size] */
    struct line *mail;           /* [src][dst] */
    _Alignas(64) struct pp_word stop;
    _Alignas(64) struct pp_word generation; /* barrier: how often it has opened */
    _Atomic uint32_t arrived;
    _Alignas(64) struct pp_word votes; /* votes decided so far */
    _Atomic uint32_t voted, against;   /* of the current vote */
    bool unanimous;                    /* of the last vote */
    pthread_mutex_t recorder;          /* held by the rank that adds to a captured step */
};

struct rank {
    struct pp_threads *group;
    uint32_t generation;  /* barrier: openings that this rank has seen */
    uint32_t votes;       /* votes posted by this rank */
    uint32_t *sent;       /* [size] messages to each rank through its mailbox */
    uint32_t *received;   /* [size] */
    void *points[POINTS]; /* marks of the bound backend; NULL: work is done when calls return */
    uint32_t fence;       /* forks so far */
    bool records;         /* it holds the recorder, except while it waits */
};

/* Waits until the word holds target; see pp_word_wait(). */
int pp_threads_wait(struct pp_transport *tp, struct pp_word *w, uint32_t target);

/* Waits for all ranks of the group (threads.c). */
int pp_threads_barrier(struct pp_transport *tp);

/* Exchanges messages with n peers (threads_stream.c). */
int pp_threads_exchange(struct pp_transport *tp, const struct pp_exchange *x, int n);
int pp_threads_exchange_on(struct pp_transport *tp, const struct pp_exchange *x, int n);

/* Bind a backend and order work by its marks (threads_stream.c). Local. pp_threads_behind() makes
 * this rank's later work wait for a mark of another rank, if it was set after the same fence; a
 * mark from before the fence is already passed, and may be part of a captured step. */
int pp_threads_bind(struct pp_transport *tp);
void pp_threads_forget_marks(struct pp_transport *tp);
int pp_threads_behind(struct pp_transport *tp, void *mark, uint32_t fence);
int pp_threads_join(struct pp_transport *tp);
int pp_threads_fork(struct pp_transport *tp);
void pp_threads_record(struct pp_transport *tp, bool on);

#endif
