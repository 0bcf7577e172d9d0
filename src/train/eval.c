/* SPDX-License-Identifier: Apache-2.0 */
/* The weights of a checkpoint, judged by the test set: no training, no run folder. */
#include "ppcli/train.h"

#include <math.h>

#include "ppcli/err.h"
#include "ppcli/io.h"

/* Collective: the sums of all ranks. */
static int add_up(const struct pp_worker *w, struct pp_loss_sums *out)
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

/* Pairwise: the rows that each replica's last stage has, to rank 0. */
static int collect(const struct pp_worker *w, size_t n, float *logits)
{
    const struct pp_layout *l = w->run->layout;
    PP_TAKE(float, theirs, w->rank == 0 ? n : 0);
    for (int d = 0; d < l->replicas; d++) {
        int from = d * l->stages + l->rank_of[l->n_virtual - 1];
        if (from != 0 && w->rank == from) {
            PP_TRY(pp_transport_send(w->tp, 0, logits, n * sizeof(*logits)));
        } else if (from != 0 && w->rank == 0) {
            PP_TRY(pp_transport_recv(w->tp, from, theirs, n * sizeof(*theirs)));
            for (size_t i = 0; i < n; i++)
                logits[i] += theirs[i]; /* 0 where the sample is another replica's */
        }
    }
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

static int write_predictions(const struct pp_worker *w, const char *path, const float *logits)
{
    const struct pp_model *m = w->run->model;
    PP_OWN(pp_dataset_destroy) struct pp_dataset *ds = NULL;
    PP_OWN(pp_file_abandon) struct pp_file_write file = {.f = NULL};
    PP_TRY(pp_dataset_open(w->run->cfg, PP_SPLIT_TEST, PP_DATA_LABELS, &m->values[0], m->classes,
                           &ds));
    size_t classes = (size_t)m->classes, positions = (size_t)pp_model_targets(m);
    size_t apart = (size_t)ds->apart;
    PP_TAKE(uint32_t, tokens, positions + apart);
    PP_TRY(pp_file_create(path, &file));
    fputs("label,prediction", file.f);
    for (int c = 0; c < m->classes; c++)
        fprintf(file.f, ",logit%d", c);
    fputc('\n', file.f);
    for (uint32_t i = 0; i < (uint32_t)w->run->layout->test_n; i++) {
        if (ds->windows)
            PP_TRY(pp_dataset_windows(ds, 1, &i, m->classes, tokens));
        for (size_t p = 0; p < positions; p++) {
            write_row(file.f, ds->windows ? (int)tokens[p + apart] : ds->labels[i],
                      logits + (i * positions + p) * classes, m->classes);
        }
    }
    return pp_file_commit(&file);
}

/* ---- the test */

static int evaluate(struct pp_worker *w, void *ctx)
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
    size_t n = (size_t)e.samples * (size_t)w->run->model->outputs;
    float *logits = out->predictions ? pp_alloc(n, sizeof(*logits)) : NULL;
    int rc = out->predictions && !logits ? PP_ERESOURCE : 0;
    pp_exec_keep_logits(w->x, logits);
    for (int step = 0; rc == 0 && step < pp_exec_test_steps(w->x); step++)
        rc = pp_exec_test_step(w->x, step);
    pp_exec_keep_logits(w->x, NULL);
    rc = rc == 0 ? add_up(w, &test) : rc;
    rc = rc == 0 && logits ? collect(w, n, logits) : rc;
    if (rc == 0 && logits && w->rank == 0)
        rc = write_predictions(w, out->predictions, logits);
    pp_free(logits);
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
    e.loss = pp_loss_sums_mean(&test, test.loss);
    e.accuracy = pp_loss_sums_mean(&test, (double)test.correct);
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
    with.work = evaluate;
    with.work_ctx = out;
    with.weights = weights;
    return pp_train(cfg, &with, speaks);
}
