/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prices a plan: makes the costs of its stages from the times of layers and links, and simulates
 * several steps as the executor runs them.
 */
#include "search.h"

#include <math.h>
#include <string.h>

/* ---- a step */

struct step {
    const struct pp_predict_spec *spec;
    struct pp_stage_costs costs;
    double *work; /* [P] */
    double sums;  /* seconds that all ranks together sum gradients */
};

static void set_rows(struct step *s, int *most)
{
    int m = s->spec->plan->geometry.microbatches, first;
    pp_balanced_piece(s->spec->rows, m, 0, &first, most); /* the largest comes first */
    for (int i = 0; i < m; i++) {
        int n;
        pp_balanced_piece(s->spec->rows, m, i, &first, &n);
        s->costs.rows[i] = (double)n / *most;
    }
}

static int host_of(const struct pp_predict_spec *s, int replica, int stage)
{
    const struct pp_costs *c = s->costs;
    int d = s->replicas, p = s->plan->geometry.stages;
    int rank = s->across ? stage * d + replica : replica * p + stage;
    return c->host ? c->host[rank] : c->host_ranks > 0 ? rank / c->host_ranks : 0;
}

/* Returns how many replicas' messages from rank a to rank b share a link between hosts, or 0 if no
 * message leaves its host. The host with the most messages counts, because replicas wait for each
 * other once a step. */
static int count_sharing(const struct pp_predict_spec *s, int a, int b)
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

/* Returns the seconds that the end of a step takes for each float that the replicas of a rank sum.
 * Each replica sums its part, and fetches the other parts of the sums, of the parameters, or of
 * both. *early, which is not in the result, is the time to send a float to the replica that sums
 * it; with train.zero this begins at the last W. */
static double price_sum(const struct pp_predict_spec *s, int rank, double *early)
{
    const struct pp_costs *c = s->costs;
    int d = s->replicas, sharing = 0, ways = s->zero && s->shares_sums ? 3 : 2;
    bool leaves = false;
    for (int e = 1; e < d; e++)
        leaves = leaves || host_of(s, e, rank) != host_of(s, 0, rank);
    for (int r = 0; leaves && r < s->plan->geometry.stages; r++)
        sharing += r == rank || (c->one_wire && host_of(s, 0, r) == host_of(s, 0, rank));
    double far = sharing * c->far.byte * (double)sizeof(float) * (d - 1) / d;
    *early = s->zero ? far : 0;
    return ways * (c->add * (d - 1) / d + far) - *early;
}

/* Returns the latencies at the end of a step: of the sums over the replicas and, if gradients are
 * clipped, of their norm over all ranks. Each is counted there and back. */
static double meet_latency(const struct pp_predict_spec *s, int rank)
{
    const struct pp_costs *c = s->costs;
    double sums = 0, all = 0;
    for (int e = 0; e < s->replicas; e++) {
        bool far = host_of(s, e, rank) != host_of(s, 0, rank);
        sums =
            e == 0 || !far ? fmax(sums, e > 0 ? c->near.latency : 0) : fmax(sums, c->far.latency);
        for (int r = 0; s->clips && r < s->plan->geometry.stages; r++)
            all = fmax(all, host_of(s, e, r) != host_of(s, 0, 0)         ? c->far.latency
                            : s->replicas * s->plan->geometry.stages > 1 ? c->near.latency
                                                                         : 0);
    }
    return (s->zero && s->shares_sums ? 3 : 2) * sums + 2 * all;
}

void price_channel(struct pp_stage_costs *q, int channel, double bytes, int sharing,
                   const struct pp_link *near, const struct pp_link *far)
{
    q->transfer[channel] = bytes * (sharing > 0 ? sharing * far->byte : near->byte);
    q->wires[channel] = (struct pp_sim_wire){
        .used = sharing > 0, .latency = far->latency, .copy = bytes * far->copy};
}

static void set_channel(struct step *s, int channel, double bytes)
{
    const struct pp_costs *c = s->spec->costs;
    const struct pp_channel *ch = &s->spec->plan->channels[channel];
    int sharing = count_sharing(s->spec, ch->src_rank, ch->dst_rank);
    price_channel(&s->costs, channel, bytes, sharing, &c->near, &c->far);
}

static void set_costs(struct step *s, int rows)
{
    struct pp_stage_costs *q = &s->costs;
    const struct pp_predict_spec *spec = s->spec;
    const struct pp_costs *c = spec->costs;
    const struct pp_plan *plan = spec->plan;
    int n = plan->n_virtual;
    int k = plan->geometry.coalesce > 1 ? plan->geometry.coalesce : 1;
    k = k < plan->geometry.microbatches ? k : plan->geometry.microbatches;
    for (int v = 0; v < n; v++) {
        double t[3], early, sum = price_sum(spec, plan->rank_of[v], &early);
        double per_float = c->optimizer / (spec->zero ? spec->replicas : 1) + sum;
        pp_costs_stage(c, spec->first[v], spec->last[v], rows, k, spec->pieces, t);
        for (int op = 0; op < 3; op++)
            q->f[op * n + v] = t[op];
        for (int i = spec->first[v]; i <= spec->last[v]; i++) {
            q->between[plan->rank_of[v]] += per_float * (double)spec->model->layers[i].n_floats;
            s->sums += (sum + early) * (double)spec->model->layers[i].n_floats;
            q->reduce[v] += early * (double)spec->model->layers[i].n_floats;
        }
    }
    for (int r = 0; r < plan->geometry.stages; r++)
        q->between[r] += meet_latency(spec, r);
    s->sums += spec->replicas > 1 ? meet_latency(spec, 0) * plan->geometry.stages : 0;
    for (int v = 0; v < n && spec->slower; v++)
        for (int op = 0; op < 3; op++)
            q->f[op * n + v] *= spec->slower[plan->rank_of[v]];
    for (int r = 0; r < plan->geometry.stages && spec->slower; r++)
        q->between[r] *= spec->slower[r];
    for (int ch = 0; ch < 2 * (n - 1); ch++) {
        int width = spec->model->layers[spec->last[ch / 2]].out;
        set_channel(s, ch, (double)rows * width * c->value_bytes);
    }
    for (int i = 0; i < plan->n_ties; i++) {
        double floats = (double)pp_param_floats(&spec->model->params[spec->tied[i]]);
        floats /= plan->ties[i].more + 1; /* of a piece */
        int way = 2 * (n - 1 + i);
        q->tie[i] = c->add * floats;
        set_channel(s, way, floats * (double)sizeof(float));
        set_channel(s, way + 1, floats * (double)sizeof(float));
    }
}

static int predict_step(struct step *s, struct pp_prediction *out)
{
    const struct pp_predict_spec *spec = s->spec;
    const struct pp_plan *plan = spec->plan;
    int p = plan->geometry.stages, rows;
    struct pp_prediction got = {0};
    set_rows(s, &rows);
    set_costs(s, rows);
    struct pp_sim_costs costs = s->costs.costs;
    costs.rows = s->costs.rows;
    costs.latency = spec->costs->near.latency;
    costs.transfer = s->costs.transfer;
    costs.wires = s->costs.wires;
    costs.launch = spec->costs->action;
    costs.vote = spec->vote;
    costs.between = s->costs.between;
    costs.reduce = s->costs.reduce;
    costs.slots = true;
    PP_TRY(spec->see ? spec->see(plan, &costs, spec->ctx) : 0);
    int cores = spec->costs->cores, each = spec->costs->threads;
    each = each < cores ? each : cores;
    double least = pp_sim_work(plan, &costs, s->work) * spec->replicas * each / cores;
    for (int r = 0; r < p; r++)
        got.step = s->work[r] > got.step ? s->work[r] : got.step;
    if (spec->enough <= 0 || got.step < spec->enough)
        PP_TRY(pp_sim_step(plan, &costs, spec->meet_every, spec->meet_after, &got.step, NULL));
    got.sums = s->sums / p;
    if (p * spec->replicas * each > cores && got.step < least)
        got.step = least;
    if (spec->explain) {
        double n = spec->meet_every;
        double by_time = spec->meet_after > 0 ? spec->meet_after / got.step + 1 : n;
        n = n <= 0 || by_time < n ? by_time : n;
        costs.launch = 0; /* the executor's own time is not computing */
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
    PP_TAKE(double, work, plan->geometry.stages);
    struct step s = {.spec = spec, .work = work};
    int rc = pp_stage_costs_init(plan, &s.costs);
    if (rc == 0)
        rc = predict_step(&s, out);
    pp_stage_costs_fini(&s.costs);
    return rc;
}

int pp_predict_flops(const struct pp_layout *l, struct pp_bubble *out, char advice[PP_ADVICE_MAX])
{
    const struct pp_plan *plan = l->plans[0].plan;
    size_t n = (size_t)l->n_virtual;
    PP_TAKE(double, times, 3 * n);
    PP_TAKE(double, cost, l->model->n_layers);
    double *f = times, *i = f + n, *w = i + n, step, idle;
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
    struct pp_sim_costs costs = pp_sim_costs_of(times, l->n_virtual);
    costs.slots = true;
    PP_TRY(pp_sim_step(plan, &costs, 0, 0, &step, &idle));
    PP_TRY(pp_bubble_explain(plan, &costs, 0, idle, out));
    struct pp_advice_spec spec = {.layout = l, .bubble = out, .cost = cost, .waited = -1};
    return pp_advice(&spec, advice);
}
