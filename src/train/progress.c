/* SPDX-License-Identifier: Apache-2.0 */
#include "progress.h"

#include <math.h>

#include "ppcli/nn/chunk.h"

#define PLATEAU_BETTER 1e-4 /* threshold, relative, of PyTorch's ReduceLROnPlateau */
#define PLATEAU_LEAST 1e-8  /* its eps: a smaller fall is none */

/* ---- metrics */

static double get_test_loss(const struct pp_epoch_result *e)
{
    return e->tested ? e->test_loss : NAN;
}

static double get_accuracy(const struct pp_epoch_result *e)
{
    return e->tested ? e->test_scores.of[PP_SCORE_ACCURACY] : NAN;
}

static double get_r2(const struct pp_epoch_result *e)
{
    return e->tested ? e->test_scores.of[PP_SCORE_R2] : NAN;
}

static double get_mae(const struct pp_epoch_result *e)
{
    return e->tested ? e->test_scores.of[PP_SCORE_MAE] : NAN;
}

static double get_rmse(const struct pp_epoch_result *e)
{
    return e->tested ? e->test_scores.of[PP_SCORE_RMSE] : NAN;
}

static double get_train_loss(const struct pp_epoch_result *e)
{
    return e->train_loss;
}

/* Every metric of checkpoint.best. get: its value, NaN if it was not measured. */
static const struct metric {
    const char *name;
    bool larger; /* larger values are better */
    double (*get)(const struct pp_epoch_result *e);
} metrics[] = {
    [PP_METRIC_TEST_LOSS] = {"test_loss", false, get_test_loss},
    [PP_METRIC_ACCURACY] = {"accuracy", true, get_accuracy},
    [PP_METRIC_TRAIN_LOSS] = {"train_loss", false, get_train_loss},
    [PP_METRIC_R2] = {"r2", true, get_r2},
    [PP_METRIC_MAE] = {"mae", false, get_mae},
    [PP_METRIC_RMSE] = {"rmse", false, get_rmse},
};

enum pp_metric progress_metric(const struct pp_config *cfg)
{
    return cfg->checkpoint.best != PP_METRIC_OFF ? cfg->checkpoint.best : PP_METRIC_TEST_LOSS;
}

const char *progress_metric_name(const struct pp_config *cfg)
{
    return metrics[progress_metric(cfg)].name;
}

double progress_value(const struct pp_config *cfg, const struct pp_epoch_result *e)
{
    return metrics[progress_metric(cfg)].get(e);
}

/* ---- decisions */

/* Returns whether `value` is better than `best` by more than `least`. */
static bool is_better(bool larger, double value, double best, double least)
{
    return larger ? value > best + least : value < best - least;
}

/* Returns whether `value` is better as PyTorch's ReduceLROnPlateau compares: threshold_mode =
 * rel. */
static bool is_better_for_plateau(bool larger, double value, double best)
{
    return larger ? value > best * (PLATEAU_BETTER + 1) : value < best * (1 - PLATEAU_BETTER);
}

static void count_test(struct progress_wait *w, bool better, double value)
{
    if (better || !w->any) {
        w->value = value;
        w->any = true;
        w->tests = 0;
    } else {
        w->tests++;
    }
}

/* Lowers the learning rate after more than lr_patience tests, if it is not at its floor. */
static bool lower_rate(const struct pp_config *cfg, struct progress *p)
{
    if (p->plateau.tests <= cfg->train.lr_patience)
        return false;
    double rate = pp_lr_after_falls(cfg, cfg->train.lr, p->falls);
    p->plateau.tests = 0;
    if (rate - pp_lr_after_falls(cfg, rate, 1) <= PLATEAU_LEAST)
        return false;
    p->falls++;
    return true;
}

bool progress_is_over(const struct pp_config *cfg, const struct progress *p)
{
    return cfg->train.patience > 0 && p->patience.tests >= cfg->train.patience;
}

struct progress_news progress_take(const struct pp_config *cfg, const struct pp_epoch_result *e,
                                   bool regular, struct progress *p)
{
    const struct metric *m = &metrics[progress_metric(cfg)];
    struct progress_news news = {false, false, false};
    double value = m->get(e);
    if (!isfinite(value))
        return news;
    if (p->best.step < 0 || is_better(m->larger, value, p->best.value, 0)) {
        p->best.value = value;
        p->best.step = e->t;
        p->best.epoch = e->epoch;
        news.best = true;
    }
    if (!regular)
        return news;
    count_test(&p->patience, is_better(m->larger, value, p->patience.value, cfg->train.min_delta),
               value);
    count_test(&p->plateau, is_better_for_plateau(m->larger, value, p->plateau.value), value);
    news.fell = cfg->train.lr_schedule == PP_LR_PLATEAU && lower_rate(cfg, p);
    news.over = progress_is_over(cfg, p);
    return news;
}

/* ---- the state of a checkpoint */

static bool is_used(const struct pp_config *cfg)
{
    return cfg->checkpoint.best != PP_METRIC_OFF || cfg->train.patience > 0 ||
           cfg->train.lr_schedule == PP_LR_PLATEAU;
}

static void save_wait(struct pp_ckpt_state *s, const char *name, const struct progress_wait *w)
{
    char key[32];
    if (!w->any)
        return;
    snprintf(key, sizeof(key), "%s.value", name);
    pp_ckpt_set(s, key, w->value);
    snprintf(key, sizeof(key), "%s.tests", name);
    pp_ckpt_set(s, key, (double)w->tests);
}

static void load_wait(const struct pp_ckpt_state *s, const char *name, struct progress_wait *w)
{
    char key[32];
    snprintf(key, sizeof(key), "%s.value", name);
    w->value = pp_ckpt_get(s, key, NAN);
    w->any = !isnan(w->value);
    snprintf(key, sizeof(key), "%s.tests", name);
    w->tests = (int64_t)pp_ckpt_get(s, key, 0);
}

void progress_save(const struct pp_config *cfg, const struct progress *p, struct pp_ckpt_state *s)
{
    if (!is_used(cfg))
        return;
    pp_ckpt_set(s, "progress.metric", progress_metric(cfg));
    pp_ckpt_set(s, "progress.falls", (double)p->falls);
    save_wait(s, "patience", &p->patience);
    save_wait(s, "plateau", &p->plateau);
    if (p->best.step < 0)
        return;
    pp_ckpt_set(s, "best.value", p->best.value);
    pp_ckpt_set(s, "best.step", (double)p->best.step);
    pp_ckpt_set(s, "best.epoch", (double)p->best.epoch);
}

void progress_load(const struct pp_config *cfg, const struct pp_ckpt_state *s, struct progress *p,
                   bool *out_reset)
{
    int metric = (int)pp_ckpt_get(s, "progress.metric", -1);
    bool reset = metric >= 0 && metric != (int)progress_metric(cfg);
    *p = (struct progress)PROGRESS_NONE;
    p->falls = (int64_t)pp_ckpt_get(s, "progress.falls", 0);
    if (out_reset)
        *out_reset = reset && is_used(cfg);
    if (reset)
        return;
    load_wait(s, "patience", &p->patience);
    load_wait(s, "plateau", &p->plateau);
    p->best.value = pp_ckpt_get(s, "best.value", 0);
    p->best.step = (int64_t)pp_ckpt_get(s, "best.step", -1);
    p->best.epoch = (int64_t)pp_ckpt_get(s, "best.epoch", 0);
}
