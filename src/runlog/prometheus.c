/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A text file for Prometheus, as node_exporter's textfile collector reads it: the state of the run
 * now, no history and no time stamps (the collector exports the file's own date, by which a run
 * that was killed shows). Readers see a whole file always: it is written beside the old one and
 * renamed over it.
 */
#include "parts.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ppcli/io.h"
#include "ppcli/log.h"

#define REWRITE_NS 2000000000u /* between two versions of the file */
#define LABEL_MAX 512          /* bytes of an escaped label */

struct text_file {
    struct pp_metrics_start start;
    char run[LABEL_MAX]; /* label: the run folder's name, escaped */
    uint64_t written_ns; /* pp_clock_ns() of the last version */
    bool warned;
    bool any; /* there was a window */
    struct pp_window now;
    double *busy;                /* [ranks] */
    struct pp_epoch_result test; /* of the last epoch that was tested */
};

/* A label's value: backslash, quote and line feed are escaped; cut where it gets too long. */
static void escape(const char *text, char out[LABEL_MAX])
{
    size_t n = 0;
    for (; *text && n + 3 < LABEL_MAX; text++) {
        if (*text == '\\' || *text == '"' || *text == '\n')
            out[n++] = '\\';
        out[n++] = *text == '\n' ? 'n' : *text;
    }
    out[n] = '\0';
}

/* ---- one version of the file */

static void head(FILE *f, const char *name, const char *type, const char *help)
{
    fprintf(f, "# HELP ppcli_%s %s\n# TYPE ppcli_%s %s\n", name, help, name, type);
}

static void number(FILE *f, double value)
{
    if (isfinite(value))
        fprintf(f, "%.9g\n", value);
    else
        fputs(isnan(value) ? "NaN\n" : value > 0 ? "+Inf\n" : "-Inf\n", f);
}

static void gauge(const struct text_file *t, FILE *f, const char *name, double value,
                  const char *help)
{
    head(f, name, "gauge", help);
    fprintf(f, "ppcli_%s{run=\"%s\"} ", name, t->run);
    number(f, value);
}

static void print_shape(const struct text_file *t, FILE *f)
{
    const struct pp_layout *l = t->start.run->layout;
    const struct pp_config *cfg = t->start.run->cfg;
    char schedule[LABEL_MAX], dataset[LABEL_MAX];
    escape(cfg->pipeline.schedule, schedule);
    escape(cfg->data.dataset, dataset);
    head(f, "info", "gauge", "What is trained and how; always 1.");
    fprintf(f,
            "ppcli_info{run=\"%s\",version=\"%s\",dataset=\"%s\",schedule=\"%s\",stages=\"%d\","
            "replicas=\"%d\",microbatches=\"%d\"} 1\n",
            t->run, PP_VERSION, dataset, schedule, l->stages, l->replicas,
            cfg->pipeline.microbatches);
}

/* A sample of rank r. */
static void rank(const struct text_file *t, FILE *f, const char *name, int r, double value)
{
    char host[LABEL_MAX];
    escape(t->start.run->seats[r].host_name, host);
    fprintf(f, "ppcli_%s{run=\"%s\",rank=\"%d\",host=\"%s\"} ", name, t->run, r, host);
    number(f, value);
}

static void print_window(const struct text_file *t, FILE *f)
{
    const struct pp_window *w = &t->now;
    gauge(t, f, "step", (double)w->t, "Optimizer steps done.");
    gauge(t, f, "epoch", w->epoch, "Epoch of the last step, from 1.");
    gauge(t, f, "loss", w->loss, "Mean training loss since the last report.");
    if (pp_model_text_targets(t->start.run->model) > 0)
        gauge(t, f, "perplexity", exp(w->loss), "Exponential of the training loss.");
    gauge(t, f, "accuracy", w->accuracy, "Share of training samples classified correctly.");
    gauge(t, f, "learning_rate", w->lr, "Learning rate of the last step.");
    gauge(t, f, "samples_per_second", (double)w->samples / w->seconds, "Training throughput.");
    gauge(t, f, "bubble_ratio", w->bubble, "Share of rank time that was not spent computing.");
    head(f, "samples_total", "counter", "Samples trained on.");
    fprintf(f, "ppcli_samples_total{run=\"%s\"} %" PRId64 "\n", t->run, t->now.samples_done);
    head(f, "rank_busy_ratio", "gauge", "Share of its time that a rank spent computing.");
    for (int r = 0; r < t->start.run->layout->ranks; r++)
        rank(t, f, "rank_busy_ratio", r, t->busy[r]);
    head(f, "rank_slower_ratio", "gauge",
         "Time of a rank's step over its expected time; 1: as expected.");
    for (int r = 0; r < t->start.run->layout->ranks; r++)
        rank(t, f, "rank_slower_ratio", r, t->start.pace->ranks[r].factor);
}

static int rewrite(struct text_file *t, bool up)
{
    struct pp_file_write w;
    PP_TRY(pp_file_create(t->start.run->cfg->run.prometheus, &w));
    gauge(t, w.f, "up", up ? 1 : 0, "1 while the run trains, 0 once it has ended.");
    print_shape(t, w.f);
    gauge(t, w.f, "planned_steps", (double)t->start.total_steps,
          "Optimizer steps that the run is to do.");
    if (t->any)
        print_window(t, w.f);
    if (t->test.tested) {
        gauge(t, w.f, "test_loss", t->test.test_loss, "Loss on the test set after the last epoch.");
        if (pp_model_text_targets(t->start.run->model) > 0)
            gauge(t, w.f, "test_perplexity", exp(t->test.test_loss), "Exponential of test_loss.");
        gauge(t, w.f, "test_accuracy", t->test.test_accuracy,
              "Share of the test set classified correctly after the last epoch.");
    }
    t->written_ns = pp_clock_ns();
    return pp_file_publish(&w);
}

/* A file that cannot be written is no reason to stop training: say it once, go on trying. */
static void keep_current(struct text_file *t, bool up, bool now)
{
    if ((now || pp_clock_ns() - t->written_ns >= REWRITE_NS) && rewrite(t, up) < 0 && !t->warned) {
        t->warned = true;
        pp_log_warn("%s; training continues", pp_error_get()->text);
        pp_error_clear();
    }
}

/* ---- the writer */

static const char *run_name(const struct pp_metrics_start *start)
{
    const char *slash = strrchr(start->dir, '/');
    const char *last = slash ? slash + 1 : start->dir;
    return last[0] ? last : start->name;
}

static int open_file(const struct pp_metrics_start *start, void **out)
{
    if (!start->run->cfg->run.prometheus[0])
        return 0;
    struct text_file *t = pp_alloc(1, sizeof(*t));
    double *busy = pp_alloc((size_t)start->run->layout->ranks, sizeof(*busy));
    int rc = t && busy ? 0 : PP_ERESOURCE;
    if (rc == 0) {
        t->start = *start;
        t->busy = busy;
        escape(run_name(start), t->run);
        rc = rewrite(t, true);
    }
    if (rc < 0) {
        pp_free(busy);
        pp_free(t);
        return rc;
    }
    *out = t;
    return 0;
}

static void window(void *self, const struct pp_window *w, bool record)
{
    struct text_file *t = self;
    bool first = !t->any;
    t->any = true;
    t->now = *w;
    memcpy(t->busy, w->busy, (size_t)t->start.run->layout->ranks * sizeof(*t->busy));
    keep_current(t, true, first);
}

static void epoch(void *self, const struct pp_epoch_result *e)
{
    struct text_file *t = self;
    if (e->tested)
        t->test = *e;
    keep_current(t, true, false);
}

static int close_file(void **self, const struct pp_summary *s)
{
    struct text_file *t = *self;
    if (s) {
        t->now.bubble = s->bubble.idle;
        t->now.seconds = s->train_seconds - s->before.seconds;
        t->now.samples = s->samples - s->before.samples;
        for (int r = 0; r < t->start.run->layout->ranks; r++)
            t->busy[r] = s->ranks[r].busy;
    }
    keep_current(t, false, true);
    pp_free(t->busy);
    pp_free(t);
    *self = NULL;
    return 0;
}

const struct output_ops output_prometheus = {
    .open = open_file,
    .window = window,
    .epoch = epoch,
    .close = close_file,
};
