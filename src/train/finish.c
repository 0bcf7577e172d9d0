/* SPDX-License-Identifier: Apache-2.0 */
/* Summarizes a run from the values of all ranks: figures, causes of its bubble, advice. */
#include "loop.h"

#include "ppcli/plan/search.h"

/* Returns the share of rank time that was not spent computing. */
double loop_bubble(const struct totals *w, int ranks)
{
    return pp_bubble_idle((double)w->busy_ns, (double)w->window_ns, ranks);
}

/* Writes advice to `out` if the bubble is much larger than the schedule's own, else an empty
 * text. */
static int write_advice(const struct trainer *tr, const struct pp_summary *s,
                        char out[PP_ADVICE_MAX])
{
    const struct pp_forecast *f = s->forecast;
    const struct pp_layout *l = tr->run->layout;
    out[0] = '\0';
    if (!f->known || s->bubble.idle < s->bubble_ideal + PP_ADVICE_OVER)
        return 0;
    PP_TAKE(double, cost, l->model->n_layers);
    pp_advice_costs(l, f->stages.f, f->stages.i, f->stages.w, cost);
    struct pp_advice_spec spec = {
        .layout = l, .bubble = &s->bubble, .cost = cost, .waited = s->waited};
    return pp_advice(&spec, out);
}

/* Prints and writes the summary on rank 0. ranks[] already has bytes and waited; the busy shares
 * are set here. */
static int report_summary(struct trainer *tr, const struct pp_forecast *forecast, uint64_t start,
                          struct pp_rank_total *ranks, const char *sha)
{
    const struct pp_layout *l = tr->run->layout;
    char advice[PP_ADVICE_MAX], schedule[PP_SHA256_HEX];
    struct totals all = {.window_ns = tr->train_ns - tr->before_ns};
    double waited = 0;
    for (int r = 0; r < l->ranks; r++) {
        all.busy_ns += tr->busy_ns[r];
        ranks[r].busy = all.window_ns > 0 ? (double)tr->busy_ns[r] / (double)all.window_ns : 0;
        waited = waited < 0 || ranks[r].waited < 0 ? -1 : waited + ranks[r].waited / l->ranks;
    }
    int batch = l->training.batch < l->train_n ? l->training.batch : l->train_n;
    double samples_per_second =
        (double)(tr->samples - tr->before_samples) / ((double)all.window_ns * 1e-9);
    struct pp_summary s = {
        .test_loss = tr->last.test_loss,
        .test_scores = tr->last.test_scores,
        .train_loss = tr->last.train_loss,
        .train_scores = tr->last.train_scores,
        .tested = tr->last.tested,
        .best = {.metric =
                     tr->run->cfg->checkpoint.best != PP_METRIC_OFF && tr->progress.best.step >= 0
                         ? progress_metric_name(tr->run->cfg)
                         : NULL,
                 .value = tr->progress.best.value,
                 .step = tr->progress.best.step,
                 .epoch = tr->progress.best.epoch},
        .ended_by_patience = tr->ended_by_patience,
        .samples_per_second = samples_per_second,
        .forecast = forecast,
        .advice = advice,
        .load = tr->load,
        .waited = waited,
        .schedule_bound = forecast->least_seconds * samples_per_second / batch,
        .train_seconds = (double)tr->train_ns * 1e-9,
        .wall_seconds = (double)(pp_clock_ns() - start) * 1e-9,
        .test_seconds = (double)tr->test_ns * 1e-9,
        .save_seconds = (double)tr->save_ns * 1e-9,
        .input_seconds = (double)tr->input_ns * 1e-9,
        .norms = tr->last.norms,
        .steps = tr->t,
        .before = {.steps = tr->before_steps,
                   .samples = tr->before_samples,
                   .seconds = (double)tr->before_ns * 1e-9},
        .samples = tr->samples,
        .skipped = tr->t - tr->updates,
        .rewinds = tr->nonfinite.rewinds,
        .epochs = tr->epoch_no,
        .ranks = ranks,
        .weights_sha256 = sha,
        .schedule_sha256 = schedule,
    };
    PP_TRY(pp_plan_digest(l->plans[0].plan, schedule));
    PP_TRY(pp_bubble_ideal(forecast->plan, &s.bubble_ideal));
    PP_TRY(pp_forecast_explain(forecast, loop_bubble(&all, l->ranks), &s.bubble));
    PP_TRY(write_advice(tr, &s, advice));
    rank_event_begin(tr->spec, PP_EVENT_REPORT, tr->t);
    int rc = pp_metrics_finish(tr->m, &s);
    rank_event_end(tr->spec);
    return rc;
}

/* Returns the share of time that this rank waited for a core since its loop began; -1 if it is
 * unknown. */
static double waited_share(const struct trainer *tr)
{
    int64_t now = pp_clock_waited_ns();
    double wall = (double)(pp_clock_ns() - tr->began_ns);
    return tr->waited_ns < 0 || now < tr->waited_ns ? -1 : (double)(now - tr->waited_ns) / wall;
}

/* Sets *out to the first thing known to be able to give other bits than another run of the config. */
static void find_suspect(const struct trainer *tr, char *out, size_t bytes)
{
    const struct pp_config *cfg = tr->run->cfg;
    struct pp_backend_choice choice = pp_backend_choice_of(cfg);
    long long step = 0;
    char key[PP_NAME_MAX] = "";
    if (tr->changes)
        (void)sscanf(tr->changes, "%lld\t%63s", &step, key);
    if (key[0])
        snprintf(out, bytes, "%s was changed after step %lld with --allow", key, step);
    else if (!pp_backend_sums_in_order(&choice))
        snprintf(out, bytes,
                 "the products are those of a library (%s), which may add in another "
                 "order on another machine",
                 tr->be->description);
    else if (choice.precision != PP_PRECISION_F32)
        snprintf(out, bytes, "run.precision is not f32 (%s)", tr->be->description);
    else if (tr->run->layout->replicas > 1)
        snprintf(out, bytes, "gradients of %d replicas are added up", tr->run->layout->replicas);
    else
        snprintf(out, bytes,
                 "stages, schedule, threads and processor change no bit here, so data, "
                 "config or version differ");
}

int finish_check(const struct trainer *tr, const char *sha)
{
    const char *expect = tr->spec->options->expect;
    char suspect[512];
    if (!expect || tr->spec->rank != 0 || strncmp(sha, expect, strlen(expect)) == 0)
        return 0;
    find_suspect(tr, suspect, sizeof(suspect));
    return pp_fail(PP_EDIFFERS,
                   "weights_sha256 is %s after step %lld, not the expected %s; the first suspect: "
                   "%s. With the folder of the run that had the expected one, ppcli reproduce RUN "
                   "finds the first step and tensor that differ",
                   sha, (long long)tr->t, expect, suspect);
}

int loop_finish(struct trainer *tr, uint64_t start)
{
    const struct pp_layout *l = tr->run->layout;
    struct pp_rank_total mine = {.bytes = *pp_exec_bytes(tr->x), .waited = waited_share(tr)};
    PP_OWN(pp_forecast_destroy) struct pp_forecast *forecast = NULL;
    char sha[65];
    PP_OWN_MEMORY struct pp_rank_total *ranks = pp_alloc((size_t)l->ranks, sizeof(*ranks));
    PP_TRY(pp_transport_agree(tr->tp, ranks ? 0 : PP_ERESOURCE));
    pp_assert(ranks != NULL); /* else the ranks had not agreed */
    int rc = pp_transport_allgather(tr->tp, &mine, sizeof(mine), ranks);
    if (rc == 0)
        rc = pp_exec_weights_sha256(tr->x, sha);
    if (rc == 0) {
        rc = pp_forecast_create(l, tr->x, tr->tp,
                                tr->meetings > 0 ? (double)tr->steps / (double)tr->meetings : 1,
                                &forecast);
    }
    if (rc == 0 && tr->m)
        rc = report_summary(tr, forecast, start, ranks, sha);
    PP_TRY(pp_transport_agree(tr->tp, rc));
    if (tr->timeline) {
        struct pp_timeline_spec spec = {.layout = l,
                                        .schedule = tr->run->cfg->pipeline.schedule,
                                        .tp = tr->tp,
                                        .forecast = forecast,
                                        .dir = tr->dir,
                                        .epoch_steps = pp_exec_train_steps(tr->x),
                                        .offset = tr->offset,
                                        .test_steps = pp_exec_test_steps(tr->x)};
        PP_TRY(pp_timeline_write(tr->timeline, &spec));
    }
    int checked = finish_check(tr, sha);
    rc = pp_tracer_finish(tr->tracer, tr->t);
    return pp_transport_agree(tr->tp, rc < 0 ? rc : checked);
}
