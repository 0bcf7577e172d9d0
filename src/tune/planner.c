/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the times of layers to the time of a step: the simulator run over several steps with the
 * semantics of the executor.
 */
#include "ppcli/planner.h"

#include <math.h>
#include <string.h>

#include "ppcli/bubble.h"
#include "ppcli/dataset.h"
#include "ppcli/err.h"
#include "ppcli/mem.h"

int pp_costs_create(int n_layers, const int *sizes, int n_sizes, struct pp_costs **out)
{
    pp_assert(n_layers >= 1 && n_sizes >= 1);
    struct pp_costs *c = pp_alloc(1, sizeof(*c));
    if (!c)
        return PP_ERESOURCE;
    c->n_layers = n_layers;
    c->n_sizes = n_sizes;
    c->sizes = pp_alloc((size_t)n_sizes, sizeof(*c->sizes));
    c->layers = pp_alloc((size_t)n_sizes * (size_t)n_layers, sizeof(*c->layers));
    c->input = pp_alloc(2 * (size_t)n_sizes, sizeof(*c->input));
    c->at_once = c->cores = 1;
    if (!c->sizes || !c->layers || !c->input) {
        pp_costs_destroy(&c);
        return PP_ERESOURCE;
    }
    c->loss = c->input + n_sizes;
    memcpy(c->sizes, sizes, (size_t)n_sizes * sizeof(*sizes));
    *out = c;
    return 0;
}

void pp_costs_destroy(struct pp_costs **costs)
{
    struct pp_costs *c = *costs;
    if (c) {
        pp_free(c->sizes);
        pp_free(c->layers);
        pp_free(c->input);
        pp_free(c);
        *costs = NULL;
    }
}

/* Where `rows` lies: the size before it and how far it is to the next, which may be beyond 1. One
 * size: a time in proportion to it. */
struct between {
    int at, next;
    double part;
};

static struct between find(const struct pp_costs *c, int rows)
{
    if (c->n_sizes == 1)
        return (struct between){0, -1, (double)rows / c->sizes[0]};
    int at = 0;
    while (at + 2 < c->n_sizes && c->sizes[at + 1] <= rows)
        at++;
    double distance = c->sizes[at + 1] - c->sizes[at];
    return (struct between){at, at + 1, (rows - c->sizes[at]) / distance};
}

static double mix(struct between b, double at, double next)
{
    double t = b.next < 0 ? at * b.part : at + (next - at) * b.part;
    return t > 0 ? t : 0;
}

static double ends_at(const struct pp_costs *c, const double *t, int rows)
{
    struct between b = find(c, rows);
    return mix(b, t[b.at], b.next < 0 ? 0 : t[b.next]);
}

struct pp_layer_seconds pp_costs_layer(const struct pp_costs *c, int layer, int rows)
{
    struct between b = find(c, rows);
    size_t n = (size_t)c->n_layers;
    const struct pp_layer_seconds *x = &c->layers[(size_t)b.at * n + (size_t)layer];
    const struct pp_layer_seconds *y =
        b.next < 0 ? x : &c->layers[(size_t)b.next * n + (size_t)layer];
    return (struct pp_layer_seconds){mix(b, x->f, y->f), mix(b, x->i, y->i), mix(b, x->w, y->w)};
}

void pp_costs_by_layer(const struct pp_costs *c, int rows, double *cost)
{
    for (int i = 0; i < c->n_layers; i++) {
        struct pp_layer_seconds t = pp_costs_layer(c, i, rows);
        cost[i] = t.f + t.i + t.w;
    }
    cost[0] += ends_at(c, c->input, rows);
    cost[c->n_layers - 1] += ends_at(c, c->loss, rows);
}

/* ---- a step */

struct step {
    const struct pp_predict_spec *spec;
    double *arrays;   /* f, i, w [n_virtual] each; owns what follows too */
    double *transfer; /* [n_channels] */
    double *rows;     /* [M] */
    double *between;  /* [P] */
    double *work;     /* [P] */
};

static void set_rows(struct step *s, int *most)
{
    int m = s->spec->plan->geometry.microbatches, first;
    pp_balanced_piece(s->spec->rows, m, 0, &first, most); /* the largest comes first */
    for (int i = 0; i < m; i++) {
        int n;
        pp_balanced_piece(s->spec->rows, m, i, &first, &n);
        s->rows[i] = (double)n / *most;
    }
}

static void set_costs(struct step *s, int rows)
{
    const struct pp_predict_spec *spec = s->spec;
    const struct pp_costs *c = spec->costs;
    const struct pp_plan *plan = spec->plan;
    int n = plan->n_virtual, d = spec->replicas;
    int k = plan->geometry.coalesce > 1 ? plan->geometry.coalesce : 1;
    k = k < plan->geometry.microbatches ? k : plan->geometry.microbatches;
    /* each replica sums its part of the elements over all and fetches the other parts */
    double per_float = c->optimizer + c->add * 2 * (d - 1) / d;
    for (int v = 0; v < n; v++) {
        for (int i = spec->first[v]; i <= spec->last[v]; i++) {
            struct pp_layer_seconds t = pp_costs_layer(c, i, rows);
            s->arrays[v] += t.f;
            s->arrays[n + v] += t.i;
            /* one product over the rows of k micro-batches */
            s->arrays[2 * n + v] += k == 1 ? t.w : pp_costs_layer(c, i, k * rows).w / k;
            s->between[plan->rank_of[v]] += per_float * (double)spec->model->layers[i].n_floats;
        }
    }
    s->arrays[0] += ends_at(c, c->input, rows);
    s->arrays[n - 1] += ends_at(c, c->loss, rows);
    for (int ch = 0; ch < plan->n_channels; ch++) {
        int width = spec->model->layers[spec->last[ch / 2]].out;
        s->transfer[ch] = c->byte * (double)rows * width * (double)sizeof(float);
    }
}

static int predict(struct step *s, struct pp_prediction *out)
{
    const struct pp_predict_spec *spec = s->spec;
    const struct pp_plan *plan = spec->plan;
    int p = plan->geometry.stages, rows;
    struct pp_prediction got = {0};
    set_rows(s, &rows);
    set_costs(s, rows);
    struct pp_sim_costs costs = {.f = s->arrays,
                                 .i = s->arrays + plan->n_virtual,
                                 .w = s->arrays + 2 * (size_t)plan->n_virtual,
                                 .rows = s->rows,
                                 .latency = spec->costs->latency,
                                 .transfer = s->transfer,
                                 .launch = spec->costs->action,
                                 .between = s->between,
                                 .slots = true};
    PP_TRY(pp_sim_step(plan, &costs, spec->meet_every, spec->meet_after, &got.step));
    double least = pp_sim_work(plan, &costs, s->work) * spec->replicas / spec->costs->cores;
    if (p * spec->replicas > spec->costs->cores && got.step < least)
        got.step = least;
    if (spec->explain) {
        double n = spec->meet_every;
        n = n <= 0 && spec->meet_after > 0 ? spec->meet_after / got.step + 1 : n;
        costs.launch = 0; /* what the executor adds is not computing */
        double busy = pp_sim_work(plan, &costs, s->work);
        double idle = pp_bubble_idle(busy, got.step, p);
        PP_TRY(pp_bubble_explain(plan, &costs, n, idle, &got.bubble));
    }
    *out = got;
    return 0;
}

int pp_predict(const struct pp_predict_spec *spec, struct pp_prediction *out)
{
    const struct pp_plan *plan = spec->plan;
    pp_assert(plan->kind == PP_PLAN_TRAIN && spec->rows >= plan->geometry.microbatches);
    size_t n = 3 * (size_t)plan->n_virtual, channels = (size_t)plan->n_channels;
    size_t m = (size_t)plan->geometry.microbatches, p = (size_t)plan->geometry.stages;
    struct step s = {.spec = spec, .arrays = pp_alloc(n + channels + m + 2 * p, sizeof(double))};
    if (!s.arrays)
        return PP_ERESOURCE;
    s.transfer = s.arrays + n;
    s.rows = s.transfer + channels;
    s.between = s.rows + m;
    s.work = s.between + p;
    int rc = predict(&s, out);
    pp_free(s.arrays);
    return rc;
}

static int predict_flops(const struct pp_layout *l, double *arrays, struct pp_bubble *out,
                         char *advice)
{
    const struct pp_plan *plan = l->plans[0].plan;
    size_t n = (size_t)l->n_virtual;
    double *f = arrays, *i = f + n, *w = i + n, *work = w + n, *cost = work + l->stages, step;
    for (int v = 0; v < l->n_virtual; v++) {
        for (int k = l->first[v]; k <= l->last[v]; k++) {
            struct pp_layer_cost c = pp_layer_cost(l->model, k);
            f[v] += c.flops_f;
            i[v] += c.flops_i;
            w[v] += c.flops_w;
            cost[k] = pp_layer_flops(l->model, k);
        }
    }
    struct pp_sim_costs costs = {.f = f, .i = i, .w = w, .slots = true};
    PP_TRY(pp_sim_step(plan, &costs, 0, 0, &step));
    double idle = pp_bubble_idle(pp_sim_work(plan, &costs, work), step, l->stages);
    PP_TRY(pp_bubble_explain(plan, &costs, 0, idle, out));
    struct pp_advice_spec spec = {.layout = l, .bubble = out, .cost = cost, .waited = -1};
    return pp_advice(&spec, advice);
}

int pp_predict_flops(const struct pp_layout *l, struct pp_bubble *out, char advice[PP_ADVICE_MAX])
{
    size_t n = 3 * (size_t)l->n_virtual + (size_t)l->stages + (size_t)l->model->n_layers;
    double *arrays = pp_alloc(n, sizeof(*arrays));
    int rc = arrays ? predict_flops(l, arrays, out, advice) : PP_ERESOURCE;
    pp_free(arrays);
    return rc;
}
