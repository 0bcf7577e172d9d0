/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search: every shape is laid out as the run would lay it out, so that what is ranked is what
 * would run, with its plans proved and its memory counted.
 */
#include "ppcli/best.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/err.h"
#include "ppcli/mem.h"

enum {
    SIZES_MAX = 10, /* micro-batch sizes that are measured; the others lie between */
    ROWS_MIN = 4,
    COUNT_MAX = 64,
    COUNT_MAX_PER_STAGE = 8,
};

static int share_of(const struct pp_best_spec *spec)
{
    int batch = spec->cfg->train.batch_size, first, count;
    batch = spec->train_n > 0 && spec->train_n < batch ? spec->train_n : batch;
    pp_balanced_piece(batch, spec->cfg->pipeline.replicas, 0, &first, &count);
    return count;
}

int pp_best_rows(const struct pp_best_spec *spec, int m)
{
    int first, count;
    pp_balanced_piece(share_of(spec), m, 0, &first, &count);
    return count;
}

int pp_best_counts(const struct pp_best_spec *spec, int *out, int max)
{
    int own = spec->cfg->pipeline.microbatches, share = share_of(spec), n = 0;
    int most = COUNT_MAX_PER_STAGE * spec->cfg->pipeline.stages;
    most = most > COUNT_MAX ? most : COUNT_MAX;
    bool own_in = false;
    for (int m = 1; spec->all_m && m <= most && n < max - 1; m++) {
        bool power = (m & (m - 1)) == 0;
        if (m == own || (!power && share % m != 0) || (m > 1 && share / m < ROWS_MIN)) {
            continue;
        }
        /* a power of two is kept; another divisor only where it is far from what there is */
        int next_power = 1;
        while (next_power < m) {
            next_power *= 2;
        }
        bool near =
            (n > 0 && 6 * (m - out[n - 1]) < out[n - 1]) || (6 * (next_power - m) < m && !power);
        if (near) {
            continue;
        }
        if (m > own && !own_in) {
            out[n++] = own;
            own_in = true;
        }
        out[n++] = m;
    }
    if (!own_in && n < max) {
        out[n++] = own;
    }
    return n;
}

/* --- measuring --------------------------------------------------------------------------------*/

static int add_size(int *sizes, int n, int rows)
{
    int at = 0;
    while (at < n && sizes[at] < rows) {
        at++;
    }
    if (at < n && sizes[at] == rows) {
        return n;
    }
    memmove(sizes + at + 1, sizes + at, (size_t)(n - at) * sizeof(*sizes));
    sizes[at] = rows;
    return n + 1;
}

/* The sizes that occur, thinned to SIZES_MAX; the config's own stays. sizes: room for two of every
 * count. */
static int sizes_of(const struct pp_best_spec *spec, int *sizes)
{
    int counts[PP_BEST_COUNTS_MAX], n = 0;
    int own = pp_best_rows(spec, spec->cfg->pipeline.microbatches);
    int n_counts = pp_best_counts(spec, counts, PP_BEST_COUNTS_MAX);
    for (int i = 0; i < n_counts; i++) {
        int rows = pp_best_rows(spec, counts[i]);
        n = add_size(sizes, n, rows);
        /* of the weight gradients of several */
        n = add_size(sizes, n, rows * pp_layout_coalesce(spec->cfg, counts[i]));
    }
    while (n > SIZES_MAX) {
        int least = -1;
        for (int i = 1; i + 1 < n; i++) {
            double gap = (double)sizes[i + 1] / sizes[i - 1];
            if (sizes[i] != own &&
                (least < 0 || gap < (double)sizes[least + 1] / sizes[least - 1])) {
                least = i;
            }
        }
        memmove(sizes + least, sizes + least + 1, (size_t)(n - least - 1) * sizeof(*sizes));
        n--;
    }
    return n;
}

int pp_best_measure(const struct pp_best_spec *spec, double seconds, struct pp_costs **out)
{
    const struct pp_config *cfg = spec->cfg;
    int sizes[2 * PP_BEST_COUNTS_MAX];
    const struct pp_backend_ops *ops = NULL;
    PP_TRY(pp_backend_resolve(cfg->run.backend, &ops));
    struct pp_measure_spec m = {.model = spec->model,
                                .backend = pp_backend_choice_with(ops, cfg),
                                .optimizer = cfg->train.optimizer,
                                .ranks = cfg->pipeline.stages * cfg->pipeline.replicas,
                                .samples = spec->train_n,
                                .sizes = sizes,
                                .n_sizes = sizes_of(spec, sizes),
                                .seconds = seconds};
    return pp_costs_measure(&m, out);
}

/* --- one candidate ----------------------------------------------------------------------------*/

static int set_ranges(struct pp_config *cfg, const struct pp_model *model,
                      const struct pp_costs *costs, int rows, int n)
{
    double *by_layer = pp_alloc((size_t)model->n_layers, sizeof(*by_layer));
    if (!by_layer) {
        return PP_ERESOURCE;
    }
    pp_costs_by_layer(costs, rows, by_layer);
    int rc =
        pp_partition_costs(model, by_layer, n, cfg->pipeline.first_layer, cfg->pipeline.last_layer);
    cfg->pipeline.n_ranges = n;
    cfg->pipeline.assignment = PP_ASSIGN_EXPLICIT;
    pp_free(by_layer);
    return rc;
}

int pp_best_config(const struct pp_config *cfg, const struct pp_model *model,
                   const struct pp_candidate *c, const struct pp_costs *costs,
                   struct pp_config **out)
{
    struct pp_config *copy = pp_alloc(1, sizeof(*copy));
    if (!copy) {
        return PP_ERESOURCE;
    }
    *copy = *cfg;
    snprintf(copy->pipeline.schedule, sizeof(copy->pipeline.schedule), "%s", c->schedule);
    copy->pipeline.microbatches = c->microbatches;
    copy->pipeline.chunks = c->chunks;
    copy->pipeline.eager = c->eager > 0 ? c->eager : copy->pipeline.eager;
    if (c->assignment == PP_ASSIGN_TIME) {
        int rows, first;
        pp_balanced_piece(cfg->train.batch_size, cfg->pipeline.replicas * c->microbatches, 0,
                          &first, &rows);
        int rc = set_ranges(copy, model, costs, rows, cfg->pipeline.stages * c->chunks);
        if (rc < 0) {
            pp_free(copy);
            return rc;
        }
    }
    *out = copy;
    return 0;
}

int pp_best_ranges(const struct pp_model *model, const struct pp_costs *costs, int rows, int n,
                   char *out, size_t bytes)
{
    struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    if (!cfg) {
        return PP_ERESOURCE;
    }
    int rc = set_ranges(cfg, model, costs, rows, n);
    size_t used = 0;
    for (int s = 0; rc == 0 && s < n; s++) {
        int first = cfg->pipeline.first_layer[s], last = cfg->pipeline.last_layer[s];
        int k = first == last
                    ? snprintf(out + used, bytes - used, "%s%d", s ? " | " : "", first)
                    : snprintf(out + used, bytes - used, "%s%d-%d", s ? " | " : "", first, last);
        used += (size_t)k;
        if (used >= bytes) {
            rc = pp_fail(PP_ECONFIG, "%d ranges of layers are too many to write down", n);
        }
    }
    pp_free(cfg);
    return rc;
}

static int peak_of(const struct pp_layout *l, bool processes, size_t *out)
{
    size_t most = 0;
    struct pp_transport_caps caps = {.shared_slots = !processes, .processes = processes};
    for (int r = 0; r < l->stages; r++) {
        struct pp_exec_spec spec = {.layout = l, .rank = r, .caps = caps};
        struct pp_exec_bytes bytes;
        PP_TRY(pp_exec_predict(&spec, &bytes));
        most = bytes.total > most ? bytes.total : most;
    }
    *out = most;
    return 0;
}

/* 0: out->time and out->peak_bytes are set. PP_ECONFIG: not legal. */
static int evaluate(const struct pp_best_spec *spec, const struct pp_costs *costs,
                    struct pp_candidate *c)
{
    struct pp_config *cfg = NULL;
    struct pp_layout *l = NULL;
    PP_TRY(pp_best_config(spec->cfg, spec->model, c, costs, &cfg));
    cfg->source = NULL; /* what is wrong with a try is nobody's problem */
    int rc = pp_layout_create(cfg, spec->model, spec->train_n, spec->test_n, &l);
    if (rc == 0) {
        rc = peak_of(l, cfg->run.launch == PP_LAUNCH_MPIRUN, &c->peak_bytes);
    }
    if (rc == 0) {
        struct pp_predict_spec p = {
            .plan = pp_layout_plan(l, PP_PLAN_TRAIN, l->plans[0].m),
            .model = spec->model,
            .costs = costs,
            .first = l->first,
            .last = l->last,
            .rows = share_of(spec),
            .replicas = cfg->pipeline.replicas,
            .meet_every = cfg->train.clip_norm > 0 ? 1 : cfg->run.log_every,
            .meet_after = PP_RUN_MEET_NS * 1e-9,
        };
        rc = pp_predict(&p, &c->time);
    }
    pp_layout_destroy(&l);
    pp_free(cfg);
    return rc;
}

/* --- all candidates ---------------------------------------------------------------------------*/

struct search {
    const struct pp_best_spec *spec;
    const struct pp_costs *costs;
    struct pp_best *best;
    int room;
};

static int keep(struct search *s, const struct pp_candidate *c)
{
    struct pp_best *b = s->best;
    if (b->n == s->room) {
        int room = s->room > 0 ? 2 * s->room : 64;
        void *items = pp_realloc(b->items, (size_t)room, sizeof(*b->items));
        if (!items) {
            return PP_ERESOURCE;
        }
        b->items = items;
        s->room = room;
    }
    b->items[b->n++] = *c;
    return 0;
}

/* One more candidate: kept, counted as refused, or counted as too large. */
static int judge(struct search *s, struct pp_candidate *c)
{
    int rc = evaluate(s->spec, s->costs, c);
    if (rc == PP_ERESOURCE) {
        return rc;
    }
    s->best->tried++;
    if (rc < 0) {
        s->best->refused++;
        return 0;
    }
    if (s->spec->memory > 0 && c->peak_bytes > s->spec->memory) {
        s->best->too_large++;
        return 0;
    }
    return keep(s, c);
}

/* Does a cut by time differ from the config's? */
static int other_cut(const struct search *s, const struct pp_candidate *c, bool *out)
{
    const struct pp_config *cfg = s->spec->cfg;
    const struct pp_model *model = s->spec->model;
    int n = cfg->pipeline.stages * c->chunks, rc = PP_ERESOURCE;
    int *cut = pp_alloc(4 * (size_t)n, sizeof(*cut));
    int *timed =
        cut ? cut + 2 * (size_t)n : NULL; /* behind the first and last layers of the other */
    double *by_layer = pp_alloc((size_t)model->n_layers, sizeof(*by_layer));
    if (cut && by_layer) {
        pp_costs_by_layer(s->costs, pp_best_rows(s->spec, c->microbatches), by_layer);
        rc = pp_partition(model, cfg, n, cut, cut + n);
        if (rc == 0) {
            rc = pp_partition_costs(model, by_layer, n, timed, timed + n);
        }
        *out = rc == 0 && memcmp(cut, timed, (size_t)n * sizeof(*cut)) != 0;
    }
    pp_free(cut);
    pp_free(by_layer);
    return rc;
}

/* The config's cut, and the one by time where it is another. */
static int try_cuts(struct search *s, struct pp_candidate *c)
{
    enum pp_assignment own = s->spec->cfg->pipeline.assignment;
    bool other = false;
    c->assignment = own;
    PP_TRY(judge(s, c));
    if (!s->spec->time_cuts || own == PP_ASSIGN_EXPLICIT || own == PP_ASSIGN_TIME) {
        return 0;
    }
    PP_TRY(other_cut(s, c, &other));
    c->assignment = PP_ASSIGN_TIME;
    return other ? judge(s, c) : 0;
}

/* Costs as schedules that depend on them want them: of a rank and a micro-batch. */
static struct pp_schedule_costs rank_costs(const struct search *s, int m)
{
    const struct pp_model *model = s->spec->model;
    struct pp_schedule_costs sum = {0};
    int p = s->spec->cfg->pipeline.stages, rows = pp_best_rows(s->spec, m);
    double width = 0;
    for (int i = 0; i < model->n_layers; i++) {
        struct pp_layer_seconds t = pp_costs_layer(s->costs, i, rows);
        sum.f += t.f / p;
        sum.i += t.i / p;
        sum.w += t.w / p;
        width = model->layers[i].in > width ? model->layers[i].in : width;
    }
    sum.comm = s->costs->latency + s->costs->byte * rows * width * (double)sizeof(float);
    return sum;
}

int pp_best_eager(const struct pp_best_spec *spec, const struct pp_costs *costs, int m)
{
    const struct search s = {.spec = spec, .costs = costs};
    struct pp_geometry g = {.stages = spec->cfg->pipeline.stages,
                            .chunks = 1,
                            .microbatches = m,
                            .eager = spec->cfg->pipeline.eager,
                            .costs = rank_costs(&s, m)};
    return pp_schedule_eager(&g);
}

static int eager_of(const struct search *s, const char *schedule, int m)
{
    if (!pp_schedule_is_eager(schedule)) {
        return 0;
    }
    int k = pp_best_eager(s->spec, s->costs, m);
    return k > 1 || s->spec->cfg->pipeline.eager > 0 ? k : 2; /* 1 is 1f1b */
}

static int try_chunks(struct search *s, struct pp_candidate *c)
{
    const struct pp_config *cfg = s->spec->cfg;
    const struct pp_schedule_ops *ops = pp_schedule_find(c->schedule);
    int own = pp_schedule_default_chunks(ops);
    int list[] = {1, 2, 4, own == 1 || own == 2 || own == 4 ? 0 : own};
    int only[] = {cfg->pipeline.chunks};
    int n = cfg->pipeline.chunks > 0 ? 1 : 4;
    for (int i = 0; i < n; i++) {
        c->chunks = cfg->pipeline.chunks > 0 ? only[i] : list[i];
        int64_t n_virtual = (int64_t)c->chunks * cfg->pipeline.stages;
        if (c->chunks > 0 && n_virtual <= s->spec->model->n_layers && n_virtual <= PP_STAGES_MAX) {
            PP_TRY(try_cuts(s, c));
        }
    }
    return 0;
}

/* Thousandths of a factor: what is nearer than that is noise. */
static long long rounded(double step)
{
    return step > 0 ? llround(log(step) * 1000) : LLONG_MIN;
}

static int compare(const void *a, const void *b)
{
    const struct pp_candidate *x = a, *y = b;
    long long p = rounded(x->time.step), q = rounded(y->time.step);
    if (p != q) {
        return p < q ? -1 : 1;
    }
    if (x->peak_bytes != y->peak_bytes) {
        return x->peak_bytes < y->peak_bytes ? -1 : 1;
    }
    if (x->chunks != y->chunks) {
        return x->chunks - y->chunks;
    }
    if (x->microbatches != y->microbatches) {
        return x->microbatches - y->microbatches;
    }
    if (x->order != y->order) {
        return x->order - y->order;
    }
    return (x->assignment == PP_ASSIGN_TIME) - (y->assignment == PP_ASSIGN_TIME);
}

int pp_best_search(const struct pp_best_spec *spec, const struct pp_costs *costs,
                   struct pp_best *out)
{
    struct pp_best best = {0};
    struct search s = {.spec = spec, .costs = costs, .best = &best};
    const char *const *names = pp_schedule_names();
    int counts[PP_BEST_COUNTS_MAX], rc = 0;
    int n = pp_best_counts(spec, counts, PP_BEST_COUNTS_MAX);
    for (int i = 0; rc == 0 && i < n; i++) {
        for (int k = 0; rc == 0 && names[k]; k++) {
            struct pp_candidate c = {.order = k, .microbatches = counts[i]};
            snprintf(c.schedule, sizeof(c.schedule), "%s", names[k]);
            c.eager = eager_of(&s, names[k], counts[i]);
            rc = try_chunks(&s, &c);
        }
    }
    if (rc < 0) {
        pp_best_fini(&best);
        return rc;
    }
    pp_error_clear();
    if (best.n > 1) {
        qsort(best.items, (size_t)best.n, sizeof(*best.items), compare);
    }
    *out = best;
    return 0;
}

void pp_best_fini(struct pp_best *best)
{
    pp_free(best->items);
    *best = (struct pp_best){0};
}
