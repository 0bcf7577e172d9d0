/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop of a measured run. The clock runs from a meeting of all ranks after the warm-up to the
 * end of each rank's last step; in between nothing happens that training would not do anyway.
 */

#include <string.h>

#include "ppcli/base/base.h"
#include "bench.h"

#define TIMED_STEPS 4

/* What a rank knows at the end. */
struct probe_report {
    uint64_t window_ns, busy_ns;
    int64_t waited_ns;               /* for a core; -1: the system does not tell */
    struct pp_loss_sums train, last; /* over the window, of its last step */
    uint64_t bytes;
};

struct meter {
    struct pp_worker *w;
    struct probe *probe;
};

struct position {
    int64_t t; /* steps done */
    int step;  /* of the epoch, the next one */
    uint64_t epoch;
};

static double lr_of(const struct meter *m, const struct position *p)
{
    return pp_lr_at(m->w->run->cfg, p->t, m->probe->warmup + m->probe->steps,
                    pp_exec_train_steps(m->w->x));
}

static int train_one(struct meter *m, struct position *p)
{
    if (p->step == pp_exec_train_steps(m->w->x)) {
        p->step = 0;
        PP_TRY(pp_exec_start_epoch(m->w->x, ++p->epoch, NULL));
    }
    p->t++;
    return pp_exec_train_step(m->w->x, p->step++, lr_of(m, p), p->t, p->t - 1);
}

static void add_counters(struct probe_report *to, const struct pp_exec_counters *c)
{
    to->busy_ns += c->busy_ns;
    pp_loss_sums_add(&to->train, &c->train);
    to->last = c->train;
}

/* Makes a device time its actions in the last steps of the warm-up. It times only these few,
 * because timing takes time itself. */
static int time_actions(struct meter *m, const struct position *p)
{
    struct pp_exec_counters c;
    bool last = p->t + TIMED_STEPS >= m->probe->warmup;
    if (last && m->w->be->caps.async) {
        PP_TRY(pp_exec_take_counters(m->w->x, &c));
        pp_exec_forget_times(m->w->x);
        pp_exec_time_all(m->w->x, true);
    }
    return 0;
}

/* Runs the measured steps and takes their times. The counters of the last step are added separately
 * from those of the steps before. */
static int timed_steps(struct meter *m, struct position *p, struct probe_report *out)
{
    struct probe *probe = m->probe;
    struct pp_exec_counters c;
    PP_TRY(pp_exec_take_counters(m->w->x, &c)); /* those of the warm-up */
    pp_exec_time_all(m->w->x, false);
    if (!m->w->be->caps.async)
        pp_exec_forget_times(m->w->x);
    PP_TRY(pp_transport_barrier(m->w->tp));
    int64_t waited = pp_clock_waited_ns();
    uint64_t start = pp_clock_ns();
    for (int64_t i = 0; i < probe->steps; i++) {
        if (i + 1 == probe->steps) {
            PP_TRY(pp_exec_take_counters(m->w->x, &c));
            add_counters(out, &c);
        }
        PP_TRY(train_one(m, p));
        if (m->w->rank == 0)
            probe->ends_ns[i] = pp_clock_ns() - start;
    }
    PP_TRY(pp_exec_take_counters(m->w->x, &c));
    out->window_ns = pp_clock_ns() - start;
    out->waited_ns = waited < 0 ? -1 : pp_clock_waited_ns() - waited;
    add_counters(out, &c);
    return 0;
}

static int put_together(const struct meter *m, const struct probe_report *all,
                        const struct pp_forecast *forecast)
{
    struct probe *p = m->probe;
    struct pp_loss_sums last = {0};
    uint64_t window = 0, busy = 0;
    double waited = 0;
    int ranks = m->w->run->layout->ranks;
    p->samples = 0;
    p->peak_bytes = 0;
    for (int r = 0; r < ranks; r++) {
        window = all[r].window_ns > window ? all[r].window_ns : window;
        busy += all[r].busy_ns;
        waited = waited < 0 || all[r].waited_ns < 0 ? -1 : waited + (double)all[r].waited_ns;
        p->samples += all[r].train.rows;
        pp_loss_sums_add(&last, &all[r].last);
        p->peak_bytes = all[r].bytes > p->peak_bytes ? (size_t)all[r].bytes : p->peak_bytes;
    }
    p->seconds = (double)window * 1e-9;
    p->waited = waited < 0 ? -1 : waited / (double)window / ranks;
    p->loss = pp_loss_sums_loss(&last);
    p->bubble_predicted = forecast->bubble;
    p->simulated = forecast->step_seconds;
    p->bound = forecast->least_seconds / (p->seconds / (double)p->steps);
    double idle = pp_bubble_idle((double)busy, (double)window, ranks);
    return pp_forecast_explain(forecast, idle, &p->bubble);
}

/* Gathers the reports of all ranks, which rank 0 puts together. Collective. */
static int gather_reports(struct meter *m, const struct probe_report *mine)
{
    const struct pp_layout *l = m->w->run->layout;
    PP_OWN(pp_forecast_destroy) struct pp_forecast *forecast = NULL;
    char sha[65];
    PP_OWN_MEMORY struct probe_report *all = pp_alloc((size_t)l->ranks, sizeof(*all));
    PP_TRY(pp_transport_agree(m->w->tp, all ? 0 : PP_ERESOURCE));
    pp_assert(all != NULL); /* or this rank had not agreed */
    PP_TRY(pp_transport_allgather(m->w->tp, mine, sizeof(*mine), all));
    PP_TRY(pp_forecast_create(l, m->w->x, m->w->tp, (double)m->probe->steps, &forecast));
    PP_TRY(pp_exec_weights_sha256(m->w->x, sha));
    if (m->w->rank > 0)
        return 0;
    memcpy(m->probe->sha, sha, sizeof(sha));
    return put_together(m, all, forecast);
}

static int run_worker(struct pp_worker *w, void *ctx)
{
    struct probe *probe = ctx;
    struct meter *m = &(struct meter){.w = w, .probe = probe};
    struct position p = {0};
    struct probe_report mine = {0};
    PP_TRY(pp_exec_start_epoch(w->x, 0, NULL));
    int rc = 0;
    while (rc == 0 && p.t < probe->warmup) {
        rc = p.t + TIMED_STEPS == probe->warmup || p.t == 0 ? time_actions(m, &p) : 0;
        rc = rc == 0 ? train_one(m, &p) : rc;
    }
    if (rc == 0)
        rc = timed_steps(m, &p, &mine);
    if (rc < 0) {
        /* Divergence is found by all ranks at the same step; anything else by this one. */
        w->failed_alone = rc != PP_EDIVERGED;
        return rc;
    }
    mine.bytes = pp_exec_bytes(w->x)->total;
    return gather_reports(m, &mine);
}

/* ---- runs */

int probe_open(struct prober *p)
{
    p->options.name = "bench";
    p->options.quiet = true;
    p->ends_ns = pp_alloc(PROBE_STEPS_MAX, sizeof(*p->ends_ns));
    p->options.out = fopen("/dev/null", "w");
    if (!p->options.out)
        return pp_fail_errno(PP_EIO, "cannot open /dev/null");
    return p->ends_ns ? 0 : PP_ERESOURCE;
}

static void close_data(struct prober *p)
{
    pp_dataset_destroy(&p->data[0]);
    pp_dataset_destroy(&p->data[1]);
}

void probe_close(struct prober *p)
{
    if (p->options.out)
        fclose(p->options.out);
    pp_free(p->ends_ns);
    close_data(p);
}

int probe_open_data(struct prober *p, const struct pp_config *cfg)
{
    PP_OWN(pp_model_destroy) struct pp_model *m = NULL;
    PP_OWN_MEMORY struct pp_config *own = NULL;
    PP_TRY(pp_config_copy(cfg, &own));
    int rc = pp_run_model(own, &m);
    close_data(p);
    for (int split = 0; rc == 0 && split < 2; split++) {
        rc = pp_dataset_open(cfg, (enum pp_split)split, PP_DATA_IMAGES | PP_DATA_LABELS,
                             &m->values[0], m->classes, &p->data[split]);
    }
    return rc;
}

int probe_run(struct prober *p, struct pp_config *cfg, struct probe *probe)
{
    enum pp_log_level level = pp_log_level();
    struct pp_train_options options = p->options;
    bool speaks;
    if (probe) {
        options.work = run_worker;
        options.work_ctx = probe;
        probe->ends_ns = p->ends_ns;
        options.data[0] = p->data[0];
        options.data[1] = p->data[1];
    }
    pp_log_set_level(PP_LOG_QUIET);
    int rc = pp_train(cfg, &options, &speaks);
    pp_log_set_level(level);
    return rc;
}

int64_t probe_steps(const struct probe *measured, double seconds)
{
    double n = seconds / (measured->seconds / (double)measured->steps);
    return n < 4 ? 4 : n > PROBE_STEPS_MAX ? PROBE_STEPS_MAX : (int64_t)n;
}
