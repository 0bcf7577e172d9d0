/* SPDX-License-Identifier: Apache-2.0 */
/* A run: all its ranks, from opening their devices to the last step. */
#ifndef PPCLI_TRAIN_TRAIN_H
#define PPCLI_TRAIN_TRAIN_H

#include <signal.h>
#include <stdint.h>

#include "ppcli/conf/config.h"
#include "ppcli/data/tokenizer.h"
#include "ppcli/runlog/outcome.h"
#include "ppcli/runlog/runlog.h"
#include "ppcli/watch/watch.h"

/* ---- train */

/*
 * Trains a run: all ranks as threads of this process, or this process as one MPI rank.
 */

/* A rank that is set up and about to work. It owns nothing. */
struct pp_worker {
    const struct pp_run *run;
    int rank;
    struct pp_transport *tp;
    struct pp_backend *be;
    const struct pp_dataset *data[2]; /* by enum pp_split; NULL: this rank does not read it */
    struct pp_exec *x;
    const char *from;  /* file or checkpoint that the weights were read from; "": no file */
    bool failed_alone; /* out: failed in a way that the other ranks cannot know */
};

struct pp_train_options {
    const char *name; /* name of the config, for the run folder: "mnist" */
    FILE *out;        /* rank 0: log lines and summary; never NULL */
    bool quiet;       /* print only the summary */
    bool overwrite;   /* write into a run folder that is not empty */
    /* A checkpoint to continue from, or a folder of checkpoints, or a run folder; "auto": the
     * newest checkpoint of the run folder, or the start if there is none. NULL: the start. */
    const char *resume;
    const char *allow; /* keys, separated by commas, that may differ from the checkpoint's; NULL: no
                          key */
    /* Requests that a signal handler notes, in each process of a run: `stop`, the signal that asked
     * to save and end; `save`, how often it was asked to save and continue. NULL: no requests. */
    const volatile sig_atomic_t *stop, *save;
    const char *expect; /* digest of the weights with which the run must end, else PP_EDIFFERS;
                           NULL: any */
    const struct pp_replay *replay; /* saves and logs at these steps only; NULL: as the config
                                       says */
    struct pp_trace_wish trace;
    /* Prints this thread's error record. Called by an MPI rank that failed alone, before it ends
     * all processes. NULL: prints nothing. */
    void (*before_abort)(void);
    /* Called in the watchdog's thread when the run hangs: prints `text` (several lines; NULL:
     * another process of the run reports) and ends the process at once with PP_ELOST, whatever its
     * threads hold. NULL: no watchdog. */
    pp_lost *lost;
    struct pp_pulse *pulse; /* of this process, see struct pp_world; NULL: no heartbeats */
    /* Runs on every rank in place of training, without a run folder. Collective. NULL: train. */
    int (*work)(struct pp_worker *w, void *work_ctx);
    void *work_ctx;
    const char *weights; /* for `work`: checkpoint or file to begin with; NULL: as the config
                            says */
    const struct pp_dataset *data[2]; /* by enum pp_split, owned by the caller; NULL: the run reads
                                         it */
};

/*
 * Trains a config. PP_ESTOPPED: the user stopped it; the text says how to continue. Under an MPI
 * launch: collective, this process is one rank. If one rank fails, all ranks return a failure; the
 * error record names the rank that found it. *speaks is set early: whether this process reports a
 * failure that all ranks share (under MPI only rank 0).
 */
int pp_train(struct pp_config *cfg, const struct pp_train_options *options, bool *speaks);

/* The processes of an MPI job before and between trainings. */
struct pp_world {
    struct pp_transport *tp; /* NULL: this process was not started by MPI */
    struct pp_deadline *deadline;
    /* Set if the ranks are on several hosts or a launcher listens (ppcli/cluster/pulse.h); else
     * NULL: */
    struct pp_pulse *pulse;
    struct pp_listener *listener;
};

/*
 * Opens MPI if it has started this process: collective, waits for all processes.
 *   rc    whether this process failed before
 *   same  what must be equal in all processes, for pp_transport_same()
 *   lost  as in struct pp_train_options
 * A deadline runs until pp_world_ready(). Errors: those of pp_transport_open_world() and
 * pp_transport_same(), PP_ERESOURCE. On failure nothing is open.
 */
int pp_world_open(const struct pp_config *cfg, int rc, const char *same, pp_lost *lost,
                  struct pp_world *out);
void pp_world_ready(struct pp_world *w); /* The caller has made its preparations. Local. */
void pp_world_close(struct pp_world *w); /* Collective; a closed world may be closed again. */

struct pp_evaluation {
    const char *predictions; /* in: CSV file for label, prediction and logits; NULL: no file */
    double threshold;        /* in, with bce: an output is yes above this probability */
    /* out: what was right and wrong; NULL: a text, or another rank. The caller destroys it, also
     * after a failure. */
    struct pp_outcome *outcome;
    double loss;
    struct pp_scores scores;
    int samples, targets; /* targets: of each sample of a text; else 0 */
    char weights_sha256[65];
    char from[PP_PATH_MAX]; /* the checkpoint or file that was read */
};

/* Tests the weights of a checkpoint, a run folder or a safetensors file on the config's test set.
 * Sets *out on the rank that speaks. Otherwise as pp_train(). */
int pp_evaluate(struct pp_config *cfg, const struct pp_train_options *options, const char *weights,
                struct pp_evaluation *out, bool *speaks);

/* ---- start.c: starts the ranks of a config, as threads or under mpirun */

struct pp_start {
    struct pp_world world;
    bool open;   /* the world is open, and the caller must close it */
    bool works;  /* this process has ranks to run with pp_train() or a similar function */
    bool speaks; /* this process reports for the run; set by those functions */
};

/*
 * Sets options->name and quiet and chooses what the config leaves to a measurement; or starts
 * mpirun if the config asks for it, whose processes call this function too.
 *   word   the config as the user gave it
 *   given  see pp_start_same()
 * Errors: as of pp_launch_mpirun(), pp_world_open() and pp_choose(); PP_ECONFIG may be noted as
 * problems of cfg.
 */
int pp_start_begin(const char *word, struct pp_config *cfg, const char *given,
                   struct pp_train_options *options, struct pp_start *out);

/* Lets the other processes of a launch learn that this one failed before it opened MPI. */
enum pp_start_others {
    PP_START_ALONE, /* they do not: this process reports its failure */
    PP_START_JOIN,  /* they open MPI and wait there for this process */
    PP_START_KNOW   /* they find the same failure */
};
extern enum pp_start_others pp_start_others; /* set before a command begins */

/* Reports that this process has failed with rc. With PP_START_JOIN: collective with the processes
 * that open MPI. lost: as in struct pp_train_options. Returns the failure of all. */
int pp_start_tell_others(int rc, pp_lost *lost);
bool pp_start_told_others(void); /* Whether this or another process has told the others */

/* Checks that this launch can be one run; the same on all its processes. Errors: PP_ECONFIG.
 * Local. */
int pp_start_check(const struct pp_config *cfg);

/* Writes the lines that must be equal in all processes of a launch: program, command and options
 * (`given`), and the configs. The caller owns *out: free(). Errors: PP_ERESOURCE, those of reading
 * the program. Local. */
int pp_start_same(struct pp_config *const *configs, int n, const char *given, char **out);

/* ---- generate */

/*
 * Continues a text, token by token, with the weights of a checkpoint: one process has all layers,
 * and keeps the keys and values of earlier positions. When the context is full, its last half is
 * read again and the text continues.
 */

struct pp_generator;

/* Makes the model of cfg's [model], with the weights of a checkpoint, run folder, safetensors file
 * or Hugging Face folder, on the backend of cfg. Local. Errors: PP_ECONFIG (the model cannot
 * continue texts), PP_EFORMAT, PP_ENOINPUT, PP_ERESOURCE. The caller owns *out. */
int pp_generator_create(const struct pp_config *cfg, const char *weights,
                        struct pp_generator **out);
void pp_generator_destroy(struct pp_generator **g);

int pp_generator_tokens(const struct pp_generator *g); /* the number of different tokens */

/* Returns the vocabulary of the checkpoint, else of cfg's data; n = 0: tokens are numbers. */
const struct pp_vocabulary *pp_generator_vocabulary(const struct pp_generator *g);

/* Reads n more tokens, 0 <= token < tokens, 1 <= n <= PP_READ_AT_ONCE; more than one only while
 * they fit into the context. *out_logits[tokens]: of the next token; valid until the next call.
 * Errors: PP_EDIVERGED (not finite), those of the backend. */
#define PP_READ_AT_ONCE 64
int pp_generator_read(struct pp_generator *g, const uint32_t *tokens, int n,
                      const float **out_logits);

/* ---- predict */

/*
 * Computes the outputs of samples, a few at a time, with the weights of a checkpoint: one process
 * has all layers. The outputs have the bits of pp_evaluate().
 */

struct pp_predictor;
struct pp_new_samples;
struct pp_preprocessing;

/* Makes the model of cfg with the weights of a checkpoint, run folder or safetensors file, on the
 * backend of cfg: for new samples, as the checkpoint describes them, or for those of cfg's data set.
 * `cfg` must outlive *out. Local. Errors: those of pp_new_samples_create(), PP_ENOINPUT, PP_ERESOURCE.
 * The caller owns *out. */
int pp_predictor_create(const struct pp_config *cfg, const char *weights, bool for_new,
                        struct pp_predictor **out);
void pp_predictor_destroy(struct pp_predictor **p); /* accepts NULL inside */

/* Returns the reader of new samples, and the names that the checkpoint keeps. */
struct pp_new_samples *pp_predictor_samples(const struct pp_predictor *p);
const struct pp_preprocessing *pp_predictor_names(const struct pp_predictor *p);
int pp_predictor_outputs(const struct pp_predictor *p); /* of a sample */

/* Computes outputs of the samples from `first` on, of which *out_rows are computed at once:
 * *out_outputs[rows][outputs] is valid until the next call. Errors: PP_EDIVERGED (not finite), those
 * of the backend. */
int pp_predictor_run(struct pp_predictor *p, const struct pp_dataset *ds, int first, int *out_rows,
                     const float **out_outputs);

/* Judges the test set of cfg, with the worst mistakes as JSON. *out is NULL if samples have no single
 * label, such as texts, or if it takes more than `flops`. The caller owns it. Errors: those of pp_dataset_open() and pp_predictor_run(). */
int pp_predictor_test(struct pp_predictor *p, double flops, struct pp_outcome **out);

#endif
