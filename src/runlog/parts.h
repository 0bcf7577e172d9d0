/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the log share: how a run and its end look, where records go, and clocks. */
#ifndef PPCLI_RUNLOG_PARTS_H
#define PPCLI_RUNLOG_PARTS_H

#include <math.h>
#include <stdio.h>

#include "ppcli/runlog/runlog.h"
#include "ppcli/sim/trace.h"

/* ---- pace.c: ranks that are slower than planned. Rank 0 only; local */

#define PACE_LEARN 5 /* windows; one before them, with what the first step prepares, is left out */

struct pace_rank {
    double factor;         /* times as slow as planned; 1: as planned ... */
    int64_t from;          /* ... since this step; or what has been so for ... */
    double seconds, sum;   /* ... too short a time, with this integral of the factor */
    bool over;             /* slower, in the last window */
    double planned, ratio; /* seconds of a step; the last window's in parts of it */
    double first[PACE_LEARN];
};

struct pp_pace {
    const struct pp_layout *layout; /* not owned */
    int seen;                       /* windows */
    double *sorted;                 /* [ranks] scratch */
    struct pace_rank ranks[];       /* [ranks] */
};

/* pp_free() it. Errors: PP_ERESOURCE. */
int pace_create(const struct pp_layout *l, struct pp_pace **out);

/* Judge all ranks by the time since the last sync point; changed() is called for each rank that
 * became slow, or is no longer. Allocates nothing. */
typedef void pace_changed(void *ctx, int rank, const struct pace_rank *now);
void pace_window(struct pp_pace *p, const struct pp_window *w, pace_changed *changed, void *ctx);

/* ---- summary.c: the summary of a run in its two forms */

/* Into the object that is open in j. Local. */
void summary_json(const struct pp_metrics_start *from, const struct pp_summary *s,
                  struct pp_json *j);
/* For people. Local. */
void summary_print(const struct pp_metrics_start *from, const struct pp_summary *s);

/* ---- seats_text.c: where the ranks of a run sit, for people and programs */

/* Say where the ranks of a run with devices sit and how they talk, and whether steps are recorded
 * (graphs: what pp_exec_graphs() says), in a few lines of the log; the same into the object that is
 * open in j. Nothing for ranks on the processor. Local. */
void seats_announce(const struct pp_run *run, const char *graphs);
void seats_json(const struct pp_run *run, const char *graphs, struct pp_json *j);

/* ---- tensorboard.c
 *
 * The numbers of a run as event files of TensorBoard, with run.tensorboard. Rank 0 only. Monitoring
 * never stops a run that has begun: what cannot be opened is refused at the start, what is lost later
 * is told at the end.
 */

struct board;

/* *out stays NULL when the config does not ask for it; the others do nothing then. Errors: PP_EIO,
 * PP_EPERM, PP_ENOINPUT, PP_ERESOURCE. */
int board_open(const struct pp_metrics_start *start, struct board **out);
/* w: a record that metrics.jsonl gets too. */
void board_window(struct board *board, const struct pp_window *w);
void board_epoch(struct board *board, const struct pp_epoch_result *e);
/* Errors: PP_EIO: some of it was not written. */
int board_close(struct board **board);

/* ---- spans.c
 *
 * The records of ranks as trace events: who reads rings gives them here, in the order written.
 */

struct spans;

/* test_steps: of one evaluation. Local. The caller owns *out. Errors: PP_ERESOURCE. */
int spans_create(const struct pp_layout *layout, int test_steps, struct spans **out);
void spans_destroy(struct spans **s); /* accepts NULL in *s */

/* Bytes of one activation of every virtual stage: [n_virtual]. */
const size_t *spans_live_bytes(const struct spans *s);

/* A process for every rank. */
void spans_processes(const struct spans *s, struct pp_chrome *c);

/*
 * Records e[n] of a rank, after those of an earlier call. zero_ns: the start of the trace on that
 * rank's clock. Records that are not over are left out.
 */
void spans_write(struct spans *s, struct pp_chrome *c, int rank, uint64_t zero_ns,
                 const struct pp_event *e, size_t n);

/* ---- clocks.c
 *
 * The clocks of ranks that are processes, which may be on several machines, against rank 0's.
 */

/*
 * Collective. On rank 0 offset_ns[ranks] is what each rank's pp_clock_ns() is ahead of rank 0's,
 * and error_ns[ranks] how far that can be off: half of the shortest round trip. Other ranks' arrays
 * are 0, and all are where ranks share one process.
 */
int clocks_compare(struct pp_transport *tp, int64_t *offset_ns, int64_t *error_ns);

#endif
