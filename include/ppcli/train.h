/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training a run: all ranks as threads of this process, or this process as one MPI rank.
 */
#ifndef PPCLI_TRAIN_H
#define PPCLI_TRAIN_H

#include <signal.h>

#include "ppcli/runlog.h"
#include "ppcli/watch.h"

/* One rank that is set up and about to work. Nothing is owned. */
struct pp_worker {
    const struct pp_run *run;
    int rank;
    struct pp_transport *tp;
    struct pp_backend *be;
    const struct pp_dataset *data[2]; /* by enum pp_split; NULL: this rank reads none of it */
    struct pp_exec *x;
    const char *from;  /* file or checkpoint whose weights these are; "": none */
    bool failed_alone; /* out: failed where the other ranks could not know */
};

struct pp_train_options {
    const char *name; /* of the config, for the run directory: "mnist" */
    FILE *out;        /* log lines and summary (rank 0); never NULL */
    bool quiet;       /* summary only */
    bool overwrite;   /* write into a run directory that is not empty */
    /* Continue from a checkpoint, a folder of them, or a run folder; "auto": from the newest of the
     * run folder, from the start if there is none. NULL: from the start. */
    const char *resume;
    const char *allow; /* of resume: keys between commas that may have other values; NULL: none */
    /* Requests of the user that a signal handler notes, each process of a run for itself: `stop`,
     * the signal that asked to save and end; `save`, how often it was asked to save and go on.
     * NULL: not wanted. */
    const volatile sig_atomic_t *stop, *save;
    struct pp_trace_wish trace;
    /* Prints this thread's error record: called by an MPI rank that failed alone, before it takes
     * all processes down with it. NULL: nothing is said. */
    void (*before_abort)(void);
    /* The watchdog found that the run hangs: print `text` (several lines; NULL: another process of
     * the run speaks) and end the process with PP_ELOST, at once, whatever its threads hold. Called
     * in the watchdog's thread. NULL: there is no watchdog. */
    pp_lost *lost;
    struct pp_pulse *pulse; /* of this process, see struct pp_world; NULL: none */
    /* What every rank does instead of training, without a run folder. Collective. NULL: train as
     * the config says. */
    int (*work)(struct pp_worker *w, void *work_ctx);
    void *work_ctx;
    const char *weights; /* of work: checkpoint or file to begin with; NULL: as the config says */
    const struct pp_dataset *data[2]; /* by enum pp_split, of the caller; NULL: the run reads it */
};

/*
 * Train as the config says; PP_ESTOPPED when it ended before that because it was asked to, with a
 * text that says how to go on. Under an MPI launch: collective, this process is one rank. On
 * failure of a rank all ranks return a failure; the record says which rank knew first. *speaks is
 * set early: whether this process is the one that reports a failure that all ranks share (MPI: rank
 * 0 only).
 */
int pp_train(struct pp_config *cfg, const struct pp_train_options *options, bool *speaks);

/* The processes of an MPI job, for what comes before and between the trainings. */
struct pp_world {
    struct pp_transport *tp; /* NULL: MPI has not started this process */
    struct pp_deadline *deadline;
    /* Where ranks have several hosts, or somebody listens (ppcli/pulse.h); else NULL: */
    struct pp_pulse *pulse;
    struct pp_listener *listener;
};

/* Collective when MPI has started this process: waits for all of them. rc, same: whether
 * this one failed before, and what all must have alike, for pp_transport_same(). A deadline runs until pp_world_ready(). lost: as in struct
 * pp_train_options. Errors: those of pp_transport_open_world() and pp_transport_same(),
 * PP_ERESOURCE. On failure nothing is open. */
int pp_world_open(const struct pp_config *cfg, int rc, const char *same, pp_lost *lost,
                  struct pp_world *out);
/* Whether there are as many processes as the config has ranks; tp NULL: they will be threads. The
 * same on every rank. Errors: PP_ECONFIG. */
int pp_world_check_size(const struct pp_config *cfg, const struct pp_transport *tp);
void pp_world_ready(struct pp_world *w); /* Local: the caller has made its preparations */
void pp_world_close(struct pp_world *w); /* Collective; a closed one may be closed again */

struct pp_evaluation {
    const char *predictions; /* to set: CSV file for label, prediction and logits; NULL: none */
    double loss, accuracy;
    int samples, targets; /* of a text: of each sample; else 0 */
    char weights_sha256[65];
    char from[PP_PATH_MAX]; /* the checkpoint or file that was read */
};

/* Test the weights of a checkpoint, a run folder or a safetensors file with the config's test set.
 * *out is set on the rank that speaks. Otherwise as pp_train(). */
int pp_evaluate(struct pp_config *cfg, const struct pp_train_options *options, const char *weights,
                struct pp_evaluation *out, bool *speaks);

#endif
