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
};

struct rank;

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
    uint32_t *sent;     /* [size]: messages to each rank through its mailbox */
    uint32_t *received; /* [size] */
};

int pp_threads_send(struct pp_transport *tp, int dst, const void *buf, size_t bytes);
int pp_threads_recv(struct pp_transport *tp, int src, void *buf, size_t bytes);
int pp_threads_reduce(struct pp_transport *tp, const int *group, int n, size_t N, float *buf,
                      float *scratch);

#endif
