/* SPDX-License-Identifier: Apache-2.0 */
/* A training run that is measured instead of logged. */
#ifndef PPCLI_BENCH_PROBE_H
#define PPCLI_BENCH_PROBE_H

#include "ppcli/bubble.h"
#include "ppcli/train.h"

struct probe {
    int64_t warmup, steps; /* optimizer steps before all ranks meet and the clock starts, and
                              after; steps >= 1 */
    uint64_t *ends_ns;     /* [steps] of the caller: when rank 0 ended each step, since the clock
                              started */
    bool plain; /* one rank: by plain_loop.h instead of the executor; bubble and memory stay 0 */

    /* Set on rank 0 when the run succeeds: */
    double seconds; /* of the slowest rank */
    int64_t samples;
    struct pp_bubble bubble;
    double bubble_predicted, bound; /* as in struct pp_bench_sample */
    double loss;
    size_t peak_bytes;
    char sha[65];
};

/* For struct pp_train_options: work, with a struct probe as its context. Collective. No log, no
 * evaluation, no meeting between the steps. */
int probe_train(struct pp_worker *w, void *probe);

#endif
