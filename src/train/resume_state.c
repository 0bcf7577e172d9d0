/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts the position of a run to the state of a checkpoint and back. Each replica's sum of
 * losses is stored as its rank holds it, so the sum continues with the same bits.
 */
#include "resume_state.h"

#include <string.h>

/* More replicas than these share one number: their sum, and the last bits of the loss that the
 * epoch's line shows after a resume. */
#define REPLICAS_MAX 40

static const char *loss_name(int replica, char out[32])
{
    snprintf(out, 32, "epoch.loss.%d", replica);
    return out;
}

/* What the last rank of a replica continues with. Of another number of replicas the first has all. */
static double loss_so_far(const struct pp_ckpt_state *s, int replica, int replicas)
{
    char name[32];
    double sum = 0, mine = 0, next;
    int n = 0;
    for (; (next = pp_ckpt_get(s, loss_name(n, name), -1)) != -1; n++) {
        sum += next;
        mine = n == replica ? next : mine;
    }
    return n == replicas ? mine : replica == 0 ? sum : 0;
}

static const char *crc_name(int split, int what, char out[32])
{
    snprintf(out, 32, "data.%s.%s", split == PP_SPLIT_TRAIN ? "train" : "test",
             what == 0 ? "images" : "labels");
    return out;
}

void resume_state(const struct trainer *tr, struct pp_ckpt_state *s)
{
    const struct pp_layout *l = tr->run->layout;
    char name[32];
    memset(s, 0, sizeof(*s));
    s->step = tr->t;
    s->epoch = tr->epoch_no;
    s->epoch_steps = tr->epoch_step;
    s->samples = tr->samples;
    s->seed = tr->run->cfg->train.seed;
    pp_config_hash(tr->run->cfg, s->config_hash);
    snprintf(s->fingerprint, sizeof(s->fingerprint), "%s", tr->be->description);
    snprintf(s->ppcli, sizeof(s->ppcli), "%s", PP_VERSION);
    s->vocabulary = tr->vocabulary;
    double loss[REPLICAS_MAX] = {0};
    int n = l->replicas <= REPLICAS_MAX ? l->replicas : 1;
    for (int r = 0; r < l->ranks; r++)
        loss[n == 1 ? 0 : r / l->stages] += tr->all[r].epoch.loss;
    for (int d = 0; d < n; d++)
        pp_ckpt_set(s, loss_name(d, name), loss[d]);
    pp_ckpt_set(s, "epoch.correct", (double)tr->epoch.sums.correct);
    pp_ckpt_set(s, "epoch.rows", (double)tr->epoch.sums.rows);
    pp_ckpt_set(s, "epoch.targets", (double)tr->epoch.sums.targets);
    pp_ckpt_set(s, "epoch.ns", (double)tr->epoch.window_ns);
    pp_ckpt_set(s, "epoch.busy", (double)tr->epoch.busy_ns / l->ranks);
    pp_ckpt_set(s, "train.ns", (double)tr->train_ns);
    pp_ckpt_set(s, "updates", (double)tr->updates);
    pp_ckpt_set(s, "nonfinite.rewinds", (double)tr->nonfinite.rewinds);
    pp_ckpt_set(s, "nonfinite.in_a_row", (double)tr->nonfinite.in_a_row);
    pp_ckpt_set(s, "last.tested", tr->last.tested);
    pp_ckpt_set(s, "last.test_loss", tr->last.test_loss);
    pp_ckpt_set(s, "last.test_accuracy", tr->last.test_accuracy);
    pp_ckpt_set(s, "last.train_loss", tr->last.train_loss);
    pp_ckpt_set(s, "last.train_accuracy", tr->last.train_accuracy);
    for (int split = 0; split < 2; split++)
        for (int what = 0; what < 2; what++)
            pp_ckpt_set(s, crc_name(split, what, name), tr->data_crc[split][what]);
}

int64_t resume_updates(const struct pp_ckpt_state *s)
{
    return (int64_t)pp_ckpt_get(s, "updates", (double)s->step);
}

void resume_take_state(struct trainer *tr, const struct pp_ckpt_state *s)
{
    const struct pp_layout *l = tr->run->layout;
    tr->t = s->step;
    tr->epoch_no = (int)s->epoch;
    tr->epoch_step = (int)s->epoch_steps;
    tr->samples = tr->before_samples = s->samples;
    tr->before_steps = s->step;
    tr->updates = resume_updates(s);
    tr->nonfinite.rewinds = (int64_t)pp_ckpt_get(s, "nonfinite.rewinds", 0);
    tr->nonfinite.in_a_row = (int64_t)pp_ckpt_get(s, "nonfinite.in_a_row", 0);
    double rows = pp_ckpt_get(s, "epoch.rows", 0);
    const struct pp_loss_sums counts = {.correct = (int64_t)pp_ckpt_get(s, "epoch.correct", 0),
                                        .rows = (int64_t)rows,
                                        .targets = (int64_t)pp_ckpt_get(s, "epoch.targets", rows)};
    int replica = tr->spec->rank / l->stages;
    if (l->rank_of[l->n_virtual - 1] == tr->spec->rank % l->stages) {
        tr->so_far.loss = loss_so_far(s, replica, l->replicas);
        if (replica == 0)
            pp_loss_sums_add(&tr->so_far, &counts);
    }
    tr->epoch.sums = counts;
    tr->epoch.window_ns = (uint64_t)pp_ckpt_get(s, "epoch.ns", 0);
    tr->epoch.busy_ns = (uint64_t)(pp_ckpt_get(s, "epoch.busy", 0) * l->ranks);
    tr->before_ns = (uint64_t)pp_ckpt_get(s, "train.ns", 0);
    tr->train_ns = tr->before_ns;
    tr->last = (struct pp_epoch_result){
        .tested = pp_ckpt_get(s, "last.tested", 0) != 0,
        .test_loss = pp_ckpt_get(s, "last.test_loss", 0),
        .test_accuracy = pp_ckpt_get(s, "last.test_accuracy", 0),
        .train_loss = pp_ckpt_get(s, "last.train_loss", 0),
        .train_accuracy = pp_ckpt_get(s, "last.train_accuracy", 0),
    };
}

/* A number that another process wrote and that is to become a count. */
static int check_count(const struct pp_ckpt_state *s, const char *path, const char *name,
                       double most)
{
    double v = pp_ckpt_get(s, name, 0);
    if (v >= 0 && v <= most)
        return 0;
    return pp_fail(PP_EFORMAT, "%s: %s = %g cannot be", path, name, v);
}

int resume_check_state(const struct trainer *tr, const struct pp_ckpt_state *s, const char *path)
{
    const struct pp_config *cfg = tr->run->cfg;
    int64_t batch = cfg->train.batch_size;
    int64_t steps = (tr->run->layout->train_n + batch - 1) / batch;
    if (s->epoch < 1 || s->epoch > INT32_MAX || s->epoch_steps < 0 || s->epoch_steps > steps ||
        s->step != (s->epoch - 1) * steps + s->epoch_steps) {
        return pp_fail(PP_EFORMAT,
                       "%s: step %lld is said to be step %lld of epoch %lld, which has %lld steps "
                       "here",
                       path, (long long)s->step, (long long)s->epoch_steps, (long long)s->epoch,
                       (long long)steps);
    }
    static const char *const counts[] = {"epoch.correct",     "epoch.rows",        "epoch.targets",
                                         "epoch.ns",          "epoch.busy",        "train.ns",
                                         "nonfinite.rewinds", "nonfinite.in_a_row"};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        PP_TRY(check_count(s, path, counts[i], 0x1p53));
    if (pp_ckpt_get(s, "updates", 0) < 0 ||
        pp_ckpt_get(s, "updates", (double)s->step) > (double)s->step) {
        return pp_fail(PP_EFORMAT, "%s: %g updates in %lld steps cannot be", path,
                       pp_ckpt_get(s, "updates", 0), (long long)s->step);
    }
    for (int split = 0; split < 2; split++) {
        for (int what = 0; what < 2; what++) {
            char name[32];
            double then = pp_ckpt_get(s, crc_name(split, what, name), 0);
            if (then != 0 && tr->data_crc[split][what] != 0 && then != tr->data_crc[split][what]) {
                return pp_fail(PP_EFORMAT,
                               "%s was trained on other data: the %s of data set '%s' have changed",
                               path, name + 5, cfg->data.dataset);
            }
        }
    }
    return 0;
}
