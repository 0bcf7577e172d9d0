/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One way to run a model: who computes what, in which order, with how many threads. A value: it has
 * no text and owns nothing. pp_division_of() reads it from a config. A question ("what if it had
 * other stages?") makes another division, and pp_layout_create() lays either out.
 */
#ifndef PPCLI_PIPE_DIVISION_H
#define PPCLI_PIPE_DIVISION_H

#include "ppcli/conf/config.h"
#include "ppcli/dev/backend.h"
#include "ppcli/sched/plan.h"

struct pp_model;

enum pp_redo { /* of the forward pass of a block, before its backward pass */
    PP_REDO_NONE,
    PP_REDO_SELECTIVE, /* norms and the feed-forward; never ppcli's own */
    PP_REDO_FULL /* all but the input of each block; of ppcli's own, `recompute` says of which */
};

struct pp_division {
    const struct pp_schedule_ops *schedule; /* NULL: `table`, or none is chosen yet */
    const struct pp_plan *table;            /* has the lists in place of a schedule; not owned */
#define PP_DIVISION_INT(k) int k;
#define PP_DIVISION_FLOAT(k) double k;
#define PP_KEY(section, TYPE, k, ...) PP_DIVISION_##TYPE(k)
#include "ppcli/base/keys_schedule.def"
#undef PP_KEY
    const int64_t *ticks;         /* as of struct pp_geometry; not owned */
    int stages, chunks, replicas; /* chunks: of a rank; 0: nobody has said */
    int tensor, context;          /* ranks = tensor * context * stages * replicas; ppcli's own: 1 */
    int expert;     /* so many of replicas * context ranks share the experts; ppcli's own: 1 */
    bool gives_cut; /* of another system, which can cut unevenly: `last` is asked for */
    int microbatches, threads; /* of a replica; of a rank */
    int coalesce;              /* train.coalesce; 0: as pp_layout_coalesce() finds */
    int zero;    /* 0 to 3: sharded over the replicas: nothing, state, gradients too, weights too */
    bool across; /* a host holds replicas of a stage, not stages of a replica */
    enum pp_redo redo;
    uint16_t
        last[PP_STAGES_MAX]; /* [stages * chunks] the last layer of each piece, in model order */
    bool
        recompute[PP_STAGES_MAX]; /* [stages * chunks] pieces whose forward passes are recomputed */
};

/* What is trained, however it is divided. */
struct pp_training {
    struct pp_backend_choice backend;
    int batch;            /* samples of a step */
    int train_n, test_n;  /* samples; test_n 0: no evaluation */
    int logits_rows;      /* model.logits_rows */
    bool clips;           /* gradients, by their norm */
    bool reads_gradients; /* train.read_gradients */
    bool processes;       /* the ranks are, so messages have memory at both ends */
};

struct pp_training pp_training_of(const struct pp_config *cfg, int train_n, int test_n);

/* How a config says that it is run, but for what only a model tells: last and recompute. schedule = auto
 * and a table that is not given leave `schedule` NULL. */
struct pp_division pp_division_shape(const struct pp_config *cfg);

/* Fails with PP_ECONFIG and says in *key which key of a config is at fault. */
#define pp_fail_about(key, name, ...) (*(key) = (name), pp_fail(PP_ECONFIG, __VA_ARGS__))

/* Set `last` as the config cuts so many pieces, and `recompute` as it says of that cut. The same errors. */
int pp_division_cut(const struct pp_config *cfg, const struct pp_model *model,
                    struct pp_division *d, const char **key);
int pp_division_redo(const struct pp_config *cfg, const struct pp_model *model,
                     struct pp_division *d, const char **key);

static inline int pp_division_pieces(const struct pp_division *d)
{
    return d->stages * d->chunks;
}

/* Samples of a micro-batch, the largest of them. */
static inline int pp_division_rows(const struct pp_division *d, int batch)
{
    int pieces = d->replicas * d->microbatches;
    return (batch + pieces - 1) / pieces;
}

static inline int pp_division_first(const struct pp_division *d, int piece)
{
    return piece > 0 ? d->last[piece - 1] + 1 : 0;
}

/* Its schedule's name; "table". */
const char *pp_division_schedule(const struct pp_division *d);

/*
 * What a config would say to be run like this: the value of `key`, one of [pipeline], train.coalesce,
 * train.zero, run.threads or run.rank_order, as it is written in a file; of another key, of what the
 * division leaves as it is, and of a cut or a recomputation that cfg itself asks for: cfg's. The only
 * writer of these keys. Errors: PP_ECONFIG (it does not fit into out), PP_ERESOURCE.
 */
int pp_division_value(const struct pp_division *d, const struct pp_model *model,
                      const struct pp_config *cfg, const char *key, char *out, size_t bytes);

/* "[pipeline]" with all of its keys that are not left to ppcli. Errors: PP_EIO, as above. */
int pp_division_print(const struct pp_division *d, const struct pp_model *model,
                      const struct pp_config *cfg, FILE *f);

/* A config of its own that says so, for a run; nothing is owned by it but its memory: pp_free(). It
 * shares cfg's origins. The same errors. */
int pp_division_config(const struct pp_division *d, const struct pp_model *model,
                       const struct pp_config *cfg, struct pp_config **out);

#endif
