/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank did and when: a ring of fixed size with one record per action, always on. The rank is
 * its only writer and never waits; a record is there from the moment its action begins, so that
 * whoever looks at a rank that hangs sees what it hangs in. Memory of the process; its copy in a file
 * outlives the process. A run never reads that file, so that nobody can harm it there.
 */
#ifndef PPCLI_TRACE_H
#define PPCLI_TRACE_H

#include <stdbool.h>

#include "ppcli/process.h"
#include "ppcli/clock.h"
#include "ppcli/err.h"
#include "ppcli/mapping.h"

enum pp_event_kind {
    PP_EVENT_NONE, /* an empty place of the ring */
    PP_EVENT_F,
    PP_EVENT_I,
    PP_EVENT_W,       /* with train.exact = off: of several micro-batches, mb the last of them */
    PP_EVENT_RECV,    /* waiting for a message */
    PP_EVENT_SLOT,    /* waiting until the reader of a message slot has freed it */
    PP_EVENT_SEND,    /* handing a message over */
    PP_EVENT_RELEASE, /* freeing message slots, posting the next receives */
    PP_EVENT_REDUCE,  /* summing gradients over replicas */
    PP_EVENT_CLIP,    /* the norm of all gradients */
    PP_EVENT_UPDATE,  /* the optimizer */
    PP_EVENT_MEET,    /* exchanging counters with all ranks */
    PP_EVENT_START,   /* set-up: memory, channels, initial weights */
    PP_EVENT_SAVE,    /* writing a checkpoint */
    PP_EVENT_REPORT,  /* rank 0: log lines and metrics */
    PP_EVENT_LAUNCH,  /* the host enqueues a step on its device, or waits until it may */
    PP_EVENT_VOTE,    /* waiting until every rank has found its numbers finite */
    PP_EVENT_G,       /* copying the gradient of a tied tensor for the other rank; mb: which tie */
    PP_EVENT_T,       /* adding the two gradients of a tied tensor; mb: which tie */
    PP_EVENT_R,       /* the forward pass of a micro-batch again */
    PP_EVENT_GATHER, /* train.zero: sending updated parameters to the replicas, and getting theirs */
    PP_EVENT_KINDS
};

/* One action of a rank. 32 bytes, the same in memory and in the file. */
struct pp_event {
    uint64_t begin_ns; /* pp_clock_ns() of the rank's machine */
    uint64_t end_ns;   /* 0: not over yet */
    int32_t step;      /* optimizer step 1, 2, ...; of an evaluation the batch 0, 1, ... */
    int32_t message;   /* of the plan, sent or waited for; -1: none */
    int16_t stage;     /* virtual stage; -1: none */
    uint16_t mb;       /* micro-batch; 0 where there is none */
    uint8_t kind;      /* enum pp_event_kind */
    uint8_t eval;      /* 1: of an evaluation */
    uint16_t plan;     /* which of the layout's plans the message and micro-batch belong to */
};

const char *pp_event_name(int kind); /* "F", "recv"; "?" for what is none */
bool pp_event_computes(int kind);    /* counts as busy time */

/* How the owner of a ring left it. */
enum pp_ring_end {
    PP_RING_OPEN,     /* at work, or torn out of it */
    PP_RING_FINISHED, /* the rank came to its end */
    PP_RING_FAILED,   /* the rank ended with an error */
};

/* The head of a ring, in memory and in the file. */
struct pp_ring_head {
    char magic[8]; /* "ppring\0\2" */
    int32_t rank, ranks;
    int64_t pid;
    uint64_t capacity; /* records, a power of two */
    uint64_t begun;    /* records ever begun; the last one lies at (begun - 1) % capacity */
    uint64_t opened_ns;
    uint64_t
        started; /* when the process did, in the kernel's ticks since boot: pids are used again */
    uint32_t machine; /* equal where clocks and pids mean the same */
    uint32_t ended;   /* enum pp_ring_end */
    /* pp_clock_ns() of the last time the rank was seen to wait for another one; 0: never. A rank
     * that waits is alive, one that hangs in the middle of a wait is not. On a cache line of its
     * own. */
    uint64_t waited_ns;
    char host[56]; /* the machine's name, "" when unknown */
};

struct pp_ring {
    struct pp_ring_head *head;
    uint64_t *words; /* [capacity][4]; the writer's are its own memory */
    uint64_t
        *copy; /* the same in the writer's file, right after the head; NULL: no file, or a reader */
    uint64_t *begun;         /* as head->begun, which the writer only writes */
    uint64_t mask;           /* capacity - 1 */
    size_t bytes;            /* of head and words */
    struct pp_mapping *file; /* NULL: memory only */
    struct pp_ring_head own; /* the writer's: what its file must say */
};

/*
 * capacity: records to keep, plus one, rounded up to a power of two. path: a file to be made for it
 * (it must not exist), NULL: memory only. Local. The caller owns *out. Errors: PP_ERESOURCE,
 * PP_EIO, PP_EPERM.
 */
int pp_ring_create(const char *path, int rank, int ranks, uint64_t capacity, struct pp_ring **out);
void pp_ring_destroy(struct pp_ring **ring); /* accepts NULL in *ring; a file stays */

/* Write the head of the file again where others have changed or cut the file. False: they had; the text
 * says what was wrong, for a warning. Of the owner, now and then. Local. */
bool pp_ring_mend(struct pp_ring *ring, char *out, size_t bytes);

/* The owner of a ring leaves it. Local. */
void pp_ring_close(struct pp_ring *ring, enum pp_ring_end how);

/* Map the ring of a rank, alive or dead, for reading. Errors: PP_ENOINPUT, PP_EFORMAT. Local. */
int pp_ring_open(const char *path, struct pp_ring **out);

/*
 * Copy the records from number `from` on (0 is the first of the run), at most max, oldest first;
 * *next gets the number after the last one copied and *lost how many from `from` on are overwritten
 * already (either may be NULL). Returns how many were copied. Any thread or process: records that
 * are overwritten meanwhile are not returned.
 */
size_t pp_ring_copy(const struct pp_ring *ring, uint64_t from, struct pp_event *out, size_t max,
                    uint64_t *next, uint64_t *lost);

/* ---- the writer's side: a few nanoseconds each */

/*
 * e->end_ns is 0, or when it ended for what is told afterwards. The record counts as begun when all
 * of it is there; the one it overwrites is given up by readers one record earlier. (A call and not
 * inline: the one place where every action begins is where tests make one go wrong.)
 */
void pp_ring_begin(struct pp_ring *ring, const struct pp_event *e);

/* The record begun last is over. */
static inline void pp_ring_end(struct pp_ring *ring, uint64_t now)
{
    uint64_t at = ((*ring->begun - 1) & ring->mask) * 4 + 1;
    __atomic_store_n(&ring->words[at], now, __ATOMIC_RELEASE);
    if (ring->copy)
        __atomic_store_n(&ring->copy[at], now, __ATOMIC_RELEASE);
}

/* The process that made the ring. Local; any process. */
static inline enum pp_process pp_ring_process(const struct pp_ring *ring)
{
    return pp_process_at(ring->head->pid, ring->head->started, ring->head->machine);
}

#endif
