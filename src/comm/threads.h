/* SPDX-License-Identifier: Apache-2.0 */
/* What the two halves of the threads transport share: threads.c (group, collectives, channels) and
 * threads_mail.c (send, recv, reduce). */
#ifndef PPCLI_COMM_THREADS_H
#define PPCLI_COMM_THREADS_H

#include <sched.h>

#include "impl.h"
#include "ppcli/mem.h"
#include "wait.h"

struct line {
    _Alignas(64) struct pp_word turn;
    uint32_t tag;  /* channels */
    size_t bytes;  /* of the message */
    const void *p; /* mailboxes: the sender's memory */
    /* Channels between devices: points in the streams of the sender, behind the message, and of the
     * receiver, behind its last use; and the fence they belong to. */
    void *sent, *freed;
    uint32_t sent_fence, freed_fence;
};

struct rank;

/* Points in a rank's stream, of the collectives. */
enum point {
    POINT_READY,  /* what others are to read is there */
    POINT_SUMMED, /* so is its piece of a sum */
    POINT_READ,   /* it has read what it wanted of the others */
    POINT_JOINED,
    POINT_FORKED,
    POINTS
};

/* What a rank shows the others during a collective. */
struct board {
    _Alignas(64) const void *p;
    size_t bytes;
};

struct pp_threads {
    int size;
    bool pin;
    bool crowded;
    cpu_set_t allowed;
    struct pp_arena memory;
    struct pp_arena *slot_lines; /* [size], of the channels rank r receives from */
    struct rank **ranks;         /* [size], NULL before attach */
    struct board *board;         /* [size] */
    struct line *mail;           /* [src][dst] */
    _Alignas(64) struct pp_word stop;
    _Alignas(64) struct pp_word generation; /* of the barrier: how often it has opened */
    _Atomic uint32_t arrived;
    _Alignas(64) struct pp_word votes; /* how many are decided */
    _Atomic uint32_t voted, against;   /* of the vote under way */
    bool unanimous;                    /* of the last one decided */
};

/* A channel as this rank sees it. */
struct end {
    struct pp_channel_spec spec;
    char *memory;
    struct line *lines;        /* [slots], shared */
    struct pp_slot_end *slots; /* [slots], ours */
};

struct rank {
    struct pp_threads *group;
    struct pp_waiter waiter;
    uint32_t generation; /* of the barrier: openings seen */
    uint32_t votes;      /* posted by this rank */
    int n_ends;
    struct end *ends;
    uint32_t *sent;       /* [size]: messages to each rank through its mailbox */
    uint32_t *received;   /* [size] */
    void *points[POINTS]; /* marks of the bound backend; NULL: ops are done when they return */
    uint32_t fence;       /* forks so far */
};

/* Local: the bound backend's later work comes behind a mark of another rank's, set after the same
 * fence; what was set before it is past already, and may be part of a captured step. */
int pp_threads_behind(struct pp_transport *tp, void *mark, uint32_t fence);

/* threads.c */
int pp_threads_barrier(struct pp_transport *tp);

/* threads_mail.c: the sender lends a pointer; take_back returns when dst has given it back. */
void pp_threads_lend(struct pp_transport *tp, int dst, const void *p, size_t bytes);
int pp_threads_take_back(struct pp_transport *tp, int dst);
int pp_threads_borrow(struct pp_transport *tp, int src, size_t bytes, const struct line **out);
void pp_threads_give_back(struct pp_transport *tp, int src);

/* threads_stream.c: the same for memory of devices. */
int pp_threads_bind(struct pp_transport *tp);
void pp_threads_forget_marks(struct pp_transport *tp);
int pp_threads_reduce_on(struct pp_transport *tp, const int *group, int n, size_t N, float *buf,
                         float *scratch);
int pp_threads_allgather_on(struct pp_transport *tp, const void *in, size_t bytes, void *out);
int pp_threads_join(struct pp_transport *tp);
int pp_threads_fork(struct pp_transport *tp);
int pp_threads_wait_mark(struct pp_transport *tp, void *mark, uint64_t timeout_ns);

int pp_threads_send(struct pp_transport *tp, int dst, const void *buf, size_t bytes);
int pp_threads_recv(struct pp_transport *tp, int src, void *buf, size_t bytes);
int pp_threads_reduce(struct pp_transport *tp, const int *group, int n, size_t N, float *buf,
                      float *scratch);

#endif
