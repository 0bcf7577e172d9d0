/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The training loop of one rank. Ranks talk outside the pipeline only at sync points, which all
 * ranks compute from gathered values alone: there they exchange counters, rank 0 reports, and
 * everybody notices divergence together. Nothing gathered feeds back into the numbers.
 */
#include "rank.h"

#include <math.h>
#include <string.h>

#include "metrics.h"
#include "ppcli/clock.h"
#include "ppcli/err.h"
#include "ppcli/mem.h"

#define RECORD_NS 2000000000u /* between two records when run.log_every is 0 */

/* What a rank puts on the table at a sync point. */
struct report {
    uint64_t window_ns;
    uint64_t busy_ns;
    struct pp_loss_sums train, test;
};

/* Sums over reports; the same on every rank. */
struct totals {
    double loss;
    int64_t correct, rows;
    uint64_t window_ns; /* the longest over ranks */
    uint64_t busy_ns;   /* summed over ranks */
};

struct trainer {
    struct rank_spec *spec;
    const struct pp_run *run;
    struct pp_transport *tp;
    struct pp_backend *be;
    struct pp_dataset *own[2]; /* opened by this rank */
    const struct pp_dataset *data[2];
    struct pp_exec *x;
    struct metrics *m;  /* rank 0 */
    struct report *all; /* [ranks] */
    uint64_t *busy_ns;  /* [ranks] over the run */
    uint64_t window_start;
    uint64_t since_record_ns;
    int64_t total_steps, t, next_sync;
    struct totals epoch, record; /* since the epoch's start, since the last record */
    uint64_t train_ns;
    int64_t samples;
    double last_lr;
    struct epoch_result last;
};

static void add(struct totals *to, const struct totals *w)
{
    to->loss += w->loss;
    to->correct += w->correct;
    to->rows += w->rows;
    to->window_ns += w->window_ns;
    to->busy_ns += w->busy_ns;
}

/* The share of rank time that was not spent computing: 1 - sum of busy / (ranks * wall). With
 * stages of equal work this is the textbook's bubble; imbalance counts as idle time too. */
static double bubble(const struct totals *w, int ranks)
{
    return w->window_ns > 0 ? 1.0 - (double)w->busy_ns / ((double)w->window_ns * ranks) : 0.0;
}

/* Collective: gather all counters since the last call. *test: sums of the test set. */
static int gather(struct trainer *tr, struct totals *train, struct pp_loss_sums *test)
{
    struct pp_exec_counters c;
    PP_TRY(pp_exec_take_counters(tr->x, &c));
    uint64_t now = pp_clock_ns();
    struct report mine = {.window_ns = now - tr->window_start,
                          .busy_ns = c.busy_ns,
                          .train = c.train,
                          .test = c.test};
    PP_TRY(tr->tp->ops->allgather(tr->tp, &mine, sizeof(mine), tr->all));
    tr->window_start = pp_clock_ns();
    memset(train, 0, sizeof(*train));
    memset(test, 0, sizeof(*test));
    for (int r = 0; r < tr->run->layout->ranks; r++) {
        const struct report *a = &tr->all[r];
        train->loss += a->train.loss;
        train->correct += a->train.correct;
        train->rows += a->train.rows;
        test->loss += a->test.loss;
        test->correct += a->test.correct;
        test->rows += a->test.rows;
        train->window_ns = a->window_ns > train->window_ns ? a->window_ns : train->window_ns;
        train->busy_ns += a->busy_ns;
    }
    return 0;
}

static int check_finite(const struct trainer *tr, double loss, const char *what)
{
    if (isfinite(loss)) {
        return 0;
    }
    return pp_fail(PP_EDIVERGED,
                   "step %lld: the %s loss is not finite: training diverged. Lower train.lr (it is "
                   "%g) or set train.clip_norm",
                   (long long)tr->t, what, tr->run->cfg->train.lr);
}

/* Collective: the end of a window of training steps. */
static int sync_training(struct trainer *tr, int epoch, int step, int steps, bool epoch_end)
{
    struct totals w;
    struct pp_loss_sums test;
    PP_TRY(gather(tr, &w, &test));
    PP_TRY(check_finite(tr, w.loss, "training"));
    add(&tr->epoch, &w);
    add(&tr->record, &w);
    tr->train_ns += w.window_ns;
    tr->samples += w.rows;
    for (int r = 0; r < tr->run->layout->ranks; r++) {
        tr->busy_ns[r] += tr->all[r].busy_ns;
    }
    int log_every = tr->run->cfg->run.log_every;
    bool record = log_every > 0 ? tr->t % log_every == 0 : tr->record.window_ns >= RECORD_NS;
    if (tr->m && w.rows > 0 && tr->spec->options->window) {
        tr->spec->options->window(tr->spec->options->ctx, w.rows, (double)w.window_ns * 1e-9);
    }
    if (tr->m && w.rows > 0) {
        struct totals *from = record ? &tr->record : &w;
        struct window shown = {
            .epoch = epoch,
            .step = step,
            .t = tr->t,
            .loss = from->loss / (double)from->rows,
            .accuracy = (double)from->correct / (double)from->rows,
            .seconds = (double)from->window_ns * 1e-9,
            .samples = from->rows,
            .bubble = bubble(from, tr->run->layout->ranks),
            .lr = tr->last_lr,
        };
        metrics_window(tr->m, &shown, steps, record);
    }
    if (record) {
        memset(&tr->record, 0, sizeof(tr->record));
    }
    /* The next sync: in about RANK_MEET_NS, but never more than ten times the last distance. */
    if (log_every > 0) {
        tr->next_sync = tr->t + log_every - tr->t % log_every;
    } else if (!epoch_end) {
        uint64_t distance = (uint64_t)(w.rows > 0 ? (w.rows + tr->run->cfg->train.batch_size - 1) /
                                                        tr->run->cfg->train.batch_size
                                                  : 1);
        uint64_t per_step = w.window_ns / (distance > 0 ? distance : 1) + 1;
        uint64_t wanted = RANK_MEET_NS / per_step + 1;
        tr->next_sync = tr->t + (int64_t)(wanted < 10 * distance ? wanted : 10 * distance);
    }
    return 0;
}

/* Collective: the whole test set, forward only. */
static int evaluate(struct trainer *tr, struct epoch_result *e)
{
    for (int step = 0; step < pp_exec_test_steps(tr->x); step++) {
        PP_TRY(pp_exec_test_step(tr->x, step));
    }
    struct totals none;
    struct pp_loss_sums test;
    PP_TRY(gather(tr, &none, &test));
    PP_TRY(check_finite(tr, test.loss, "test"));
    e->tested = test.rows > 0;
    if (e->tested) {
        e->test_loss = test.loss / (double)test.rows;
        e->test_accuracy = (double)test.correct / (double)test.rows;
    }
    return 0;
}

static int run_epoch(struct trainer *tr, int epoch)
{
    int steps = pp_exec_train_steps(tr->x);
    memset(&tr->epoch, 0, sizeof(tr->epoch));
    if (tr->run->cfg->run.log_every == 0) {
        /* The epoch's own line has told the rest. */
        memset(&tr->record, 0, sizeof(tr->record));
    }
    pp_exec_start_epoch(tr->x, (uint64_t)epoch - 1);
    int step = 0;
    while (step < steps && tr->t < tr->total_steps) {
        tr->t++;
        tr->last_lr = pp_lr_at(tr->run->cfg, tr->t, tr->total_steps);
        PP_TRY(pp_exec_train_step(tr->x, step, tr->last_lr, tr->t));
        step++;
        bool end = step == steps || tr->t == tr->total_steps;
        if (end || tr->t >= tr->next_sync) {
            PP_TRY(sync_training(tr, epoch, step, steps, end));
        }
    }
    struct epoch_result e = {
        .epoch = epoch,
        .train_loss = tr->epoch.loss / (double)tr->epoch.rows,
        .train_accuracy = (double)tr->epoch.correct / (double)tr->epoch.rows,
        .seconds = (double)tr->epoch.window_ns * 1e-9,
        .samples = tr->epoch.rows,
        .bubble = bubble(&tr->epoch, tr->run->layout->ranks),
    };
    PP_TRY(evaluate(tr, &e));
    tr->last = e;
    if (tr->m) {
        metrics_epoch(tr->m, &e);
    }
    return 0;
}

/* Collective: what each rank held and did, and the hash of the weights; rank 0 prints it. */
static int finish(struct trainer *tr, int epochs, uint64_t start)
{
    const struct pp_layout *l = tr->run->layout;
    char sha[65];
    int rc = PP_ERESOURCE;
    struct pp_exec_bytes *bytes = pp_alloc((size_t)l->ranks, sizeof(*bytes));
    struct rank_total *ranks = pp_alloc((size_t)l->ranks, sizeof(*ranks));
    rc = pp_transport_agree(tr->tp, bytes && ranks ? 0 : rc);
    if (rc == 0) {
        pp_assert(bytes != NULL && ranks != NULL); /* or this rank had not agreed */
        rc = tr->tp->ops->allgather(tr->tp, pp_exec_bytes(tr->x), sizeof(*bytes), bytes);
    }
    if (rc == 0) {
        rc = pp_exec_weights_sha256(tr->x, sha);
    }
    if (rc == 0 && tr->m) {
        double ideal = 0;
        const struct pp_plan *plan =
            pp_layout_plan(l, PP_PLAN_TRAIN, l->plans[0].m); /* of a full batch */
        rc = pp_plan_bubble(plan, &ideal);
        struct totals all = {.window_ns = tr->train_ns};
        for (int r = 0; r < l->ranks; r++) {
            ranks[r].bytes = bytes[r];
            all.busy_ns += tr->busy_ns[r];
            ranks[r].busy = tr->train_ns > 0 ? (double)tr->busy_ns[r] / (double)tr->train_ns : 0;
        }
        struct summary s = {
            .test_loss = tr->last.test_loss,
            .test_accuracy = tr->last.test_accuracy,
            .train_loss = tr->last.train_loss,
            .train_accuracy = tr->last.train_accuracy,
            .tested = tr->last.tested,
            .samples_per_second = (double)tr->samples / ((double)tr->train_ns * 1e-9),
            .bubble_measured = bubble(&all, l->ranks),
            .bubble_ideal = ideal,
            .train_seconds = (double)tr->train_ns * 1e-9,
            .wall_seconds = (double)(pp_clock_ns() - start) * 1e-9,
            .steps = tr->t,
            .samples = tr->samples,
            .epochs = epochs,
            .ranks = ranks,
            .weights_sha256 = sha,
        };
        if (rc == 0) {
            rc = metrics_finish(tr->m, &s);
        }
    }
    pp_free(bytes);
    pp_free(ranks);
    return pp_transport_agree(tr->tp, rc);
}

/* Local set-up; what this rank needs of the data follows from its stages. */
static int set_up(struct trainer *tr)
{
    const struct pp_run *run = tr->run;
    const struct pp_layout *l = run->layout;
    int pipeline_rank = tr->spec->rank % l->stages;
    PP_TRY(pp_backend_open(run->backend, run->cfg->run.threads, &tr->be));
    if (!tr->be->caps.thread_safe && !run->mpi && l->ranks > 1) {
        return pp_fail(PP_ERESOURCE,
                       "%s must not be used by several threads of one process; start with "
                       "--launch mpirun, or install a thread-safe build (Debian: "
                       "libopenblas0-pthread)",
                       tr->be->description);
    }
    int parts = (l->rank_of[0] == pipeline_rank ? PP_DATA_IMAGES : 0) |
                (l->rank_of[l->n_virtual - 1] == pipeline_rank ? PP_DATA_LABELS : 0);
    for (int split = 0; split < 2; split++) {
        tr->data[split] = tr->spec->shared[split];
        if (!tr->data[split] && parts != 0) {
            PP_TRY(pp_dataset_open(run->cfg, (enum pp_split)split, parts, run->model->inputs,
                                   run->model->classes, &tr->own[split]));
            tr->data[split] = tr->own[split];
        }
    }
    tr->all = pp_alloc((size_t)l->ranks, sizeof(*tr->all));
    tr->busy_ns = pp_alloc((size_t)l->ranks, sizeof(*tr->busy_ns));
    return tr->all && tr->busy_ns ? 0 : PP_ERESOURCE;
}

/* Collective: processes that read the files themselves must have read the same bytes. */
static int compare_data(struct trainer *tr)
{
    const struct pp_layout *l = tr->run->layout;
    struct sums {
        uint32_t crc[2][2]; /* split; images, labels; 0: not read */
        int32_t n[2];
    } mine = {0};
    struct sums *all = pp_alloc((size_t)l->ranks, sizeof(*all));
    PP_TRY(pp_transport_agree(tr->tp, all ? 0 : PP_ERESOURCE));
    for (int split = 0; split < 2; split++) {
        if (tr->data[split]) {
            mine.crc[split][0] = tr->data[split]->images_crc;
            mine.crc[split][1] = tr->data[split]->labels_crc;
            mine.n[split] = tr->data[split]->n;
        }
    }
    int rc = tr->tp->ops->allgather(tr->tp, &mine, sizeof(mine), all);
    for (int split = 0; rc == 0 && split < 2; split++) {
        const struct sums *seen[3] = {NULL, NULL, NULL};
        for (int r = 0; rc == 0 && r < l->ranks; r++) {
            for (int what = 0; what < 2; what++) {
                if (all[r].crc[split][what] == 0) {
                    continue;
                }
                if (seen[what] && seen[what]->crc[split][what] != all[r].crc[split][what]) {
                    rc = pp_fail(PP_EFORMAT,
                                 "rank %d read other %s than rank %d: the files differ "
                                 "between machines or changed while they were read",
                                 r, what == 0 ? "images" : "labels", (int)(seen[what] - all));
                }
                seen[what] = seen[what] ? seen[what] : &all[r];
            }
            if (rc == 0 && all[r].n[split] > 0) {
                if (seen[2] && seen[2]->n[split] != all[r].n[split]) {
                    rc = pp_fail(PP_EFORMAT, "rank %d found %d samples, rank %d found %d", r,
                                 all[r].n[split], (int)(seen[2] - all), seen[2]->n[split]);
                }
                seen[2] = seen[2] ? seen[2] : &all[r];
            }
        }
    }
    pp_free(all);
    return rc;
}

static int train(struct trainer *tr, uint64_t start)
{
    const struct pp_config *cfg = tr->run->cfg;
    int steps = pp_exec_train_steps(tr->x);
    tr->total_steps = (int64_t)steps * cfg->train.epochs;
    if (cfg->train.max_steps > 0 && cfg->train.max_steps < tr->total_steps) {
        tr->total_steps = cfg->train.max_steps;
    }
    tr->next_sync = cfg->run.log_every > 0 ? cfg->run.log_every : 1;
    int rc = 0;
    if (tr->spec->rank == 0) {
        rc = metrics_open(tr->run, tr->spec->options, tr->be, tr->tp, tr->total_steps, &tr->m);
    }
    PP_TRY(pp_transport_agree(tr->tp, rc));
    tr->window_start = pp_clock_ns();
    int epoch = 0;
    while (epoch < cfg->train.epochs && tr->t < tr->total_steps) {
        epoch++;
        int failed = run_epoch(tr, epoch);
        if (failed < 0) {
            /* Divergence is found by all ranks at the same step; anything else by this one. */
            tr->spec->failed_alone = failed != PP_EDIVERGED;
            return failed;
        }
        tr->window_start = pp_clock_ns();
    }
    return finish(tr, epoch, start);
}

int rank_main(struct rank_spec *spec, struct pp_transport *tp)
{
    struct trainer tr = {.spec = spec, .run = spec->run, .tp = tp};
    uint64_t start = pp_clock_ns();
    int rc = pp_transport_agree(tp, set_up(&tr));
    if (rc == 0 && !spec->shared[0]) {
        rc = compare_data(&tr);
    }
    if (rc == 0) {
        struct pp_exec_spec exec = {
            .layout = spec->run->layout, .rank = spec->rank, .caps = tp->ops->caps};
        rc = pp_exec_create(&exec, tr.be, tp, tr.data[0], tr.data[1], &tr.x);
    }
    if (rc == 0) {
        rc = train(&tr, start);
    }
    metrics_close(&tr.m);
    if (spec->failed_alone) {
        /* The others may be waiting for a message that will never come. Threads return to the one
         * who speaks; a process does not. */
        if (tp->ops->caps.processes && spec->options->before_abort && rc != PP_ELOST) {
            spec->options->before_abort();
        }
        tp->ops->abort(tp);
    }
    spec->x = tr.x;
    spec->be = tr.be;
    pp_dataset_destroy(&tr.own[0]);
    pp_dataset_destroy(&tr.own[1]);
    pp_free(tr.all);
    pp_free(tr.busy_ns);
    return rc;
}

void rank_free(struct rank_spec *spec)
{
    pp_exec_destroy(&spec->x);
    pp_backend_close(&spec->be);
}
