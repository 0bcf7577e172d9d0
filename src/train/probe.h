/* SPDX-License-Identifier: Apache-2.0 */
/* A training run that is measured instead of logged: the loop in place of loop.c's. */
#ifndef PPCLI_TRAIN_PROBE_H
#define PPCLI_TRAIN_PROBE_H

#include "loop.h"

struct pp_probe {
    int64_t warmup, steps; /* optimizer steps before all ranks meet and the clock starts, and
                              after; steps >= 1 */
    uint64_t *ends_ns;     /* [steps] of the caller: when rank 0 ended each step, since the clock
                              started */
    const struct pp_dataset *data[2]; /* of the caller, by enum pp_split; NULL: opened by the run */

    bool plain; /* one rank: by plain_loop.h instead of the executor; bubble and memory stay 0 */

    /* Set on rank 0 when the run succeeds: */
    double seconds; /* of the slowest rank */
    int64_t samples;
    double bubble_measured, bubble_predicted, bound; /* as in struct pp_bench_sample */
    double loss;
    size_t peak_bytes;
    char sha[65];
};

/* Collective. No log, no evaluation, no meeting between the steps. */
int probe_train(struct trainer *tr);

#endif
