/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ppcli plan CONFIG --machine FILE: every way to lay a model out over the ranks of a machine that is
 * not here. All shapes are ranked by a step of a few micro-batches, whose length tells that of many;
 * the best of them are then laid out and simulated whole.
 */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

#include "ppcli/bench.h"
#include "ppcli/io.h"
#include "ppcli/log.h"
#include "ppcli/text.h"

#define KEPT 4      /* of each number of stages and rows */
#define WHOLE 16    /* simulated whole */
#define PER_STAGE 2 /* micro-batches of the short step */
#define MEASURE_SECONDS 4.0
#define SEARCHED                                                                                   \
    "pipeline.replicas pipeline.microbatches pipeline.schedule pipeline.chunks "                   \
    "pipeline.assignment "                                                                         \
    "pipeline.split_at pipeline.recompute pipeline.group pipeline.eager pipeline.memory_cap "      \
    "pipeline.costs run.rank_order run.hosts"
/* Actions that finding better cuts of a short step may simulate: of few stages, which cost little,
 * more. And of all whole steps. */
#define CUTS(stages) (1.2e8 / ((stages) < 40 ? (stages) : 40))
#define CUTS_WHOLE 3e7
#define BETWEEN 1.3 /* times the best: shapes further off are not looked at between powers of two */
#define WORSE 1.3   /* larger micro-batches are not looked at once they cost so much */

struct pp_best_spec plan_machine_spec(const struct plan_machine *p,
                                      const struct plan_machine_row *row, int m)
{
    struct pp_config *cfg = p->shape;
    int share, first, rows;
    pp_balanced_piece(p->batch, row->replicas, 0, &first, &share);
    pp_balanced_piece(share, row->c.microbatches, 0, &first, &rows);
    *cfg = *p->cfg;
    cfg->source = NULL; /* what is wrong with a try is nobody's problem */
    if (p->cluster.peak[PP_PRECISION_BF16] >
        0) /* no copies that only a processor's products want */
        snprintf(cfg->run.backend, sizeof(cfg->run.backend), "cuda");
    cfg->pipeline.stages = row->c.stages;
    cfg->pipeline.replicas = row->replicas;
    cfg->pipeline.microbatches = m;
    cfg->pipeline.chunks = row->c.stages == 1;
    if (p->ranks > p->cluster.ranks) /* several hosts: messages have memory at both ends */
        cfg->run.launch = PP_LAUNCH_MPIRUN;
    cfg->pipeline.assignment = PP_ASSIGN_TIME;
    cfg->pipeline.ranges[0] = cfg->pipeline.split_at[0] = '\0';
    bool whole = m >= row->c.microbatches;
    cfg->train.batch_size = whole ? p->cfg->train.batch_size : row->replicas * rows * m;
    return (struct pp_best_spec){.cfg = cfg,
                                 .model = p->model,
                                 .train_n = whole ? p->train_n : cfg->train.batch_size,
                                 .test_n = whole ? p->test_n : 0,
                                 .memory = p->memory,
                                 .recompute = true,
                                 .cuts = true,
                                 .actions = CUTS(row->c.stages),
                                 .places = p->ranks > p->cluster.ranks,
                                 .endless = true};
}

/* Keep a row whose first m micro-batches are known: twice as many tell what each further one adds. */
static int keep(struct plan_machine *p, struct plan_machine_row *row, int m, double *best)
{
    struct pp_candidate more = row->c;
    row->estimate = row->c.time.step;
    if (row->c.microbatches > m) {
        more.microbatches = 2 * m < row->c.microbatches ? 2 * m : row->c.microbatches;
        struct pp_best_spec spec = plan_machine_spec(p, row, more.microbatches);
        PP_TRY(pp_best_try(&spec, p->costs, &more));
        double each = (more.time.step - row->c.time.step) / (more.microbatches - m);
        row->estimate = more.time.step + (row->c.microbatches - more.microbatches) * each;
    }
    *best = row->estimate < *best || *best == 0 ? row->estimate : *best;
    PP_GROW(p->rows, (size_t)p->n + 1);
    p->rows[p->n++] = *row;
    return 0;
}

/* All schedules of one shape with micro-batches of these rows. *best: the shortest estimate. */
static int search(struct plan_machine *p, struct plan_machine_row *row, double *best)
{
    int whole = row->c.microbatches, m = PER_STAGE * row->c.stages;
    m = m < whole ? m : whole;
    struct pp_best_spec spec = plan_machine_spec(p, row, m);
    PP_OWN(pp_best_fini) struct pp_best found = {0};
    PP_TRY(pp_best_search(&spec, p->costs, &found));
    int small = 0; /* holds least: it may be the only one that fits whole */
    for (int i = 1; i < found.n; i++)
        small = found.items[i].peak_bytes < found.items[small].peak_bytes ? i : small;
    for (int i = 0; i < found.n; i++) {
        if (i >= KEPT && i != small)
            continue;
        row->c = found.items[i];
        row->c.microbatches = whole;
        if (row->c.eager > 0) { /* of more micro-batches more may be early */
            spec = plan_machine_spec(p, row, whole);
            int eager = pp_best_eager(&spec, p->costs, row->c.stages, whole);
            row->c.eager = eager > row->c.eager ? eager : row->c.eager;
        }
        int rc = keep(p, row, m, best);
        PP_TRY(rc == PP_ECONFIG ? 0 : rc); /* it cannot run with twice as many */
    }
    if (!p->why[0])
        memcpy(p->why, found.why, sizeof(p->why));
    p->tried += found.tried - found.refused - found.same;
    p->too_large += found.too_large;
    if (found.too_large > 0 &&
        (p->smallest.c.stages == 0 || found.smallest.peak_bytes < p->smallest.c.peak_bytes)) {
        p->smallest = (struct plan_machine_row){.c = found.smallest, .replicas = row->replicas};
        p->smallest.c.microbatches = whole;
    }
    return 0;
}

/* One number of stages: micro-batches of 1, 2, 4, ... rows, for as long as that helps; at most as
 * many as the replica with the fewest samples has. */
static int search_stages(struct plan_machine *p, int stages)
{
    struct plan_machine_row row = {.replicas = p->ranks / stages};
    int share = p->batch / row.replicas;
    double least = 0;
    for (int64_t rows = 1; rows < 2 * (int64_t)share; rows *= 2) {
        double best = 0;
        int64_t m = (share + rows - 1) / rows;
        if (m > PP_MICROBATCHES_MAX)
            continue;
        row.c = (struct pp_candidate){.stages = stages, .microbatches = (int)m};
        PP_TRY(search(p, &row, &best));
        if (best == 0 || (least > 0 && best > WORSE * least)) /* more rows hold more */
            break;
        least = best < least || least == 0 ? best : least;
    }
    return 0;
}

/* The row that takes least by its estimate; stages 0: of any number of stages. NULL: there is none. */
static const struct plan_machine_row *least_of(const struct plan_machine *p, int stages)
{
    const struct plan_machine_row *least = NULL;
    for (const struct plan_machine_row *r = p->rows; r < p->rows + p->n; r++)
        if ((stages == 0 || r->c.stages == stages) && (!least || r->estimate < least->estimate))
            least = r;
    return least;
}

/* Micro-batches of at most these rows, unless as many of them are known. *best: as in search(), or
 * unchanged. */
static int search_rows(struct plan_machine *p, int stages, int rows, double *best)
{
    struct plan_machine_row row = {.replicas = p->ranks / stages};
    row.c = (struct pp_candidate){.stages = stages,
                                  .microbatches = (p->batch / row.replicas - 1) / rows + 1};
    if (row.c.microbatches > PP_MICROBATCHES_MAX)
        return 0;
    for (int i = 0; i < p->n; i++)
        if (p->rows[i].c.stages == stages && p->rows[i].c.microbatches == row.c.microbatches)
            return 0;
    return search(p, &row, best);
}

/* One number of stages: between the powers of two, from the best of them on, the half of the gap
 * each time. */
static int search_between(struct plan_machine *p, int stages)
{
    const struct plan_machine_row *least = least_of(p, stages);
    if (!least || least->estimate > BETWEEN * least_of(p, 0)->estimate)
        return 0;
    int m = least->c.microbatches, rows = (p->batch / least->replicas - 1) / m + 1;
    double best = least->estimate;
    for (int by = rows / 2; by > 0; by /= 2) {
        double before = best;
        PP_TRY(search_rows(p, stages, rows + by, &best));
        double more = best;
        PP_TRY(search_rows(p, stages, rows - by, &best));
        rows += best < more ? -by : more < before ? by : 0;
    }
    return 0;
}

static int by_estimate(const void *a, const void *b)
{
    const struct plan_machine_row *x = a, *y = b;
    return (x->estimate > y->estimate) - (x->estimate < y->estimate);
}

/* Of schedules that take as long here the one that holds least. */
static void drop_same(struct plan_machine *p)
{
    int kept = 0;
    for (int i = 0; i < p->n; i++) {
        struct plan_machine_row *r = &p->rows[i], *k = p->rows, *end = p->rows + kept;
        while (k < end && (k->c.stages != r->c.stages || k->c.microbatches != r->c.microbatches ||
                           r->estimate > 1.001 * k->estimate))
            k++;
        if (k == end || r->c.peak_bytes < k->c.peak_bytes)
            *k = *r;
        kept += k == end;
    }
    p->n = kept;
}

/* A row whole, with a better cut, into its new place; one that then does not fit, or cannot run, is
 * dropped. again: it has not fitted, and may compute more again. */
static int try_whole(struct plan_machine *p, struct plan_machine_row row, bool again, double *left,
                     int *kept)
{
    struct pp_best_spec spec = plan_machine_spec(p, &row, row.c.microbatches);
    pp_log_progress("whole steps: %d of %d", *kept + 1, WHOLE < p->n ? WHOLE : p->n);
    int rc = again ? pp_best_fit(&spec, p->costs, &row.c) : pp_best_try(&spec, p->costs, &row.c);
    if (rc == 0 && !again && row.c.peak_bytes > p->memory)
        rc = pp_best_fit(&spec, p->costs, &row.c);
    if (rc == 0 && row.c.peak_bytes <= p->memory && *left > 0)
        rc = pp_best_refine(&spec, p->costs, &row.c, left);
    if (rc == 0 && row.c.peak_bytes <= p->memory) {
        PP_TRY(pp_best_explain(&spec, p->costs, &row.c, NULL));
        row.estimate = row.c.time.step;
        p->rows[(*kept)++] = row;
    } else if (rc == 0) {
        if (p->too_large == 0 || row.c.peak_bytes < p->smallest.c.peak_bytes)
            p->smallest = row;
        p->too_large += !again;
    }
    return rc == PP_ECONFIG ? 0 : rc;
}

static int refine(struct plan_machine *p)
{
    int kept = 0;
    double left = CUTS_WHOLE;
    for (int again = 0; again < 2 && kept == 0; again++)
        for (int i = 0; i < p->n && kept < WHOLE && (!again || i < WHOLE); i++)
            PP_TRY(try_whole(p, p->rows[i], again, &left, &kept));
    p->n = kept;
    if (kept > 1)
        qsort(p->rows, (size_t)kept, sizeof(*p->rows), by_estimate);
    drop_same(p);
    return 0;
}

static int nothing_fits(struct plan_machine *p)
{
    struct plan_machine_row *s = &p->smallest;
    size_t largest = 0;
    for (int i = 0; i < p->model->n_layers; i++)
        if (p->model->layers[i].n_floats > largest)
            largest = p->model->layers[i].n_floats;
    largest *= sizeof(float) * (size_t)(2 + pp_optimizer_moments(p->cfg->train.optimizer));
    if (p->too_large == 0 && p->why[0])
        return pp_fail(PP_ECONFIG, "%d ranks: no shape can run: %s", p->ranks, p->why);
    if (p->too_large == 0)
        return pp_fail(PP_ECONFIG,
                       "%d ranks: no shape can run: stages divide the ranks, are at most "
                       "the %d layers, and each of at most %d replicas has a sample of the %d",
                       p->ranks, p->model->n_layers, PP_REPLICAS_MAX, p->batch);
    struct pp_best_spec spec = plan_machine_spec(p, s, s->c.microbatches);
    PP_TRY(pp_best_try(&spec, p->costs, &s->c)); /* whole: its beginning may hold less */
    return pp_fail(
        PP_ECONFIG,
        "nothing fits into %.4g GB a rank of %s: the smallest found is %s, %d stages x %d "
        "replicas, with %.4g GB (try --memory %zuk): use more ranks or a smaller batch (the "
        "largest "
        "layer alone "
        "has %.4g GB with its gradients and state; ppcli does not cut within layers)",
        (double)p->memory / 1e9, p->cluster.name, s->c.schedule, s->c.stages, s->replicas,
        (double)s->c.peak_bytes / 1e9, s->c.peak_bytes / 1000 + 1, (double)largest / 1e9);
}

static int find(struct plan_machine *p, const struct pp_cli_settings *settings)
{
    bool fixed = false;
    struct pp_cluster_use use = {.model = p->model,
                                 .precision = p->cfg->run.precision,
                                 .optimizer = p->cfg->train.optimizer,
                                 .rows = p->batch,
                                 .ranks = p->ranks};
    PP_TRY(pp_costs_of_cluster(&p->cluster, &use, &p->costs));
    PP_ALLOC(p->shape, 1);
    for (int i = 0; i < settings->n; i++)
        fixed |= strcmp(settings->items[i].key, "pipeline.stages") == 0;
    if (p->cfg->pipeline.slower.n > 0)
        return pp_config_problem(p->cfg, "pipeline.slower",
                                 "pipeline.slower: the ranks of a machine file are equally fast; "
                                 "leave it out");
    int most = p->model->n_layers < PP_STAGES_MAX ? p->model->n_layers : PP_STAGES_MAX;
    for (int stages = 1; stages <= p->ranks && stages <= most; stages++) {
        bool wanted = !fixed || stages == p->cfg->pipeline.stages;
        int replicas = p->ranks / stages;
        if (wanted && p->ranks % stages == 0 && replicas <= p->batch && replicas <= PP_REPLICAS_MAX)
            PP_TRY(search_stages(p, stages));
    }
    for (int stages = 1; stages <= most; stages++)
        PP_TRY(search_between(p, stages));
    if (p->n > 1)
        qsort(p->rows, (size_t)p->n, sizeof(*p->rows), by_estimate);
    int rc = refine(p);
    pp_log_progress(NULL);
    PP_TRY(rc);
    return p->n > 0 ? 0 : nothing_fits(p);
}

/* Is the config right as it is? */
static bool is_legal(const char *word, const struct pp_cli_settings *settings)
{
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    char path[PP_PATH_MAX];
    bool legal = strcmp(word, "-") == 0 ||
                 (pp_cli_find_config(word, path) == 0 &&
                  pp_config_load(path, settings->items, settings->n, pp_cli_names(), &cfg) == 0);
    pp_error_clear();
    return legal;
}

/* What --machine chooses itself cannot be asked for, and what the file says of it does not matter: a
 * batch may be too small for the file's micro-batches. */
static int load_open(const char *word, const struct pp_cli_settings *settings,
                     struct pp_config **out)
{
    static const char *const open[][2] = {
        {"pipeline.microbatches", "1"}, {"pipeline.replicas", "1"}, {"run.rank_order", "stages"}};
    const int n = sizeof(open) / sizeof(open[0]);
    PP_OWN_MEMORY struct pp_cli_settings *all = pp_alloc(1, sizeof(*all));
    PP_TRY(all ? 0 : PP_ERESOURCE);
    *all = *settings;
    for (int i = 0; i < settings->n; i++) {
        const struct pp_setting *s = &settings->items[i];
        if (pp_has_word(SEARCHED, s->key))
            return pp_fail(
                PP_EUSAGE,
                "%s: --machine chooses %s itself; of the shape only --stages can be fixed", s->said,
                s->key);
    }
    for (int i = 0; i < n && !is_legal(word, settings) && all->n < PP_CLI_SETTINGS_MAX; i++)
        all->items[all->n++] = (struct pp_setting){open[i][0], open[i][1], "--machine"};
    return pp_cli_load_config(word, all, out);
}

/* p->cfg is loaded. */
static int load_model(struct plan_machine *p)
{
    PP_TRY(pp_run_model(p->cfg, &p->model));
    p->train_n = p->test_n = p->batch = p->cfg->train.batch_size;
    int rc = pp_run_samples(p->cfg, PP_RUN_EXPLAIN, PP_SPLIT_TRAIN, &p->train_n);
    if (rc == 0)
        rc = pp_run_samples(p->cfg, PP_RUN_EXPLAIN, PP_SPLIT_TEST, &p->test_n);
    p->batch = p->train_n < p->batch ? p->train_n : p->batch;
    return rc == PP_ENOINPUT ? 0 : rc; /* data that are there, and not here */
}

/* Before the work whose result it shall hold. */
static int check_file(const char *option, const char *path)
{
    struct pp_file_write w;
    if (!path || strcmp(path, "-") == 0)
        return 0;
    if (!path[0])
        return pp_fail(PP_EUSAGE, "%s wants the name of a file, not ''", option);
    PP_TRY(pp_file_create(path, &w));
    pp_file_abandon(&w);
    return 0;
}

static int prepare(const struct plan_machine_words *w, struct plan_machine *p)
{
    char path[PP_PATH_MAX];
    PP_TRY(check_file("--html", w->html));
    PP_TRY(pp_cli_find_machine(w->machine, path));
    PP_TRY(pp_cluster_read(path, &p->cluster));
    p->ranks = w->ranks > 0 ? w->ranks : (int)p->cluster.ranks;
    p->memory = (size_t)p->cluster.memory;
    if (w->memory && !pp_bytes_parse(w->memory, &p->memory))
        return pp_fail(PP_EUSAGE, "--memory wants " PP_BYTES_FORMS ", not '%s'", w->memory);
    if (p->ranks > p->cluster.ranks && p->cluster.between.bandwidth <= 0)
        return pp_fail(PP_ECONFIG,
                       "%s is one host of %.0f ranks: --ranks %d needs its [between], "
                       "the link between hosts",
                       path, p->cluster.ranks, p->ranks);
    return 0;
}

static void fini(struct plan_machine *p)
{
    pp_free(p->rows);
    pp_free(p->shape);
    pp_costs_destroy(&p->costs);
    pp_cluster_fini(&p->cluster);
    pp_model_destroy(&p->model);
    pp_config_destroy(&p->cfg);
}

static int plan(const char *word, const struct pp_cli_settings *settings,
                const struct plan_machine_words *w, struct plan_machine *p)
{
    PP_TRY(prepare(w, p));
    PP_TRY(load_open(word, settings, &p->cfg));
    PP_TRY(load_model(p));
    PP_TRY(find(p, settings));
    PP_TRY(plan_machine_text(p));
    return w->html ? plan_machine_html(p, w->html) : 0;
}

int plan_machine(const char *word, const struct pp_cli_settings *settings,
                 const struct plan_machine_words *w, const char *format)
{
    PP_OWN(fini) struct plan_machine p = {.n = 0};
    if (!word)
        return pp_fail(PP_EUSAGE, "--machine needs a config. For example: ppcli plan llama-70b.ini "
                                  "--machine 8xh100-nvlink --ranks 64");
    if (strcmp(format, "grid") != 0)
        return pp_fail(PP_EUSAGE, "--machine prints a table, or --html FILE, not '%s'", format);
    int rc = plan(word, settings, w, &p);
    return pp_cli_look_verdict(p.cfg, rc);
}

/* ---- measuring */

static int add_layers(const struct pp_model *m, const struct pp_costs *costs, struct pp_cluster *c)
{
    int n = costs->n_sizes * m->n_layers;
    c->layers = pp_alloc((size_t)n, sizeof(*c->layers));
    for (int i = 0; c->layers && i < n; i++) {
        const struct pp_layer_seconds *t = &costs->layers[i];
        struct pp_cluster_layer *l = &c->layers[i];
        *l = (struct pp_cluster_layer){.rows = costs->sizes[i / m->n_layers],
                                       .t = {t->f, t->i, t->w},
                                       .work = pp_layer_work(m, i % m->n_layers)};
        memcpy(l->name, m->layers[i % m->n_layers].name, sizeof(l->name));
    }
    c->n_layers = c->layers ? n : 0;
    return c->layers ? 0 : PP_ERESOURCE;
}

static int write_machine(const char *word, const struct pp_config *cfg, const struct pp_cluster *c,
                         const char *path)
{
    struct pp_bench_header h;
    struct pp_file_write w = {.f = stdout};
    bool file = path && strcmp(path, "-") != 0;
    pp_bench_describe(cfg, false, &h);
    PP_TRY(file ? pp_file_create(path, &w) : 0);
    fprintf(w.f, "; Measured on %s by ppcli plan %s --measure: %s, a rank on each core or device\n",
            h.date, word, c->launch > 0 ? h.gpu : h.cpu);
    int rc = pp_cluster_write(c, w.f);
    if (file && rc < 0)
        pp_file_abandon(&w);
    return file && rc == 0 ? pp_file_commit(&w) : rc;
}

int plan_measure(const char *word, const struct pp_cli_settings *settings, const char *path)
{
    PP_OWN(fini) struct plan_machine p = {.n = 0};
    if (!word)
        return pp_fail(
            PP_EUSAGE,
            "--measure needs a config. For example: ppcli plan mnist.ini --measure -o here.ini");
    double load = 0;
    int rc = check_file("-o", path);
    rc = rc < 0 ? rc : pp_cli_load_config(word, settings, &p.cfg);
    (void)getloadavg(&load, 1);
    rc = rc < 0 ? rc : load_model(&p);
    struct pp_best_spec spec = {.all_m = true, .cfg = p.cfg, .model = p.model, .train_n = p.batch};
    rc = rc < 0 ? rc : pp_best_measure(&spec, MEASURE_SECONDS, &p.costs);
    rc = rc < 0 ? rc : pp_bench_cluster(p.cfg, MEASURE_SECONDS, &p.cluster);
    rc = rc < 0 ? rc : add_layers(p.model, p.costs, &p.cluster);
    p.cluster.busy = load >= PP_BENCH_BUSY_LOAD ? load : 0;
    if (rc == 0 && p.cluster.busy > 0)
        pp_log_warn(
            "other programs used this machine (load %.1f before the start): do not trust the "
            "times that were measured",
            load);
    rc = rc < 0 ? rc : write_machine(word, p.cfg, &p.cluster, path);
    return pp_cli_config_verdict(p.cfg, rc);
}
