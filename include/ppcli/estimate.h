/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a step of a transformer would take when it is divided in ways that other systems have: tensor,
 * context and expert parallelism inside stages, recomputation within layers, ZeRO of all stages. A
 * machine file says what products, memory and links do; nothing is measured and nothing allocated but
 * the plan of the pipeline, which is simulated. docs/do/planning.md has the terms and their sources.
 */
#ifndef PPCLI_ESTIMATE_H
#define PPCLI_ESTIMATE_H

#include "ppcli/cluster.h"
#include "ppcli/division.h"
#include "ppcli/model.h"
#include "ppcli/sim.h"

struct pp_estimate_spec {
    const struct pp_model *model; /* embedding, equal blocks, head: pp_estimate_takes() */
    const struct pp_config *cfg;  /* of it; also precision and optimizer */
    const struct pp_cluster *cluster;
    int ranks, batch; /* batch: samples of a step */
    bool fp8;         /* products of linear layers at device.fp8 */
    /* Gets what is simulated, for a drawing; NULL: not wanted. */
    int (*see)(const struct pp_plan *plan, const struct pp_sim_costs *costs, void *ctx);
    void *ctx;
};

struct pp_estimate {
    double step;   /* seconds */
    double tokens; /* a second and rank */
    double mfu;    /* of the peak of run.precision, or fp8: nothing computed again counts */
    double schedule, cut, transfer; /* shares of the ranks' time: the bubble */
    double tensor, sums; /* shares that messages of tensor parallelism and of replicas take */
    double weights, optimizer,
        activations; /* bytes of the fullest rank; optimizer: gradients too */
    double bytes;    /* their sum */
};

/* Is the model of a kind that can be estimated: gpt or llama? */
bool pp_estimate_takes(const struct pp_config *cfg);

/* The words of pp_estimate_words(). Returns out. */
char *pp_parallel_text(const struct pp_division *p, int batch, char *out, size_t bytes);

/* Price a division that parallel_check() accepts. quick: by a formula, within some percent, without
 * the bubble's parts; else the pipeline is simulated. Errors: PP_ECONFIG (its schedule), PP_ERESOURCE. */
int pp_estimate(const struct pp_estimate_spec *s, const struct pp_division *p, bool quick,
                struct pp_estimate *out);

/* "tp=4 pp=4 vp=20 mbs=1" to a price: also dp, cp, ep, zero, recompute (none, selective, full), schedule
 * and layout. What is not said: 1; dp fills up the ranks; 1f1b, with vp interleaved; zero=1. p may be
 * NULL. PP_EUSAGE. */
int pp_estimate_words(const struct pp_estimate_spec *s, const char *words, struct pp_division *p,
                      struct pp_estimate *out);

/* Words that start it elsewhere: "megatron", "torchtitan", "deepspeed". PP_ECONFIG for what the
 * system does not have. */
int pp_estimate_emit(const struct pp_estimate_spec *s, const struct pp_division *p,
                     const char *system, FILE *f);
/* Does the system, also "ppcli", have all that this division asks for? */
bool pp_parallel_runs_on(const struct pp_division *p, const char *system);

#endif
