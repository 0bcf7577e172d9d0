/* SPDX-License-Identifier: Apache-2.0 */
/* The training loop of one rank: its parameters and its state. */
#ifndef PPCLI_TRAIN_LOOP_H
#define PPCLI_TRAIN_LOOP_H

#include "ppcli/ckpt/checkpoint.h"
#include "progress.h"
#include "rank.h"
#include "resume.h"
#include "save.h"

/* Counters that a rank sends at a sync point. */
struct report {
    uint64_t window_ns; /* length of the window without paused_ns */
    uint64_t paused_ns; /* time for which the process was stopped */
    uint64_t busy_ns;
    uint64_t input_ns; /* waiting for input */
    struct pp_loss_sums train, test;
    struct pp_loss_sums epoch; /* training sums since the epoch began */
    int32_t stop;              /* signal that asked this process to save and end; 0: no signal */
    uint32_t saves;            /* how often this process was asked to save and continue */
    int32_t refused;           /* 1 if pp_exec_counters.refused is set */
};

/* Sums of the counters of all ranks; the same on every rank. */
struct totals {
    struct pp_loss_sums sums;
    uint64_t window_ns; /* the longest of all ranks */
    uint64_t paused_ns; /* the longest of all ranks */
    uint64_t busy_ns;   /* summed over all ranks */
    uint64_t input_ns;  /* the longest of all ranks */
    struct pp_norm_sums norms;
};

/* Counts the steps of the run whose loss or gradients were not finite; the same on every rank. */
struct nonfinite {
    int64_t rewinds;
    int64_t in_a_row; /* bad steps since the last good one */
};

struct trainer {
    struct rank_spec *spec;
    const struct pp_run *run;
    struct pp_transport *tp;
    struct pp_backend *be;
    struct pp_dataset *own[2]; /* opened by this rank */
    const struct pp_dataset *data[2];
    struct pp_exec *x;
    struct pp_metrics *m; /* on rank 0, else NULL */
    struct beginning begin;
    const char *dir;     /* the run folder, points into `begin`; "": nothing is written */
    struct pp_lock lock; /* rank 0: lock of the run folder */
    int32_t *apart;      /* [ranks] 1 + the first rank of the host if it does not see rank 0's
                                run folder; 0: it does */
    struct saver *saver; /* NULL without a run folder */
    int64_t saved;       /* step of the newest checkpoint in the run folder; -1: no
                                checkpoint */
    double unit;         /* of errors: what a difference of 1 is in the units of the only target */
    uint32_t data_crc[2][2]; /* by enum pp_split: CRC of images, of labels; 0: no rank has them */
    char *vocabulary;        /* rank 0: all characters of a text, ordered by token; NULL: no such
                                text; owned */
    char *preprocessing;     /* rank 0: how files become samples; NULL: the data have no such text;
                                owned */
    int kinds;               /* rank 0: number of different tokens of a text of characters or bytes;
                                0: no such text */
    struct pp_loss_sums so_far; /* after a resume: this rank's sums of the epoch in progress */
    struct report *all;         /* [ranks] */
    uint64_t *busy_ns;          /* [ranks] of the whole run */
    double *busy;               /* [ranks] busy share of the last window */
    uint64_t window_start;
    uint64_t paused_before; /* pp_watchdog_paused_ns() at window_start */
    int64_t total_steps, t, next_sync;
    int64_t offset;   /* t minus the steps that the epochs so far have with this batch size */
    char *changes;    /* rank 0: see struct pp_ckpt_state; owned; NULL: no changes */
    int64_t recorded; /* step of the last record in metrics.jsonl */
    int epoch_no;     /* the current epoch, 1, 2, ... */
    int epoch_step;   /* steps of the epoch that are done */
    int stop;         /* a signal that all ranks know of; 0: no signal */
    uint32_t saves, saves_done;   /* save requests that all ranks know of; those that are done */
    bool ring_told;               /* the user was told that another program damaged the ring's
                                     file */
    bool refused;                 /* a rank could not read the test data */
    bool together;                /* the failure is one that all ranks share */
    int64_t steps, meetings;      /* of this process: training steps, sync points after them */
    struct pp_timeline *timeline; /* NULL without a run folder */
    struct pp_tracer *tracer;     /* NULL without --trace */
    uint64_t test_ns, save_ns, input_ns; /* of this process: tests, saving, waiting for input */
    struct pp_norm_sums epoch_norms;     /* since the epoch, or this process, began */
    struct totals epoch, record;         /* since the epoch began; since the last record */
    double load;        /* rank 0: load of the machine before the loop; < 0: unknown */
    uint64_t began_ns;  /* when this process's loop began */
    int64_t waited_ns;  /* pp_clock_waited_ns() at began_ns */
    uint64_t train_ns;  /* training time of the whole run */
    uint64_t before_ns; /* training time of earlier processes */
    int64_t samples;
    int64_t before_samples, before_steps; /* of earlier processes */
    bool ended_by_patience;               /* train.patience ended the run before its last step */
    int64_t updates; /* steps that changed the weights: t minus the skipped ones */
    struct nonfinite nonfinite;
    struct progress progress;
    double last_lr;
    struct pp_epoch_result last;
};

/* Returns the number of optimizer steps of the whole run. */
int64_t loop_total_steps(const struct trainer *tr);

/* Runs all epochs and prints the summary. start: pp_clock_ns() when the rank began. Collective. */
int loop_train(struct trainer *tr, uint64_t start);

/* Returns the idle share of all ranks' time in a window. */
double loop_bubble(const struct totals *w, int ranks);

/* Gathers memory and times of every rank and the hash of the weights; rank 0 prints them.
 * Collective. */
int loop_finish(struct trainer *tr, uint64_t start);

/* Compares the digest of the weights with that of --expect, on rank 0. Errors: PP_EDIFFERS, with the
 * first thing known to differ. Local. */
int finish_check(const struct trainer *tr, const char *sha);

/*
 * ---- nonfinite.c
 *
 * Applies the policy train.nonfinite after a step whose numbers were not finite.
 */

/*
 * Handles the bad step tr->t; the thread's error record describes it. Returns 0 if the run
 * continues with the next batch: the step counts, without an update. PP_EDIVERGED: the run must
 * end; the record names the step, and nothing has changed. Other errors: of the rewind. Collective.
 */
int nonfinite_step(struct trainer *tr);

/* Sets the error of a run that diverged: the reason, where the weights are, what to change. Call it
 * after the attempt to save. Returns PP_EDIVERGED. */
int nonfinite_fail(const struct trainer *tr, const char *why);

/* Sets the error of a run whose data changed while they were read. Returns PP_EFORMAT. */
int nonfinite_data(const struct trainer *tr, const char *why);

/* Sets the error of a test whose loss is not finite; why and all: results of pp_exec_test_tell().
 * Returns PP_EDIVERGED. */
int nonfinite_test(const struct trainer *tr, const char *why, bool all);

#endif
