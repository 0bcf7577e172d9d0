/* SPDX-License-Identifier: Apache-2.0 */
/* Parts that the files of the log share: the start and the end of a run, records, clocks. */
#ifndef PPCLI_RUNLOG_PARTS_H
#define PPCLI_RUNLOG_PARTS_H

#include <math.h>
#include <stdio.h>

#include "ppcli/runlog/runlog.h"
#include "ppcli/sim/trace.h"

/* ---- pace.c: finds ranks that are slower than expected. Rank 0 only; local */

/* windows that give the expected time; one before them, with the first step's setup, is left out */
#define PACE_LEARN 5

struct pace_rank {
    double factor;         /* times its expected time; 1: not slow */
    int64_t from;          /* step since which `factor`, or `over`, holds */
    double seconds, sum;   /* how long `over` has held, and the integral of the factor over that
                              time */
    bool over;             /* slow in the last window */
    double planned, ratio; /* expected seconds of a step; last window's time as a multiple of it */
    double first[PACE_LEARN];
};

struct pp_pace {
    const struct pp_layout *layout; /* not owned */
    int seen;                       /* windows seen */
    double *sorted;                 /* [ranks] scratch */
    struct pace_rank ranks[];       /* [ranks] */
};

/* Creates the state of all ranks; the caller frees it with pp_free(). Errors: PP_ERESOURCE. */
int pace_create(const struct pp_layout *l, struct pp_pace **out);

/* Updates all ranks with their time since the last sync point, and calls changed() for each rank
 * that became slow or recovered. Allocates nothing. */
typedef void pace_changed(void *ctx, int rank, const struct pace_rank *now);
void pace_window(struct pp_pace *p, const struct pp_window *w, pace_changed *changed, void *ctx);

/* ---- summary.c: prints the summary of a run, for people and as JSON */

/* Writes norms of gradients, if they are known. Local. */
void norm_json(const struct pp_norm_sums *n, struct pp_json *j);
/* Writes the summary into the open object of j. Local. */
void summary_json(const struct pp_metrics_start *from, const struct pp_summary *s,
                  struct pp_json *j);
/* Prints the summary for people. Local. */
void summary_print(const struct pp_metrics_start *from, const struct pp_summary *s);

/* ---- on_epoch.c: runs the program of run.on_epoch */

/* Runs the program, if there is one, with the record (a line of JSON) on its standard input, and
 * waits for its end for a limited time. What goes wrong is a warning. Local. */
void on_epoch_run(const struct pp_config *cfg, int epoch, const char *record);

/* ---- seats_text.c: describes devices and transport of a run */

/* Describe the devices of the ranks, their transport, and whether steps are captured (graphs: the
 * result of pp_exec_graphs()): in a few lines of the log, and in the open object of j. Nothing for
 * ranks on the processor. Local. */
void seats_announce(const struct pp_run *run, const char *graphs);
void seats_json(const struct pp_run *run, const char *graphs, struct pp_json *j);

/*
 * ---- tensorboard.c
 *
 * Writes the numbers of a run as TensorBoard event files, with run.tensorboard. Rank 0 only.
 * Monitoring never stops a run that has begun: a file that cannot be opened is an error at the
 * start, lost data is reported at the end.
 */

struct board;

/* Opens the event file. *out stays NULL if the config does not ask for one; the other functions
 * then do nothing. Errors: PP_EIO, PP_EPERM, PP_ENOINPUT, PP_ERESOURCE. */
int board_open(const struct pp_metrics_start *start, struct board **out);
/* Writes the numbers of a window, which is also a record in metrics.jsonl. */
void board_window(struct board *board, const struct pp_window *w);
void board_epoch(struct board *board, const struct pp_epoch_result *e);
/* Closes the event file. Errors: PP_EIO if some data were not written. */
int board_close(struct board **board);

/*
 * ---- spans.c
 *
 * Converts the records of ranks into trace events. The reader of a ring passes its records in the
 * order written.
 */

struct spans;

/* Prepares the conversion. `test_steps` is the number of batches of one evaluation. Local. The
 * caller owns *out. Errors: PP_ERESOURCE. */
int spans_create(const struct pp_layout *layout, int test_steps, struct spans **out);
void spans_destroy(struct spans **s); /* accepts NULL in *s */

/* Returns the bytes of one activation of every stage, counted over all chunks, in [n_virtual]. */
const size_t *spans_live_bytes(const struct spans *s);

/* Writes a process of the trace for every rank. */
void spans_processes(const struct spans *s, struct pp_chrome *c);

/* Losses of micro-batches: of step t at[t % steps][microbatches], NAN where there is none. */
struct spans_losses {
    double *at; /* NULL: no losses */
    int64_t steps;
    int microbatches;
};

/* Writes events e[n] of a rank, which follow those of earlier calls. `zero_ns` is the start of the
 * trace on that rank's clock. Skips events of actions that have not ended. An F of the last stage
 * gets its loss; `losses` may be NULL. */
void spans_write(struct spans *s, struct pp_chrome *c, int rank, uint64_t zero_ns,
                 const struct pp_event *e, size_t n, const struct spans_losses *losses);

/*
 * ---- clocks.c
 *
 * Compares the clocks of ranks that are processes, perhaps on several hosts, with rank 0's.
 */

/* Compares the clocks of all ranks. On rank 0 offset_ns[ranks] tells by how much each rank's
 * pp_clock_ns() is ahead of rank 0's, and error_ns[ranks] the largest error of that, which is half
 * of the shortest round trip. On other ranks, and if all ranks share one process, both are 0.
 * Collective. */
int clocks_compare(struct pp_transport *tp, int64_t *offset_ns, int64_t *error_ns);

/* Returns whether a score says something of outputs that are trained with this loss. */
bool score_applies(enum pp_score score, enum pp_loss_kind kind);

/* Writes the scores of a log line: " acc=0.9103", each word after `prefix`. Returns out. */
const char *scores_line(enum pp_loss_kind kind, const char *prefix, const struct pp_scores *s,
                        char out[PP_SCORES_TEXT]);

#endif
