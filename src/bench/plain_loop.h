/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop that one would write without a pipeline: the whole model, micro-batch by micro-batch,
 * the same layers, backend, data and order of sums. What the engine takes longer is what it costs.
 */
#ifndef PPCLI_BENCH_PLAIN_LOOP_H
#define PPCLI_BENCH_PLAIN_LOOP_H

#include "ppcli/train.h"

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
