/* SPDX-License-Identifier: Apache-2.0 */
/* An action in time: recorded by a rank, simulated, or written as a trace event. */
#ifndef PPCLI_SIM_TRACE_H
#define PPCLI_SIM_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "ppcli/base/base.h"
#include "ppcli/base/cores.h"
#include "ppcli/base/files.h"
#include "ppcli/sched/plan.h"
#include "ppcli/sim/sim.h"

/* ---- trace */

/*
 * What a rank did and when: a ring of fixed size with one record per action, always on. The rank is
 * its only writer and never waits; a record is there from the moment its action begins, so that
 * whoever looks at a rank that hangs sees what it hangs in. Memory of the process; its copy in a file
 * outlives the process. A run never reads that file, so that nobody can harm it there.
 */

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

/* ---- chrome */

/*
 * Writer of trace events as Perfetto and chrome://tracing read them: a JSON array, one event a
 * line, times in microseconds. One schema for what was measured and what was simulated, so that
 * both open side by side:
 *
 *   process  a rank: its number, or PP_CHROME_SIMULATED + its number
 *   thread   enum pp_chrome_track
 *   slice    an action; its category is the name of its kind
 *   arrow    a message, from the slice that sent it to the slice that took it
 *   counter  bytes of live activations, after every F and W
 *
 * A line is complete in itself and begins with its comma: whatever end of the file is missing, up
 * to the last whole line and a "]" it is valid JSON. Nothing is allocated. Write errors stay in the
 * FILE's error flag: check it once at the end.
 */

#define PP_CHROME_SCHEMA 1
#define PP_CHROME_SIMULATED 10000 /* no run has so many ranks */

enum pp_chrome_track {
    PP_CHROME_COMPUTE, /* F I W update reduce clip meet save start */
    PP_CHROME_SEND,    /* send slot */
    PP_CHROME_RECV,    /* recv release */
    PP_CHROME_TRACKS
};

struct pp_chrome {
    FILE *f;          /* the caller's */
    size_t unflushed; /* bytes since the last flush */
    size_t flush_at;  /* flush between lines so that no more than this is lost; 0: never */
    uint64_t slices;  /* written so far */
};

/* What the whole file is about: its first event. */
struct pp_chrome_head {
    bool simulated;
    const char *version, *schedule;
    int stages, microbatches, ranks;
    const int64_t *offset_ns, *error_ns; /* [ranks] of each rank's clock against rank 0's, and how
                                            far that may be off; NULL: one clock */
    bool one_step;                       /* the file shows one step, which the following describe */
    double step_seconds, simulated_step_seconds, bubble_measured, bubble_predicted;
};

/* Negative: not told. */
struct pp_chrome_args {
    int64_t step;
    int stage, chunk, microbatch;
    bool eval;
};

/* Start the array: the head, then processes. */
void pp_chrome_open(struct pp_chrome *c, FILE *f, const struct pp_chrome_head *head);

/* A process with its three threads: "rank 3 (stage 3)". */
void pp_chrome_process(struct pp_chrome *c, int pid, const char *name);

/* Times are nanoseconds since the start of the trace; what lies before it is cut off. name: without
 * anything that JSON would escape. */
void pp_chrome_slice(struct pp_chrome *c, int pid, int kind, const char *name, int64_t begin_ns,
                     int64_t end_ns, const struct pp_chrome_args *args);

/* One end of a message's arrow. It hangs on the slice of that track that contains the time (its end
 * is not in it). id is the message's own in the file. */
void pp_chrome_arrow(struct pp_chrome *c, bool sent, uint64_t id, int pid,
                     enum pp_chrome_track track, int64_t at_ns);

/* series: "bytes", or "chunks" where bytes are not known. */
void pp_chrome_live(struct pp_chrome *c, int pid, int64_t at_ns, const char *series,
                    uint64_t value);

void pp_chrome_close(struct pp_chrome *c); /* ends the array; the FILE stays open */

/* The track of an enum pp_event_kind. */
enum pp_chrome_track pp_chrome_track_of(int kind);

/* "F3", of a rank with several chunks "2F3": what a slice of virtual stage `stage` is called.
 * Returns out. */
#define PP_CHROME_NAME_MAX 32
const char *pp_chrome_name(char out[PP_CHROME_NAME_MAX], char letter, bool chunks, int stage,
                           int microbatch);

/* ---- drawing */

/* A simulated plan, as whoever shows it gets it, and its actions as trace events. */

struct pp_look;

struct pp_drawing { /* nothing is owned */
    const struct pp_plan *plan;
    const struct pp_sim_result *result; /* with times; pp_draw_json() does without */
    const struct pp_sim_costs *costs;   /* the result's */
    const size_t *bytes;                /* [P] memory of each rank; NULL: not known */
    int columns;                        /* grid: at most as many; 0: as many as labels need */
    bool color;                         /* grid: escape codes for 256 colours */
    const struct pp_look *look;         /* picture; NULL: its own title and width */
};

struct pp_draw_steps {        /* nothing is owned */
    double unit_ns;           /* one unit of time */
    double zero;              /* this time of the result is 0 */
    const size_t *live_bytes; /* [n_virtual] of one activation; NULL: chunks are counted */
    int step;                 /* what the args call it; negative: nothing */
};

/* Write the processes, slices, arrows and counters of a simulated plan into an open trace;
 * with `costs->between` the optimizer follows the last action of each rank. */
void pp_draw_events(const struct pp_drawing *d, const struct pp_draw_steps *how,
                    struct pp_chrome *c);

#endif
