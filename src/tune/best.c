/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search: every shape is laid out as the run would lay it out, so that what is ranked is what
 * would run, with its plans proved and its memory counted.
 */
#include "tune.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/log.h"
#include "ppcli/text.h"

/* ---- all candidates */

#define WORSE 1.5 /* other sums make no shape the fastest that takes so much longer */

struct search {
    const struct pp_best_spec *asked, *spec; /* of all shapes; of one: now ... */
    struct pp_best_spec now;
    struct pp_config *cfg; /* ... whose config this is */
    const struct pp_costs *all, *costs;
    struct pp_best *best;
    int room;
};

static void use_shape(struct search *s, int replicas, int threads)
{
    s->now = best_spec_of(s->asked, replicas, threads, s->cfg);
    s->costs = pp_costs_at(s->all, s->cfg->run.threads);
}

static int keep(struct search *s, const struct pp_candidate *c)
{
    struct pp_best *b = s->best;
    PP_ROOM(b->items, b->n, s->room);
    b->items[b->n++] = *c;
    return 0;
}

bool pp_best_is(const struct pp_candidate *c, int stages, int replicas, int threads)
{
    return c->stages == stages && c->replicas == replicas && c->threads == threads;
}

/* Is it one of "gpipe, naive"? */
static bool names(const char *list, const char *name)
{
    size_t n = strlen(name);
    while (strncmp(list, name, n) != 0 || (list[n] != ',' && list[n] != '\0')) {
        list = strchr(list, ' ');
        if (!list++)
            return false;
    }
    return true;
}

/* Is it a row already, under another name? Then that row gets this name too. */
static bool is_known(struct pp_best *b, const struct pp_candidate *c)
{
    for (int i = 0; i < b->n; i++) {
        struct pp_candidate *o = &b->items[i];
        if (o->identity == c->identity && pp_best_is(o, c->stages, c->replicas, c->threads)) {
            if (strcmp(o->schedule, c->schedule) != 0 && !names(o->also, c->schedule))
                pp_text_add(o->also, sizeof(o->also), "%s%s", o->also[0] ? ", " : "", c->schedule);
            return true;
        }
    }
    return false;
}

/* Of an order that is made for costs: the forwards that a rank may hold, before memory is looked at. */
static double cap_of(const struct pp_best_spec *spec, const char *schedule, int stages)
{
    double own = spec->cfg->pipeline.memory_cap;
    return !pp_schedule_fits(schedule) ? 0 : own > 0 ? own : 2.0 * stages;
}

/* Evaluate a shape. One that is made for a cap: caps from the largest down, each with what it must
 * recompute, to the first that fits without; the fastest of them that fits. */
static int try_shape(struct search *s, struct pp_candidate *c)
{
    const struct pp_best_spec *spec = s->spec;
    struct pp_candidate now = *c;
    bool more = true;
    int rc = PP_ECONFIG;
    now.recompute = spec->recompute;
    now.coalesce = best_most_sums(spec, c->microbatches) > 1; /* best_sums() tries more */
    now.cap = cap_of(spec, c->schedule, c->stages);
    for (; more; now.cap = now.cap > 4 ? now.cap / 2 : now.cap - 1) {
        memset(now.again, 0, sizeof(now.again));
        int tried = pp_best_try(spec, s->costs, &now);
        bool over = tried == 0 && now.over;
        bool slow = over && rc == 0 && !c->over && now.time.step >= c->time.step;
        s->best->limited = s->best->limited || over;
        more = over && !slow && now.cap > 1;
        if (over && spec->recompute && !slow)
            tried = pp_best_fit(spec, s->costs, &now);
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

/* The first reason is told where nothing can run. */
static void refuse(struct pp_best *b, const struct pp_candidate *c)
{
    if (b->refused++ == 0)
        snprintf(b->why, sizeof(b->why), "%s, %d stages, %d micro-batches: %.640s", c->schedule,
                 c->stages, c->microbatches, pp_error_get()->text);
}

/* One more candidate: kept, or counted as refused, too large, or the same as another. */
static int judge_one(struct search *s, struct pp_candidate *c)
{
    struct pp_best *b = s->best;
    int rc = try_shape(s, c);
    if (rc == PP_ERESOURCE)
        return rc;
    b->tried++;
    if (rc < 0)
        refuse(b, c);
    else if (is_known(b, c))
        b->same++;
    else
        return keep(s, c);
    return 0;
}

static int judge(struct search *s, struct pp_candidate *c)
{
    bool hosts = s->costs->host || s->costs->host_ranks > 0;
    bool both = s->spec->places && hosts && s->spec->cfg->pipeline.replicas > 1;
    c->across = false;
    PP_TRY(judge_one(s, c));
    c->across = both;
    return both ? judge_one(s, c) : 0;
}

int best_cut(const struct pp_best_spec *spec, const struct pp_costs *costs, bool by_time,
             struct pp_candidate *c)
{
    const struct pp_model *model = spec->model;
    int n = c->stages * c->chunks;
    PP_TAKE(int, cut, 2 * n); /* the last layers, then the first */
    PP_TAKE(double, by_layer, model->n_layers);
    pp_costs_by_layer(costs, pp_best_rows(spec, c->microbatches), by_layer);
    PP_TRY(by_time ? pp_partition_costs(model, by_layer, n, cut + n, cut)
                   : pp_partition(model, spec->cfg, n, cut + n, cut));
    for (int i = 0; i < n; i++)
        c->last[i] = (uint16_t)cut[i];
    c->assignment = PP_ASSIGN_TIME;
    return 0;
}

/* The config's cut, and the one by time where it is another. */
static int try_cuts(struct search *s, struct pp_candidate *c)
{
    enum pp_assignment own = s->spec->cfg->pipeline.assignment;
    size_t bytes = (size_t)c->stages * (size_t)c->chunks * sizeof(*c->last);
    uint16_t timed[PP_STAGES_MAX];
    PP_TRY(best_cut(s->spec, s->costs, true, c));
    memcpy(timed, c->last, bytes);
    int rc = own == PP_ASSIGN_TIME ? 0 : best_cut(s->spec, s->costs, false, c);
    if (rc == PP_ERESOURCE)
        return rc;
    bool same = rc == 0 && memcmp(timed, c->last, bytes) == 0;
    if (rc == 0 && (!same || !s->spec->cuts)) {
        c->assignment = own;
        PP_TRY(judge(s, c));
    }
    if (!s->spec->cuts) {
        s->best->tried += rc < 0;
        if (rc < 0)
            refuse(s->best, c);
        return 0;
    }
    memcpy(c->last, timed, bytes); /* where the config's ranges are no cut of this shape: alone */
    c->assignment = PP_ASSIGN_TIME;
    return judge(s, c);
}

/* Costs as schedules that depend on them want them: of a rank and a micro-batch. */
static struct pp_schedule_costs rank_costs(const struct pp_best_spec *spec,
                                           const struct pp_costs *costs, int p, int m)
{
    const struct pp_model *model = spec->model;
    int rows = pp_best_rows(spec, m);
    double width = 0, t[3];
    for (int i = 0; i < model->n_layers; i++)
        width = model->layers[i].in > width ? model->layers[i].in : width;
    bool pieces = pp_layout_logits_rows(spec->cfg, model, rows) > 0;
    costs_stage(costs, 0, model->n_layers - 1, rows, 1, pieces, t);
    return (struct pp_schedule_costs){t[0] / p, t[1] / p, t[2] / p,
                                      costs->latency +
                                          costs->byte * rows * width * costs->value_bytes};
}

int pp_best_eager(const struct pp_best_spec *spec, const struct pp_costs *costs, int stages, int m)
{
    struct pp_geometry g = {.stages = stages,
                            .chunks = 1,
                            .microbatches = m,
                            .eager = spec->cfg->pipeline.eager,
                            .costs = rank_costs(spec, costs, stages, m)};
    return pp_schedule_eager(&g);
}

static int eager_of(const struct search *s, const char *schedule, int stages, int m)
{
    if (!pp_schedule_is_eager(schedule))
        return 0;
    int k = pp_best_eager(s->spec, s->costs, stages, m);
    return k > 1 || s->spec->cfg->pipeline.eager > 0 ? k : 2; /* 1 is 1f1b */
}

static int try_chunks(struct search *s, struct pp_candidate *c)
{
    const struct pp_config *cfg = s->spec->cfg;
    const struct pp_schedule_ops *ops = pp_schedule_find(c->schedule);
    int own = pp_schedule_default_chunks(ops);
    int list[] = {1, 2, 4, own == 1 || own == 2 || own == 4 ? 0 : own};
    int only[] = {cfg->pipeline.chunks};
    int n = cfg->pipeline.chunks > 0 || c->stages == 1 ? 1 : 4; /* of one rank none waits */
    for (int i = 0; i < n; i++) {
        c->chunks = cfg->pipeline.chunks > 0 ? only[i] : list[i];
        int64_t n_virtual = (int64_t)c->chunks * c->stages;
        if (c->chunks > 0 && n_virtual <= s->spec->model->n_layers && n_virtual <= PP_STAGES_MAX)
            PP_TRY(try_cuts(s, c));
    }
    return 0;
}

static int threads_in_all(const struct pp_candidate *c)
{
    return c->stages * c->replicas * c->threads;
}

/* Thousandths of a factor: what is nearer than that is noise. */
static long long rounded(double step)
{
    return step > 0 ? llround(log(step) * 1000) : LLONG_MIN;
}

int best_compare(const void *a, const void *b)
{
    const struct pp_candidate *x = a, *y = b;
    const long long order[][2] = {
        {x->over, y->over},
        {rounded(x->time.step), rounded(y->time.step)},
        {threads_in_all(x), threads_in_all(y)},
        {(long long)x->peak_bytes, (long long)y->peak_bytes},
        {x->stages, y->stages},
        {x->replicas, y->replicas},
        {x->threads, y->threads},
        {x->chunks, y->chunks},
        {x->microbatches, y->microbatches},
        {x->order, y->order},
        {x->assignment == PP_ASSIGN_TIME, y->assignment == PP_ASSIGN_TIME},
    };
    size_t k = 0;
    while (k + 1 < sizeof(order) / sizeof(order[0]) && order[k][0] == order[k][1])
        k++;
    return (order[k][0] > order[k][1]) - (order[k][0] < order[k][1]);
}

/* Every schedule x micro-batch count x chunks x cut of one number of stages. */
static int search_stages(struct search *s, int stages)
{
    const char *const *names = pp_schedule_names();
    int counts[PP_BEST_COUNTS_MAX];
    int n = pp_best_counts(s->spec, counts, PP_BEST_COUNTS_MAX);
    for (int i = 0; i < n; i++) {
        for (int k = 0; names[k]; k++) {
            if (pp_schedule_proves(names[k]))
                continue;
            struct pp_candidate c = {.order = k,
                                     .stages = stages,
                                     .replicas = s->cfg->pipeline.replicas,
                                     .threads = s->cfg->run.threads,
                                     .microbatches = counts[i]};
            snprintf(c.schedule, sizeof(c.schedule), "%s", names[k]);
            pp_log_progress("looking at %d stage%s x %d replica%s x %d thread%s: %s", stages,
                            stages == 1 ? "" : "s", c.replicas, c.replicas == 1 ? "" : "s",
                            c.threads, c.threads == 1 ? "" : "s", names[k]);
            c.eager = eager_of(s, names[k], stages, counts[i]);
            PP_TRY(try_chunks(s, &c));
        }
    }
    return 0;
}

/* A better cut; of what is recomputed also one that may do without, though the cut as it is cannot. */
static int refine_one(struct search *s, struct pp_candidate *c, double *left)
{
    struct pp_candidate none = *c;
    PP_TRY(pp_best_refine(s->spec, s->costs, c, left));
    if (!none.recompute || *left <= 0 || !memchr(none.again, true, sizeof(none.again)))
        return 0;
    memset(none.again, 0, sizeof(none.again));
    PP_TRY(pp_best_try(s->spec, s->costs, &none));
    PP_TRY(pp_best_refine(s->spec, s->costs, &none, left));
    if (!none.over && (c->over || none.time.step < c->time.step))
        *c = none;
    return 0;
}

/* Better sums and cuts, for the best shapes first; what still holds too much goes. Rows that become
 * the same plan are one. */
static int refine(struct search *s)
{
    const struct pp_best_spec *spec = s->asked;
    struct pp_best *b = s->best;
    double left =
        spec->actions > 0 ? spec->actions : REFINE_ACTIONS * fmax(1, best_most_stages(spec) / 24.0);
    if (b->n > 1)
        qsort(b->items, (size_t)b->n, sizeof(*b->items), best_compare);
    double fastest = b->n > 0 ? b->items[0].time.step : 0;
    int n = b->n;
    b->n = 0;
    for (int i = 0; i < n; i++) {
        struct pp_candidate *c = &b->items[i];
        use_shape(s, c->replicas, c->threads);
        if (left > 0 && !c->over && c->time.step < WORSE * fastest)
            PP_TRY(best_sums(s->spec, s->costs, c, &left));
        if (spec->cuts && c->assignment == PP_ASSIGN_TIME && left > 0)
            PP_TRY(refine_one(s, c, &left));
        if (is_known(b, c)) {
            b->same++;
        } else if (c->over) {
            b->smallest =
                b->too_large == 0 || c->peak_bytes < b->smallest.peak_bytes ? *c : b->smallest;
            b->too_large++;
        } else {
            b->items[b->n++] = *c;
        }
    }
    return 0;
}

/* The config's own shape, where it says one. What hosts were lost may leave it without places. */
static int as_is(struct search *s)
{
    const struct pp_best_shape *own = &s->asked->own;
    use_shape(s, own->replicas, own->threads);
    const struct pp_config *cfg = s->cfg;
    int stages = own->stages > 0 ? own->stages : cfg->pipeline.stages;
    int ranks = stages * cfg->pipeline.replicas;
    const struct pp_schedule_ops *ops = pp_schedule_find(cfg->pipeline.schedule);
    struct pp_candidate *c = &s->best->as_is;
    if (!ops || (s->costs->host && ranks > s->costs->n_hosts)) /* auto, or a table */
        return 0;
    *c = (struct pp_candidate){.stages = stages,
                               .replicas = cfg->pipeline.replicas,
                               .threads = cfg->run.threads,
                               .microbatches = s->asked->cfg->pipeline.microbatches,
                               .assignment = cfg->pipeline.assignment};
    c->chunks = cfg->pipeline.chunks > 0 ? cfg->pipeline.chunks : pp_schedule_default_chunks(ops);
    snprintf(c->schedule, sizeof(c->schedule), "%s", pp_schedule_name(ops));
    c->eager = eager_of(s, c->schedule, c->stages, c->microbatches);
    int64_t n = (int64_t)c->stages * c->chunks;
    int rc = n > s->spec->model->n_layers || n > PP_STAGES_MAX ? PP_ECONFIG : 0;
    if (rc == 0 && c->assignment == PP_ASSIGN_TIME)
        rc = best_cut(s->spec, s->costs, true, c);
    if (rc == 0)
        rc = pp_best_try(s->spec, s->costs, c);
    c->time.step = rc < 0 ? 0 : c->time.step;
    return rc == PP_ERESOURCE ? rc : 0;
}

/* One stage without replicas: of the rows, whose order is the best first. */
static int find_one(struct search *s)
{
    struct pp_best *b = s->best;
    use_shape(s, 1, s->asked->one_threads);
    b->one = (struct pp_candidate){.stages = 1,
                                   .replicas = 1,
                                   .threads = s->cfg->run.threads,
                                   .chunks = 1,
                                   .microbatches = s->cfg->pipeline.microbatches,
                                   .schedule = "1f1b",
                                   .assignment = PP_ASSIGN_AUTO};
    for (int i = 0; i < b->n; i++) {
        if (pp_best_is(&b->items[i], 1, 1, s->cfg->run.threads)) {
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
    const struct pp_best_spec *spec = s->asked;
    struct pp_best *b = s->best;
    const struct pp_best_shape own = {0};
    for (int i = 0; i == 0 || i < spec->n_shapes; i++) {
        const struct pp_best_shape *shape = spec->n_shapes > 0 ? &spec->shapes[i] : &own;
        int stages = shape->stages > 0 ? shape->stages : spec->cfg->pipeline.stages;
        use_shape(s, shape->replicas, shape->threads);
        PP_TRY(search_stages(s, stages));
    }
    PP_TRY(refine(s));
    pp_error_clear();
    if (b->n > 1)
        qsort(b->items, (size_t)b->n, sizeof(*b->items), best_compare);
    PP_TRY(find_one(s));
    return as_is(s);
}

int pp_best_search(const struct pp_best_spec *spec, const struct pp_costs *costs,
                   struct pp_best *out)
{
    struct pp_best best = {0};
    PP_TAKE(struct pp_config, cfg, 1);
    struct search s = {.asked = spec, .all = costs, .cfg = cfg, .best = &best};
    s.spec = &s.now;
    int rc = search(&s);
    pp_log_progress(NULL);
    PP_TRY_UNDO(rc, pp_best_fini(&best));
    pp_error_clear();
    *out = best;
    return 0;
}

void pp_best_fini(struct pp_best *best)
{
    pp_free(best->items);
    *best = (struct pp_best){0};
}
