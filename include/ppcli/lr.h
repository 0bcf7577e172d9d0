/* SPDX-License-Identifier: Apache-2.0 */
/* The learning rate of each step, and what a person should know about those of a run. */
#ifndef PPCLI_LR_H
#define PPCLI_LR_H

#include <stdbool.h>
#include <stdint.h>

#include "ppcli/config.h"

/* Learning rate of step t = 1..total (train.lr_steps where set, total_steps else): warm-up
 * lr*t/warmup for t <= warmup, then constant, linear or cosine towards 0 over the remaining total -
 * warmup steps: the first of them has the full lr, and 0 would be reached by the step after the
 * last (as PyTorch's CosineAnnealingLR with T_max = total). multistep: lr * gamma^(milestones < t),
 * as PyTorch's MultiStepLR. With train.lr_by = epoch t and total count epochs of epoch_steps steps,
 * and warm-up is lr*t/(warmup + 1). A function of the step alone: a resumed run has the same. */
double pp_lr_at(const struct pp_config *cfg, int64_t step, int64_t total_steps,
                int64_t epoch_steps);

/* The steps of a run that a person asks about: those after `done`, up to `total`. */
struct pp_lr_span {
    int64_t done, total;
    int64_t all_steps; /* of train.epochs, whatever train.max_steps says */
    int64_t epoch_steps;
};

#define PP_LR_REMARKS_MAX 8
#define PP_LR_REMARK_BYTES 400

struct pp_lr_remarks {
    char rates
        [PP_LR_REMARK_BYTES]; /* those of the first, middle and last step; "": no step is left */
    int n;                    /* keys without effect, steps with a rate of 0 */
    char text[PP_LR_REMARKS_MAX][PP_LR_REMARK_BYTES];
};

void pp_lr_remark(const struct pp_config *cfg, const struct pp_lr_span *span,
                  struct pp_lr_remarks *out);

/* Whether a key asks for more than one learning rate. */
bool pp_lr_changes(const struct pp_config *cfg);

#endif
