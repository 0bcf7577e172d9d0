/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a run gave other bits when it was trained again. What is known of both runs is compared in
 * the order in which it decides: files, config, data, products, build, processor.
 */
#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "ppcli/dev/backend.h"
#include "ppcli/pipe/layout.h"
#include "reproduce.h"

#define OWN_PRODUCTS "cpu: own products ("

/* Returns whether a description of a backend, or a choice, is of ppcli's own products, which have
 * the same bits on every processor. */
static bool is_own(const char *backend)
{
    return strncmp(backend, OWN_PRODUCTS, strlen(OWN_PRODUCTS)) == 0;
}

int pp_original_check(const struct pp_original *o, const struct pp_config *cfg)
{
    const char *then = report_text(o->report->header, "backend");
    const struct pp_backend_choice now = pp_backend_choice_of(cfg);
    if (!then[0] || is_own(then) == pp_backend_sums_in_order(&now))
        return 0;
    return pp_fail(PP_ECONFIG,
                   "%s was computed by '%s', whose sums are in another order than those of "
                   "run.backend = %s here: bits cannot be compared; use the backend it had, or "
                   "train a new run on this one",
                   o->report->name, then, now.ops ? now.ops->name : "auto");
}

/* ---- files */

/* Finds whether the files of the checkpoint that differs are what was written. */
static bool find_damage(const struct pp_original *o, const struct reproduce_result *r, char *out)
{
    PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = NULL;
    char path[PP_PATH_MAX];
    if (r->save_step < 0 || pp_ckpt_step_path(o->report->dir, r->save_step, path) < 0)
        return false;
    if (pp_ckpt_open(path, PP_CKPT_VERIFY, &ck) == PP_EFORMAT) {
        snprintf(out, REPRODUCE_TEXT, "the checkpoint was changed after it was written: %.400s",
                 pp_error_get()->text);
        pp_error_clear();
        return true;
    }
    pp_error_clear();
    if (!r->later)
        return false;
    snprintf(out, REPRODUCE_TEXT,
             "the checkpoint was changed after it was written: what the run computed after it is "
             "equal");
    return true;
}

/* ---- data */

static const char *const data_names[4] = {"train images", "train labels", "test images",
                                          "test labels"};
static const char *const header_names[4] = {"train_images_crc32", "train_labels_crc32",
                                            "test_images_crc32", "test_labels_crc32"};

/* Compares the digests of the data in both headers; those of an older run are in its checkpoints. Training data explain everything, test data only
 * the losses of tests. */
static bool find_data(const struct pp_original *o, const struct reproduce_result *r, char *out)
{
    for (int i = 0; i < (r->only_tests ? 4 : 2); i++) {
        double then = report_number(o->report->header, header_names[i]);
        then = isnan(then) && o->data_crc[i] > 0 ? o->data_crc[i] : then;
        double now = report_number(r->again->header, header_names[i]);
        if (isnan(then) || isnan(now) || !(then < now || then > now))
            continue;
        snprintf(out, REPRODUCE_TEXT, "other data: the CRC-32 of the %s was %08lx, is %08lx",
                 data_names[i], (unsigned long)then, (unsigned long)now);
        return true;
    }
    double then = report_number(o->report->header, "train_samples");
    double now = report_number(r->again->header, "train_samples");
    if (isnan(then) || !(then < now || then > now))
        return false;
    snprintf(out, REPRODUCE_TEXT, "other data: there were %.0f training samples, there are %.0f",
             then, now);
    return true;
}

/* ---- config */

struct keys {
    const struct pp_run *run;
    const struct pp_config *cfg;
    char *out;
};

static void note_key(void *ctx, const char *key, const char *there, const char *here)
{
    const struct keys *k = ctx;
    bool length = strcmp(key, "train.epochs") == 0 || strcmp(key, "train.max_steps") == 0;
    bool falls = k->cfg->train.lr_schedule != PP_LR_CONSTANT && k->cfg->train.lr_steps == 0;
    if ((length && !falls) || pp_run_keeps_bits(k->run, key))
        return;
    if (!k->out[0])
        pp_text_add(k->out, REPRODUCE_TEXT, "another config: ");
    else
        pp_text_add(k->out, REPRODUCE_TEXT, ", ");
    pp_text_add(k->out, REPRODUCE_TEXT, "%s was %s, is %s", key, there[0] ? there : "empty",
                here[0] ? here : "empty");
}

/* Compares the config with that of the run and with that of its newest checkpoint. */
static int find_config(const struct pp_original *o, struct pp_config *cfg, char *out)
{
    PP_OWN(pp_run_fini) struct pp_run run = {0};
    PP_TRY(pp_run_prepare(cfg, PP_RUN_EXPLAIN, &run));
    struct keys k = {&run, cfg, out};
    if (o->report->config)
        PP_TRY(pp_config_compare(cfg, o->report->config, note_key, &k));
    if (!out[0] && o->config)
        PP_TRY(pp_config_compare(cfg, o->config, note_key, &k));
    if (out[0] || o->config || o->changes || json_array_size(o->report->events) > 0)
        return 0;
    char hash[PP_SHA256_HEX];
    const char *then = report_text(o->report->header, "config_hash");
    PP_TRY(pp_config_hash(cfg, hash));
    if (then[0] && strcmp(then, hash) != 0)
        snprintf(out, REPRODUCE_TEXT,
                 "another config: " PP_RUN_DIR_CONFIG " is not what the run had: its hash was "
                 "%.12s, is %.12s",
                 then, hash);
    return 0;
}

/* ---- build and machine */

static bool find_other_text(const struct pp_original *o, const struct reproduce_result *r,
                            const char *key, const char *what, char *out)
{
    const char *then = report_text(o->report->header, key),
               *now = report_text(r->again->header, key);
    if (!then[0] || strcmp(then, now) == 0)
        return false;
    snprintf(out, REPRODUCE_TEXT, "%s: was '%.200s', is '%.200s'", what, then, now);
    return true;
}

int reproduce_cause(const struct pp_original *o, struct pp_config *cfg,
                    const struct reproduce_result *r, char out[REPRODUCE_TEXT])
{
    const char *then = report_text(o->report->header, "backend");
    const char *now = report_text(r->again->header, "backend");
    bool at_once = r->equal < 0 && cfg->train.init[0];
    out[0] = '\0';
    if (find_damage(o, r, out))
        return 0;
    PP_TRY(find_config(o, cfg, out));
    if (out[0] || find_data(o, r, out))
        return 0;
    if ((!is_own(then) || !is_own(now)) &&
        find_other_text(o, r, "backend", "another backend, whose sums may be in another order",
                        out))
        return 0;
    if (find_other_text(o, r, "ppcli", "another version", out) ||
        find_other_text(o, r, "build", "another build", out) ||
        find_other_text(o, r, "backend",
                        "other instructions of the processor, which should not matter", out))
        return 0;
    if (at_once)
        snprintf(out, REPRODUCE_TEXT, "train.init = %.600s has other weights now", cfg->train.init);
    else
        snprintf(out, REPRODUCE_TEXT,
                 "data, config and build are the same, so suspect memory or processor, there or "
                 "here: run it again, and elsewhere");
    return 0;
}
