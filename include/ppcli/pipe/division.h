/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One way to run a model: which rank computes what, in which order, with how many threads. A
 * division is a value: it has no text and owns nothing. pp_division_of() reads it from a config. A
 * question ("how would it run with other stages?") makes another division, and pp_layout_create()
 * lays out either.
 */
#ifndef PPCLI_PIPE_DIVISION_H
#define PPCLI_PIPE_DIVISION_H

#include "ppcli/conf/config.h"
#include "ppcli/dev/backend.h"
#include "ppcli/sched/plan.h"

struct pp_model;

enum pp_redo { /* which part of a block's forward pass is recomputed before its backward pass */
    PP_REDO_NONE,
    PP_REDO_SELECTIVE, /* norms and the feed-forward part; only in other systems */
    PP_REDO_FULL /* all but the input of each block; of ppcli's own, `recompute` says of which */
};

struct pp_division {
    const struct pp_schedule_ops *schedule; /* NULL: `table` is the schedule, or none is chosen
                                               yet */
    const struct pp_plan *table;            /* a table in place of a schedule; not owned */
#define PP_DIVISION_INT(k) int k;
#define PP_DIVISION_FLOAT(k) double k;
#define PP_KEY(section, TYPE, k, ...) PP_DIVISION_##TYPE(k)
#include "ppcli/base/keys_schedule.def"
#undef PP_KEY
    const int64_t *ticks;         /* see struct pp_geometry; not owned */
    int stages, chunks, replicas; /* chunks per rank; 0: not chosen yet */
    int tensor, context;          /* ranks = tensor * context * stages * replicas; in ppcli both are
                                     1 */
    int expert;     /* how many of the replicas * context ranks share the experts; in ppcli 1 */
    bool gives_cut; /* of another system that can cut unevenly: the caller wants `last` */
    int microbatches, threads; /* per replica; per rank */
    int coalesce;              /* train.coalesce; 0: pp_layout_coalesce() decides */
    int zero;    /* 0 to 3: the replicas shard nothing, optimizer state, also gradients, also
                    weights */
    bool across; /* a host holds the replicas of a stage, instead of the stages of a replica */
    enum pp_redo redo;
    /* [stages * chunks] the last layer of each piece, in model order */
    uint16_t last[PP_STAGES_MAX];
    bool
        recompute[PP_STAGES_MAX]; /* [stages * chunks] pieces whose forward passes are recomputed */
};

/* What is trained; it does not depend on the division. */
struct pp_training {
    struct pp_backend_choice backend;
    int batch;            /* samples per step */
    int train_n, test_n;  /* samples of an epoch, of a test; test_n 0: no evaluation */
    int train_all;        /* samples of the training data; data.drop_last leaves some out in each
                             epoch */
    int logits_rows;      /* model.logits_rows */
    bool clips;           /* the norm of the gradients is needed, to clip or to log it */
    bool reads_gradients; /* train.read_gradients */
    bool processes;       /* ranks are processes, so a message needs memory at both ends */
};

struct pp_training pp_training_of(const struct pp_config *cfg, int train_n, int test_n);

/* Reads a division from a config, except `last` and the recomputed pieces, which need a model.
 * `schedule` is NULL for schedule = auto and for a table. */
struct pp_division pp_division_shape(const struct pp_config *cfg);

/* Set `last` to the config's cut into d's pieces, and `recompute` to the pieces that the config
 * recomputes. Errors: those of pp_division_of(). */
int pp_division_cut(const struct pp_config *cfg, const struct pp_model *model,
                    struct pp_division *d, const char **key);
int pp_division_redo(const struct pp_config *cfg, const struct pp_model *model,
                     struct pp_division *d, const char **key);

static inline int pp_division_pieces(const struct pp_division *d)
{
    return d->stages * d->chunks;
}

/* Returns the samples of the largest micro-batch. */
static inline int pp_division_rows(const struct pp_division *d, int batch)
{
    int pieces = d->replicas * d->microbatches;
    return (batch + pieces - 1) / pieces;
}

static inline int pp_division_first(const struct pp_division *d, int piece)
{
    return piece > 0 ? d->last[piece - 1] + 1 : 0;
}

/* Returns the name of the schedule, or "table". */
const char *pp_division_schedule(const struct pp_division *d);

/*
 * Writes the value of `key` for a config that would be run like this division, as it is written in
 * a file. For a key of [pipeline], train.coalesce, train.zero, run.threads or run.rank_order the
 * value is the division's; for other keys, and for a cut or a recomputation that cfg itself asks
 * for, it is cfg's. No other function writes these keys. Errors: PP_ECONFIG (the value does not fit
 * into out), PP_ERESOURCE.
 */
int pp_division_value(const struct pp_division *d, const struct pp_model *model,
                      const struct pp_config *cfg, const char *key, char *out, size_t bytes);

/* Prints "[pipeline]" with all keys that ppcli does not choose itself. Errors: PP_EIO, those of
 * pp_division_value(). */
int pp_division_print(const struct pp_division *d, const struct pp_model *model,
                      const struct pp_config *cfg, FILE *f);

/* Makes a config that would be run like the division. The caller frees *out with pp_free(); it
 * shares cfg's origins. Errors: those of pp_division_value(). */
int pp_division_config(const struct pp_division *d, const struct pp_model *model,
                       const struct pp_config *cfg, struct pp_config **out);

#endif
