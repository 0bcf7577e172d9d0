/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts the position of a run to the state of a checkpoint and back. The state stores each
 * replica's sum of losses as its rank holds it, so the sum continues with the same bits.
 */
#include "resume_state.h"

#include <math.h>
#include <string.h>

#include "ppcli/data/dataset.h"

/* With more replicas than this, one number stores their sum; the loss that the epoch's line shows
 * after a resume may then differ in the last bits. */
#define REPLICAS_MAX 40

/* The sums of an epoch that depend on the order in which they are added up. */
static const struct {
    const char *name;
    size_t offset; /* in struct pp_loss_sums */
} parts[] = {{"epoch.loss", offsetof(struct pp_loss_sums, loss)},
             {"epoch.weight", offsetof(struct pp_loss_sums, weight)},
             {"epoch.squares", offsetof(struct pp_loss_sums, squares)},
             {"epoch.absolutes", offsetof(struct pp_loss_sums, absolutes)},
             {"epoch.sum", offsetof(struct pp_loss_sums, sum)},
             {"epoch.sum_squares", offsetof(struct pp_loss_sums, sum_squares)}};
#define PARTS (sizeof(parts) / sizeof(parts[0]))

static double *part_of_sums(struct pp_loss_sums *sums, size_t part)
{
    return (double *)(void *)((char *)sums + parts[part].offset);
}

/* Returns how many of the parts a run has: only the loss, if all targets count alike. */
static size_t parts_of_run(const struct pp_config *cfg)
{
    return pp_loss_takes_numbers(cfg->train.loss) ? PARTS : cfg->train.class_weights.n != 0 ? 2 : 1;
}

static const char *name_of_part(size_t part, int replica, char out[32])
{
    snprintf(out, 32, "%s.%d", parts[part].name, replica);
    return out;
}

/* Returns the sum with which the last rank of a replica continues the epoch. If the checkpoint's
 * run had another number of replicas, the first replica gets the whole sum. */
static double sum_so_far(const struct pp_ckpt_state *s, size_t part, int replica, int replicas)
{
    char name[32];
    double sum = 0, mine = 0, next;
    int n = 0;
    for (; !isnan(next = pp_ckpt_get(s, name_of_part(part, n, name), NAN)); n++) {
        sum += next;
        mine = n == replica ? next : mine;
    }
    return n == replicas ? mine : replica == 0 ? sum : 0;
}

static void set_parts(const struct trainer *tr, struct pp_ckpt_state *s)
{
    const struct pp_layout *l = tr->run->layout;
    struct pp_loss_sums sums[REPLICAS_MAX] = {{0}};
    char name[32];
    int n = l->replicas <= REPLICAS_MAX ? l->replicas : 1;
    for (int r = 0; r < l->ranks; r++)
        pp_loss_sums_add(&sums[n == 1 ? 0 : r / l->stages], &tr->all[r].epoch);
    for (int d = 0; d < n; d++)
        for (size_t part = 0; part < parts_of_run(tr->run->cfg); part++)
            pp_ckpt_set(s, name_of_part(part, d, name), *part_of_sums(&sums[d], part));
}

static void set_scores(struct pp_ckpt_state *s, const char *prefix, const struct pp_scores *scores)
{
    char name[32];
    for (int i = 0; i < PP_SCORES; i++) {
        snprintf(name, sizeof(name), "%s%s", prefix, pp_score_key((enum pp_score)i));
        if (isfinite(scores->of[i])) /* NaN: none was measured */
            pp_ckpt_set(s, name, scores->of[i]);
    }
}

static struct pp_scores get_scores(const struct pp_ckpt_state *s, const char *prefix)
{
    struct pp_scores scores;
    char name[32];
    for (int i = 0; i < PP_SCORES; i++) {
        snprintf(name, sizeof(name), "%s%s", prefix, pp_score_key((enum pp_score)i));
        scores.of[i] = pp_ckpt_get(s, name, NAN);
    }
    return scores;
}

const char *resume_crc_name(int split, int what, char out[32])
{
    snprintf(out, 32, "data.%s.%s", split == PP_SPLIT_TRAIN ? "train" : "test",
             what == 0 ? "images" : "labels");
    return out;
}

int resume_state(const struct trainer *tr, struct pp_ckpt_state *s)
{
    const struct pp_layout *l = tr->run->layout;
    char name[32];
    memset(s, 0, sizeof(*s));
    s->step = tr->t;
    s->epoch = tr->epoch_no;
    s->epoch_steps = tr->epoch_step;
    s->samples = tr->samples;
    s->seed = tr->run->cfg->train.seed;
    PP_TRY(pp_config_hash(tr->run->cfg, s->config_hash));
    snprintf(s->fingerprint, sizeof(s->fingerprint), "%s", tr->be->description);
    snprintf(s->ppcli, sizeof(s->ppcli), "%s", PP_VERSION);
    s->vocabulary = tr->vocabulary;
    s->preprocessing = tr->preprocessing;
    s->changes = tr->changes;
    set_parts(tr, s);
    pp_ckpt_set(s, "epoch.correct", (double)tr->epoch.sums.correct);
    pp_ckpt_set(s, "epoch.rows", (double)tr->epoch.sums.rows);
    pp_ckpt_set(s, "epoch.targets", (double)tr->epoch.sums.targets);
    pp_ckpt_set(s, "epoch.ns", (double)tr->epoch.window_ns);
    pp_ckpt_set(s, "epoch.busy", (double)tr->epoch.busy_ns / l->ranks);
    pp_ckpt_set(s, "train.ns", (double)tr->train_ns);
    pp_ckpt_set(s, "updates", (double)tr->updates);
    pp_ckpt_set(s, RESUME_SAMPLES, l->training.train_all);
    if (tr->begin.kept >= 0)
        pp_ckpt_set(s, RESUME_KEPT, (double)tr->begin.kept);
    if (tr->offset != 0)
        pp_ckpt_set(s, "step.offset", (double)tr->offset);
    pp_ckpt_set(s, "nonfinite.rewinds", (double)tr->nonfinite.rewinds);
    pp_ckpt_set(s, "nonfinite.in_a_row", (double)tr->nonfinite.in_a_row);
    pp_ckpt_set(s, "last.tested", tr->last.tested);
    pp_ckpt_set(s, "last.test_loss", tr->last.test_loss);
    set_scores(s, "last.test_", &tr->last.test_scores);
    if (isfinite(tr->last.train_loss)) { /* NaN if no target of the epoch counted */
        pp_ckpt_set(s, "last.train_loss", tr->last.train_loss);
        set_scores(s, "last.train_", &tr->last.train_scores);
    }
    progress_save(tr->run->cfg, &tr->progress, s);
    for (int split = 0; split < 2; split++)
        for (int what = 0; what < 2; what++)
            pp_ckpt_set(s, resume_crc_name(split, what, name), tr->data_crc[split][what]);
    return 0;
}

int64_t resume_updates(const struct pp_ckpt_state *s)
{
    return (int64_t)pp_ckpt_get(s, "updates", (double)s->step);
}

/* ---- the position in an epoch */

/* The checkpoint's position in steps of this run's batch size, or in samples if the batch size
 * differed. */
struct position {
    int64_t steps, step; /* steps of an epoch; steps done of it, -1: between two steps */
    int64_t samples;     /* samples done of it */
    int64_t steps_then;  /* steps of an epoch in the checkpoint's run */
};

static struct position find_position(const struct trainer *tr, const struct pp_ckpt *ck)
{
    const struct pp_config *cfg = tr->run->cfg;
    const struct pp_dataset_info *info = pp_dataset_info(cfg->data.dataset);
    const struct pp_ckpt_state *s = pp_ckpt_state(ck);
    int64_t n = tr->run->layout->train_n, batch = cfg->train.batch_size;
    int64_t then = resume_past(cfg, ck).batch;
    struct position p = {.steps = (n + batch - 1) / batch, .step = s->epoch_steps};
    /* an epoch of windows has a fixed number of steps, whatever the batch */
    bool counts_steps = info && info->windows && !info->pairs && cfg->data.train_samples == 0;
    int64_t all = tr->run->layout->training.train_all;
    int64_t n_then = cfg->data.drop_last && all > then ? all - all % then : all;
    p.steps_then = counts_steps ? p.steps : (n_then + then - 1) / then;
    if (then == batch || counts_steps)
        return p;
    p.samples = s->epoch_steps < p.steps_then ? s->epoch_steps * then : n;
    p.step = p.samples == n ? p.steps : p.samples % batch == 0 ? p.samples / batch : -1;
    return p;
}

int64_t resume_offset(const struct trainer *tr, const struct pp_ckpt *ck)
{
    const struct pp_ckpt_state *s = pp_ckpt_state(ck);
    struct position p = find_position(tr, ck);
    return s->step - ((s->epoch - 1) * p.steps + p.step);
}

void resume_take_state(struct trainer *tr, const struct pp_ckpt *ck)
{
    const struct pp_ckpt_state *s = pp_ckpt_state(ck);
    const struct pp_layout *l = tr->run->layout;
    tr->t = s->step;
    tr->epoch_no = (int)s->epoch;
    tr->epoch_step = (int)find_position(tr, ck).step;
    tr->offset = resume_offset(tr, ck);
    tr->samples = tr->before_samples = s->samples;
    tr->before_steps = s->step;
    tr->updates = resume_updates(s);
    tr->nonfinite.rewinds = (int64_t)pp_ckpt_get(s, "nonfinite.rewinds", 0);
    tr->nonfinite.in_a_row = (int64_t)pp_ckpt_get(s, "nonfinite.in_a_row", 0);
    bool reset;
    progress_load(tr->run->cfg, s, &tr->progress, &reset);
    if (reset && tr->spec->rank == 0)
        pp_log_info("the checkpoint's run had another metric in checkpoint.best: what is best, "
                    "and how long it has not improved, is counted from here on");
    double rows = pp_ckpt_get(s, "epoch.rows", 0);
    const struct pp_loss_sums counts = {.correct = (int64_t)pp_ckpt_get(s, "epoch.correct", 0),
                                        .rows = (int64_t)rows,
                                        .targets = (int64_t)pp_ckpt_get(s, "epoch.targets", rows)};
    int replica = tr->spec->rank / l->stages;
    if (l->rank_of[l->n_virtual - 1] == tr->spec->rank % l->stages) {
        for (size_t part = 0; part < PARTS; part++)
            *part_of_sums(&tr->so_far, part) = sum_so_far(s, part, replica, l->replicas);
        if (replica == 0) {
            pp_loss_sums_add(&tr->so_far, &counts);
            if (parts_of_run(tr->run->cfg) == 1)
                tr->so_far.weight = (double)counts.targets;
        }
    }
    tr->epoch.sums = counts;
    tr->epoch.window_ns = (uint64_t)pp_ckpt_get(s, "epoch.ns", 0);
    tr->epoch.busy_ns = (uint64_t)(pp_ckpt_get(s, "epoch.busy", 0) * l->ranks);
    tr->before_ns = (uint64_t)pp_ckpt_get(s, "train.ns", 0);
    tr->train_ns = tr->before_ns;
    tr->last = (struct pp_epoch_result){
        .tested = pp_ckpt_get(s, "last.tested", 0) != 0,
        .test_loss = pp_ckpt_get(s, "last.test_loss", 0),
        .test_scores = get_scores(s, "last.test_"),
        .train_loss = pp_ckpt_get(s, "last.train_loss", NAN),
        .train_scores = get_scores(s, "last.train_"),
    };
}

/* Checks that a number of the state, which will become a count, is from 0 to `most`. */
static int check_count(const struct pp_ckpt_state *s, const char *path, const char *name,
                       double most)
{
    double v = pp_ckpt_get(s, name, 0);
    if (v >= 0 && v <= most)
        return 0;
    return pp_fail(PP_EFORMAT, "%s: impossible value %s = %g", path, name, v);
}

/* Checks that the training data have not changed since the checkpoint was saved. The test data are
 * checked too if the config uses as many of them as the checkpoint's run did. */
static int check_data(const struct trainer *tr, const struct pp_ckpt *ck)
{
    bool other_test = resume_past(tr->run->cfg, ck).other_test;
    for (int split = 0; split < 2; split++) {
        for (int what = 0; what < 2; what++) {
            char name[32];
            double then = pp_ckpt_get(pp_ckpt_state(ck), resume_crc_name(split, what, name), 0);
            double now = tr->data_crc[split][what];
            bool compared = then > 0 && now > 0 && !(split == PP_SPLIT_TEST && other_test);
            if (compared && (then < now || then > now)) {
                return pp_fail(PP_EFORMAT,
                               "%s was trained on other data: the %s of data set '%s' have changed",
                               ck->path, name + 5, tr->run->cfg->data.dataset);
            }
        }
    }
    return 0;
}

int resume_check_state(const struct trainer *tr, const struct pp_ckpt *ck)
{
    const struct pp_ckpt_state *s = pp_ckpt_state(ck);
    const char *path = ck->path;
    struct position p = find_position(tr, ck);
    double offset = pp_ckpt_get(s, "step.offset", 0);
    if (s->epoch < 1 || s->epoch > INT32_MAX || s->epoch_steps < 0 ||
        s->epoch_steps > p.steps_then || !(offset > -0x1p53 && offset < 0x1p53) ||
        s->step != (s->epoch - 1) * p.steps_then + s->epoch_steps + (int64_t)offset) {
        return pp_fail(
            PP_EFORMAT,
            "%s: the state file claims that step %lld is step %lld of epoch %lld, which has "
            "%lld steps here",
            path, (long long)s->step, (long long)s->epoch_steps, (long long)s->epoch,
            (long long)p.steps_then);
    }
    if (p.step < 0) {
        return pp_fail(
            PP_ECONFIG,
            "%s is %lld samples into epoch %lld, where no batch of train.batch_size = "
            "%d begins; use a size that divides %lld, or resume from the end of an epoch",
            path, (long long)p.samples, (long long)s->epoch, tr->run->cfg->train.batch_size,
            (long long)p.samples);
    }
    static const char *const counts[] = {"epoch.correct",     "epoch.rows",        "epoch.targets",
                                         "epoch.ns",          "epoch.busy",        "train.ns",
                                         "nonfinite.rewinds", "nonfinite.in_a_row"};
    PP_TRY(check_count(s, path, RESUME_KEPT, 0x1p53));
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        PP_TRY(check_count(s, path, counts[i], 0x1p53));
    PP_TRY(check_count(s, path, "progress.falls", 1e6));
    PP_TRY(check_count(s, path, "patience.tests", 0x1p53));
    PP_TRY(check_count(s, path, "plateau.tests", 0x1p53));
    PP_TRY(check_count(s, path, "best.step", (double)s->step));
    PP_TRY(check_count(s, path, "best.epoch", (double)s->epoch));
    if (pp_ckpt_get(s, "updates", 0) < 0 ||
        pp_ckpt_get(s, "updates", (double)s->step) > (double)s->step) {
        return pp_fail(PP_EFORMAT, "%s: impossible: %g updates in %lld steps", path,
                       pp_ckpt_get(s, "updates", 0), (long long)s->step);
    }
    return check_data(tr, ck);
}
