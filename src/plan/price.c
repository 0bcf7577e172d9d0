/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the times of layers to the time of a step: the simulator run over several steps with the
 * semantics of the executor.
 */
#include "search.h"

#include <math.h>
#include <string.h>

/* ---- a step */

struct step {
    const struct pp_predict_spec *spec;
    double *arrays;            /* f, i, w [n_virtual] each; owns what follows too */
    double *transfer;          /* [n_channels] */
    struct pp_sim_wire *wires; /* [n_channels] */
    double *tie;               /* [n_ties] */
    double *rows;              /* [M] */
    double *between;           /* [P] */
    double *work;              /* [P] */
    double *reduce;            /* [n_virtual] */
    double sums;               /* of all ranks */
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

static int host_of(const struct pp_predict_spec *s, int replica, int stage)
{
    const struct pp_costs *c = s->costs;
    int d = s->replicas, p = s->plan->geometry.stages;
    int rank = s->across ? stage * d + replica : replica * p + stage;
    return c->host ? c->host[rank] : c->host_ranks > 0 ? rank / c->host_ranks : 0;
}

/* How many replicas' messages from rank a to rank b share a wire; 0: none leaves its host. The
 * replicas wait for each other once a step: the slowest counts. */
static int share_wire(const struct pp_predict_spec *s, int a, int b)
{
    int most = 0, run = 0;
    for (int d = 0; d < s->replicas && !s->costs->host; d++) { /* a host's replicas are a row */
        run = d > 0 && host_of(s, d, a) != host_of(s, d - 1, a) ? 0 : run;
        run += host_of(s, d, a) != host_of(s, d, b);
        most = run > most ? run : most;
    }
    for (int d = 0; d < s->replicas && s->costs->host; d++) {
        int n = 0;
        for (int e = 0; e < s->replicas; e++)
            n += host_of(s, e, a) == host_of(s, d, a) && host_of(s, e, a) != host_of(s, e, b);
        most = n > most ? n : most;
    }
    return s->costs->one_wire || most == 0 ? most : 1;
}

/* Seconds for each float that is summed over the replicas of a rank: each sums its part of them and
 * fetches the other parts, of sums or of parameters, or both. *beside: of its way to who sums it, which
 * with train.zero begins as soon as it is there. */
static double sum_float(const struct pp_predict_spec *s, int rank, double *beside)
{
    const struct pp_costs *c = s->costs;
    int d = s->replicas, sharing = 0, ways = s->zero && s->shares_sums ? 3 : 2;
    bool leaves = false;
    for (int e = 1; e < d; e++)
        leaves = leaves || host_of(s, e, rank) != host_of(s, 0, rank);
    for (int r = 0; leaves && r < s->plan->geometry.stages; r++)
        sharing += r == rank || (c->one_wire && host_of(s, 0, r) == host_of(s, 0, rank));
    double far = sharing * c->far_byte * (double)sizeof(float) * (d - 1) / d;
    *beside = s->zero ? far : 0;
    return ways * (c->add * (d - 1) / d + far) - *beside;
}

/* Seconds that messages of a step are on their way to other replicas and, where gradients are clipped,
 * to all ranks, whatever is in them: there and back each. */
static double meet_latency(const struct pp_predict_spec *s, int rank)
{
    const struct pp_costs *c = s->costs;
    double sums = 0, all = 0;
    for (int e = 0; e < s->replicas; e++) {
        bool far = host_of(s, e, rank) != host_of(s, 0, rank);
        sums = e == 0 || !far ? fmax(sums, e > 0 ? c->latency : 0) : fmax(sums, c->far_latency);
        for (int r = 0; s->clips && r < s->plan->geometry.stages; r++)
            all = fmax(all, host_of(s, e, r) != host_of(s, 0, 0)         ? c->far_latency
                            : s->replicas * s->plan->geometry.stages > 1 ? c->latency
                                                                         : 0);
    }
    return (s->zero && s->shares_sums ? 3 : 2) * sums + 2 * all;
}

static void set_link(struct step *s, int channel, double bytes)
{
    const struct pp_costs *c = s->spec->costs;
    const struct pp_channel *ch = &s->spec->plan->channels[channel];
    int sharing = share_wire(s->spec, ch->src_rank, ch->dst_rank);
    s->transfer[channel] = bytes * (sharing > 0 ? sharing * c->far_byte : c->byte);
    s->wires[channel] = (struct pp_sim_wire){
        .used = sharing > 0, .latency = c->far_latency, .copy = bytes * c->far_copy};
}

static void set_costs(struct step *s, int rows)
{
    const struct pp_predict_spec *spec = s->spec;
    const struct pp_costs *c = spec->costs;
    const struct pp_plan *plan = spec->plan;
    int n = plan->n_virtual;
    int k = plan->geometry.coalesce > 1 ? plan->geometry.coalesce : 1;
    k = k < plan->geometry.microbatches ? k : plan->geometry.microbatches;
    for (int v = 0; v < n; v++) {
        double t[3], beside, sum = sum_float(spec, plan->rank_of[v], &beside);
        double per_float = c->optimizer / (spec->zero ? spec->replicas : 1) + sum;
        pp_costs_stage(c, spec->first[v], spec->last[v], rows, k, spec->pieces, t);
        for (int op = 0; op < 3; op++)
            s->arrays[op * n + v] = t[op];
        for (int i = spec->first[v]; i <= spec->last[v]; i++) {
            s->between[plan->rank_of[v]] += per_float * (double)spec->model->layers[i].n_floats;
            s->sums += (sum + beside) * (double)spec->model->layers[i].n_floats;
            s->reduce[v] += beside * (double)spec->model->layers[i].n_floats;
        }
    }
    for (int r = 0; r < plan->geometry.stages; r++)
        s->between[r] += meet_latency(spec, r);
    s->sums += spec->replicas > 1 ? meet_latency(spec, 0) * plan->geometry.stages : 0;
    for (int v = 0; v < n && spec->slower; v++)
        for (int op = 0; op < 3; op++)
            s->arrays[op * n + v] *= spec->slower[plan->rank_of[v]];
    for (int r = 0; r < plan->geometry.stages && spec->slower; r++)
        s->between[r] *= spec->slower[r];
    for (int ch = 0; ch < 2 * (n - 1); ch++) {
        int width = spec->model->layers[spec->last[ch / 2]].out;
        set_link(s, ch, (double)rows * width * c->value_bytes);
    }
    for (int i = 0; i < plan->n_ties; i++) {
        double floats = (double)pp_param_floats(&spec->model->params[spec->tied[i]]);
        floats /= plan->ties[i].more + 1; /* of a piece */
        int way = 2 * (n - 1 + i);
        s->tie[i] = c->add * floats;
        set_link(s, way, floats * (double)sizeof(float));
        set_link(s, way + 1, floats * (double)sizeof(float));
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
                                 .tie = s->tie,
                                 .rows = s->rows,
                                 .latency = spec->costs->latency,
                                 .transfer = s->transfer,
                                 .wires = s->wires,
                                 .launch = spec->costs->action,
                                 .vote = spec->vote,
                                 .between = s->between,
                                 .reduce = s->reduce,
                                 .slots = true};
    PP_TRY(spec->see ? spec->see(plan, &costs, spec->ctx) : 0);
    int cores = spec->costs->cores, each = spec->costs->threads;
    each = each < cores ? each : cores;
    double least = pp_sim_work(plan, &costs, s->work) * spec->replicas * each / cores;
    for (int r = 0; r < p; r++)
        got.step = s->work[r] > got.step ? s->work[r] : got.step;
    if (spec->enough <= 0 || got.step < spec->enough)
        PP_TRY(pp_sim_step(plan, &costs, spec->meet_every, spec->meet_after, &got.step));
    got.sums = s->sums / p;
    if (p * spec->replicas * each > cores && got.step < least)
        got.step = least;
    if (spec->explain) {
        double n = spec->meet_every;
        double by_time = spec->meet_after > 0 ? spec->meet_after / got.step + 1 : n;
        n = n <= 0 || by_time < n ? by_time : n;
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
    size_t virtual = (size_t)plan->n_virtual, n = 3 * virtual, channels = (size_t)plan->n_channels;
    size_t m = (size_t)plan->geometry.microbatches, p = (size_t)plan->geometry.stages;
    size_t ties = (size_t)plan->n_ties;
    PP_TAKE(double, arrays, n + channels + ties + m + 2 * p + virtual);
    PP_TAKE(struct pp_sim_wire, wires, channels);
    struct step s = {.spec = spec, .arrays = arrays, .wires = wires};
    s.transfer = s.arrays + n;
    s.tie = s.transfer + channels;
    s.rows = s.tie + ties;
    s.between = s.rows + m;
    s.work = s.between + p;
    s.reduce = s.work + p;
    return predict(&s, out);
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
            cost[k] = pp_layer_flops(l->model, k);
            if (l->logits_rows > 0 && k == l->model->n_layers - 1)
                c = (struct pp_layer_cost){.flops_i = cost[k]};
            f[v] += c.flops_f;
            i[v] += c.flops_i;
            w[v] += c.flops_w;
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
    PP_TAKE(double, arrays, 3 * l->n_virtual + l->stages + l->model->n_layers);
    return predict_flops(l, arrays, out, advice);
}
