/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run: everything that follows from the config before any rank starts (prepare), then all ranks
 * as threads of this process or this process as one MPI rank (train).
 */
#ifndef PPCLI_RUN_H
#define PPCLI_RUN_H

#include <signal.h>

#include "ppcli/backend.h"
#include "ppcli/config.h"
#include "ppcli/dataset.h"
#include "ppcli/devices.h"
#include "ppcli/exec.h"
#include "ppcli/layout.h"
#include "ppcli/model.h"
#include "ppcli/transport.h"

/* Decided from the config alone, the same on every rank; immutable once ranks run. */
struct pp_run {
    struct pp_config *cfg; /* not owned */
    struct pp_model *model;
    struct pp_layout *layout;
    const struct pp_backend_ops *backend;
    bool mpi; /* ranks are MPI processes */
    /* Known when training begins, NULL and "" before: */
    struct pp_seat *seats;                /* [layout->ranks]; owned */
    const char *transport;                /* what connects the ranks; not owned ... */
    char transport_why[PP_SEATS_WHY_MAX]; /* ... and the reason, "" when there is no device */
};

enum pp_run_need {
    PP_RUN_REAL,    /* data must be there, the backend must run here */
    PP_RUN_EXPLAIN, /* absent data is replaced by what is known of the data set */
};

/*
 * Errors: PP_ECONFIG (noted as problems of cfg), PP_ENOINPUT and friends for data, PP_ERESOURCE.
 * Local; the same verdict on every rank that sees the same files.
 */
int pp_run_prepare(struct pp_config *cfg, enum pp_run_need need, struct pp_run *out);
void pp_run_fini(struct pp_run *run);

/* Whether the ranks of this run will be threads. */
bool pp_run_shares_memory(const struct pp_run *run);

/* What connects the ranks, as far as their memory depends on it. */
struct pp_transport_caps pp_run_caps(const struct pp_run *run);

/* Samples per split without reading the data; known figures of the data set when it is absent and
 * `need` allows it. */
int pp_run_samples(const struct pp_config *cfg, enum pp_run_need need, enum pp_split split,
                   int *out);

struct pp_probe;

struct pp_train_options {
    const char *name; /* of the config, for the run directory: "mnist" */
    FILE *out;        /* log lines and summary (rank 0); never NULL */
    bool quiet;       /* summary only */
    bool overwrite;   /* write into a run directory that is not empty */
    /* Go on where this was saved: a checkpoint, a folder of them, a run folder; "auto": the newest
     * of the run folder, or begin anew when there is none. NULL: begin anew. */
    const char *resume;
    /* Do not train: test the weights of this checkpoint or safetensors file. NULL: train. */
    const char *evaluate;
    bool json; /* of evaluate: the result as JSON */
    /* Requests of the user that a signal handler notes, each process of a run for itself: `stop`,
     * the signal that asked to save and end; `save`, how often it was asked to save and go on.
     * NULL: nobody asks. */
    const volatile sig_atomic_t *stop, *save;
    /* Trace events of all ranks go to this file (see ppcli/chrome.h), of the steps from trace_first
     * to trace_last; 0: the first 50 that are trained now. NULL: no trace. */
    const char *trace;
    int64_t trace_first, trace_last;
    /* Prints this thread's error record: called by an MPI rank that failed alone, before it takes
     * all processes down with it. NULL: nothing is said. */
    void (*before_abort)(void);
    /* The watchdog found that the run hangs: print `text` (several lines; NULL: another process of
     * the run speaks) and end the process with PP_ELOST, at once, whatever its threads hold. Called
     * in the watchdog's thread. NULL: there is no watchdog. */
    void (*lost)(void *ctx, const char *text);
    /* Called by rank 0 for every window between two sync points: the samples trained on and the
     * time of the slowest rank. NULL: nobody wants to know. */
    void (*window)(void *ctx, int64_t samples, double seconds);
    void *ctx; /* of lost and window */
    /* Measure instead of logging: src/train/probe.h. NULL: train as the config says. */
    struct pp_probe *probe;
};

/*
 * Train as the config says; PP_ESTOPPED when it ended before that because it was asked to, with a
 * text that says how to go on. Under an MPI launch: collective, this process is one rank. On
 * failure of a rank all ranks return a failure; the record says which rank knew first. *speaks is
 * set early: whether this process is the one that reports a failure that all ranks share (MPI: rank
 * 0 only).
 */
int pp_train(struct pp_config *cfg, const struct pp_train_options *options, bool *speaks);

#endif
