/* SPDX-License-Identifier: Apache-2.0 */
/* A training run that is measured instead of logged. */
#ifndef PPCLI_BENCH_PROBE_H
#define PPCLI_BENCH_PROBE_H

#include "ppcli/train.h"

struct probe {
    int64_t warmup, steps; /* optimizer steps before all ranks meet and the clock starts, and
                              after; steps >= 1 */
    uint64_t *ends_ns;     /* [steps] of the prober: when rank 0 ended each step, since the clock
                              started */
    bool plain; /* one rank: by plain_loop.h instead of the executor; bubble and memory stay 0 */

    /* Set on rank 0 when the run succeeds: */
    double seconds; /* of the slowest rank */
    int64_t samples;
    struct pp_bubble bubble;
    double bubble_predicted, bound; /* as in struct pp_bench_sample */
    double simulated;               /* seconds of a step of these actions */
    double loss;
    size_t peak_bytes;
    char sha[65];
};

/* What the measured runs of a benchmark share. */
#define PROBE_STEPS_MAX 200000
struct prober {
    struct pp_train_options options; /* of every run; of the caller: before_abort, lost, ctx */
    struct pp_dataset *data[2];
    uint64_t *ends_ns; /* [PROBE_STEPS_MAX] of the last run */
};

/* Errors: PP_EIO, PP_ERESOURCE. probe_close() whatever it returns. */
int probe_open(struct prober *p);
void probe_close(struct prober *p);

/* Read or make the data once, for all runs that follow. Errors: those of pp_dataset_open(). */
int probe_open_data(struct prober *p, const struct pp_config *cfg);

/* Run `probe` (warmup, steps, plain) without a log, an evaluation or a meeting between the steps;
 * NULL: train as cfg says. Collective where pp_train() is. Errors: those of pp_train(). */
int probe_run(struct prober *p, struct pp_config *cfg, struct probe *probe);

/* The steps that take about `seconds`, by what was measured; at least 4. */
int64_t probe_steps(const struct probe *measured, double seconds);

/* ---- plain_loop.c
 *
 * The loop that one would write without a pipeline: the whole model, micro-batch by micro-batch,
 * the same layers, backend, data and order of sums. What the engine takes longer is what it costs.
 */

struct plain_loop;

/* For a run with one rank and without clipping. Local. Errors: PP_ERESOURCE. */
int plain_loop_create(const struct pp_worker *w, struct plain_loop **out);
void plain_loop_destroy(struct plain_loop **p);

void plain_loop_start_epoch(struct plain_loop *p, uint64_t epoch);

/* As pp_exec_train_step(). */
int plain_loop_step(struct plain_loop *p, int step, double lr, int64_t t);

/* The sums since the last call. */
int plain_loop_take_sums(struct plain_loop *p, struct pp_loss_sums *out);

/* As pp_exec_weights_sha256(). */
int plain_loop_sha256(struct plain_loop *p, char out[65]);

#endif
