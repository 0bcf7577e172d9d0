/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Describes the learning rates of a run before its first step: at its beginning, middle and end;
 * and remarks on settings that have no effect in a run of this length, or leave steps with a rate
 * of 0.
 */
#include "ppcli/nn/chunk.h"

#include <float.h>

#include "ppcli/base/base.h"

#define HARDLY 0.99 /* above this fraction of the highest rate, the rate has hardly fallen */

struct review {
    const struct pp_config *cfg;
    struct pp_lr_span span;
    struct pp_lr_remarks *out;
    bool by_epoch;
    int64_t unit, run, fall, warmup; /* steps per unit; units of the run, of the fall, of the
                                        warm-up */
    const char *units;               /* "steps", "epochs" */
};

__attribute__((format(printf, 2, 3))) static void add_remark(struct review *r, const char *fmt, ...)
{
    va_list args;
    pp_assert(r->out->n < PP_LR_REMARKS_MAX);
    va_start(args, fmt);
    vsnprintf(r->out->text[r->out->n++], PP_LR_REMARK_BYTES, fmt, args);
    va_end(args);
}

static const char *schedule_name(const struct pp_config *cfg)
{
    static const char *const names[] = {
        [PP_LR_CONSTANT] = "constant",   [PP_LR_LINEAR] = "linear", [PP_LR_COSINE] = "cosine",
        [PP_LR_MULTISTEP] = "multistep", [PP_LR_WSD] = "wsd",       [PP_LR_PLATEAU] = "plateau"};
    return names[cfg->train.lr_schedule];
}

static double rate_at(const struct review *r, int64_t step)
{
    return pp_lr_at(r->cfg, step, r->span.total, r->span.epoch_steps);
}

/* Returns whether a learning rate counts as 0: the optimizer computes in float, and processors
 * flush numbers below FLT_MIN to 0. */
static bool is_zero(double rate)
{
    return rate < (double)FLT_MIN;
}

static void review_warmup(struct review *r)
{
    const char *key = r->cfg->train.warmup_steps > 0 ? "warmup_steps" : "warmup_epochs";
    bool falls = r->cfg->train.lr_schedule != PP_LR_CONSTANT;
    long long warmup = r->warmup;
    if (r->warmup == 1 && !r->by_epoch) {
        add_remark(r,
                   "train.%s = 1 has no effect: the first step has the whole learning rate; use 2 "
                   "or more, or 0",
                   key);
    } else if (r->warmup > 0 && r->warmup >= r->run) {
        add_remark(r,
                   "train.%s: the whole run (%lld %s) lies in the warm-up of %lld, so the "
                   "learning rate only rises, to %.4g%s%s%s; use a shorter warm-up or a longer run",
                   key, (long long)r->run, r->units, warmup, rate_at(r, r->span.total),
                   falls ? ", and lr_schedule = " : "", falls ? schedule_name(r->cfg) : "",
                   falls ? " has no effect" : "");
    }
}

/* Adds remarks about a linear or cosine schedule whose fall does not fit the length of the run. */
static void review_fall(struct review *r)
{
    const char *name = schedule_name(r->cfg);
    long long length = r->cfg->train.lr_steps;
    int64_t after = r->fall * r->unit + 1; /* the first step with the least rate */
    double top = rate_at(r, r->warmup * r->unit + 1), last = rate_at(r, r->span.total);
    if (r->run <= r->warmup)
        return; /* review_warmup() has reported it */
    if (r->fall <= r->warmup) {
        add_remark(r,
                   "train.lr_steps = %lld ends within the warm-up of %lld %s, so lr_schedule = %s "
                   "has no effect: the learning rate stays %.4g; use 0, for the whole run, or more "
                   "than the warm-up",
                   length, (long long)r->warmup, r->units, name, top);
    } else if (r->fall < r->run && is_zero(last)) {
        int64_t first = after > r->span.done + 1 ? after : r->span.done + 1;
        add_remark(
            r,
            "train.lr_steps = %lld is shorter than the run of %lld steps: the learning rate "
            "is 0 in steps %lld to %lld, which learn nothing; use 0, for the whole run, or a "
            "shorter run",
            length, (long long)r->span.total, (long long)first, (long long)r->span.total);
    } else if (r->by_epoch && r->run == r->warmup + 1) {
        add_remark(r,
                   "lr_schedule = %s has no effect: with lr_by = epoch the learning rate changes "
                   "between epochs, and the run has only one%s; use train.lr_by = step",
                   name, r->warmup > 0 ? " after the warm-up" : "");
    } else if (length > 0 && last > HARDLY * top && r->run > 1) {
        add_remark(r,
                   "train.lr_steps = %lld is so much longer than the run of %lld steps that "
                   "lr_schedule = %s has hardly any effect: the learning rate falls from %.4g to "
                   "%.4g; use 0, for the whole run",
                   length, (long long)r->span.total, name, top, last);
    }
}

/* Adds a remark about lr_schedule = wsd whose fall does not fit the run. */
static void review_decay(struct review *r)
{
    int64_t decay = (r->cfg->train.decay_steps + r->unit - 1) / r->unit;
    int64_t stable = r->fall - r->warmup - decay;
    if (r->run > r->warmup && stable < 0)
        add_remark(r,
                   "train.decay_steps = %lld: with the warm-up that is more than the %lld steps of "
                   "the schedule, so no part of it is stable; use less, or lr_schedule = linear",
                   (long long)r->cfg->train.decay_steps, (long long)r->fall * r->unit);
}

static void review_milestones(struct review *r)
{
    const struct pp_numbers *m = &r->cfg->train.lr_milestones;
    int64_t last = m->at[m->n - 1], run = r->run, epoch = r->span.epoch_steps;
    int reached = 0;
    if (r->run <= r->warmup)
        return;
    while (reached < m->n && m->at[reached] < run)
        reached++;
    if (reached < m->n) {
        bool as_steps = r->by_epoch && last < r->span.total;
        add_remark(r,
                   "train.lr_milestones: %lld is not before the end of the run (%lld %s), so %s%s",
                   (long long)m->at[reached], (long long)run, r->units,
                   reached > 0 ? "it has no effect; leave it out, or make the run longer"
                               : "lr_schedule = multistep has no effect; use smaller ones",
                   as_steps ? ", or lr_by = step if they count steps" : "");
    } else if (!r->by_epoch && epoch > last && r->span.total / epoch >= last) {
        add_remark(r,
                   "train.lr_milestones: with lr_by = step they count steps, so all of them lie "
                   "in the first epoch of %lld; if they count epochs, use lr_by = epoch",
                   (long long)epoch);
    }
    if (m->at[0] <= r->warmup && reached > 0) {
        add_remark(r,
                   "train.lr_milestones: %lld lies in the warm-up of %lld %s, so the learning rate "
                   "rises to %.4g and then is %.4g at once; use later ones, or a shorter warm-up",
                   (long long)m->at[0], (long long)r->warmup, r->units,
                   rate_at(r, r->warmup * r->unit), rate_at(r, r->warmup * r->unit + 1));
    }
    if (r->cfg->train.lr_gamma >= 1)
        add_remark(r, "train.lr_gamma = 1: lr_schedule = multistep changes nothing; use less");
}

static void review_zeros(struct review *r)
{
    bool steps_down = r->cfg->train.lr_schedule == PP_LR_MULTISTEP;
    double last = rate_at(r, r->span.total);
    if (is_zero(r->cfg->train.lr)) {
        add_remark(r, "train.lr = %.4g: no step learns anything; use a larger one",
                   r->cfg->train.lr);
    } else if (steps_down && is_zero(last)) {
        add_remark(r,
                   "train.lr_gamma: the learning rate of the last step is %.4g, which is 0 for a "
                   "float: such steps learn nothing; use a larger lr_gamma or fewer lr_milestones",
                   last);
    }
    if (r->span.all_steps < r->cfg->train.max_steps) {
        add_remark(r,
                   "train.max_steps = %lld has no effect: train.epochs = %d ends the run after "
                   "%lld steps; use more epochs",
                   (long long)r->cfg->train.max_steps, r->cfg->train.epochs,
                   (long long)r->span.all_steps);
    }
}

/* Writes the first, middle and last learning rate of the run: "learning rate: 0.001 at step 1, 0.1
 * at step 500, 1e-05 at step 1000". */
static void print_rates(const struct review *r)
{
    char *text = r->out->rates;
    int64_t first = r->span.done + 1, last = r->span.total, at[3] = {first, 0, last};
    at[1] = first + (last - first) / 2;
    if (!pp_lr_changes(r->cfg)) {
        snprintf(text, PP_LR_REMARK_BYTES, "learning rate: %.4g in every step", r->cfg->train.lr);
        return;
    }
    snprintf(text, PP_LR_REMARK_BYTES,
             r->cfg->train.lr_schedule == PP_LR_PLATEAU ? "learning rate, if it does not fall: "
                                                        : "learning rate: ");
    for (int i = 0; i < 3; i++) {
        if (i == 0 || at[i] > at[i - 1])
            pp_text_add(text, PP_LR_REMARK_BYTES, "%s%.4g at step %lld", i > 0 ? ", " : "",
                        rate_at(r, at[i]), (long long)at[i]);
    }
}

bool pp_lr_changes(const struct pp_config *cfg)
{
    return cfg->train.lr_schedule != PP_LR_CONSTANT || cfg->train.lr_steps > 0 ||
           cfg->train.warmup_steps > 0 || cfg->train.warmup_epochs > 0;
}

void pp_lr_remark(const struct pp_config *cfg, const struct pp_lr_span *span,
                  struct pp_lr_remarks *out)
{
    bool by_epoch = cfg->train.lr_by == PP_LR_BY_EPOCH;
    int64_t unit = by_epoch ? span->epoch_steps : 1;
    int64_t fall = cfg->train.lr_steps > 0 ? cfg->train.lr_steps : span->total;
    struct review r = {.cfg = cfg,
                       .span = *span,
                       .out = out,
                       .by_epoch = by_epoch,
                       .unit = unit,
                       .run = (span->total + unit - 1) / unit,
                       .fall = (fall + unit - 1) / unit,
                       .warmup = cfg->train.warmup_steps +
                                 cfg->train.warmup_epochs * (span->epoch_steps / unit),
                       .units = by_epoch ? "epochs" : "steps"};
    r.units = r.run == 1 ? by_epoch ? "epoch" : "step" : r.units;
    *out = (struct pp_lr_remarks){0};
    if (span->done >= span->total)
        return;
    print_rates(&r);
    review_warmup(&r);
    if (cfg->train.lr_schedule == PP_LR_LINEAR || cfg->train.lr_schedule == PP_LR_COSINE)
        review_fall(&r);
    if (cfg->train.lr_schedule == PP_LR_WSD)
        review_decay(&r);
    if (cfg->train.lr_schedule == PP_LR_MULTISTEP && cfg->train.lr_milestones.n > 0)
        review_milestones(&r);
    review_zeros(&r);
}
