/* SPDX-License-Identifier: Apache-2.0 */
/* The learning rate of a step: a pure function of the config and the step number. */
#include "ppcli/model.h"

#include <math.h>

double pp_lr_at(const struct pp_config *cfg, int64_t step, int64_t total_steps)
{
    double lr = cfg->train.lr;
    int64_t warmup = cfg->train.warmup_steps;
    if (step <= warmup) {
        return lr * (double)step / (double)warmup;
    }
    /* How much of the way down is behind us: 0 in the first step after the warm-up, and not yet 1
     * in the last, which should still learn something. */
    double done = 0;
    if (total_steps > warmup) {
        done = fmin(1, (double)(step - 1 - warmup) / (double)(total_steps - warmup));
    }
    switch (cfg->train.lr_schedule) {
    case PP_LR_CONSTANT:
        break;
    case PP_LR_LINEAR:
        return lr * (1 - done);
    case PP_LR_COSINE:
        return lr * 0.5 * (1 + cos(M_PI * done));
    }
    return lr;
}
