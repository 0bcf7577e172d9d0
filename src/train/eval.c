/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the weights of a checkpoint on the test set, without training and without a run folder. */
#include "ppcli/train/train.h"

#include <math.h>

#include "ppcli/base/base.h"
#include "ppcli/base/files.h"
#include "ppcli/data/preprocessing.h"

/* Adds up the test sums of all ranks. Collective. */
static int add_test_sums(const struct pp_worker *w, struct pp_loss_sums *out)
{
    int ranks = w->run->layout->ranks;
    struct pp_exec_counters c = {0};
    PP_TAKE(struct pp_loss_sums, all, ranks);
    PP_TRY(pp_exec_take_counters(w->x, &c));
    PP_TRY(c.refused ? pp_error_adopt(c.refused) : 0);
    PP_TRY(pp_transport_allgather(w->tp, &c.test, sizeof(c.test), all));
    *out = (struct pp_loss_sums){0};
    for (int r = 0; r < ranks; r++)
        pp_loss_sums_add(out, &all[r]);
    return 0;
}

/* ---- predictions */

#define STEP_BYTES                                                                                 \
    ((size_t)64 << 20) /* most bytes for the logits of a step, unless a single sample
                                         needs more */

/* The file of predictions, which rank 0 writes batch by batch. */
struct predictions {
    struct pp_dataset *ds;
    struct pp_file_write file;
    uint32_t *tokens; /* [positions + apart] tokens of one sample of a text */
    float *logits;    /* [rows of a share][positions][classes] of one step; on other ranks too */
    uint32_t next;    /* the next sample */
};

static void predictions_fini(struct predictions *p)
{
    pp_dataset_destroy(&p->ds);
    pp_file_abandon(&p->file);
    pp_free(p->tokens);
    pp_free(p->logits);
}

/* Returns how many samples a step has for replica d. */
static int rows_of_share(const struct pp_worker *w, int d, int step)
{
    const struct pp_layout *l = w->run->layout;
    struct pp_loader shape;
    PP_TRY(pp_loader_shape(l->test_n, w->run->cfg->train.batch_size, l->replicas, d,
                           w->run->cfg->pipeline.microbatches, &shape));
    return pp_loader_share_rows(&shape, step);
}

static int open_predictions(const struct pp_worker *w, const char *path, struct predictions *p)
{
    const struct pp_model *m = w->run->model;
    int rows = rows_of_share(w, 0, 0); /* replica 0 has the largest share */
    PP_TRY(rows);
    PP_ALLOC(p->logits, (size_t)rows * (size_t)m->outputs);
    if (w->rank != 0)
        return 0;
    PP_TRY(pp_dataset_open(w->run->cfg, PP_SPLIT_TEST, PP_DATA_LABELS, &m->values[0], m->classes,
                           &p->ds));
    PP_ALLOC(p->tokens, (size_t)pp_model_targets(m) + (size_t)p->ds->apart);
    PP_TRY(pp_file_create(path, &p->file));
    bool numbers = pp_loss_takes_numbers(w->run->cfg->train.loss);
    fputs(numbers ? "" : "label,prediction", p->file.f);
    for (int c = 0; c < m->classes; c++)
        if (numbers)
            fprintf(p->file.f, "%starget%d,output%d", c > 0 ? "," : "", c, c);
        else
            fprintf(p->file.f, ",logit%d", c);
    fputc('\n', p->file.f);
    return 0;
}

static void write_row(FILE *f, int label, const float *logits, int classes)
{
    int best = 0;
    for (int c = 1; c < classes; c++)
        best = logits[c] > logits[best] ? c : best;
    fprintf(f, "%d,%d", label, best);
    for (int c = 0; c < classes; c++)
        fprintf(f, ",%.9g", (double)logits[c]);
    fputc('\n', f);
}

/* Writes the targets and outputs of a sample, as the model has them. */
static void write_numbers(FILE *f, const struct pp_dataset *ds, size_t sample, const float *outputs)
{
    const float *targets = (const float *)ds->targets + sample * (size_t)ds->targets_each;
    for (int k = 0; k < ds->targets_each; k++)
        fprintf(f, "%s%.9g,%.9g", k > 0 ? "," : "", (double)targets[k], (double)outputs[k]);
    fputc('\n', f);
}

static int write_samples(const struct pp_worker *w, struct predictions *p, int rows)
{
    const struct pp_model *m = w->run->model;
    size_t positions = (size_t)pp_model_targets(m);
    for (int r = 0; r < rows; r++, p->next++) {
        if (p->ds->target_element == PP_F32) {
            write_numbers(p->file.f, p->ds, p->next, p->logits + (size_t)r * (size_t)m->outputs);
            continue;
        }
        if (p->ds->windows)
            PP_TRY(pp_dataset_windows(p->ds, 1, &p->next, m->classes, p->tokens));
        for (size_t k = 0; k < positions; k++) {
            write_row(p->file.f,
                      p->ds->windows ? (int)p->tokens[k + (size_t)p->ds->apart]
                                     : (int)pp_dataset_label(p->ds, p->next),
                      p->logits + ((size_t)r * positions + k) * (size_t)m->classes, m->classes);
        }
    }
    return ferror(p->file.f) ? pp_fail_errno(PP_EIO, "cannot write %s", p->file.to.path) : 0;
}

/* Collects on rank 0 the logits of a step, which the last stage of each replica has, and writes
 * them. Pairwise. */
static int collect_step(const struct pp_worker *w, int step, struct predictions *p)
{
    const struct pp_layout *l = w->run->layout;
    size_t bytes = (size_t)w->run->model->outputs * sizeof(*p->logits);
    PP_TRY(pp_exec_finish(w->x));
    for (int d = 0; d < l->replicas; d++) {
        int from = d * l->stages + l->rank_of[l->n_virtual - 1], rows = rows_of_share(w, d, step);
        PP_TRY(rows);
        if (from != 0 && w->rank == from)
            PP_TRY(pp_transport_send(w->tp, 0, p->logits, (size_t)rows * bytes));
        else if (from != 0 && w->rank == 0)
            PP_TRY(pp_transport_recv(w->tp, from, p->logits, (size_t)rows * bytes));
        if (w->rank == 0)
            PP_TRY(write_samples(w, p, rows));
    }
    return 0;
}

/* Chooses a batch size for which the logits of a step fit into STEP_BYTES. This changes no result,
 * because a sample's values do not depend on its batch. */
static int shrink_batch(struct pp_config *cfg)
{
    struct pp_run run;
    PP_TRY(pp_run_prepare(cfg, PP_RUN_EXPLAIN, &run));
    size_t each = (size_t)run.model->outputs * sizeof(float);
    size_t rows = STEP_BYTES / each * (size_t)run.layout->replicas;
    int least = run.layout->replicas;
    pp_run_fini(&run);
    if (rows >= (size_t)cfg->train.batch_size)
        return 0;
    char batch[16];
    snprintf(batch, sizeof(batch), "%d", rows > (size_t)least ? (int)rows : least);
    return pp_config_choose(cfg, "train.batch_size", batch);
}

/* ---- the test */

static int run_test(struct pp_worker *w, const char *path, struct pp_loss_sums *out)
{
    PP_OWN(predictions_fini) struct predictions p = {.file.to.fd = -1};
    PP_TRY(path ? open_predictions(w, path, &p) : 0);
    pp_exec_keep_logits(w->x, p.logits);
    int rc = 0;
    for (int step = 0; rc == 0 && step < pp_exec_test_steps(w->x); step++) {
        rc = pp_exec_test_step(w->x, step);
        rc = rc == 0 && path ? collect_step(w, step, &p) : rc;
    }
    pp_exec_keep_logits(w->x, NULL);
    PP_TRY(rc);
    PP_TRY(add_test_sums(w, out));
    return p.file.f ? pp_file_commit(&p.file) : 0;
}

/* Sets *out to the unit of errors. Local. */
static int find_unit(const struct pp_worker *w, double *out)
{
    PP_OWN_MEMORY char *text = NULL;
    PP_TRY(pp_dataset_preprocessing(w->run->cfg, NULL, &text));
    return pp_preprocessing_unit(text, out);
}

static int evaluate_rank(struct pp_worker *w, void *ctx)
{
    struct pp_evaluation *out = ctx, e = {.samples = w->run->layout->test_n,
                                          .targets = pp_model_text_targets(w->run->model)};
    struct pp_loss_sums test = {0};
    if (e.samples == 0) {
        return pp_fail(PP_ECONFIG,
                       "no test samples: data set '%s' has none here (data.test_samples; of a text "
                       "data.validation or data.test_file)",
                       w->run->cfg->data.dataset);
    }
    int rc = run_test(w, out->predictions, &test);
    if (rc < 0) {
        w->failed_alone = true;
        return rc;
    }
    if (!isfinite(test.loss)) {
        char why[512];
        bool all;
        rc = pp_exec_test_tell(w->x, test.loss, why, sizeof(why), &all);
        w->failed_alone = rc < 0;
        return rc < 0 ? rc : pp_fail(PP_EDIVERGED, "%s: %s", w->from, why);
    }
    if (test.targets == 0)
        return pp_fail(PP_EFORMAT,
                       "there is nothing to test: every target of data set '%s' is the "
                       "token that data.ignored_token leaves out",
                       w->run->cfg->data.dataset);
    e.loss = pp_loss_sums_loss(&test);
    double unit = 1;
    PP_TRY(w->rank == 0 ? find_unit(w, &unit) : 0);
    e.scores = pp_scores_of(&test, unit);
    PP_TRY(pp_exec_weights_sha256(w->x, e.weights_sha256));
    if (w->rank == 0) {
        snprintf(e.from, sizeof(e.from), "%s", w->from);
        e.predictions = out->predictions;
        *out = e;
    }
    return 0;
}

int pp_evaluate(struct pp_config *cfg, const struct pp_train_options *options, const char *weights,
                struct pp_evaluation *out, bool *speaks)
{
    struct pp_train_options with = *options;
    PP_TRY(out->predictions ? shrink_batch(cfg) : 0);
    with.work = evaluate_rank;
    with.work_ctx = out;
    with.weights = weights;
    return pp_train(cfg, &with, speaks);
}
