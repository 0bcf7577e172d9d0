/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates a step of a divided transformer: its pipeline, its memory, and the end of the step. */
#include "estimate.h"

#include <math.h>

#include "search.h"

/* Returns the number of ranks of a stage. They are numbered by tensor, then context, then replica,
 * as Megatron does. */
static int stage_ranks(const struct pp_division *p)
{
    return p->tensor * p->context * p->replicas;
}

/* Sets t to the seconds of F, I and W of chunk v, where chunks are numbered in model order. Returns
 * the sum of the three. */
static double chunk_time(const struct estimation *e, int v, double t[TIMES])
{
    const struct pieces *x = &e->pieces;
    for (int k = 0; k < TIMES; k++)
        t[k] = e->blocks[v] * (x->t[BLOCK][k] + (k == I ? x->redo : 0)) +
               (v == 0 ? x->t[EMBEDDING][k] : 0) + (v == e->n - 1 ? x->t[HEAD][k] : 0);
    return t[F] + t[I] + t[W];
}

/* ---- memory */

/* The part of the model that a rank has. */
struct share {
    int chunks;
    double blocks, floats, experts; /* parameters without experts; those of the experts */
    double first, last;             /* bytes of a micro-batch that embedding and head keep */
};

/* Returns what the chunks of a rank have together: blocks, parameters and kept activations. If
 * rank_of is NULL, chunk v is on rank v % stages. */
static struct share find_share(const struct estimation *e, const int *rank_of, int rank)
{
    const struct pieces *x = &e->pieces;
    struct share s = {.chunks = 0};
    int ends = 0;
    for (int v = 0; v < e->n; v++) {
        bool is_first = v == 0, is_last = v == e->n - 1;
        if ((rank_of ? rank_of[v] : v % e->p->stages) != rank)
            continue;
        s.chunks++;
        s.blocks += e->blocks[v];
        s.floats += e->blocks[v] * x->floats[BLOCK] + (is_first ? x->floats[EMBEDDING] : 0) +
                    (is_last ? x->floats[HEAD] : 0);
        s.experts += e->blocks[v] * x->experts;
        s.first += is_first ? x->keeps[EMBEDDING] : 0;
        s.last += is_last ? x->keeps[HEAD] : 0;
        ends += is_first + is_last;
    }
    s.floats -= ends == 2 ? x->tied : 0; /* one tensor is both */
    return s;
}

/* Sets the bytes of *out to those of this rank if it needs more than every rank before it. `held`
 * is the number of its chunks in flight. */
static void add_memory(const struct estimation *e, const int *rank_of, int rank, double held,
                       struct pp_estimate *out)
{
    const struct pp_division *p = e->p;
    const struct pieces *x = &e->pieces;
    const struct share s = find_share(e, rank_of, rank);
    double d = p->replicas * p->context,
           de = d * (parallel_has_whole_experts(p) ? p->tensor : 1) / p->expert;
    double state = MASTER * (1 + pp_optimizer_moments(e->s->cfg->train.optimizer));
    double shards[4] = {0}, all = s.floats + s.experts;
    for (int z = 1; z <= 3; z++)
        shards[z] = p->zero >= z ? s.floats / d + s.experts / de : all;
    double two = 2 * (x->floats[BLOCK] + x->experts); /* blocks whose weights are gathered */
    double gathered = p->zero >= 3 ? VALUE * two : 0;
    double fp8 = e->s->fp8 ? VALUE * (p->zero >= 3 ? two : all) : 0; /* two copies of a byte each */
    double weights = VALUE * shards[3] + gathered + fp8;
    double optimizer = MASTER * shards[2] + state * shards[1];
    double each = s.chunks > 0 ? (s.blocks * x->keeps[BLOCK] + s.first) / s.chunks : 0;
    double activations = held * each + s.last + x->working;
    if (weights + optimizer + activations > out->bytes) {
        out->weights = weights;
        out->optimizer = optimizer;
        out->activations = activations;
        out->bytes = weights + optimizer + activations;
    }
}

/* Returns the most chunks that rank r holds in flight: by the formula of the schedule, or 2 P V if
 * the schedule has no formula. */
static int count_held(const struct estimation *e, int r)
{
    const struct pp_geometry g = {
        .stages = e->p->stages, .chunks = e->p->chunks, .microbatches = e->m};
    const struct pp_schedule_ops *ops = e->p->schedule;
    int held = ops->held ? ops->held(&g, r) : 2 * g.stages * g.chunks, all = g.chunks * e->m;
    return held < all ? held : all;
}

/* ---- the end of a step */

/* Returns the seconds from the end of the pipeline to the next step; *sums is the part of them that
 * messages take. Gradients travel during the backward pass of the last micro-batch and weights
 * during the forward pass of the first: a rank waits for the last block, or for what takes longer
 * than the pass. Then the optimizer updates its shard. */
static double end_of_step(const struct estimation *e, double *sums)
{
    const struct pp_division *p = e->p;
    const struct share s = find_share(e, NULL, 0);
    double floats = s.floats + s.experts;
    double back = 0, forth = 0;
    int d = p->replicas * p->context;
    for (int v = 0; v < e->n; v += p->stages) {
        double t[TIMES];
        chunk_time(e, v, t);
        forth += t[F];
        back += t[I] + t[W];
    }
    double gather =
        p->zero >= 3 ? 0
                     : estimate_ring(e->s, d, p->tensor, (p->zero > 0 ? VALUE : MASTER) * floats);
    double scatter = p->zero >= 3 ? 0 : estimate_ring(e->s, d, p->tensor, MASTER * floats);
    double one = 1 / fmax(1, s.blocks);
    *sums = fmax(scatter * one, scatter - back) + fmax(gather * one, gather - forth);
    double parameter = pp_price_optimizer(e->s->cluster, e->s->cfg->train.optimizer);
    return *sums + parameter * floats / (p->zero > 0 ? d : 1);
}

/* ---- simulated */

static void set_transfers(const struct estimation *e, const struct pp_plan *plan,
                          struct pp_stage_costs *q)
{
    const struct pp_cluster *c = e->s->cluster;
    int ranks = stage_ranks(e->p), host = (int)c->ranks;
    double bytes = estimate_passed(e) / e->p->tensor;
    for (int ch = 0; ch < plan->n_channels; ch++) {
        int a = plan->channels[ch].src_rank * ranks, b = plan->channels[ch].dst_rank * ranks;
        bool far = a / host != b / host;
        int sharing = c->shared > 0 ? (ranks < host ? ranks : host) : 1;
        price_channel(q, ch, bytes, far ? sharing : 0, &c->within, &c->between);
    }
}

/* Simulates m micro-batches three times and sets `times` to the lengths: with transfers, without
 * transfers, and without transfers with equal chunks. */
static int simulate_some(const struct estimation *e, int m, double times[3],
                         struct pp_estimate *out)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    struct pp_geometry g = {.stages = e->p->stages, .chunks = e->p->chunks, .microbatches = m};
    PP_TRY(pp_plan_build(pp_division_schedule(e->p), &g, &plan));
    size_t n = (size_t)plan->n_virtual;
    PP_OWN(pp_stage_costs_fini) struct pp_stage_costs q = {.f = NULL};
    PP_TRY(pp_stage_costs_init(plan, &q));
    double mean[TIMES] = {0};
    for (int v = 0; v < e->n; v++) {
        double t[TIMES];
        chunk_time(e, v, t);
        for (int k = 0; k < TIMES; k++) {
            q.f[(size_t)k * n + (size_t)v] = t[k];
            mean[k] += t[k] / e->n;
        }
    }
    set_transfers(e, plan, &q);
    struct pp_sim_costs costs = q.costs;
    costs.latency = e->s->cluster->within.latency;
    costs.transfer = q.transfer;
    costs.wires = q.wires;
    PP_TRY(e->s->see ? e->s->see(plan, &costs, e->s->ctx) : 0);
    for (int k = 0; k < 3; k++) {
        PP_OWN(pp_sim_result_fini) struct pp_sim_result result = {0};
        for (size_t v = 0; k == 2 && v < TIMES * n; v++)
            q.f[v] = mean[v / n];
        PP_TRY(pp_sim_run(plan, &costs, false, &result));
        times[k] = result.makespan;
        for (int r = 0; k == 0 && r < e->p->stages; r++)
            add_memory(e, plan->rank_of, r, result.peak[r], out);
        costs.transfer = NULL;
        costs.wires = NULL;
        costs.latency = 0;
    }
    return 0;
}

/* Sets `times` as simulate_some() does, for all micro-batches. If there are more than 4 P, and no
 * drawing wants to see them, it simulates 4 P and 2 P of them, and adds their mean difference for
 * each further micro-batch. */
static int simulate_all(const struct estimation *e, double times[3], struct pp_estimate *out)
{
    int few = 2 * e->p->stages, m = e->m > 2 * few && !e->s->see ? 2 * few : e->m;
    double less[3];
    PP_TRY(simulate_some(e, m, times, out));
    if (m == e->m)
        return 0;
    PP_TRY(simulate_some(e, few, less, out));
    for (int k = 0; k < 3; k++)
        times[k] += (e->m - m) * (times[k] - less[k]) / (m - few);
    return 0;
}

/* Returns the time of a pipeline whose busiest rank never waits once the pipeline is full. */
static double count_time(const struct estimation *e, struct pp_estimate *out)
{
    double t[TIMES], most = 0, all = 0;
    for (int r = 0; r < e->p->stages; r++) {
        double work = 0;
        for (int v = r; v < e->n; v += e->p->stages)
            work += chunk_time(e, v, t);
        most = work > most ? work : most;
        all += work / e->p->stages;
        add_memory(e, NULL, r, count_held(e, r), out);
    }
    double hop = estimate_passed(e) / e->p->tensor *
                 estimate_link(e->s, e->p->stages, stage_ranks(e->p)).byte;
    return e->m * most + (e->p->stages - 1) * (all / e->p->chunks + 2 * hop);
}

static double busy_time(const struct estimation *e)
{
    double t[TIMES], all = 0;
    for (int v = 0; v < e->n; v++)
        all += chunk_time(e, v, t) / e->p->stages;
    return e->m * all;
}

int pp_estimate(const struct pp_estimate_spec *s, const struct pp_division *p, bool quick,
                struct pp_estimate *out)
{
    struct estimation e = {.s = s, .p = p, .n = p->stages * p->chunks};
    struct pp_estimate got = {0};
    double times[3] = {0};
    e.m = p->microbatches;
    e.rows = pp_division_rows(p, s->batch);
    (void)parallel_blocks(p, e.blocks);
    estimate_pieces(&e);
    double end = end_of_step(&e, &got.sums), busy = busy_time(&e);
    if (quick)
        times[0] = count_time(&e, &got);
    else
        PP_TRY(simulate_all(&e, times, &got));
    got.step = times[0] + end;
    if (!quick) {
        double even = fmin(times[0], fmax(times[2], busy)),
               real = fmin(times[0], fmax(times[1], even));
        got.schedule = fmax(0, even - busy) / got.step;
        got.cut = fmax(0, real - even) / got.step;
        got.transfer = fmax(0, times[0] - fmax(real, busy)) / got.step;
    }
    got.sums /= got.step;
    got.tensor = 2.0 * e.m * s->cfg->model.n_layer / p->stages * e.pieces.tensor / got.step;
    got.tokens = (double)s->batch * s->model->inputs / got.step / s->ranks;
    got.mfu = estimate_flops(s) * s->batch /
              (got.step * s->ranks *
               (s->fp8 ? s->cluster->fp8 : s->cluster->peak[s->cfg->run.precision]));
    *out = got;
    return 0;
}
