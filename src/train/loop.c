/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The training loop of one rank. Outside the pipeline, ranks exchange messages only at sync points,
 * where they gather counters and rank 0 reports. All ranks compute the next sync point from
 * gathered values alone. Gathered values never change the numbers of the training.
 */
#include "loop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "ppcli/plan/search.h"

#define SIMULATED_LAYERS 64
#define SIMULATED_CELLS 256 /* stages times micro-batches */

#define RECORD_NS 2000000000u /* most time between two records if run.log_every is 0 */

static void add_totals(struct totals *to, const struct totals *w)
{
    pp_loss_sums_add(&to->sums, &w->sums);
    to->window_ns += w->window_ns;
    to->paused_ns += w->paused_ns;
    to->busy_ns += w->busy_ns;
    to->input_ns += w->input_ns;
    to->norms.steps += w->norms.steps;
    to->norms.clipped += w->norms.clipped;
    to->norms.sum += w->norms.sum;
    to->norms.most = w->norms.most > to->norms.most ? w->norms.most : to->norms.most;
}

static void begin_window(struct trainer *tr)
{
    tr->window_start = pp_clock_ns();
    tr->paused_before = pp_watchdog_paused_ns(tr->spec->watchdog);
}

/* Adds up the counters of all ranks since the last call: *train gets those of training, *test the
 * sums of the test set. Collective. */
static int gather_counters(struct trainer *tr, struct totals *train, struct pp_loss_sums *test)
{
    struct pp_exec_counters c;
    PP_TRY(pp_exec_take_counters(tr->x, &c));
    rank_event_begin(tr->spec, PP_EVENT_MEET, tr->t);
    uint64_t window = pp_clock_ns() - tr->window_start;
    uint64_t paused = pp_watchdog_paused_ns(tr->spec->watchdog) - tr->paused_before;
    paused = paused < window ? paused : 0;
    window -= paused;
    struct report mine = {.window_ns = window,
                          .paused_ns = paused,
                          .busy_ns = paused == 0 || c.busy_ns < window ? c.busy_ns : window,
                          .input_ns = c.input_ns,
                          .train = c.train,
                          .test = c.test,
                          .epoch = c.epoch,
                          .refused = c.refused != NULL};
    const struct pp_train_options *options = tr->spec->options;
    mine.stop = options->stop ? __atomic_load_n(options->stop, __ATOMIC_RELAXED) : 0;
    mine.saves = options->save ? (uint32_t)__atomic_load_n(options->save, __ATOMIC_RELAXED) : 0;
    PP_TRY(pp_transport_allgather(tr->tp, &mine, sizeof(mine), tr->all));
    char damage[PP_PATH_MAX + 128];
    if (!pp_ring_mend(tr->spec->ring, damage, sizeof(damage)) && !tr->ring_told) {
        pp_log_warn("%s; the run continues, but ppcli diagnose may not see what this rank does",
                    damage);
        tr->ring_told = true;
    }
    PP_TRY(pp_tracer_drain(tr->tracer, tr->t));
    rank_event_end(tr->spec);
    begin_window(tr);
    memset(train, 0, sizeof(*train));
    memset(test, 0, sizeof(*test));
    train->norms = c.norms;
    tr->epoch_norms = c.epoch_norms;
    memset(&tr->epoch.sums, 0, sizeof(tr->epoch.sums));
    for (int r = 0; r < tr->run->layout->ranks; r++) {
        const struct report *a = &tr->all[r];
        pp_loss_sums_add(&train->sums, &a->train);
        pp_loss_sums_add(test, &a->test);
        train->window_ns = a->window_ns > train->window_ns ? a->window_ns : train->window_ns;
        train->paused_ns = a->paused_ns > train->paused_ns ? a->paused_ns : train->paused_ns;
        train->busy_ns += a->busy_ns;
        train->input_ns = a->input_ns > train->input_ns ? a->input_ns : train->input_ns;
        pp_loss_sums_add(&tr->epoch.sums, &a->epoch);
        tr->stop = a->stop > tr->stop ? a->stop : tr->stop;
        tr->saves = a->saves > tr->saves ? a->saves : tr->saves;
        tr->refused = tr->refused || a->refused;
    }
    return tr->refused ? pp_transport_agree(tr->tp, c.refused ? pp_error_adopt(c.refused) : 0) : 0;
}

static bool has_step(const int64_t *steps, int n, int64_t step)
{
    int at = 0;
    while (at < n && steps[at] < step)
        at++;
    return at < n && steps[at] == step;
}

/* Returns whether the run that this one repeats has logged this step. */
static bool logs_again(const struct trainer *tr)
{
    const struct pp_replay *again = tr->spec->options->replay;
    return again && has_step(again->records, again->n_records, tr->t);
}

/* Ends a window of training steps: adds up and reports the counters of all ranks, and computes
 * after which step the ranks synchronize next. Collective. */
static int sync_training(struct trainer *tr, int steps, bool epoch_end)
{
    struct totals w;
    struct pp_loss_sums test;
    PP_TRY(gather_counters(tr, &w, &test));
    tr->meetings++;
    if (epoch_end && tr->timeline)
        pp_timeline_keep(tr->timeline, tr->spec->ring);
    const struct pp_loss_sums sums = tr->epoch.sums; /* not the sum over windows, which end at times
                                                        that the clock decides */
    add_totals(&tr->epoch, &w);
    tr->epoch.sums = sums;
    add_totals(&tr->record, &w);
    tr->train_ns += w.window_ns;
    tr->input_ns += w.input_ns;
    tr->samples += w.sums.rows;
    for (int r = 0; r < tr->run->layout->ranks; r++) {
        tr->busy_ns[r] += tr->all[r].busy_ns;
        tr->busy[r] = w.window_ns > 0 ? (double)tr->all[r].busy_ns / (double)w.window_ns : 0;
    }
    int64_t batch = tr->run->cfg->train.batch_size;
    int64_t distance = w.sums.rows > 0 ? (w.sums.rows + batch - 1) / batch : 1;
    int log_every = tr->run->cfg->run.log_every;
    int64_t part = tr->total_steps > PP_RUN_RECORDS ? tr->total_steps / PP_RUN_RECORDS : 1;
    bool late = tr->dir[0] && log_every == 0 && tr->t - tr->recorded >= part;
    bool record =
        tr->spec->options->replay
            ? logs_again(tr)
            : (log_every > 0 ? tr->t % log_every == 0 : late || tr->record.window_ns >= RECORD_NS);
    if (tr->m && w.sums.rows > 0) {
        struct totals *from = record ? &tr->record : &w;
        struct pp_window shown = {
            .epoch = tr->epoch_no,
            .step = tr->epoch_step,
            .t = tr->t,
            .loss = pp_loss_sums_loss(&from->sums),
            .scores = pp_scores_of(&from->sums, tr->unit),
            .seconds = (double)from->window_ns * 1e-9,
            .paused = (double)from->paused_ns * 1e-9,
            .samples = from->sums.rows,
            .bubble = loop_bubble(from, tr->run->layout->ranks),
            .lr = tr->last_lr,
            .skipped = tr->t - tr->updates,
            .samples_done = tr->samples,
            .sync_steps = distance,
            .sync_seconds = (double)w.window_ns * 1e-9,
            .busy = tr->busy,
            .norms = from->norms,
        };
        rank_event_begin(tr->spec, PP_EVENT_REPORT, tr->t);
        pp_metrics_window(tr->m, &shown, steps, record);
        rank_event_end(tr->spec);
    }
    if (record) {
        memset(&tr->record, 0, sizeof(tr->record));
        tr->recorded = tr->t;
    }
    /* The next sync point is in about PP_RUN_MEET_NS, but at most ten times the last distance
     * away. */
    if (!epoch_end) {
        uint64_t per_step = w.window_ns / (uint64_t)distance + 1;
        uint64_t wanted = PP_RUN_MEET_NS / per_step + 1;
        int64_t most = 10 * distance;
        tr->next_sync = tr->t + (wanted < (uint64_t)most ? (int64_t)wanted : most);
    }
    if (log_every > 0) {
        int64_t logged = tr->t + log_every - tr->t % log_every;
        tr->next_sync = epoch_end || logged < tr->next_sync ? logged : tr->next_sync;
    } else if (tr->dir[0] && tr->recorded + part < tr->next_sync) {
        tr->next_sync = tr->recorded + part;
    }
    return 0;
}

/* Runs the forward pass over the whole test set. *loss is the mean loss; *e gets the result only if
 * the loss is finite. Collective. */
static int test_all(struct trainer *tr, struct pp_epoch_result *e, double *loss)
{
    uint64_t start = pp_clock_ns();
    for (int step = 0; step < pp_exec_test_steps(tr->x); step++) {
        PP_TRY(pp_exec_test_step(tr->x, step));
        PP_TRY(pp_tracer_test_step(tr->tracer, tr->t));
    }
    struct totals none;
    struct pp_loss_sums test;
    PP_TRY(gather_counters(tr, &none, &test));
    tr->test_ns += pp_clock_ns() - start;
    e->tested = test.targets > 0;
    *loss = e->tested ? pp_loss_sums_loss(&test) : 0;
    if (!e->tested || !isfinite(*loss)) {
        e->tested = false;
        return 0;
    }
    e->test_loss = *loss;
    e->test_scores = pp_scores_of(&test, tr->unit);
    return 0;
}

/* ---- saving and stopping */

/* Saves a checkpoint after a sync point, unless this step is saved already. `prune` also removes
 * the oldest checkpoints. Collective. */
static int save_checkpoint(struct trainer *tr, bool prune)
{
    if (!tr->saver || tr->saved == tr->t)
        return 0;
    struct pp_ckpt_state state;
    int rc = 0;
    uint64_t start = pp_clock_ns();
    rank_event_begin(tr->spec, PP_EVENT_SAVE, tr->t);
    if (tr->m) {
        pp_metrics_sync(tr->m);
        rc = resume_state(tr, &state);
    }
    rc = rc < 0 ? rc : saver_save(tr->saver, tr->t, &state, prune);
    rank_event_end(tr->spec);
    tr->save_ns += pp_clock_ns() - start;
    tr->saved = rc == 0 && !saver_error(tr->saver) ? tr->t : tr->saved;
    begin_window(tr);
    return rc;
}

/* Returns whether checkpoint.every asks for a checkpoint after this step, which may be in the
 * middle of an epoch; or the run that this one repeats has one. */
static bool is_due_by_steps(const struct trainer *tr)
{
    const struct pp_replay *again = tr->spec->options->replay;
    if (again)
        return tr->saver && (tr->t == again->end || has_step(again->saves, again->n_saves, tr->t));
    int64_t every = tr->run->cfg->checkpoint.every;
    return tr->saver && every > 0 && tr->t % every == 0;
}

static bool is_due_by_epochs(const struct trainer *tr)
{
    const struct pp_config *cfg = tr->run->cfg;
    int every = cfg->checkpoint.every_epochs;
    if (tr->spec->options->replay)
        return false;
    return (every > 0 && tr->epoch_step == pp_exec_train_steps(tr->x) &&
            tr->epoch_no % every == 0) ||
           (cfg->checkpoint.at_end && tr->t == tr->total_steps);
}

/* Saves a checkpoint if one is due, or if the user has asked for one since the last sync point.
 * Collective. */
static int save_when(struct trainer *tr, bool due)
{
    bool asked = tr->stop != 0 || tr->saves != tr->saves_done;
    if (!due && !asked)
        return 0;
    PP_TRY(save_checkpoint(tr, !tr->spec->options->replay));
    if (tr->saves != tr->saves_done && tr->m && tr->saved == tr->t)
        pp_log_info("saved step %lld on request", (long long)tr->t);
    tr->saves_done = tr->saves;
    return 0;
}

/* Returns whether the run stops after this step, though it has others left. */
static bool stops_here(const struct trainer *tr)
{
    const struct pp_replay *again = tr->spec->options->replay;
    return tr->stop != 0 || (again && tr->t >= again->end);
}

static const char *signal_name(int number)
{
    return number == SIGINT    ? "SIGINT"
           : number == SIGTERM ? "SIGTERM"
           : number == SIGHUP  ? "SIGHUP"
           : number == SIGUSR1 ? "SIGUSR1"
                               : "a signal";
}

static int end_stopped(struct trainer *tr)
{
    const char *by = signal_name(tr->stop);
    long long t = tr->t, total = tr->total_steps;
    tr->together = true;
    if (tr->stop == 0)
        return pp_fail(PP_ESTOPPED, "after step %lld of %lld, where the other run ended", t, total);
    if (!tr->saver) {
        return pp_fail(PP_ESTOPPED,
                       "after step %lld of %lld by %s; nothing was saved: there is no run folder",
                       t, total, by);
    }
    if (tr->saved != tr->t) {
        pp_error_adopt(saver_error(tr->saver));
        pp_error_context("stopped by %s after step %lld, which could not be saved", by, t);
        return PP_EIO;
    }
    char word[2 * PP_PATH_MAX];
    return pp_fail(
        PP_ESTOPPED,
        "after step %lld of %lld by %s; checkpoint saved; continue with the same command "
        "and --resume %s",
        t, total, by, pp_text_shell(tr->dir, word, sizeof(word)));
}

/* Ends a run after the bad step tr->t, or after its data changed, and saves the state before that
 * step. Older checkpoints are kept, because these weights may be close to diverging. Collective. */
static int end_diverged(struct trainer *tr, int steps)
{
    struct pp_error why = *pp_error_get();
    tr->t--;
    PP_TRY(sync_training(tr, steps, false));
    PP_TRY(save_checkpoint(tr, false));
    tr->together = true;
    return why.code == PP_EFORMAT ? nonfinite_data(tr, why.text) : nonfinite_fail(tr, why.text);
}

/* Ends a run whose test data changed. The weights are saved, because they do not depend on the test
 * data. Collective. */
static int end_test_changed(struct trainer *tr)
{
    struct pp_error why = *pp_error_get();
    PP_TRY(save_checkpoint(tr, false));
    tr->together = true;
    return nonfinite_data(tr, why.text);
}

/* Ends a run whose test loss is not finite, and saves the weights of the epoch. Collective. */
static int end_test_not_finite(struct trainer *tr, double loss)
{
    char why[512];
    bool all;
    PP_TRY(pp_exec_test_tell(tr->x, loss, why, sizeof(why), &all));
    PP_TRY(save_checkpoint(tr, false));
    tr->together = true;
    return nonfinite_test(tr, why, all);
}

/* Runs one training step, or applies train.nonfinite if its numbers are not finite. `meets` is true
 * if the ranks synchronize after this step, so that it must be complete. A device may report a bad
 * step late; the run then returns to that step, because later steps have changed nothing. */
static int train_step(struct trainer *tr, bool meets)
{
    int rc = pp_exec_train_step(tr->x, tr->epoch_step, tr->last_lr, tr->t, tr->updates);
    if (rc == 0 && meets)
        rc = pp_exec_finish(tr->x);
    if (rc == PP_EDIVERGED || rc == PP_EFORMAT) {
        int late = pp_exec_lag(tr->x);
        tr->t -= late;
        tr->epoch_step -= late;
        tr->steps -= late;
        tr->updates -= late;
        return rc == PP_EDIVERGED ? nonfinite_step(tr) : rc;
    }
    PP_TRY(rc);
    tr->updates++;
    tr->nonfinite.in_a_row = 0;
    return 0;
}

/* Returns whether the ranks synchronize after step tr->t, which is step `done` of the `steps` steps
 * of an epoch. All ranks get the same answer. */
static bool meets_after_step(const struct trainer *tr, int done, int steps)
{
    return done == steps || tr->t == tr->total_steps || is_due_by_steps(tr) ||
           tr->t >= tr->next_sync || logs_again(tr) || stops_here(tr) ||
           pp_tracer_wants_sync(tr->tracer, tr->t);
}

/* Returns the learning rate of step tr->t. With lr_by = epoch it depends on the epochs so far, as
 * if all of them had had this batch size. */
static double learning_rate_of_step(const struct trainer *tr, int steps)
{
    const struct pp_config *cfg = tr->run->cfg;
    int64_t offset = cfg->train.lr_by == PP_LR_BY_EPOCH ? tr->offset : 0;
    double rate = pp_lr_at(cfg, tr->t - offset, tr->total_steps - offset, steps);
    return cfg->train.lr_schedule == PP_LR_PLATEAU
               ? pp_lr_after_falls(cfg, rate, tr->progress.falls)
               : rate;
}

/* Logs on rank 0 what a test has decided. */
static void report_news(const struct trainer *tr, const struct progress_news *news)
{
    const struct pp_config *cfg = tr->run->cfg;
    const struct progress *p = &tr->progress;
    const char *metric = progress_metric_name(cfg);
    if (news->fell && tr->t < tr->total_steps) {
        pp_log_info("train.lr_schedule = plateau: train.lr falls from %.4g to %.4g, because %s has "
                    "not improved in %d test%s",
                    pp_lr_after_falls(cfg, cfg->train.lr, p->falls - 1),
                    pp_lr_after_falls(cfg, cfg->train.lr, p->falls), metric,
                    cfg->train.lr_patience + 1, pp_plural(cfg->train.lr_patience + 1));
    }
    if (news->over) {
        pp_log_info("train.patience = %d: the run ends after step %lld, because %s has not "
                    "improved in %d test%s",
                    cfg->train.patience, (long long)tr->t, metric, cfg->train.patience,
                    pp_plural(cfg->train.patience));
    }
}

/* Returns whether a test follows the end of an epoch, or of the run. */
static bool tests_now(const struct trainer *tr)
{
    return tr->epoch_no % tr->run->cfg->train.test_every == 0 || tr->t == tr->total_steps;
}

/* Takes the result of a test: it may be the best so far, lower the learning rate, or end the run.
 * All ranks decide the same. */
static struct progress_news take_test(struct trainer *tr, struct pp_epoch_result *e)
{
    bool regular = tr->epoch_step == pp_exec_train_steps(tr->x) &&
                   tr->epoch_no % tr->run->cfg->train.test_every == 0;
    struct progress_news news = progress_take(tr->run->cfg, e, regular, &tr->progress);
    e->best = news.best && tr->run->cfg->checkpoint.best != PP_METRIC_OFF;
    if (news.over && tr->t < tr->total_steps) {
        tr->ended_by_patience = true;
        tr->total_steps = tr->t;
    }
    news.over = tr->ended_by_patience;
    return news;
}

/* Runs the rest of the epoch, or less if the run ends before. */
static int run_epoch(struct trainer *tr)
{
    int steps = pp_exec_train_steps(tr->x);
    bool middle = tr->epoch_step > 0;
    if (!middle)
        memset(&tr->epoch, 0, sizeof(tr->epoch));
    if (tr->run->cfg->run.log_every == 0) {
        /* the epoch's own line covers the rest */
        memset(&tr->record, 0, sizeof(tr->record));
    }
    PP_TRY(pp_exec_start_epoch(tr->x, (uint64_t)tr->epoch_no - 1, middle ? &tr->so_far : NULL));
    if (tr->run->cfg->train.nonfinite == PP_NONFINITE_REWIND && tr->saved < 0) {
        PP_TRY(sync_training(tr, steps, false));
        PP_TRY(save_checkpoint(tr, true)); /* the first rewind goes back to this checkpoint */
    }
    while (tr->epoch_step < steps && tr->t < tr->total_steps) {
        tr->t++;
        tr->last_lr = learning_rate_of_step(tr, steps);
        pp_tracer_step(tr->tracer, tr->t);
        pp_exec_time_all(tr->x, pp_tracer_is_on(tr->tracer));
        pp_exec_keep_losses(tr->x, pp_tracer_losses(tr->tracer, tr->t));
        int rc = train_step(tr, meets_after_step(tr, tr->epoch_step + 1, steps));
        if (rc == PP_EDIVERGED || rc == PP_EFORMAT)
            return end_diverged(tr, steps);
        PP_TRY(rc);
        tr->epoch_step++;
        tr->steps++;
        bool end = tr->epoch_step == steps || tr->t == tr->total_steps;
        bool due = is_due_by_steps(tr);
        if (meets_after_step(tr, tr->epoch_step, steps))
            PP_TRY(sync_training(tr, steps, end));
        if (!end) {
            PP_TRY(save_when(tr, due));
            if (stops_here(tr))
                return end_stopped(tr);
        }
    }
    struct pp_epoch_result e = {
        .epoch = tr->epoch_no,
        .t = tr->t,
        .train_loss = pp_loss_sums_loss(&tr->epoch.sums),
        .train_scores = pp_scores_of(&tr->epoch.sums, tr->unit),
        .seconds = (double)tr->epoch.window_ns * 1e-9,
        .paused = (double)tr->epoch.paused_ns * 1e-9,
        .samples = tr->epoch.sums.rows,
        .bubble = loop_bubble(&tr->epoch, tr->run->layout->ranks),
        .norms = tr->epoch_norms,
    };
    double test_loss = 0;
    bool tests = tests_now(tr);
    int rc = tests ? test_all(tr, &e, &test_loss) : 0;
    if (rc == PP_EFORMAT && tr->refused)
        return end_test_changed(tr);
    PP_TRY(rc);
    struct progress_news news = {false, false, false};
    if (tests && isfinite(test_loss))
        news = take_test(tr, &e);
    tr->last = e;
    if (tr->m) {
        rank_event_begin(tr->spec, PP_EVENT_REPORT, tr->t);
        pp_metrics_epoch(tr->m, &e);
        report_news(tr, &news);
        rank_event_end(tr->spec);
    }
    if (tr->run->cfg->run.on_epoch[0]) { /* the wait of the others counts for no window */
        PP_TRY(pp_transport_agree(tr->tp, 0));
        begin_window(tr);
    }
    if (!isfinite(test_loss))
        return end_test_not_finite(tr, test_loss);
    bool best = e.best && !tr->spec->options->replay;
    PP_TRY(save_when(tr, best || is_due_by_epochs(tr) || is_due_by_steps(tr)));
    return stops_here(tr) && tr->t < tr->total_steps ? end_stopped(tr) : 0;
}

/* Tells the user if, in a simulation, the stages are hardly faster than one stage. Only small plans
 * are simulated, so that the start does not wait. */
static void compare_with_one_stage(const struct trainer *tr)
{
    const struct pp_layout *l = tr->run->layout;
    const struct pp_config *cfg = tr->run->cfg;
    double gain = 0;
    bool is_simple = l->stages > 1 && l->replicas == 1 && !cfg->run.hosts[0] &&
                     !tr->run->backend->own_memory && l->model->n_layers <= SIMULATED_LAYERS &&
                     l->stages * l->plans[0].m <= SIMULATED_CELLS;
    if (!is_simple || tr->spec->options->quiet || pp_log_level() < PP_LOG_INFO)
        return;
    if (pp_stages_gain(cfg, l->model, l->train_n, &gain) < 0)
        pp_error_clear(); /* the run cannot have one stage */
    else if (gain < PP_STAGES_WORTH)
        pp_log_info(
            "one stage would be about as fast: in a simulation %d stages have %.1f times its speed "
            "(--stages 1 gives the same weights)",
            l->stages, gain);
}

/* Opens the outputs of the loop: the timeline and the saver, and on rank 0 also the metrics.
 * Local. */
static int open_outputs(struct trainer *tr)
{
    if (tr->dir[0]) {
        PP_TRY(pp_timeline_create(tr->spec->ring, &tr->timeline));
        PP_TRY(saver_create(tr, &tr->saver));
    }
    if (tr->spec->rank != 0)
        return 0;
    const struct pp_train_options *options = tr->spec->options;
    int steps = pp_exec_train_steps(tr->x);
    bool is_text = pp_model_text_targets(tr->run->model) > 0;
    struct pp_metrics_start from = {
        .run = tr->run,
        .name = options->name,
        .out = options->out,
        .quiet = options->quiet,
        .dir = tr->dir,
        .lock = &tr->lock,
        .data = {tr->data[PP_SPLIT_TRAIN], tr->data[PP_SPLIT_TEST]},
        .total_steps = tr->total_steps,
        .epochs = is_text ? (int)((tr->total_steps - tr->offset + steps - 1) / steps)
                          : tr->run->cfg->train.epochs,
        .step = tr->t,
        .goes_on = tr->begin.goes_on,
        .data_crc = tr->data_crc,
        .changes = tr->changes,
        .graphs = pp_exec_graphs(tr->x)};
    tr->load = getloadavg(&tr->load, 1) == 1 ? tr->load : -1;
    PP_TRY(pp_metrics_open(tr->be, tr->tp, &from, &tr->m));
    compare_with_one_stage(tr);
    return 0;
}

/* Ends the run early with the error in the error record, and closes the trace of the run.
 * Collective. */
static int end_early(struct trainer *tr)
{
    struct pp_error why = *pp_error_get();
    if (pp_tracer_finish(tr->tracer, tr->t) < 0 && tr->m)
        pp_log_warn("%s", pp_error_get()->text);
    return pp_error_adopt(&why);
}

int64_t loop_total_steps(const struct trainer *tr)
{
    const struct pp_config *cfg = tr->run->cfg;
    int64_t batch = cfg->train.batch_size, most = cfg->train.max_steps;
    int64_t steps = (tr->run->layout->train_n + batch - 1) / batch;
    int64_t all = steps * cfg->train.epochs + tr->offset;
    return most > 0 && most < all ? most : all;
}

int loop_train(struct trainer *tr, uint64_t start)
{
    int steps = pp_exec_train_steps(tr->x);
    tr->total_steps = loop_total_steps(tr);
    tr->next_sync = tr->t + 1;
    if (progress_is_over(tr->run->cfg, &tr->progress) && tr->t < tr->total_steps) {
        tr->total_steps = tr->t; /* it was killed before it wrote its summary */
        tr->ended_by_patience = true;
    }
    PP_TRY(pp_transport_agree(tr->tp, open_outputs(tr)));
    struct pp_tracer_spec tracer = {.layout = tr->run->layout,
                                    .schedule = tr->run->cfg->pipeline.schedule,
                                    .wish = tr->spec->options->trace,
                                    .tp = tr->tp,
                                    .ring = tr->spec->ring,
                                    .done = tr->t,
                                    .total_steps = tr->total_steps,
                                    .test_steps = pp_exec_test_steps(tr->x)};
    PP_TRY(pp_tracer_open(&tracer, &tr->tracer));
    rank_event_end(tr->spec); /* the set-up */
    begin_window(tr);
    tr->began_ns = tr->window_start;
    tr->waited_ns = pp_clock_waited_ns();
    if (tr->t >= tr->total_steps && tr->m) {
        pp_log_info("step %lld of %lld is done: there is nothing left to train", (long long)tr->t,
                    (long long)tr->total_steps);
    }
    while (tr->t < tr->total_steps) {
        if (tr->epoch_step == steps) {
            tr->epoch_no++;
            tr->epoch_step = 0;
        }
        int failed = run_epoch(tr);
        if (failed < 0) {
            /* All ranks find a divergence or a request to stop at the same step; any other failure
             * is this rank's alone. */
            tr->spec->failed_alone = !tr->together;
            return tr->together ? end_early(tr) : failed;
        }
        begin_window(tr);
    }
    int rc = loop_finish(tr, start);
    /* the run is complete, except perhaps for files */
    bool written = rc == 0 || rc == PP_EIO || rc == PP_EPERM;
    if (written && tr->saver && saver_error(tr->saver)) {
        pp_error_adopt(saver_error(tr->saver));
        pp_error_context("the run is complete, but its last checkpoint was not saved");
        return PP_EIO;
    }
    return rc;
}
