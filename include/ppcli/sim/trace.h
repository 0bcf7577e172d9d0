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

/* ---- rings of actions */

/*
 * What a rank did and when: a ring of fixed size with one record per action, always on. The rank is
 * its only writer and never waits. A record exists from the moment its action begins, so that a
 * reader of a hanging rank sees the action it hangs in. The ring is memory of the process; its copy
 * in a file outlives the process. A run never reads that file, so changing it cannot harm the run.
 */

enum pp_event_kind {
    PP_EVENT_NONE, /* an empty record of the ring */
    PP_EVENT_F,
    PP_EVENT_I,
    PP_EVENT_W,       /* train.exact = off: of several micro-batches, mb is the last of them */
    PP_EVENT_RECV,    /* waiting for a message */
    PP_EVENT_SLOT,    /* waiting until the reader of a message slot has released it */
    PP_EVENT_SEND,    /* posting a message */
    PP_EVENT_RELEASE, /* releasing message slots, posting the next receives */
    PP_EVENT_REDUCE,  /* summing gradients over replicas */
    PP_EVENT_CLIP,    /* the norm of all gradients */
    PP_EVENT_UPDATE,  /* the optimizer */
    PP_EVENT_MEET,    /* exchanging counters with all ranks */
    PP_EVENT_START,   /* set-up: memory, channels, initial weights */
    PP_EVENT_SAVE,    /* writing a checkpoint */
    PP_EVENT_REPORT,  /* rank 0: log lines and metrics */
    PP_EVENT_LAUNCH,  /* enqueueing a step on the device, or waiting until the host may */
    PP_EVENT_VOTE,    /* waiting until every rank has reported finite numbers */
    PP_EVENT_G,       /* copying the gradient of a tied tensor for the other rank; mb: which tie */
    PP_EVENT_T,       /* adding the two gradients of a tied tensor; mb: which tie */
    PP_EVENT_R,       /* recomputing the forward pass of a micro-batch */
    /* train.zero: sending updated parameters to the replicas, and receiving theirs */
    PP_EVENT_GATHER,
    PP_EVENT_KINDS
};

/* One action of a rank. 32 bytes, the same in memory and in the file. */
struct pp_event {
    uint64_t begin_ns; /* pp_clock_ns() of the rank's machine */
    uint64_t end_ns;   /* 0: still running */
    int32_t step;      /* optimizer step 1, 2, ...; in an evaluation the batch 0, 1, ... */
    int32_t message;   /* id in the plan, sent or waited for; -1: none */
    int16_t stage;     /* virtual stage; -1: none */
    uint16_t mb;       /* micro-batch; 0 where there is none */
    uint8_t kind;      /* enum pp_event_kind */
    uint8_t eval;      /* 1: in an evaluation */
    uint16_t plan;     /* the plan of the layout that message and micro-batch belong to */
};

const char *pp_event_name(int kind); /* "F", "recv"; "?" if unknown */
bool pp_event_computes(int kind);    /* counts as busy time */

/* How a ring ended. */
enum pp_ring_end {
    PP_RING_OPEN,     /* the rank is at work, or was killed */
    PP_RING_FINISHED, /* the rank reached its end */
    PP_RING_FAILED,   /* the rank ended with an error */
};

/* The head of a ring, in memory and in the file. */
struct pp_ring_head {
    char magic[8]; /* "ppring\0\2" */
    int32_t rank, ranks;
    int64_t pid;
    uint64_t capacity; /* records, a power of two */
    uint64_t begun;    /* records ever begun; the last one is at (begun - 1) % capacity */
    uint64_t opened_ns;
    uint64_t started; /* start of the process, in the kernel's ticks since boot: pids are reused */
    uint32_t machine; /* equal for processes whose clocks and pids mean the same */
    uint32_t ended;   /* enum pp_ring_end */
    /* pp_clock_ns() of the last time the rank was seen to wait for another rank; 0: never. A rank
     * that waits is alive, one that hangs in the middle of a wait is not. On its own cache line. */
    uint64_t waited_ns;
    char host[56]; /* the machine's name, "" when unknown */
};

struct pp_ring {
    struct pp_ring_head *head;
    uint64_t *words; /* [capacity][4]; the writer's own memory */
    uint64_t *
        /* the same in the writer's file, right after the head; NULL: no file, or this is a
         * reader */
        copy;
    uint64_t *begun;         /* points to head->begun, which the writer only writes */
    uint64_t mask;           /* capacity - 1 */
    size_t bytes;            /* bytes of head and words */
    struct pp_mapping *file; /* NULL: memory only */
    struct pp_ring_head own; /* writer only: what the head of its file must contain */
};

/*
 * Makes a ring. capacity: records to keep, plus one, rounded up to a power of two. path: a file to
 * create for it (it must not exist), NULL: memory only. Local. The caller owns *out. Errors:
 * PP_ERESOURCE, PP_EIO, PP_EPERM.
 */
int pp_ring_create(const char *path, int rank, int ranks, uint64_t capacity, struct pp_ring **out);
void pp_ring_destroy(struct pp_ring **ring); /* accepts NULL in *ring; the file stays */

/* Rewrites the head of the file if another process has changed the head or cut the file. Returns
 * false if so, with what was wrong in the text, for a warning. The owner calls it from time to
 * time. Local. */
bool pp_ring_mend(struct pp_ring *ring, char *out, size_t bytes);

/* Records how the ring ended. Called by its owner. Local. */
void pp_ring_close(struct pp_ring *ring, enum pp_ring_end how);

/* Maps the ring of a rank, alive or dead, for reading. Errors: PP_ENOINPUT, PP_EFORMAT. Local. */
int pp_ring_open(const char *path, struct pp_ring **out);

/*
 * Copies the records from number `from` on (0 is the first of the run), at most max, oldest first.
 * *next gets the number after the last one copied and *lost how many from `from` on are already
 * overwritten (either may be NULL). Returns how many were copied. Any thread or process: records
 * that are overwritten meanwhile are not returned.
 */
size_t pp_ring_copy(const struct pp_ring *ring, uint64_t from, struct pp_event *out, size_t max,
                    uint64_t *next, uint64_t *lost);

/* ---- writing to a ring: a few nanoseconds each */

/*
 * Begins a record. e->end_ns is 0, or its end if the action is recorded afterwards. The record
 * counts as begun when it is complete; readers give up the record that it overwrites one record
 * earlier. (This is a function, not inline, because tests make actions fail here: every action
 * begins here.)
 */
void pp_ring_begin(struct pp_ring *ring, const struct pp_event *e);

/* Ends the record that was begun last. */
static inline void pp_ring_end(struct pp_ring *ring, uint64_t now)
{
    uint64_t at = ((*ring->begun - 1) & ring->mask) * 4 + 1;
    __atomic_store_n(&ring->words[at], now, __ATOMIC_RELEASE);
    if (ring->copy)
        __atomic_store_n(&ring->copy[at], now, __ATOMIC_RELEASE);
}

/* Returns the state of the process that made the ring. Local; any process. */
static inline enum pp_process pp_ring_process(const struct pp_ring *ring)
{
    return pp_process_at(ring->head->pid, ring->head->started, ring->head->machine);
}

/* ---- trace events */

/*
 * Writes trace events as Perfetto and chrome://tracing read them: a JSON array, one event a line,
 * times in microseconds. Measured and simulated events have one schema, so that both open side by
 * side:
 *
 *   process  a rank: its number, or PP_CHROME_SIMULATED + its number
 *   thread   enum pp_chrome_track
 *   slice    an action; its category is the name of its kind
 *   arrow    a message, from the slice that sent it to the slice that took it
 *   counter  bytes of live activations, after every F and W
 *
 * Each line is complete and begins with its comma: if the end of the file is missing, the file up
 * to the last whole line and a "]" is valid JSON. Nothing is allocated. Write errors stay in the
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
    FILE *f;          /* owned by the caller */
    size_t unflushed; /* bytes since the last flush */
    size_t flush_at;  /* flush between lines so that at most this many bytes are lost; 0: never */
    uint64_t slices;  /* written so far */
};

/* The first event, which describes the whole file. */
struct pp_chrome_head {
    bool simulated;
    const char *version, *schedule;
    int stages, microbatches, ranks;
    /* [ranks] difference of each rank's clock to rank 0's, and its error bound; NULL: one clock */
    const int64_t *offset_ns, *error_ns;
    bool one_step; /* the file shows one step, which the next members describe */
    double step_seconds, simulated_step_seconds, bubble_measured, bubble_predicted;
};

/* Negative values are not written. */
struct pp_chrome_args {
    int64_t step;
    int stage, chunk, microbatch;
    bool eval;
    const double *loss; /* NULL: none */
};

/* Begins the trace with the head. Processes follow. */
void pp_chrome_open(struct pp_chrome *c, FILE *f, const struct pp_chrome_head *head);

/* Writes a process with its three threads: "rank 3 (stage 3)". */
void pp_chrome_process(struct pp_chrome *c, int pid, const char *name);

/* Writes a slice. Times are nanoseconds since the start of the trace; the part before it is cut
 * off. name: without characters that JSON escapes. */
void pp_chrome_slice(struct pp_chrome *c, int pid, int kind, const char *name, int64_t begin_ns,
                     int64_t end_ns, const struct pp_chrome_args *args);

/* Writes one end of a message's arrow. It is attached to the slice of that track that contains the
 * time (its end excluded). id identifies the message in the file. */
void pp_chrome_arrow(struct pp_chrome *c, bool sent, uint64_t id, int pid,
                     enum pp_chrome_track track, int64_t at_ns);

/* Writes a counter. series: "bytes", or "chunks" if bytes are not known. */
void pp_chrome_live(struct pp_chrome *c, int pid, int64_t at_ns, const char *series,
                    uint64_t value);

void pp_chrome_close(struct pp_chrome *c); /* ends the array; the FILE stays open */

/* Formats the name of a slice of virtual stage `stage`: "F3", on a rank with several chunks "2F3".
 * Returns out. */
#define PP_CHROME_NAME_MAX 32
const char *pp_chrome_name(char out[PP_CHROME_NAME_MAX], char letter, bool chunks, int stage,
                           int microbatch);

/* ---- simulated plans */

/* A simulated plan for the functions that show it, and its actions as trace events. */

struct pp_look;

struct pp_drawing { /* owns nothing */
    const struct pp_plan *plan;
    const struct pp_sim_result *result; /* with times; pp_draw_json() does not need them */
    const struct pp_sim_costs *costs;   /* costs of the result */
    const size_t *bytes;                /* [P] memory of each rank; NULL: not known */
    int columns;                        /* grid: at most this width; 0: as wide as its labels */
    bool color;                         /* grid: escape codes for 256 colours */
    const struct pp_look *look;         /* picture; NULL: default title and width */
};

struct pp_draw_steps {        /* owns nothing */
    double unit_ns;           /* nanoseconds of one unit of time */
    double zero;              /* time of the result that is shown as 0 */
    const size_t *live_bytes; /* [n_virtual] bytes of one activation; NULL: count chunks */
    int step;                 /* step number in the args; negative: left out */
};

/* Writes the processes, slices, arrows and counters of a simulated plan into an open trace; with
 * `costs->between` the optimizer follows the last action of each rank. */
void pp_draw_events(const struct pp_drawing *d, const struct pp_draw_steps *how,
                    struct pp_chrome *c);

#endif
