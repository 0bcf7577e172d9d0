/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search: every shape is laid out as the run would lay it out, so that what is ranked is what
 * would run, with its plans proved and its memory counted.
 */
#include "search.h"

#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"

/* ---- all candidates */

#define WORSE 1.5 /* other sums make no shape the fastest that takes so much longer */

struct search {
    const struct pp_space *asked, *spec; /* of all shapes; of one: now */
    struct pp_space now;
    const struct pp_costs *all, *costs;
    struct pp_rows *best;
};

static void use_shape(struct search *s, const struct pp_division *base)
{
    s->now = *s->asked;
    s->now.base = *base;
    s->costs = pp_costs_at(s->all, base->threads);
}

/* Returns the memory cap with which the search for an order made for costs begins, in forwards that
 * a rank may hold: the config's, else two per stage. Whether that fits in memory is tested
 * later. */
static double cap_of(const struct pp_space *spec, int stages)
{
    double own = spec->base.memory_cap;
    return own > 0 ? own : 2.0 * stages;
}

/* Evaluates a shape, with what it must recompute to fit in memory. An order that is made for a
 * memory cap is tried with falling caps until it fits without recomputing. *c becomes the fastest
 * that fits, else the one that holds least. */
static int try_shape(struct search *s, struct pp_row *c)
{
    const struct pp_space *spec = s->spec;
    struct pp_row now = *c;
    bool more = true;
    int rc = PP_ECONFIG;
    double *cap = &now.d.memory_cap;
    now.chooses_redo = spec->recompute;
    if (best_most_sums(spec, c->d.microbatches) > 1) /* best_sums() tries more */
        now.d.coalesce = 1;
    now.fitted = c->d.schedule->fits;
    *cap = now.fitted ? cap_of(spec, c->d.stages) : *cap;
    for (; more; *cap = *cap > 4 ? *cap / 2 : *cap - 1) {
        memset(now.d.recompute, 0, sizeof(now.d.recompute));
        int tried = pp_best_try(spec, s->costs, &now);
        bool over = tried == 0 && now.over;
        bool slow = over && rc == 0 && !c->over && now.time.step >= c->time.step;
        s->best->limited = s->best->limited || over;
        more = over && !slow && now.fitted && *cap > 1;
        if (over && spec->recompute && !slow)
            tried = best_fit(spec, s->costs, &now);
        if (tried == PP_ERESOURCE)
            return tried;
        bool better = now.over ? now.peak_bytes < c->peak_bytes : now.time.step < c->time.step;
        if (tried == 0 && (rc < 0 || (now.over == c->over ? better : !now.over))) {
            *c = now;
            rc = 0;
        }
    }
    return rc;
}

/* Counts a refused row. Keeps the reason of the first one, which is reported if nothing can run. */
static void refuse(struct pp_rows *b, const struct pp_row *c)
{
    if (b->refused++ == 0)
        snprintf(b->why, sizeof(b->why), "%s, %d stages, %d micro-batches: %.640s",
                 pp_division_schedule(&c->d), c->d.stages, c->d.microbatches, pp_error_get()->text);
}

/* Evaluates one candidate, and adds it to the rows or counts it as refused, too large, or the same
 * as another row. */
static int judge_one(struct search *s, struct pp_row *c)
{
    struct pp_rows *b = s->best;
    int rc = try_shape(s, c);
    if (rc == PP_ERESOURCE)
        return rc;
    b->tried++;
    if (rc < 0)
        refuse(b, c);
    return rc < 0 ? 0 : rows_add(b, c, rows_are_one_plan);
}

static int judge(struct search *s, struct pp_row *c)
{
    bool hosts = s->costs->host || s->costs->host_ranks > 0;
    bool both = s->spec->places && hosts && s->spec->base.replicas > 1;
    bool own = c->d.across;
    PP_TRY(judge_one(s, c));
    c->d.across = true;
    PP_TRY(both ? judge_one(s, c) : 0);
    c->d.across = own;
    return 0;
}

int best_cut(const struct pp_space *spec, const struct pp_costs *costs, bool by_time,
             struct pp_row *c)
{
    const struct pp_model *model = spec->model;
    int n = c->d.stages * c->d.chunks;
    PP_TAKE(int, cut, 2 * n); /* the last layers, then the first */
    PP_TAKE(double, by_layer, model->n_layers);
    pp_costs_by_layer(costs, pp_best_rows(spec, c->d.microbatches), by_layer);
    PP_TRY(by_time ? pp_partition_costs(model, by_layer, n, cut + n, cut)
                   : pp_partition(model, spec->cfg, n, cut + n, cut));
    for (int i = 0; i < n; i++)
        c->d.last[i] = (uint16_t)cut[i];
    c->timed = true;
    return 0;
}

/* Tries the cut that the config asks for and, if cuts are open, the cut by time if it is a
 * different one. */
static int try_cuts(struct search *s, struct pp_row *c)
{
    size_t bytes = (size_t)c->d.stages * (size_t)c->d.chunks * sizeof(*c->d.last);
    uint16_t timed[PP_STAGES_MAX];
    PP_TRY(best_cut(s->spec, s->costs, true, c));
    memcpy(timed, c->d.last, bytes);
    int rc = s->spec->timed ? 0 : best_cut(s->spec, s->costs, false, c);
    if (rc == PP_ERESOURCE)
        return rc;
    bool same = rc == 0 && memcmp(timed, c->d.last, bytes) == 0;
    if (rc == 0 && (!same || !s->spec->cuts)) {
        c->timed = s->spec->timed;
        PP_TRY(judge(s, c));
    }
    if (!s->spec->cuts) {
        s->best->tried += rc < 0;
        if (rc < 0)
            refuse(s->best, c);
        return 0;
    }
    memcpy(c->d.last, timed, bytes); /* where the config's ranges are no cut of this shape: alone */
    c->timed = true;
    return judge(s, c);
}

/* Returns the costs for schedules that depend on them: F, I and W of a micro-batch, averaged over
 * the ranks, and a transfer. */
static struct pp_schedule_costs rank_costs(const struct pp_space *spec,
                                           const struct pp_costs *costs, int p, int m)
{
    const struct pp_model *model = spec->model;
    int rows = pp_best_rows(spec, m);
    double width = 0, t[3];
    for (int i = 0; i < model->n_layers; i++)
        width = model->layers[i].in > width ? model->layers[i].in : width;
    bool pieces = pp_layout_logits_rows(&spec->training, model, rows) > 0;
    pp_costs_stage(costs, 0, model->n_layers - 1, rows, 1, pieces, t);
    return (struct pp_schedule_costs){t[0] / p, t[1] / p, t[2] / p,
                                      costs->near.latency +
                                          costs->near.byte * rows * width * costs->value_bytes};
}

int best_eager(const struct pp_space *spec, const struct pp_costs *costs, int stages, int m)
{
    struct pp_geometry g = {.stages = stages,
                            .chunks = 1,
                            .microbatches = m,
                            .eager = spec->base.eager,
                            .costs = rank_costs(spec, costs, stages, m)};
    return pp_schedule_eager(&g);
}

static int eager_of(const struct search *s, const struct pp_schedule_ops *schedule, int stages,
                    int m)
{
    if (!schedule->eager)
        return 0;
    int k = best_eager(s->spec, s->costs, stages, m);
    return k > 1 || s->spec->base.eager > 0 ? k : 2; /* 1 is 1f1b */
}

static int try_chunks(struct search *s, struct pp_row *c)
{
    int own = pp_schedule_default_chunks(c->d.schedule), given = s->spec->chunks;
    int list[] = {1, 2, 4, own == 1 || own == 2 || own == 4 ? 0 : own};
    int n = given > 0 || c->d.stages == 1 ? 1 : 4; /* of one rank none waits */
    for (int i = 0; i < n; i++) {
        c->d.chunks = given > 0 ? given : list[i];
        int64_t n_virtual = (int64_t)c->d.chunks * c->d.stages;
        if (c->d.chunks > 0 && n_virtual <= s->spec->model->n_layers && n_virtual <= PP_STAGES_MAX)
            PP_TRY(try_cuts(s, c));
    }
    return 0;
}

/* Tries every schedule with every number of micro-batches and chunks and every cut, for one choice
 * of stages, replicas and threads. */
static int search_shape(struct search *s)
{
    const char *const *names = pp_schedule_names();
    const struct pp_division *base = &s->spec->base;
    int counts[PP_BEST_COUNTS_MAX];
    int n = pp_best_counts(s->spec, counts, PP_BEST_COUNTS_MAX);
    for (int i = 0; i < n; i++) {
        for (int k = 0; names[k]; k++) {
            struct pp_row c = {.order = k, .d = *base};
            c.d.schedule = pp_schedule_find(names[k]);
            if (c.d.schedule->proves)
                continue;
            if (c.d.schedule != base->schedule) /* of another order */
                c.d.ticks = NULL;
            c.d.microbatches = counts[i];
            pp_log_progress("looking at %d stage%s x %d replica%s x %d thread%s: %s", base->stages,
                            pp_plural(base->stages), base->replicas, pp_plural(base->replicas),
                            base->threads, pp_plural(base->threads), names[k]);
            c.d.eager = eager_of(s, c.d.schedule, base->stages, counts[i]);
            PP_TRY(try_chunks(s, &c));
        }
    }
    return 0;
}

/* Improves the cut of *c. If *c recomputes something and may choose that, also improves the cut
 * without recomputing, because another cut may fit in memory without it; the better one is kept. */
static int refine_one(struct search *s, struct pp_row *c, double *left)
{
    struct pp_row none = *c;
    PP_TRY(best_refine(s->spec, s->costs, c, left));
    if (!none.chooses_redo || *left <= 0 ||
        !memchr(none.d.recompute, true, sizeof(none.d.recompute)))
        return 0;
    memset(none.d.recompute, 0, sizeof(none.d.recompute));
    PP_TRY(pp_best_try(s->spec, s->costs, &none));
    PP_TRY(best_refine(s->spec, s->costs, &none, left));
    if (!none.over && (c->over || none.time.step < c->time.step))
        *c = none;
    return 0;
}

/* Improves the rows, the best first: how many weight gradients are summed at once, and the cut.
 * Drops rows that still hold too much, and merges rows that become the same plan. */
static int refine(struct search *s)
{
    const struct pp_space *spec = s->asked;
    struct pp_rows *b = s->best;
    double left =
        spec->actions > 0 ? spec->actions : REFINE_ACTIONS * fmax(1, best_most_stages(spec) / 24.0);
    rows_sort(b);
    PP_OWN(pp_rows_fini) struct pp_rows drafts = {.items = b->items, .n = b->n};
    double fastest = drafts.n > 0 ? drafts.items[0].time.step : 0;
    b->items = NULL;
    b->n = b->room = 0;
    b->keeps_large = false;
    for (int i = 0; i < drafts.n; i++) {
        struct pp_row *c = &drafts.items[i];
        struct pp_division base = spec->base;
        best_divide(&base, c->d.replicas, c->d.threads);
        use_shape(s, &base);
        if (left > 0 && !c->over && c->time.step < WORSE * fastest)
            PP_TRY(best_sums(s->spec, s->costs, c, &left));
        if (spec->cuts && c->timed && left > 0)
            PP_TRY(refine_one(s, c, &left));
        PP_TRY(rows_add(b, c, rows_are_one_plan));
    }
    return 0;
}

/* Prices the config's own shape, if it names one. If hosts were lost, the shape may have more ranks
 * than places; then it is left out. */
static int as_is(struct search *s)
{
    const struct pp_space *asked = s->asked;
    const struct pp_division *base = asked->own.stages > 0 ? &asked->own : &asked->base;
    struct pp_row *c = &s->best->as_is;
    if (!base->schedule || (s->costs->host && base->stages * base->replicas > s->costs->n_hosts))
        return 0; /* auto, or a table */
    use_shape(s, base);
    *c = (struct pp_row){.d = *base, .timed = asked->cfg->pipeline.assignment == PP_ASSIGN_TIME};
    c->d.microbatches = asked->base.microbatches;
    c->d.chunks = asked->chunks > 0 ? asked->chunks : pp_schedule_default_chunks(base->schedule);
    c->d.eager = eager_of(s, base->schedule, base->stages, c->d.microbatches);
    int64_t n = (int64_t)c->d.stages * c->d.chunks;
    int rc = n > s->spec->model->n_layers || n > PP_STAGES_MAX ? PP_ECONFIG : 0;
    if (rc == 0 && c->timed)
        rc = best_cut(s->spec, s->costs, true, c);
    if (rc == 0)
        rc = pp_best_try(s->spec, s->costs, c);
    c->time.step = rc < 0 ? 0 : c->time.step;
    return rc == PP_ERESOURCE ? rc : 0;
}

/* Finds the plan with one stage and no replicas: the first of its kind in the rows, which are
 * sorted; if the rows have none, it is priced here. */
static int find_one(struct search *s)
{
    struct pp_rows *b = s->best;
    struct pp_division base = s->asked->base;
    best_divide(&base, 1, s->asked->one_threads);
    base.stages = base.chunks = 1;
    use_shape(s, &base);
    b->one = (struct pp_row){.d = base};
    b->one.d.schedule = pp_schedule_find("1f1b");
    b->one.d.ticks = base.schedule == b->one.d.schedule ? base.ticks : NULL;
    b->one.d.eager = 0;
    for (int i = 0; i < b->n; i++) {
        if (pp_best_is(&b->items[i], 1, 1, base.threads)) {
            b->one = b->items[i];
            return 0;
        }
    }
    int rc = pp_best_try(s->spec, s->costs, &b->one);
    b->one.time.step = rc < 0 ? 0 : b->one.time.step;
    return rc == PP_ERESOURCE ? rc : 0;
}

static int search(struct search *s)
{
    const struct pp_space *spec = s->asked;
    struct pp_rows *b = s->best;
    for (int i = 0; i == 0 || i < spec->n_shapes; i++) {
        use_shape(s, spec->n_shapes > 0 ? &spec->shapes[i] : &spec->base);
        PP_TRY(search_shape(s));
    }
    PP_TRY(refine(s));
    pp_error_clear();
    rows_sort(b);
    PP_TRY(find_one(s));
    return as_is(s);
}

int pp_search(const struct pp_space *spec, const struct pp_costs *costs, struct pp_rows *out)
{
    struct pp_rows best = {.keeps_large = true};
    struct search s = {.asked = spec, .all = costs, .best = &best};
    s.spec = &s.now;
    int rc = search(&s);
    pp_log_progress(NULL);
    PP_TRY_UNDO(rc, pp_rows_fini(&best));
    pp_error_clear();
    *out = best;
    return 0;
}
