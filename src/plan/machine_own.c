/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of a machine plan that ppcli itself trains. A shape is stages, replicas, rows of a
 * micro-batch and train.zero. Shapes are ranked by a step of a few micro-batches, whose length tells
 * that of many; the best of them are then laid out and simulated whole. Where all shapes are too much
 * work, 1f1b probes each, and the most promising ones are searched.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"
#include "search.h"
#include "ppcli/base/base.h"

#define KEPT 4      /* of each shape */
#define WHOLE 16    /* simulated whole */
#define PER_STAGE 2 /* micro-batches of the short step */
/* Actions that finding better cuts of a short step may simulate: of few stages, which cost little,
 * more. And of all whole steps. */
#define CUTS(stages) (1.2e8 / ((stages) < 40 ? (stages) : 40))
#define CUTS_WHOLE 3e7
#define BETWEEN 1.3 /* times the best: shapes further off are not looked at between powers of two */
#define WORSE 1.3   /* larger micro-batches are not looked at once they cost so much */
#define ALL 1.2e4   /* actions of the short steps of all shapes that may all be searched */
#define FEW 4.8e4   /* of all shapes that are searched one by one where no probe fits */
#define SOME 8e3    /* of the most promising ones, where ALL is exceeded */
#define PROMISING 1.15 /* times the best 1f1b: shapes that would take as long without a bubble go */
#define LONG 2e6       /* actions of a step that is not simulated whole */

/* A backend of devices, whether or not there is one here; NULL: this program has none. */
static const struct pp_backend_ops *find_device(void)
{
    for (int i = 0; i < pp_backend_count(); i++)
        if (pp_backend_at(i)->own_memory)
            return pp_backend_at(i);
    return NULL;
}

struct pp_space pp_machine_plan_spec(const struct pp_machine_plan *p, const struct pp_row *row,
                                     int m)
{
    const struct pp_division *d = &row->d;
    int share, first, rows, chunks = p->asked.chunks.n == 1 ? p->asked.chunks.at[0] : 0;
    bool whole = m >= d->microbatches;
    struct pp_space spec = p->space;
    pp_balanced_piece(p->batch, d->replicas, 0, &first, &share);
    pp_balanced_piece(share, d->microbatches, 0, &first, &rows);
    if (pp_cluster_has_devices(&p->cluster)) { /* no copies that only a processor's products want */
        spec.training.backend.ops = NULL;
        spec.training.backend.named = find_device();
    }
    spec.training.processes = p->ranks > p->cluster.ranks; /* of several hosts */
    if (!whole) {
        spec.training.batch = spec.training.train_n = d->replicas * rows * m;
        spec.training.test_n = 0;
    }
    spec.base.stages = d->stages;
    spec.base.replicas = d->replicas;
    spec.base.microbatches = m;
    spec.base.zero = d->zero;
    spec.chunks = d->stages == 1 ? 1 : chunks;
    spec.actions = CUTS(d->stages);
    spec.places = spec.training.processes;
    return spec;
}

static int short_step(const struct pp_row *row)
{
    int m = PER_STAGE * row->d.stages;
    return m < row->d.microbatches ? m : row->d.microbatches;
}

/* ---- one shape */

/* Keep a row whose first m micro-batches are known: twice as many tell what each further one adds. */
static int keep_row(struct pp_machine_plan *p, struct pp_row *row, int m, double *best)
{
    struct pp_row more = *row;
    row->own = true;
    if (row->d.microbatches > m) {
        more.d.microbatches = 2 * m < row->d.microbatches ? 2 * m : row->d.microbatches;
        struct pp_space spec = pp_machine_plan_spec(p, row, more.d.microbatches);
        PP_TRY(pp_best_try(&spec, p->costs, &more));
        double each = (more.time.step - row->time.step) / (more.d.microbatches - m);
        row->time.step = more.time.step + (row->d.microbatches - more.d.microbatches) * each;
    }
    *best = row->time.step < *best || *best == 0 ? row->time.step : *best;
    return rows_add(&p->found, row, NULL);
}

/* Is it what was asked for? A schedule also where it goes by another name. */
static bool is_asked(const struct pp_machine_plan *p, const struct pp_row *c)
{
    const struct pp_asked *a = &p->asked;
    const char *schedule = pp_division_schedule(&c->d);
    bool redone = memchr(c->d.recompute, true, sizeof(c->d.recompute)) != NULL;
    return (!a->schedules[0] || pp_has_word(a->schedules, schedule)) &&
           (!a->redos[0] || pp_has_word(a->redos, redone ? "full" : "none")) &&
           asked_has(&a->chunks, c->d.chunks) && (!a->only || pp_parallel_runs_on(&c->d, a->only));
}

/* Counts what the search of one shape tried; a whole step has `whole` micro-batches. */
static int count_tries(struct pp_rows *all, struct pp_rows *found, int whole)
{
    if (!all->why[0])
        memcpy(all->why, found->why, sizeof(all->why));
    all->tried += found->tried - found->refused - found->same;
    found->smallest.d.microbatches = whole;
    if (found->too_large == 0)
        return 0;
    all->too_large += found->too_large - 1;
    return rows_add(all, &found->smallest, NULL);
}

/* All schedules of one shape. *best: the shortest estimate. */
static int search_shape(struct pp_machine_plan *p, struct pp_row *row, double *best)
{
    int whole = row->d.microbatches, m = short_step(row), kept = 0;
    struct pp_space spec = pp_machine_plan_spec(p, row, m);
    PP_OWN(pp_rows_fini) struct pp_rows found = {0};
    PP_TRY(pp_search(&spec, p->costs, &found));
    PP_TRY(count_tries(&p->found, &found, whole));
    int small = 0; /* holds least: it may be the only one that fits whole */
    for (int i = 1; i < found.n; i++)
        small = found.items[i].peak_bytes < found.items[small].peak_bytes ? i : small;
    for (int i = 0; i < found.n; i++) {
        if ((kept >= KEPT && i != small) || !is_asked(p, &found.items[i]))
            continue;
        kept++;
        *row = found.items[i];
        row->d.microbatches = whole;
        if (row->d.eager > 0) { /* of more micro-batches more may be early */
            spec = pp_machine_plan_spec(p, row, whole);
            int eager = best_eager(&spec, p->costs, row->d.stages, whole);
            row->d.eager = eager > row->d.eager ? eager : row->d.eager;
        }
        int rc = keep_row(p, row, m, best);
        PP_TRY(rc == PP_ECONFIG ? 0 : rc); /* it cannot run with twice as many */
    }
    return 0;
}

static struct pp_row make_row(const struct pp_machine_plan *p, int stages, int zero, int m)
{
    struct pp_row row = {.d = p->space.base};
    row.d.stages = stages;
    row.d.replicas = p->ranks / stages;
    row.d.zero = zero;
    row.d.microbatches = m;
    return row;
}

/* ---- all shapes */

/* Micro-batches of 1, 2, 4, ... rows, at most as many as the replica with the fewest samples has; or
 * as many as were asked for. Returns how many there are. */
static int count_microbatches(const struct pp_machine_plan *p, int replicas, int out[PP_ASKED_MAX])
{
    int share = p->batch / replicas, n = 0;
    for (int i = 0; i < p->asked.microbatches.n; i++)
        if (p->asked.microbatches.at[i] <= share)
            out[n++] = p->asked.microbatches.at[i];
    if (p->asked.microbatches.n > 0)
        return n;
    for (int64_t rows = 1; rows < 2 * (int64_t)share && n < PP_ASKED_MAX; rows *= 2) {
        int64_t m = (share + rows - 1) / rows;
        if (m <= PP_MICROBATCHES_MAX)
            out[n++] = (int)m;
    }
    return n;
}

/* Call visit() for all numbers of stages and both train.zero. */
static int visit_stages(struct pp_machine_plan *p,
                        int (*visit)(struct pp_machine_plan *p, int stages, int zero, void *ctx),
                        void *ctx)
{
    int most = p->model->n_layers < PP_STAGES_MAX ? p->model->n_layers : PP_STAGES_MAX;
    for (int stages = 1; stages <= p->ranks && stages <= most; stages++) {
        int d = p->ranks / stages;
        bool fits = p->ranks % stages == 0 && d <= p->batch && d <= PP_REPLICAS_MAX;
        if (!fits || !asked_has(&p->asked.stages, stages) || !asked_has(&p->asked.replicas, d))
            continue;
        bool sums = pp_optimizer_moments(p->cfg->train.optimizer) > 0 && d > 1;
        for (int zero = 0; zero <= sums; zero++)
            if (asked_has(&p->asked.zero, zero))
                PP_TRY(visit(p, stages, zero, ctx));
    }
    return 0;
}

/* One number of stages: larger micro-batches for as long as that helps. */
static int search_stages(struct pp_machine_plan *p, int stages, int zero, void *ctx)
{
    int list[PP_ASKED_MAX], n = count_microbatches(p, p->ranks / stages, list);
    double least = 0;
    (void)ctx;
    for (int i = 0; i < n; i++) {
        struct pp_row row = make_row(p, stages, zero, list[i]);
        double best = 0;
        PP_TRY(search_shape(p, &row, &best));
        bool ends = best == 0 || (least > 0 && best > WORSE * least); /* more rows hold more */
        if (ends && p->asked.microbatches.n == 0)
            break;
        least = best > 0 && (best < least || least == 0) ? best : least;
    }
    return 0;
}

/* The row that takes least by its estimate; stages 0: of any number of stages. NULL: there is none. */
static const struct pp_row *least_of(const struct pp_machine_plan *p, int stages)
{
    const struct pp_row *least = NULL;
    for (const struct pp_row *r = p->found.items; r < p->found.items + p->found.n; r++)
        if ((stages == 0 || r->d.stages == stages) && (!least || r->time.step < least->time.step))
            least = r;
    return least;
}

/* Micro-batches of at most these rows, unless as many of them are known. *best: as in search_shape(),
 * or unchanged. */
static int search_rows(struct pp_machine_plan *p, const struct pp_row *like, int rows, double *best)
{
    int m = (p->batch / like->d.replicas - 1) / rows + 1;
    struct pp_row row = make_row(p, like->d.stages, like->d.zero, m);
    if (m > PP_MICROBATCHES_MAX)
        return 0;
    for (int i = 0; i < p->found.n; i++)
        if (p->found.items[i].d.stages == row.d.stages && p->found.items[i].d.zero == row.d.zero &&
            p->found.items[i].d.microbatches == m)
            return 0;
    return search_shape(p, &row, best);
}

/* One number of stages: between the powers of two, from the best of them on, the half of the gap
 * each time. */
static int search_between(struct pp_machine_plan *p, int stages)
{
    const struct pp_row *least = least_of(p, stages);
    if (!least || least->time.step > BETWEEN * least_of(p, 0)->time.step)
        return 0;
    struct pp_row like = *least;
    int m = like.d.microbatches, rows = (p->batch / like.d.replicas - 1) / m + 1;
    double best = like.time.step;
    for (int by = rows / 2; by > 0; by /= 2) {
        double before = best;
        PP_TRY(search_rows(p, &like, rows + by, &best));
        double more = best;
        PP_TRY(search_rows(p, &like, rows - by, &best));
        rows += best < more ? -by : more < before ? by : 0;
    }
    return 0;
}

/* ---- too many shapes: the most promising ones */

struct probes {
    struct pp_row *items;
    int n;
    double actions, best; /* of all short steps; the shortest step of 1f1b that fits */
};

static int add_shapes(struct pp_machine_plan *p, int stages, int zero, void *ctx)
{
    struct probes *probes = ctx;
    int list[PP_ASKED_MAX], n = count_microbatches(p, p->ranks / stages, list);
    PP_GROW(probes->items, (size_t)(probes->n + n));
    for (int i = 0; i < n; i++) {
        struct pp_row *row = &probes->items[probes->n++];
        *row = make_row(p, stages, zero, list[i]);
        probes->actions += 3.0 * stages * short_step(row);
    }
    return 0;
}

/* Predicts the short step of 1f1b, recomputed where it must be. row->time.step: seconds of a whole step
 * without a bubble; 0: it does not fit. */
static int probe_shape(struct pp_machine_plan *p, struct pp_row *row, double *best)
{
    int m = short_step(row), whole = row->d.microbatches;
    struct pp_space spec = pp_machine_plan_spec(p, row, m);
    PP_TAKE(double, by_layer, p->model->n_layers);
    PP_TAKE(int, cut, 2 * row->d.stages);
    pp_costs_by_layer(p->costs, pp_best_rows(&spec, m), by_layer);
    struct pp_row c = {.d = row->d, .timed = true, .chooses_redo = true};
    c.d.schedule = pp_schedule_find("1f1b");
    c.d.chunks = 1;
    c.d.microbatches = m;
    PP_TRY(pp_partition_costs(p->model, by_layer, c.d.stages, cut + c.d.stages, cut));
    for (int i = 0; i < c.d.stages; i++)
        c.d.last[i] = (uint16_t)cut[i];
    PP_TRY(pp_best_try(&spec, p->costs, &c));
    if (c.over)
        PP_TRY(best_fit(&spec, p->costs, &c));
    p->found.tried++;
    double each = c.time.step / (m + c.d.stages - 1);
    row->time.step = c.over ? 0 : each * whole;
    if (!c.over && (*best == 0 || each * (whole + c.d.stages - 1) < *best))
        *best = each * (whole + c.d.stages - 1);
    c.d.microbatches = whole;
    return c.over ? rows_add(&p->found, &c, NULL) : 0;
}

static int search_promising(struct pp_machine_plan *p, struct probes *probes)
{
    double left = SOME, best = 0;
    int n = 0;
    for (int i = 0; i < probes->n; i++) {
        struct pp_row *row = &probes->items[i];
        bool other = row->d.zero == 0 && row->d.replicas > 1 && asked_has(&p->asked.zero, 1);
        if (other && pp_optimizer_moments(p->cfg->train.optimizer) > 0)
            continue; /* zero = 1 changes no bit, and holds less */
        pp_log_progress("shapes: %d of %d", i + 1, probes->n);
        int rc = probe_shape(p, row, &probes->best);
        PP_TRY(rc == PP_ECONFIG ? 0 : rc);
        if (rc == 0 && row->time.step > 0)
            probes->items[n++] = *row;
    }
    if (n > 1)
        qsort(probes->items, (size_t)n, sizeof(*probes->items), rows_compare);
    for (int i = 0; i < n && (left > 0 || p->found.n == 0); i++) {
        struct pp_row *row = &probes->items[i];
        if (p->found.n > 0 && row->time.step > PROMISING * probes->best)
            break;
        left -= 3.0 * row->d.stages * short_step(row);
        PP_TRY(search_shape(p, row, &best));
    }
    return 0;
}

static int search_all(struct pp_machine_plan *p)
{
    PP_OWN_MEMORY struct pp_row *items = NULL;
    struct probes probes = {0};
    int most = p->model->n_layers < PP_STAGES_MAX ? p->model->n_layers : PP_STAGES_MAX;
    int rc = visit_stages(p, add_shapes, &probes);
    items = probes.items;
    PP_TRY(rc);
    if (probes.actions > ALL)
        PP_TRY(search_promising(p, &probes));
    if (p->found.n > 0 || probes.n == 0 || (probes.actions > ALL && p->found.too_large == 0))
        return 0;
    if (probes.actions > FEW)
        return 0; /* the smallest is known */
    PP_TRY(visit_stages(p, search_stages, NULL));
    for (int stages = 1; stages <= most && p->asked.microbatches.n == 0; stages++)
        PP_TRY(search_between(p, stages));
    return 0;
}

/* ---- whole steps */

/* Predicts a whole step of a row, with a better cut, and adds the row to *whole. again: it did not fit
 * at first; recompute more of it. */
static int try_whole(struct pp_machine_plan *p, struct pp_row row, bool again, double *left,
                     struct pp_rows *whole)
{
    int all = row.d.microbatches, m = all, pieces = row.d.stages * row.d.chunks;
    double estimate = row.time.step;
    if (3.0 * m * pieces > LONG)
        m = (int)(LONG / (3.0 * pieces)) / row.d.stages * row.d.stages;
    m = PP_MAX(m, short_step(&row));
    bool is_whole = m == all;
    struct pp_space spec = pp_machine_plan_spec(p, &row, m);
    pp_log_progress("whole steps: %d of %d", whole->n + whole->same + 1, PP_MIN(WHOLE, p->found.n));
    row.d.microbatches = m;
    int rc = again ? best_fit(&spec, p->costs, &row) : pp_best_try(&spec, p->costs, &row);
    if (rc == 0 && !again && row.peak_bytes > p->space.memory)
        rc = best_fit(&spec, p->costs, &row);
    if (rc == 0 && row.peak_bytes <= p->space.memory && *left > 0 && is_whole)
        rc = best_refine(&spec, p->costs, &row, left);
    if (rc < 0)
        return rc == PP_ECONFIG ? 0 : rc;
    row.over = row.peak_bytes > p->space.memory;
    PP_TRY(row.over ? 0 : pp_best_explain(&spec, p->costs, &row, NULL));
    row.time.step = is_whole ? row.time.step : estimate;
    row.d.microbatches = all;
    return rows_add(whole, &row, rows_take_as_long);
}

/* Replaces the rows by the best of them, predicted whole. */
static int refine_rows(struct pp_machine_plan *p)
{
    double left = CUTS_WHOLE;
    struct pp_rows whole = p->found;
    PP_OWN(pp_rows_fini) struct pp_rows shorts = {.items = p->found.items, .n = p->found.n};
    whole.items = NULL;
    whole.n = whole.room = whole.same = 0;
    int rc = 0;
    for (int again = 0; again < 2 && whole.n == 0; again++) {
        long too_large = whole.too_large;
        for (int i = 0; rc == 0 && i < shorts.n && whole.n + whole.same < WHOLE; i++)
            if (!again || i < WHOLE)
                rc = try_whole(p, shorts.items[i], again, &left, &whole);
        whole.too_large = again ? too_large : whole.too_large; /* they were counted */
    }
    p->found = whole;
    rows_sort(&p->found);
    return rc;
}

int machine_own(struct pp_machine_plan *p)
{
    struct pp_cluster_use use = {.model = p->model,
                                 .precision = p->cfg->run.precision,
                                 .optimizer = p->cfg->train.optimizer,
                                 .rows = p->batch,
                                 .ranks = p->ranks};
    PP_TRY(pp_costs_of_cluster(&p->cluster, &use, &p->costs));
    PP_TRY(search_all(p));
    rows_sort(&p->found);
    PP_TRY(refine_rows(p));
    for (int i = 0; i < p->found.n; i++)
        PP_TRY(machine_describe(p, &p->found.items[i]));
    return 0;
}
