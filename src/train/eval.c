/* SPDX-License-Identifier: Apache-2.0 */
/* The weights of a checkpoint, judged by the test set: no training, no run folder. */
#include "ppcli/train.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ppcli/err.h"
#include "ppcli/mem.h"

/* Collective: the sums of all ranks. */
static int add_up(const struct pp_worker *w, struct pp_loss_sums *out)
{
    int ranks = w->run->layout->ranks;
    struct pp_exec_counters c = {0};
    struct pp_loss_sums *all = pp_alloc((size_t)ranks, sizeof(*all));
    int rc = all ? pp_exec_take_counters(w->x, &c) : PP_ERESOURCE;
    rc = rc == 0 ? pp_transport_allgather(w->tp, &c.test, sizeof(c.test), all) : rc;
    *out = (struct pp_loss_sums){0};
    for (int r = 0; rc == 0 && r < ranks; r++) {
        out->loss += all[r].loss;
        out->correct += all[r].correct;
        out->rows += all[r].rows;
    }
    pp_free(all);
    return rc;
}

static int evaluate(struct pp_worker *w, void *ctx)
{
    struct pp_evaluation *out = ctx, e = {.samples = w->run->layout->test_n};
    struct pp_loss_sums test = {0};
    if (e.samples == 0) {
        return pp_fail(PP_ECONFIG,
                       "there is nothing to test with: data set '%s' has no test samples here "
                       "(data.test_samples)",
                       w->run->cfg->data.dataset);
    }
    int rc = 0;
    for (int step = 0; rc == 0 && step < pp_exec_test_steps(w->x); step++) {
        rc = pp_exec_test_step(w->x, step);
    }
    rc = rc == 0 ? add_up(w, &test) : rc;
    if (rc < 0) {
        w->failed_alone = true;
        return rc;
    }
    if (!isfinite(test.loss)) {
        return pp_fail(PP_EDIVERGED,
                       "%s: the test loss is not finite (%s): with these weights the outputs for "
                       "some test samples are not",
                       w->from, isnan(test.loss) ? "NaN" : "Inf");
    }
    e.loss = test.loss / (double)test.rows;
    e.accuracy = (double)test.correct / (double)test.rows;
    PP_TRY(pp_exec_weights_sha256(w->x, e.weights_sha256));
    if (w->rank == 0) {
        snprintf(e.from, sizeof(e.from), "%s", w->from);
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
