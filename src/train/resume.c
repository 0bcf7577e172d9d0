/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Continues a run from a checkpoint: finds it, checks that it fits, removes from the run folder
 * what an interrupted run left after it, and reads the tensors.
 */
#include "resume.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "ppcli/base/base.h"
#include "ppcli/data/preprocessing.h"
#include "ppcli/data/tokenizer.h"
#include "resume_state.h"
#include "ppcli/ckpt/checkpoint.h"

#define SUMMARY_BYTES (8 << 20)

/* ---- which folder */

static int is_same_folder(const char *a, const char *b, bool *out)
{
    struct stat x, y;
    PP_TRY(pp_path_stat(a, true, &x));
    PP_TRY(pp_path_stat(b, true, &y));
    *out = x.st_mode != 0 && y.st_mode != 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    return 0;
}

/* Sets *out to whether the path is a run folder or a folder of checkpoints and has at least one
 * checkpoint. */
static int has_checkpoints(const char *path, bool *out)
{
    PP_OWN_MEMORY int64_t *steps = NULL;
    int n = 0;
    PP_TRY(pp_ckpt_list(path, &steps, &n));
    *out = n > 0;
    return 0;
}

/* ---- checks */

struct target {
    struct pp_exec *x;
    struct pp_exec_tensor t;
};

static int put_tensor(void *ctx, size_t first, const float *values, size_t n)
{
    const struct target *to = ctx;
    return pp_exec_tensor_put(to->x, &to->t, first, values, n);
}

static int read_saved_tensor(const struct pp_ckpt *ck, enum pp_exec_kind kind,
                             const struct pp_param *p, struct target *to)
{
    const struct pp_exec_tensor t = {.kind = kind, .param = p};
    char name[PP_ST_NAME_MAX + 1];
    saver_tensor_name(&t, name);
    return pp_weights_read(ck, name, p, to ? put_tensor : NULL, to);
}

/* Checks that the checkpoint has every tensor that the ranks will read, and with the right
 * shape. */
static int check_tensors(const struct trainer *tr, const struct pp_ckpt *ck)
{
    const struct pp_model *m = tr->run->model;
    int optimizer = tr->run->cfg->train.optimizer;
    for (int i = 0; i < m->n_params; i++)
        for (int kind = 0; kind <= pp_param_moments(&m->params[i], optimizer); kind++)
            PP_TRY(read_saved_tensor(ck, (enum pp_exec_kind)kind, &m->params[i], NULL));
    return 0;
}

static int check_checkpoint(struct trainer *tr, const struct pp_ckpt *ck)
{
    const struct pp_ckpt_state *s = pp_ckpt_state(ck);
    if (!s) {
        char word[2 * PP_PATH_MAX];
        return pp_fail(PP_EFORMAT,
                       "%s holds tensors, but not the state of a run: to begin with these weights, "
                       "use --set train.init=%s in place of --resume",
                       ck->path, pp_text_shell(ck->path, word, sizeof(word)));
    }
    PP_TRY(resume_check_config(tr, ck));
    size_t n = strlen(tr->be->description); /* older versions also named the threads */
    if (strncmp(s->fingerprint, tr->be->description, n) != 0 ||
        (s->fingerprint[n] != '\0' && s->fingerprint[n] != ',')) {
        pp_log_warn("%s was made with '%s', this is '%s': the last bits may differ", ck->path,
                    s->fingerprint, tr->be->description);
    }
    PP_TRY(resume_check_state(tr, ck));
    tr->offset = resume_offset(tr, ck);
    return check_tensors(tr, ck);
}

/* ---- the beginning */

static int open_named(const struct pp_config *cfg, const char *path, struct pp_ckpt **out)
{
    bool fall_back = cfg->checkpoint.on_corrupt == PP_CORRUPT_PREVIOUS, any = false;
    PP_TRY(has_checkpoints(path, &any));
    return any ? pp_ckpt_open_latest(path, PP_CKPT_VERIFY, fall_back, out)
               : pp_ckpt_open(path, PP_CKPT_VERIFY, out);
}

/* Takes the run folder back to the step of the checkpoint: removes later records and newer
 * checkpoints. */
static int rewind_folder(const struct trainer *tr, const struct beginning *b)
{
    char checkpoints[PP_PATH_MAX], own[PP_PATH_MAX];
    PP_OWN(pp_file_abandon) struct pp_file_write metrics = {.f = NULL};
    bool same = false;
    PP_TRY(pp_path_format(checkpoints, "%s/" PP_CKPT_DIR, b->dir));
    PP_TRY(pp_ckpt_step_path(checkpoints, b->step, own));
    PP_TRY(is_same_folder(own, b->from, &same));
    PP_TRY(pp_metrics_cut(b->dir, b->step, &metrics));
    PP_TRY(pp_ckpt_drop_newer(&pp_io_system, checkpoints, b->step));
    if (same) /* else the checkpoint may be a leftover itself */
        PP_TRY(pp_ckpt_sweep(&pp_io_system, checkpoints, tr->lock.since_ns));
    return metrics.f ? pp_file_commit(&metrics) : 0;
}

int resume_take_folder(struct trainer *tr)
{
    const struct beginning *b = &tr->begin;
    if (tr->spec->rank != 0 || !b->dir[0])
        return 0;
    PP_TRY(b->goes_on ? rewind_folder(tr, b) : 0);
    PP_TRY(pp_run_dir_begin(tr->run->cfg, b->dir, b->goes_on, &tr->lock));
    if (tr->run->cfg->checkpoint.best != PP_METRIC_OFF)
        saver_mark_best(tr);
    return 0;
}

/* Sets *out to whether the run in the folder is complete and the config asks for no further
 * step. */
static int is_complete(const struct trainer *tr, const struct pp_ckpt_state *s,
                       const struct beginning *b, bool *out)
{
    char summary[PP_PATH_MAX];
    struct stat st;
    struct progress p;
    progress_load(tr->run->cfg, s, &p, NULL);
    PP_TRY(pp_path_format(summary, "%s/summary.json", b->dir));
    PP_TRY(pp_path_stat(summary, true, &st));
    bool over = progress_is_over(tr->run->cfg, &p);
    *out = (over || b->step >= loop_total_steps(tr)) && st.st_mode != 0;
    if (*out && over)
        pp_log_info("train.patience = %d has ended this run; use a larger one to continue",
                    tr->run->cfg->train.patience);
    return 0;
}

/* Compares the digest in the summary of a complete run with that of --expect. */
static int check_finished_run(const struct trainer *tr, const struct beginning *b)
{
    char path[PP_PATH_MAX];
    PP_OWN_MEMORY char *text = NULL;
    size_t bytes = 0;
    json_t *summary = NULL;
    if (!tr->spec->options->expect)
        return 0;
    PP_TRY(pp_path_format(path, "%s/summary.json", b->dir));
    PP_TRY(pp_file_read(path, SUMMARY_BYTES, &text, &bytes));
    PP_TRY(pp_json_load(text, bytes, 0, NULL, &summary));
    const char *sha = json_string_value(json_object_get(summary, "weights_sha256"));
    int rc = sha ? finish_check(tr, sha) : pp_fail(PP_EFORMAT, "%s has no weights_sha256", path);
    json_decref(summary);
    return rc;
}

/* Protects checkpoints that were saved under a larger checkpoint.keep from being removed, unless
 * the user gave --overwrite. b->kept becomes the last step that is protected, or -1. */
static int keep_older(const struct trainer *tr, const struct pp_ckpt *ck, struct beginning *b)
{
    int keep = tr->run->cfg->checkpoint.keep, n = 0, newer = 0;
    PP_OWN_MEMORY int64_t *steps = NULL;
    char then[32] = "";
    b->kept = -1;
    if (tr->spec->options->overwrite)
        return 0;
    b->kept = (int64_t)pp_ckpt_get(pp_ckpt_state(ck), RESUME_KEPT, -1);
    pp_config_written(ck->config, "checkpoint.keep", then, sizeof(then));
    PP_TRY(pp_ckpt_list(b->dir, &steps, &n));
    while (newer < n && steps[newer] > b->step)
        newer++;
    if (atoi(then) <= keep || n - newer <= keep)
        return 0;
    b->kept = b->step;
    pp_log_warn(
        "checkpoint.keep is %d, was %s: %d earlier checkpoints are kept, and the newest %d; to "
        "remove the older ones add --overwrite",
        keep, then, n - newer, keep);
    return 0;
}

/* Decides that the run continues from the checkpoint at `path`, and prepares the run folder.
 * Everything is read and checked before anything in the folder changes. */
static int take_checkpoint(struct trainer *tr, const char *path, struct beginning *b)
{
    PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = NULL;
    if (b->goes_on)
        PP_TRY(pp_lock_take(b->dir, &tr->lock));
    PP_TRY(open_named(tr->run->cfg, path, &ck));
    PP_TRY(check_checkpoint(tr, ck));
    PP_TRY(pp_path_format(b->from, "%s", ck->path));
    b->step = pp_ckpt_state(ck)->step;
    b->resume = true;
    PP_TRY(b->goes_on ? is_complete(tr, pp_ckpt_state(ck), b, &b->nothing_left) : 0);
    if (b->nothing_left) {
        pp_log_info("step %" PRId64 " of %" PRId64
                    " is done: there is nothing left to train, and %s stays as it is",
                    b->step, loop_total_steps(tr), b->dir);
        return check_finished_run(tr, b);
    }
    if (b->goes_on) {
        PP_TRY(keep_older(tr, ck, b));
        PP_TRY(pp_run_dir_empty_rings(b->dir));
    } else {
        PP_TRY(pp_run_dir_create(tr->run->cfg, tr->spec->options->name,
                                 tr->spec->options->overwrite, &tr->lock, b->dir));
    }
    pp_log_info("continuing after step %" PRId64 ", from %s", b->step, b->from);
    return 0;
}

int resume_newest(const struct trainer *tr, enum pp_ckpt_check check, char out[PP_PATH_MAX])
{
    PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = NULL;
    char dir[PP_PATH_MAX];
    bool any = false;
    out[0] = '\0';
    if (strcmp(tr->run->cfg->run.dir, "auto") == 0)
        PP_TRY(pp_run_dir_newest(tr->spec->options->name, dir));
    else
        PP_TRY(pp_path_format(dir, "%s", tr->run->cfg->run.dir));
    if (dir[0])
        PP_TRY(has_checkpoints(dir, &any));
    int rc = any ? pp_ckpt_open_latest(dir, check, true, &ck) : 0;
    if (rc == PP_EFORMAT || rc == PP_ENOINPUT) { /* another host may have a good one */
        pp_error_clear();
        return 0;
    }
    PP_TRY(rc);
    return ck ? pp_path_format(out, "%s", ck->path) : 0;
}

/* Logs that the run begins at step 0. Warns if the folder has had a run, because its checkpoints
 * are gone. *out_was_run is whether the folder has the config of a run. */
static int announce_step_0(const char *dir, const char *name, bool *out_was_run)
{
    char path[PP_PATH_MAX];
    struct stat config, metrics;
    PP_TRY(pp_path_format(path, "%s/" PP_RUN_DIR_CONFIG, dir));
    PP_TRY(pp_path_stat(path, true, &config));
    PP_TRY(pp_path_format(path, "%s/metrics.jsonl", dir));
    PP_TRY(pp_path_stat(path, true, &metrics));
    *out_was_run = S_ISREG(config.st_mode);
    if (strcmp(dir, "auto") == 0)
        pp_log_info("--resume: no run of %s in runs/ has a checkpoint; beginning at step 0", name);
    else if (metrics.st_mode == 0)
        pp_log_info("--resume: no checkpoint in %s; beginning at step 0", dir);
    else
        pp_log_warn("--resume: no checkpoint in %s, where a run has been; beginning at step 0",
                    dir);
    return 0;
}

static int begin_from_newest(struct trainer *tr, struct beginning *b)
{
    const struct pp_config *cfg = tr->run->cfg;
    const struct pp_train_options *options = tr->spec->options;
    char dir[PP_PATH_MAX];
    if (cfg->run.dir[0] == '\0') {
        return pp_fail(PP_EUSAGE, "--resume looks for a checkpoint in the run folder, but run.dir "
                                  "is empty; use --resume PATH");
    }
    bool any = false, was_run = false;
    if (strcmp(cfg->run.dir, "auto") == 0) {
        PP_TRY(pp_run_dir_newest(options->name, dir));
        any = dir[0] != '\0';
    } else {
        PP_TRY(pp_path_format(dir, "%s", cfg->run.dir));
        PP_TRY(has_checkpoints(dir, &any));
    }
    if (any) {
        PP_TRY(pp_path_format(b->dir, "%s", dir));
        b->goes_on = true;
        return take_checkpoint(tr, dir, b);
    }
    PP_TRY(announce_step_0(cfg->run.dir, options->name, &was_run));
    return pp_run_dir_create(cfg, options->name, options->overwrite || was_run, &tr->lock, b->dir);
}

static int begin_from_start(struct trainer *tr, struct beginning *b)
{
    const struct pp_config *cfg = tr->run->cfg;
    const struct pp_train_options *options = tr->spec->options;
    return options->work
               ? 0
               : pp_run_dir_create(cfg, options->name, options->overwrite, &tr->lock, b->dir);
}

int resume_find_weights(const char *path, char out[PP_PATH_MAX])
{
    PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = NULL;
    bool any = false;
    if (path[0])
        PP_TRY(has_checkpoints(path, &any));
    if (!any)
        return pp_path_format(out, "%s", path);
    PP_TRY(pp_ckpt_open_latest(path, PP_CKPT_STRUCTURE, true, &ck));
    return pp_path_format(out, "%s", ck->path);
}

int resume_begin(struct trainer *tr, struct beginning *b)
{
    const struct pp_config *cfg = tr->run->cfg;
    const char *word = tr->spec->options->resume;
    memset(b, 0, sizeof(*b));
    b->kept = -1;
    if (word && strcmp(word, "auto") != 0) {
        PP_TRY(pp_run_dir_of(word, b->dir));
        b->goes_on = b->dir[0] && strcmp(cfg->run.dir, "auto") == 0;
        if (b->dir[0] && !b->goes_on)
            PP_TRY(is_same_folder(cfg->run.dir, b->dir, &b->goes_on));
        return take_checkpoint(tr, word, b);
    }
    PP_TRY(word ? begin_from_newest(tr, b) : begin_from_start(tr, b));
    const char *init = tr->spec->options->weights ? tr->spec->options->weights : cfg->train.init;
    return b->resume ? 0 : resume_find_weights(init, b->from);
}

/* ---- tensors */

/* Reads this rank's parameters and, if `all`, the optimizer state from the checkpoint. With new_head
 * a last layer that does not fit keeps its initial values. */
static int read_tensors(struct trainer *tr, const struct pp_ckpt *ck, bool all, bool new_head)
{
    const struct pp_model *m = tr->run->model;
    for (int i = 0; i < pp_exec_tensor_count(tr->x); i++) {
        struct target to = {.x = tr->x};
        pp_exec_tensor(tr->x, i, &to.t);
        bool lacks = new_head && pp_weights_lack(m, ck, (int)(to.t.param - m->params));
        if ((to.t.kind == PP_EXEC_PARAM || all) && !lacks)
            PP_TRY(read_saved_tensor(ck, to.t.kind, to.t.param, &to));
    }
    return pp_exec_tensors_changed(tr->x);
}

int resume_read(struct trainer *tr)
{
    PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = NULL;
    if (tr->begin.from[0] == '\0')
        return 0;
    PP_TRY(pp_ckpt_open(tr->begin.from, PP_CKPT_STRUCTURE, &ck));
    const struct pp_ckpt_state *s = pp_ckpt_state(ck);
    bool first = !tr->begin.resume && tr->spec->rank == 0;
    bool new_head = !tr->begin.resume && !tr->spec->options->weights; /* train.init */
    PP_TRY(first ? pp_weights_check_extras(tr->run->model, ck, new_head) : 0);
    PP_TRY(pp_vocabulary_check(tr->run->cfg, ck->path, ck->plain, s ? s->vocabulary : NULL,
                               tr->vocabulary, tr->kinds));
    if (s && (tr->begin.resume || tr->spec->options->weights))
        PP_TRY(pp_preprocessing_check(ck->path, s->preprocessing, tr->preprocessing));
    PP_TRY(read_tensors(tr, ck, tr->begin.resume, new_head));
    if (first) {
        PP_TRY(
            pp_weights_check_model(tr->run->cfg, tr->run->model, ck, !tr->spec->options->weights));
        pp_weights_announce(tr->run->model, ck, new_head);
    }
    if (!tr->begin.resume)
        return 0;
    /* Rank 0 may have checked another file, on its own host. */
    PP_TRY(s ? resume_check_state(tr, ck) : pp_fail(PP_EFORMAT, "%s: has no state", ck->path));
    resume_take_state(tr, ck);
    tr->saved = tr->begin.goes_on ? s->step : -1;
    return 0;
}

/* ---- rewinding during a run */

/* The checkpoint to return to; plain data, of rank 0. */
struct back {
    char from[PP_PATH_MAX];
    int64_t step;
};

static int find_rewind(const struct trainer *tr, struct back *b)
{
    char dir[PP_PATH_MAX];
    PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = NULL;
    bool fall_back = tr->run->cfg->checkpoint.on_corrupt == PP_CORRUPT_PREVIOUS;
    PP_TRY(pp_path_format(dir, "%s/" PP_CKPT_DIR, tr->dir));
    PP_TRY(pp_ckpt_open_latest(dir, PP_CKPT_VERIFY, fall_back, &ck));
    b->step = pp_ckpt_state(ck)->step;
    return pp_path_format(b->from, "%s", ck->path);
}

static int read_rewind(struct trainer *tr, const struct back *b)
{
    PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = NULL;
    PP_TRY(pp_ckpt_open(b->from, PP_CKPT_STRUCTURE, &ck));
    PP_TRY(read_tensors(tr, ck, true, false));
    const struct pp_ckpt_state *s = pp_ckpt_state(ck);
    if (!s || s->step != b->step)
        return pp_fail(PP_EFORMAT, "%s: not the checkpoint that rank 0 found", b->from);
    tr->updates = resume_updates(s);
    return 0;
}

int resume_rewind(struct trainer *tr, int64_t *out_step)
{
    struct back b;
    memset(&b, 0, sizeof(b));
    int rc = tr->spec->rank == 0 ? find_rewind(tr, &b) : 0;
    PP_TRY(pp_transport_from_first(tr->tp, rc, &b, sizeof(b)));
    PP_TRY(copies_give(tr, b.from, -1));
    PP_TRY(pp_transport_agree(tr->tp, read_rewind(tr, &b)));
    *out_step = b.step;
    return 0;
}
