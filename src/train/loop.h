/* SPDX-License-Identifier: Apache-2.0 */
/* The training loop of one rank: what it needs and keeps. */
#ifndef PPCLI_TRAIN_LOOP_H
#define PPCLI_TRAIN_LOOP_H

#include "ppcli/ckpt/checkpoint.h"
#include "rank.h"
#include "resume.h"
#include "save.h"

/* Counters that a rank sends at a sync point. */
struct report {
    uint64_t window_ns; /* without ... */
    uint64_t paused_ns; /* ... what the process was stopped */
    uint64_t busy_ns;
    struct pp_loss_sums train, test;
    struct pp_loss_sums epoch; /* of training since the epoch began */
    int32_t stop;              /* signal that asked this process to save and end; 0: none */
    uint32_t saves;            /* how often it was asked to save and go on */
    int32_t refused;           /* 1: pp_exec_counters.refused is there */
};

/* Sums over reports; the same on every rank. */
struct totals {
    struct pp_loss_sums sums;
    uint64_t window_ns; /* the longest over ranks */
    uint64_t paused_ns; /* likewise */
    uint64_t busy_ns;   /* summed over ranks */
};

/* Steps whose loss or gradients were not finite, of the run; the same on every rank. */
struct nonfinite {
    int64_t rewinds;
    int64_t in_a_row; /* since a good step */
};

struct trainer {
    struct rank_spec *spec;
    const struct pp_run *run;
    struct pp_transport *tp;
    struct pp_backend *be;
    struct pp_dataset *own[2]; /* opened by this rank */
    const struct pp_dataset *data[2];
    struct pp_exec *x;
    struct pp_metrics *m; /* rank 0 */
    struct beginning begin;
    const char *dir;         /* the run folder, of begin; empty: nothing is written */
    struct pp_lock lock;     /* rank 0: of the run folder */
    int32_t *apart;          /* [ranks] 1 + the first rank of a host apart; 0: sees it */
    struct saver *saver;     /* NULL without a run folder */
    int64_t saved;           /* step of the newest checkpoint in the run folder; -1: none */
    uint32_t data_crc[2][2]; /* by enum pp_split; images, labels; 0: no rank has them */
    char *vocabulary;        /* rank 0: all characters of a text, by token; NULL: none; owned */
    int kinds;               /* rank 0: tokens of a text of characters or bytes; 0: no such text */
    struct pp_loss_sums so_far; /* resumed: this rank's sums of the epoch that goes on */
    struct report *all;         /* [ranks] */
    uint64_t *busy_ns;          /* [ranks] over the run */
    double *busy;               /* [ranks] share of the last window */
    uint64_t window_start;
    uint64_t paused_before; /* pp_watchdog_paused_ns() then */
    int64_t total_steps, t, next_sync;
    int64_t offset;   /* t less the steps of this batch size that the epochs so far have */
    char *changes;    /* rank 0: as in struct pp_ckpt_state; owned; NULL: none */
    int64_t recorded; /* step of the last record in metrics.jsonl */
    int epoch_no;     /* the current one, 1.. */
    int epoch_step;   /* steps done in it */
    int stop;         /* all ranks know of this signal */
    uint32_t saves, saves_done;   /* requests to save that all ranks know of; that were done */
    bool ring_told;               /* that others damaged the file of the ring */
    bool refused;                 /* a rank could not read the test data that it was asked for */
    bool together;                /* the failure at hand is one that all ranks share */
    int64_t steps, meetings;      /* done here: training steps, sync points after them */
    struct pp_timeline *timeline; /* NULL without a run folder */
    struct pp_tracer *tracer;     /* NULL without --trace */
    struct totals epoch, record;  /* since the epoch's start, since the last record */
    double load;                  /* rank 0: of the machine before the loop; < 0: unknown */
    uint64_t began_ns;            /* when this process's loop began ... */
    int64_t waited_ns;            /* ... and pp_clock_waited_ns() then */
    uint64_t train_ns;            /* since the run began, and of it ... */
    uint64_t before_ns;           /* ... by earlier processes */
    int64_t samples;
    int64_t before_samples, before_steps; /* likewise */
    int64_t updates; /* steps that made the weights what they are: t less those skipped */
    struct nonfinite nonfinite;
    double last_lr;
    struct pp_epoch_result last;
};

/* Optimizer steps of the whole run. */
int64_t loop_total_steps(const struct trainer *tr);

/* Collective: all epochs, then the summary. start: pp_clock_ns() when the rank began. */
int loop_train(struct trainer *tr, uint64_t start);

/* The idle share of the ranks' time in a window. */
double loop_bubble(const struct totals *w, int ranks);

/* Collective: what each rank held and did, and the hash of the weights; rank 0 prints it. */
int loop_finish(struct trainer *tr, uint64_t start);

/* ---- nonfinite.c
 *
 * What follows when a step's numbers were not finite: the policy train.nonfinite.
 */

/*
 * Collective: step tr->t was bad, as this thread's error record says. 0: the step is done, without
 * an update, and the run continues with the next batch. PP_EDIVERGED: the run ends; the record says
 * which step it was, and nothing else has happened. Other errors: of the rewind.
 */
int nonfinite_step(struct trainer *tr);

/* The text of a run that ends: why, where the weights are, what would work. Returns PP_EDIVERGED.
 * What was to be saved has been, or could not be. */
int nonfinite_fail(const struct trainer *tr, const char *why);

/* The same of data that changed while they were read. Returns PP_EFORMAT. */
int nonfinite_data(const struct trainer *tr, const char *why);

/* Likewise, of a test; why and all: of pp_exec_test_tell(). */
int nonfinite_test(const struct trainer *tr, const char *why, bool all);

#endif
