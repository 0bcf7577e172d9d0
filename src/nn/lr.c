/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the learning rate, and the arguments of loss and optimizer of a step: a pure function of the config and the
 * step. */
#include "ppcli/nn/chunk.h"

#include <math.h>

/* Returns which part of the fall of lr_schedule = wsd is left. Numbers of steps are in units. */
static double decay_left(const struct pp_config *cfg, int64_t now, int64_t total, int64_t unit)
{
    int64_t decay = (cfg->train.decay_steps + unit - 1) / unit, before = total - decay;
    double done = now - 1 <= before ? 0 : fmin(1, (double)(now - 1 - before) / (double)decay);
    return 1 - (cfg->train.decay_shape == PP_DECAY_SQRT ? sqrt(done) : done);
}

double pp_lr_after_falls(const struct pp_config *cfg, double lr, int64_t falls)
{
    for (int64_t i = 0; i < falls; i++)
        lr = fmin(lr, fmax(lr * cfg->train.lr_gamma, cfg->train.lr_floor));
    return lr;
}

double pp_lr_at(const struct pp_config *cfg, int64_t step, int64_t total_steps, int64_t epoch_steps)
{
    double lr = cfg->train.lr, floor = cfg->train.lr_floor;
    const struct pp_numbers *milestones = &cfg->train.lr_milestones;
    bool by_epoch = cfg->train.lr_by == PP_LR_BY_EPOCH;
    int64_t unit = by_epoch ? epoch_steps : 1; /* steps per unit: 1, or those of an epoch */
    int64_t now = (step + unit - 1) / unit;    /* 1, 2, ... */
    int64_t total = cfg->train.lr_steps > 0 ? cfg->train.lr_steps : total_steps;
    total = (total + unit - 1) / unit;
    int64_t warmup = cfg->train.warmup_steps + cfg->train.warmup_epochs * (epoch_steps / unit);
    if (now <= warmup)
        return lr * (double)now / (double)(warmup + by_epoch);
    /* The fraction of the fall that is done: 0 in the first step after the warm-up, and still below
     * 1 in the last, which should learn something too. */
    double done = 0;
    if (total > warmup)
        done = fmin(1, (double)(now - 1 - warmup) / (double)(total - warmup));
    switch (cfg->train.lr_schedule) {
    case PP_LR_CONSTANT:
    case PP_LR_PLATEAU: /* falls by results, see pp_lr_after_falls() */
        break;
    case PP_LR_LINEAR:
        return floor + (lr - floor) * (1 - done);
    case PP_LR_COSINE:
        return floor + (lr - floor) * 0.5 * (1 + cos(M_PI * done));
    case PP_LR_WSD:
        return floor + (lr - floor) * decay_left(cfg, now, total, unit);
    case PP_LR_MULTISTEP:
        for (int i = 0; i < milestones->n && milestones->at[i] < now; i++)
            lr *= cfg->train.lr_gamma;
        break;
    }
    return lr;
}

float pp_loss_grad_scale(const struct pp_config *cfg, int64_t batch, int64_t mb)
{
    bool sum = cfg->train.microbatch_loss == PP_LOSS_SUM;
    return (float)(1.0 / (sum ? (double)mb * cfg->pipeline.replicas : (double)batch));
}

struct pp_optimizer_args pp_optimizer_args_of(const struct pp_config *cfg, double lr,
                                              int64_t number)
{
    return (struct pp_optimizer_args){
        .kind = cfg->train.optimizer,
        .lr = (float)lr,
        .momentum = (float)cfg->train.momentum,
        .beta1 = (float)cfg->train.beta1,
        .beta2 = (float)cfg->train.beta2,
        .eps = (float)cfg->train.eps,
        .weight_decay = (float)cfg->train.weight_decay,
        .grad_scale = 1.0f,
        .step = number,
        .nesterov = cfg->train.nesterov,
    };
}
