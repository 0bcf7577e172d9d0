/* SPDX-License-Identifier: Apache-2.0 */
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
#ifndef PPCLI_CHROME_H
#define PPCLI_CHROME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

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

#endif
