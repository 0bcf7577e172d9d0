/* SPDX-License-Identifier: Apache-2.0 */
/* The search on a machine that a file describes, also over divisions that other systems train. */
#ifndef PPCLI_PLAN_MACHINE_PLAN_H
#define PPCLI_PLAN_MACHINE_PLAN_H

#include "ppcli/conf/cluster.h"
#include "ppcli/nn/model.h"
#include "ppcli/pipe/division.h"
#include "ppcli/plan/search.h"
#include "ppcli/sim/sim.h"

/* ---- estimate */

/*
 * Estimates a step of a transformer that is divided as other systems do it: with tensor, context
 * and expert parallelism inside stages, recomputation within layers, and ZeRO of all stages. Speeds
 * come from a machine file; nothing is measured. The pipeline is simulated. docs/do/planning.md has
 * the terms and their sources.
 */

struct pp_estimate_spec {
    const struct pp_model *model; /* embedding, equal blocks, head: pp_estimate_takes() */
    const struct pp_config *cfg;  /* has the model, the precision and the optimizer */
    const struct pp_cluster *cluster;
    int ranks, batch; /* batch: samples of a step */
    bool fp8;         /* products of linear layers at device.fp8 */
    /* Gets the plan and the costs that are simulated, for a drawing; may be NULL. */
    int (*see)(const struct pp_plan *plan, const struct pp_sim_costs *costs, void *ctx);
    void *ctx;
};

/* Is the model of a kind that can be estimated: gpt or llama? */
bool pp_estimate_takes(const struct pp_config *cfg);

/* Writes a division in the words that pp_estimate_words() reads. Returns out. */
char *pp_parallel_text(const struct pp_division *p, int batch, char *out, size_t bytes);

/* Estimates a division that parallel_check() accepts. With `quick` a formula takes the place of the
 * simulation: it is some percent off and has no parts of the bubble. Errors: PP_ECONFIG (its
 * schedule), PP_ERESOURCE. */
int pp_estimate(const struct pp_estimate_spec *s, const struct pp_division *p, bool quick,
                struct pp_estimate *out);

/* Words that start it elsewhere: "megatron", "torchtitan", "deepspeed". PP_ECONFIG for what the
 * system does not have. */
int pp_estimate_emit(const struct pp_estimate_spec *s, const struct pp_division *p,
                     const char *system, FILE *f);
/* Does the system, also "ppcli", have all that this division asks for? */
bool pp_parallel_runs_on(const struct pp_division *p, const char *system);

/* ---- machine plan */

/*
 * A search on a machine that a file describes: all ways to divide a model over its ranks that ppcli
 * trains (laid out, proved, their memory counted) and, for transformers on GPUs, those that other
 * systems train. The rows are ranked in groups whose steps differ by less than the price's error.
 */

#define PP_PLAN_ERROR 0.05 /* of the price: rows of a group differ by less */
#define PP_ASKED_MAX 64

/* Values that the user fixes or lists; n 0: the search tries all. */
struct pp_asked_list {
    int n, at[PP_ASKED_MAX];
};

struct pp_asked {
    struct pp_asked_list stages, replicas, tensor, chunks, microbatches, zero, context, expert;
    char schedules[512], redos[128]; /* words; "": all */
    const char *only;                /* ppcli, megatron, torch or deepspeed; NULL: all */
    const char *layout;              /* as blocks_read(); NULL: any cut */
};

struct pp_machine_plan {
    struct pp_config *cfg; /* owned, as all of these */
    struct pp_model *model;
    struct pp_cluster cluster;
    struct pp_costs *costs;
    struct pp_space space; /* of ppcli's own rows; its memory limits all rows. Nothing is owned */
    struct pp_asked asked;
    int ranks, batch;
    bool fp8;
    double parameters;    /* of the model, with all experts */
    struct pp_rows found; /* the rows; tried: without what is refused or the same */
    int fewer;            /* this many ranks have a faster best row; 0: no number is known */
    double fewer_step;    /* seconds */
};

/* Makes the model of p->cfg, and the space and the batch from the samples; where the data are absent,
 * from those of a batch. The space keeps its memory. Errors: as of pp_run_model() and pp_run_samples(). */
int pp_machine_plan_load(struct pp_machine_plan *p);

/* One division, as --compare says it, is the only row. Errors: as of pp_estimate_words(),
 * PP_ECONFIG, PP_ERESOURCE. */
int pp_machine_plan_price(struct pp_machine_plan *p, const char *words);

/* Searches. cfg, cluster, asked, ranks, batch and space are set. Errors: PP_ECONFIG
 * (nothing runs, or nothing fits, and what would), PP_ERESOURCE. */
int pp_machine_plan_find(struct pp_machine_plan *p);
void pp_machine_plan_fini(struct pp_machine_plan *p);

/* Returns the space of ppcli's own row, of m micro-batches; fewer than the row's are the beginning of its
 * step. */
struct pp_space pp_machine_plan_spec(const struct pp_machine_plan *p, const struct pp_row *row,
                                     int m);
struct pp_estimate_spec pp_machine_plan_estimates(const struct pp_machine_plan *p);

/* Returns the first row, in the order of the ranking, that the system can run, or NULL. */
const struct pp_row *pp_machine_plan_first(const struct pp_machine_plan *p, const char *system);

#endif
