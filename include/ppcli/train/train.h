/* SPDX-License-Identifier: Apache-2.0 */
/* A run: all its ranks, from their devices to the last step. */
#ifndef PPCLI_TRAIN_TRAIN_H
#define PPCLI_TRAIN_TRAIN_H

#include <signal.h>
#include <stdint.h>

#include "ppcli/conf/config.h"
#include "ppcli/data/tokenizer.h"
#include "ppcli/runlog/runlog.h"
#include "ppcli/watch/watch.h"

/* ---- train */

/*
 * Training a run: all ranks as threads of this process, or this process as one MPI rank.
 */

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
    /* Where ranks have several hosts, or somebody listens (ppcli/cluster/pulse.h); else NULL: */
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

/* ---- start.c: how a command starts the ranks of a config, as threads or under mpirun */

struct pp_start {
    struct pp_world world;
    bool open;   /* the world; the caller's to close */
    bool works;  /* this process has ranks to run: pp_train() and the like */
    bool speaks; /* whether it speaks for the run; theirs to set */
};

/*
 * Set options->name and quiet, and choose what the config leaves to a measurement; or start
 * mpirun where the config asks for it, whose processes come here again. word: the config as it was
 * given. given: see pp_start_same(). Errors: as of pp_launch_mpirun(), pp_world_open() and
 * pp_choose(); of PP_ECONFIG cfg may have the problems.
 */
int pp_start_begin(const char *word, struct pp_config *cfg, const char *given,
                   struct pp_train_options *options, struct pp_start *out);

/* How the other processes of a launch learn that this one has failed before it opened MPI. */
enum pp_start_others {
    PP_START_ALONE, /* they do not: it says so itself */
    PP_START_JOIN,  /* they open MPI and wait for it there */
    PP_START_KNOW   /* they find the same */
};
extern enum pp_start_others pp_start_others; /* set before a command begins */

/* This process has failed with rc: PP_START_JOIN: collective with those that open MPI. lost: as in
 * struct pp_train_options. Returns the failure of all. */
int pp_start_tell_others(int rc, pp_lost *lost);
bool pp_start_told_others(void); /* or somebody else has */

/* Whether this launch can be one run; all its processes find the same. Errors: PP_ECONFIG. Local. */
int pp_start_check(const struct pp_config *cfg);

/* Lines of what all processes of a launch must have alike: program, command and options (`given`), and
 * these configs. The caller's: free(). Errors: PP_ERESOURCE, those of reading the program. Local. */
int pp_start_same(struct pp_config *const *configs, int n, const char *given, char **out);

/* ---- generate */

/*
 * Continuing a text, token by token, with the weights of a checkpoint: one process, all layers, and
 * the keys and values of earlier positions kept. When the context is full, its last half is read
 * again and the text goes on from there.
 */

struct pp_generator;

/* The model of cfg's [model], with weights of a checkpoint, run folder, safetensors file or folder
 * of Hugging Face's, on the backend of cfg. Local. Errors: PP_ECONFIG (a model that continues no
 * texts), PP_EFORMAT, PP_ENOINPUT, PP_ERESOURCE. The caller owns *out. */
int pp_generator_create(const struct pp_config *cfg, const char *weights,
                        struct pp_generator **out);
void pp_generator_destroy(struct pp_generator **g);

int pp_generator_tokens(const struct pp_generator *g); /* different ones */

/* What they are: as the checkpoint says, else the data of cfg; n 0: numbers. */
const struct pp_vocabulary *pp_generator_vocabulary(const struct pp_generator *g);

/* Read n more tokens, 0 <= token < tokens, 1 <= n <= PP_READ_AT_ONCE; more than one only while the
 * context has room for them. *out_logits[tokens]: of the next one; valid until the next call. Errors:
 * PP_EDIVERGED (not finite), those of the backend. */
#define PP_READ_AT_ONCE 64
int pp_generator_read(struct pp_generator *g, const uint32_t *tokens, int n,
                      const float **out_logits);

#endif
