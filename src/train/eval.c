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

/* What rank 0 makes of the outputs, batch by batch: the outcome, and the file of predictions. */
struct predictions {
    const struct pp_dataset *ds; /* that of the rank, or `own` */
    struct pp_dataset *own;
    struct pp_outcome *outcome; /* NULL: a text */
    struct pp_file_write file;
    uint32_t *tokens; /* [positions + apart] tokens of one sample of a text */
    float *logits;    /* [rows of a share][positions][classes] of one step; on other ranks too */
    double *p;        /* [classes] probabilities */
    uint32_t next;    /* the next sample */
};

static void predictions_fini(struct predictions *p)
{
    pp_dataset_destroy(&p->own);
    pp_outcome_destroy(&p->outcome);
    pp_file_abandon(&p->file);
    pp_free(p->tokens);
    pp_free(p->logits);
    pp_free(p->p);
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

/* Returns whether the classes of samples are counted. Of a text, each token is one, and only the
 * file of predictions has them. */
static bool counts_outcome(const struct pp_model *m)
{
    return pp_model_text_targets(m) == 0;
}

/* ---- the file */

static void write_target_titles(FILE *f, int c, const char *name, enum pp_loss_kind kind)
{
    fputs(c > 0 ? "," : "", f);
    pp_text_csv("", name, f);
    fputc(',', f);
    pp_text_csv("predicted ", name, f);
    if (kind == PP_LOSS_BCE) {
        fputc(',', f);
        pp_text_csv("probability ", name, f);
    }
}

static void write_titles(const struct predictions *p, const struct pp_model *m,
                         enum pp_loss_kind kind)
{
    const struct pp_preprocessing *names = p->outcome ? pp_outcome_names(p->outcome) : NULL;
    FILE *f = p->file.f;
    char number[16];
    bool numbers = pp_loss_takes_numbers(kind);
    fputs(numbers ? "" : "label,prediction", f);
    for (int c = 0; c < m->classes; c++)
        if (!numbers)
            fprintf(f, ",logit%d", c);
        else if (names && c < names->n_targets)
            write_target_titles(f, c, names->targets[c].name, kind);
        else
            fprintf(f, "%starget%d,output%d", c > 0 ? "," : "", c, c);
    fputs(p->outcome && !numbers ? ",probability" : "", f);
    for (int c = 0; p->outcome && !numbers && c < m->classes; c++) {
        fputc(',', f);
        pp_text_csv("probability ", pp_class_name(names, c, number), f);
    }
    fputc('\n', f);
}

static void write_row(const struct predictions *p, int label, const float *logits, int classes)
{
    FILE *f = p->file.f;
    char number[16];
    int best = 0;
    for (int c = 1; c < classes; c++)
        best = logits[c] > logits[best] ? c : best;
    if (p->outcome) {
        pp_text_csv("", pp_class_name(pp_outcome_names(p->outcome), label, number), f);
        fputc(',', f);
        pp_text_csv("", pp_class_name(pp_outcome_names(p->outcome), best, number), f);
    } else {
        fprintf(f, "%d,%d", label, best);
    }
    for (int c = 0; c < classes; c++)
        fprintf(f, ",%.9g", (double)logits[c]);
    if (p->outcome) {
        pp_probabilities(PP_LOSS_CROSS_ENTROPY, logits, classes, p->p);
        fprintf(f, ",%.9g", p->p[best]);
    }
    for (int c = 0; p->outcome && c < classes; c++)
        fprintf(f, ",%.9g", p->p[c]);
    fputc('\n', f);
}

/* Writes the targets and outputs of a sample: in their units, or if these have no names, as the
 * model has them. */
static void write_numbers(const struct predictions *p, enum pp_loss_kind kind, double threshold,
                          const float *targets, const float *outputs)
{
    const struct pp_preprocessing *names = pp_outcome_names(p->outcome);
    FILE *f = p->file.f;
    pp_probabilities(kind, outputs, p->ds->targets_each, p->p);
    for (int k = 0; k < p->ds->targets_each; k++) {
        double target = (double)targets[k], output = (double)outputs[k];
        const struct pp_target *t = k < names->n_targets ? &names->targets[k] : NULL;
        if (t && kind == PP_LOSS_BCE)
            fprintf(f, "%s%d,%d,%.9g", k > 0 ? "," : "", target >= 0.5, p->p[k] > threshold,
                    p->p[k]);
        else
            fprintf(f, "%s%.9g,%.9g", k > 0 ? "," : "", t ? target * t->std + t->mean : target,
                    t ? output * t->std + t->mean : output);
    }
    fputc('\n', f);
}

/* ---- samples */

/* Opens what rank 0 needs to judge the outputs: labels and names, and the file. */
static int open_judge(const struct pp_worker *w, const struct pp_evaluation *e,
                      struct predictions *p)
{
    const struct pp_model *m = w->run->model;
    const struct pp_config *cfg = w->run->cfg;
    p->ds = w->data[PP_SPLIT_TEST];
    if (!p->ds || !(p->ds->windows ? (void *)p->ds->images : p->ds->targets)) {
        PP_TRY(pp_dataset_open(cfg, PP_SPLIT_TEST, PP_DATA_LABELS, &m->values[0], m->classes,
                               &p->own));
        p->ds = p->own;
    }
    if (counts_outcome(m))
        PP_TRY(pp_outcome_create(cfg->train.loss, m->outputs, e->threshold, p->ds->preprocessing,
                                 &p->outcome));
    PP_ALLOC(p->p, m->classes);
    PP_ALLOC(p->tokens, (size_t)pp_model_targets(m) + (size_t)p->ds->apart);
    PP_TRY(e->predictions ? pp_file_create(e->predictions, &p->file) : 0);
    if (p->file.f)
        write_titles(p, m, cfg->train.loss);
    return 0;
}

static int open_predictions(const struct pp_worker *w, const struct pp_evaluation *e,
                            struct predictions *p)
{
    int rows = rows_of_share(w, 0, 0); /* replica 0 has the largest share */
    PP_TRY(rows);
    PP_ALLOC(p->logits, (size_t)rows * (size_t)w->run->model->outputs);
    return w->rank == 0 ? open_judge(w, e, p) : 0;
}

/* Counts and writes sample p->next, which has one label or numbers. */
static int judge_sample(const struct pp_worker *w, const struct pp_evaluation *e,
                        struct predictions *p, const float *outputs)
{
    enum pp_loss_kind kind = w->run->cfg->train.loss;
    const float *targets = p->ds->targets;
    if (pp_loss_takes_numbers(kind)) {
        targets += (size_t)p->next * (size_t)p->ds->targets_each;
        if (p->file.f)
            write_numbers(p, kind, e->threshold, targets, outputs);
        return pp_outcome_add(p->outcome, p->next, 0, targets, outputs);
    }
    uint32_t label = pp_dataset_label(p->ds, p->next);
    if (p->file.f)
        write_row(p, (int)label, outputs, w->run->model->classes);
    return pp_outcome_add(p->outcome, p->next, label, NULL, outputs);
}

static int judge_samples(const struct pp_worker *w, const struct pp_evaluation *e,
                         struct predictions *p, int rows)
{
    const struct pp_model *m = w->run->model;
    size_t positions = (size_t)pp_model_targets(m);
    for (int r = 0; r < rows; r++, p->next++) {
        const float *outputs = p->logits + (size_t)r * (size_t)m->outputs;
        if (p->outcome) {
            PP_TRY(judge_sample(w, e, p, outputs));
            continue;
        }
        if (p->ds->windows)
            PP_TRY(pp_dataset_windows(p->ds, 1, &p->next, m->classes, p->tokens));
        for (size_t k = 0; k < positions; k++)
            write_row(p,
                      p->ds->windows ? (int)p->tokens[k + (size_t)p->ds->apart]
                                     : (int)pp_dataset_label(p->ds, p->next),
                      outputs + k * (size_t)m->classes, m->classes);
    }
    return p->file.f && ferror(p->file.f)
               ? pp_fail_errno(PP_EIO, "cannot write %s", p->file.to.path)
               : 0;
}

/* Collects on rank 0 the logits of a step, which the last stage of each replica has, and judges
 * them. Pairwise. */
static int collect_step(const struct pp_worker *w, const struct pp_evaluation *e, int step,
                        struct predictions *p)
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
            PP_TRY(judge_samples(w, e, p, rows));
    }
    return 0;
}

/* Chooses a batch size for which the logits of a step fit into STEP_BYTES. This changes no result,
 * because a sample's values do not depend on its batch. */
static int shrink_batch(struct pp_config *cfg, bool predictions)
{
    struct pp_run run;
    PP_TRY(pp_run_prepare(cfg, PP_RUN_EXPLAIN, &run));
    size_t each = (size_t)run.model->outputs * sizeof(float);
    size_t rows = STEP_BYTES / each * (size_t)run.layout->replicas;
    int least = run.layout->replicas;
    bool collects = predictions || counts_outcome(run.model);
    pp_run_fini(&run);
    if (!collects || rows >= (size_t)cfg->train.batch_size)
        return 0;
    char batch[16];
    snprintf(batch, sizeof(batch), "%d", rows > (size_t)least ? (int)rows : least);
    return pp_config_choose(cfg, "train.batch_size", batch);
}

/* ---- the test */

static int run_test(struct pp_worker *w, struct pp_evaluation *e, struct pp_loss_sums *out)
{
    PP_OWN(predictions_fini) struct predictions p = {.file.to.fd = -1};
    bool collects = e->predictions || counts_outcome(w->run->model);
    PP_TRY(collects ? open_predictions(w, e, &p) : 0);
    pp_exec_keep_logits(w->x, p.logits);
    int rc = 0;
    for (int step = 0; rc == 0 && step < pp_exec_test_steps(w->x); step++) {
        rc = pp_exec_test_step(w->x, step);
        rc = rc == 0 && collects ? collect_step(w, e, step, &p) : rc;
    }
    pp_exec_keep_logits(w->x, NULL);
    PP_TRY(rc);
    PP_TRY(add_test_sums(w, out));
    PP_TRY(p.file.f ? pp_file_commit(&p.file) : 0);
    if (w->rank == 0) {
        e->outcome = p.outcome;
        p.outcome = NULL;
    }
    return 0;
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
    int rc = run_test(w, out, &test);
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
        e.threshold = out->threshold;
        e.outcome = out->outcome;
        *out = e;
    }
    return 0;
}

int pp_evaluate(struct pp_config *cfg, const struct pp_train_options *options, const char *weights,
                struct pp_evaluation *out, bool *speaks)
{
    struct pp_train_options with = *options;
    PP_TRY(shrink_batch(cfg, out->predictions != NULL));
    with.work = evaluate_rank;
    with.work_ctx = out;
    with.weights = weights;
    return pp_train(cfg, &with, speaks);
}
