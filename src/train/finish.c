/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a run: what every rank held and did, the hash of the weights, the summary. */
#include "loop.h"

#include "ppcli/clock.h"
#include "ppcli/err.h"
#include "ppcli/mem.h"

/* The share of rank time that was not spent computing: 1 - sum of busy / (ranks * wall). With
 * stages of equal work this is the textbook's bubble; imbalance counts as idle time too. */
double loop_bubble(const struct totals *w, int ranks)
{
    return w->window_ns > 0 ? 1.0 - (double)w->busy_ns / ((double)w->window_ns * ranks) : 0.0;
}

/* What the run was, of all its ranks; rank 0 prints it. ranks[]: their bytes are there. */
static int report(struct trainer *tr, const struct pp_forecast *forecast, int epochs,
                  uint64_t start, struct pp_rank_total *ranks, const char *sha)
{
    const struct pp_layout *l = tr->run->layout;
    const struct pp_plan *plan =
        pp_layout_plan(l, PP_PLAN_TRAIN, l->plans[0].m); /* of a full batch */
    double ideal = 0;
    PP_TRY(pp_plan_bubble(plan, &ideal));
    struct totals all = {.window_ns = tr->train_ns - tr->before_ns};
    for (int r = 0; r < l->ranks; r++) {
        all.busy_ns += tr->busy_ns[r];
        ranks[r].busy = all.window_ns > 0 ? (double)tr->busy_ns[r] / (double)all.window_ns : 0;
    }
    int batch = l->cfg->train.batch_size < l->train_n ? l->cfg->train.batch_size : l->train_n;
    double step_seconds = (double)tr->train_ns * 1e-9 * batch / (double)tr->samples;
    struct pp_summary s = {
        .test_loss = tr->last.test_loss,
        .test_accuracy = tr->last.test_accuracy,
        .train_loss = tr->last.train_loss,
        .train_accuracy = tr->last.train_accuracy,
        .tested = tr->last.tested,
        .samples_per_second = (double)tr->samples / ((double)tr->train_ns * 1e-9),
        .bubble_measured = loop_bubble(&all, l->ranks),
        .bubble_ideal = ideal,
        .forecast = forecast,
        .schedule_bound = forecast->least_seconds / step_seconds,
        .train_seconds = (double)tr->train_ns * 1e-9,
        .wall_seconds = (double)(pp_clock_ns() - start) * 1e-9,
        .steps = tr->t,
        .samples = tr->samples,
        .skipped = tr->t - tr->updates,
        .rewinds = tr->nonfinite.rewinds,
        .epochs = epochs,
        .ranks = ranks,
        .weights_sha256 = sha,
    };
    rank_event_begin(tr->spec, PP_EVENT_REPORT, tr->t);
    int rc = pp_metrics_finish(tr->m, &s);
    rank_event_end(tr->spec);
    return rc;
}

/* Collective: what each rank held and did, and the hash of the weights. */
int loop_finish(struct trainer *tr, uint64_t start)
{
    const struct pp_layout *l = tr->run->layout;
    char sha[65];
    int rc = PP_ERESOURCE;
    struct pp_forecast *forecast = NULL;
    struct pp_exec_bytes *bytes = pp_alloc((size_t)l->ranks, sizeof(*bytes));
    struct pp_rank_total *ranks = pp_alloc((size_t)l->ranks, sizeof(*ranks));
    rc = pp_transport_agree(tr->tp, bytes && ranks ? 0 : rc);
    if (rc == 0) {
        pp_assert(bytes != NULL && ranks != NULL); /* or this rank had not agreed */
        rc = pp_transport_allgather(tr->tp, pp_exec_bytes(tr->x), sizeof(*bytes), bytes);
    }
    if (rc == 0) {
        rc = pp_exec_weights_sha256(tr->x, sha);
    }
    if (rc == 0) {
        rc = pp_forecast_create(l, tr->x, tr->tp,
                                tr->meetings > 0 ? (double)tr->steps / (double)tr->meetings : 1,
                                &forecast);
    }
    if (rc == 0 && tr->m) {
        for (int r = 0; r < l->ranks; r++) {
            ranks[r].bytes = bytes[r];
        }
        rc = report(tr, forecast, tr->epoch_no, start, ranks, sha);
    }
    rc = pp_transport_agree(tr->tp, rc);
    if (rc == 0 && tr->timeline) {
        struct pp_timeline_spec spec = {.layout = l,
                                        .tp = tr->tp,
                                        .forecast = forecast,
                                        .dir = tr->dir,
                                        .epoch_steps = pp_exec_train_steps(tr->x),
                                        .test_steps = pp_exec_test_steps(tr->x)};
        rc = pp_timeline_write(tr->timeline, &spec);
    }
    if (rc == 0) {
        rc = pp_transport_agree(tr->tp, pp_tracer_finish(tr->tracer, tr->t));
    }
    pp_forecast_destroy(&forecast);
    pp_free(bytes);
    pp_free(ranks);
    return rc;
}
