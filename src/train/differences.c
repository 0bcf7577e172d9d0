/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the config of a run that continues with that of its checkpoint: which differences change
 * no bit, which ones --allow names, and which ones are rejected.
 */
#include "resume_state.h"

#include <stdlib.h>
#include <string.h>

#include "ppcli/data/dataset.h"
#include "ppcli/base/base.h"
#include "ppcli/conf/config.h"
#include "ppcli/ckpt/checkpoint.h"

struct differences {
    const struct trainer *tr;
    const struct pp_ckpt_state *s;
    const char *allow;
    char refused[1024], same[1024], keys[512]; /* keys: of `refused`, for --allow */
    bool never, model;                         /* a refused key cannot be allowed; a refused key is
                                                  of [model] */
    bool length;                               /* the length of the run differs */
    int replicas;                              /* replicas of the checkpoint if the run has another
                                                  number; else 0 */
    FILE *changes;
};

/* Returns whether the run trains on the same bytes, and as many samples, as the run of the
 * checkpoint. */
static bool is_same_data(const struct trainer *tr, const struct pp_ckpt_state *s)
{
    const struct pp_dataset_info *info = pp_dataset_info(tr->run->cfg->data.dataset);
    double samples = pp_ckpt_get(s, RESUME_SAMPLES, -1);
    if (!info || info->windows || (int64_t)samples != tr->run->layout->training.train_all)
        return false;
    for (int what = 0; what < 2; what++) {
        char name[32];
        double then = pp_ckpt_get(s, resume_crc_name(PP_SPLIT_TRAIN, what, name), 0);
        if (then <= 0 || then != tr->data_crc[PP_SPLIT_TRAIN][what])
            return false;
    }
    return true;
}

static int moments_of_optimizer(const char *optimizer)
{
    int k = 0;
    while (k < PP_OPTIMIZERS - 1 && strcmp(optimizer, pp_optimizer_name(k)) != 0)
        k++;
    return pp_optimizer_moments(k);
}

/* Returns whether the checkpoint has the moments that the new optimizer needs. Returns true for
 * keys other than train.optimizer. */
static bool has_moments(const char *key, const char *there, const char *here)
{
    int muon = strcmp(there, "muon") == 0; /* of its matrices, which have one moment */
    return strcmp(key, "train.optimizer") != 0 ||
           moments_of_optimizer(there) - muon >= moments_of_optimizer(here);
}

/* Returns whether another value of this key changes no bit of the weights. */
static bool keeps_bits(const struct differences *d, const char *key)
{
    static const char names[] = "data.dataset data.label data.shape data.train_samples";
    return pp_run_keeps_bits(d->tr->run, key) ||
           (pp_has_word(names, key) && is_same_data(d->tr, d->s));
}

static void note_difference(void *ctx, const char *key, const char *there, const char *here)
{
    struct differences *d = ctx;
    bool may = pp_config_may_allow(key) && has_moments(key, there, here);
    if (strcmp(key, "train.epochs") == 0 || strcmp(key, "train.max_steps") == 0) {
        d->length = true;
    } else if (strcmp(key, "pipeline.replicas") == 0) {
        d->replicas = atoi(there);
    } else if (keeps_bits(d, key)) {
        pp_weights_difference(d->same, sizeof(d->same), key, there, here);
    } else if (may && pp_config_allows(d->allow, key)) {
        fprintf(d->changes, "%lld\t%s\t%s\t%s\n", (long long)d->s->step, key,
                there[0] ? there : "empty", here[0] ? here : "empty");
    } else {
        pp_weights_difference(d->refused, sizeof(d->refused), key, there, here);
        pp_text_add(d->keys, sizeof(d->keys), "%s%s", d->keys[0] ? "," : "", key);
        d->never |= !may;
        d->model |= strncmp(key, "model.", 6) == 0;
    }
}

static int refuse_differences(const struct differences *d, const struct pp_ckpt *ck)
{
    const char *path = ck->path;
    char own[PP_CKPT_OWN_CONFIG];
    static const char text[] =
        "cannot continue from %s, which was made with other settings: %s%s. %s%s%s%s";
    const char *allow = d->allow ? d->allow : "";
    pp_ckpt_own_config(ck, own);
    if (!d->never) {
        return pp_fail(PP_ECONFIG, text, path, d->refused, own,
                       "Give these values again, or change them from here on with --allow ", allow,
                       allow[0] ? "," : "", d->keys);
    }
    return pp_fail(PP_ECONFIG, text, path, d->refused, own,
                   d->model ? "Give these values again, or begin another run: --dir with another "
                              "folder in place of --resume"
                            : "To begin a new run with its weights: --set train.init=",
                   d->model ? "" : path, d->model ? "" : " and another --dir in place of --resume",
                   "");
}

static void print_change(void *ctx, const struct pp_change *c)
{
    (void)ctx;
    pp_log_info("after step %lld %s is %s, was %s", c->step, c->key, c->is, c->was);
}

static void warn_of_differences(const struct differences *d, const char *path)
{
    const struct pp_config *cfg = d->tr->run->cfg;
    bool falls = cfg->train.lr_schedule == PP_LR_LINEAR || cfg->train.lr_schedule == PP_LR_COSINE ||
                 cfg->train.lr_schedule == PP_LR_WSD;
    if (d->same[0])
        pp_log_info("other settings, same bits: %s", d->same);
    if (d->length && falls && cfg->train.lr_steps == 0) {
        long long steps = loop_total_steps(d->tr);
        pp_log_warn(
            "the learning-rate schedule now spans %lld steps, so the result differs from a fresh "
            "%lld-step run; to avoid this: "
            "train.lr_schedule = constant, or set train.lr_steps",
            steps, steps);
    }
    if (d->replicas > 0) {
        pp_log_warn(
            "%s has %d replicas, but this run has %d, which add up a batch in another order: "
            "from here on the bits are those of %d%s",
            path, d->replicas, cfg->pipeline.replicas, cfg->pipeline.replicas,
            pp_model_mixes_samples(d->tr->run->model)
                ? "; and other samples share a micro-batch, which batch norm or attention "
                  "takes together: what is computed changes too, not only its last bits"
                : "");
    }
}

int resume_check_config(struct trainer *tr, const struct pp_ckpt *ck)
{
    const struct pp_ckpt_state *s = pp_ckpt_state(ck);
    struct differences d = {.tr = tr, .s = s, .allow = tr->spec->options->allow};
    char *changes = NULL;
    size_t bytes = 0;
    d.changes = open_memstream(&changes, &bytes);
    if (!d.changes)
        return pp_fail(PP_ERESOURCE, "%s: out of memory", ck->path);
    size_t before = s->changes ? strlen(s->changes) : 0;
    fputs(before > 0 ? s->changes : "", d.changes);
    int rc = pp_config_compare(tr->run->cfg, ck->config, note_difference, &d);
    PP_TRY(pp_text_close(d.changes, &changes, ck->path));
    rc = rc == 0 && d.refused[0] ? refuse_differences(&d, ck) : rc;
    if (rc == 0 && changes[0]) {
        tr->changes = pp_strdup(changes);
        rc = tr->changes ? 0 : PP_ERESOURCE;
    }
    free(changes);
    PP_TRY(rc);
    warn_of_differences(&d, ck->path);
    return tr->changes ? pp_changes_visit(tr->changes + before, print_change, NULL) : 0;
}

/* ---- values that every rank needs */

struct resume_past resume_past(const struct pp_config *cfg, const struct pp_ckpt *ck)
{
    char batch[32], tests[32];
    pp_config_written(ck->config, "train.batch_size", batch, sizeof(batch));
    pp_config_written(ck->config, "data.test_samples", tests, sizeof(tests));
    return (struct resume_past){.batch = atoll(batch),
                                .other_test = atoll(tests) != cfg->data.test_samples};
}
