/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes a lower bound of the time that any schedule takes. For a rank r, m micro-batches and a
 * step that starts at 0:
 *
 *   head_r  before its first F, one F of every earlier stage must run
 *   turn_r  before its first I, one F of every stage and one I of every later stage must run
 *   tail_r  after its last I, one I of every earlier stage, and W and optimizer of the first stage
 *
 *   step >= head_r + max(all its F, I and W + its optimizer, all its F and I + tail_r)
 *   step >= turn_r + all its I + tail_r
 *
 * A rank with several stages takes the least value of its stages. The parts that end with the first
 * stage's optimizer also delay the next step; the rank's own work does not wait for other ranks
 * twice, so over many steps only that work remains.
 */
#include "ppcli/sim/sim.h"

#include "ppcli/base/base.h"

struct rank {
    double fi, i, w;         /* time of all its micro-batches */
    double head, turn, tail; /* least over its stages; tail includes the optimizer */
    bool seen;
};

struct bound {
    const struct pp_plan *plan;
    const struct pp_sim_costs *costs;
    struct rank *ranks;   /* [P] */
    double least, all;    /* rows of the smallest micro-batch, and of all */
    double scale, launch; /* scale: part of F + B that overlapped work takes */
    int m;
};

static double optimizer_time(const struct bound *b, int rank)
{
    return b->costs->between ? b->costs->between[rank] : 0;
}

static double forward_time(const struct bound *b, int s)
{
    return b->launch + b->scale * b->costs->f[s] * b->least;
}

static double input_seconds(const struct bound *b, int s)
{
    return b->launch + b->scale * b->costs->i[s] * b->least;
}

static double weight_time(const struct bound *b, int s)
{
    return b->scale * b->costs->w[s] * b->least;
}

/* Returns the time of one message across the boundary after stage s: of an activation, or of a
 * gradient if `back`. */
static double transfer_seconds(const struct bound *b, int s, bool back)
{
    const struct pp_sim_costs *c = b->costs;
    if (b->plan->rank_of[s] == b->plan->rank_of[s + 1])
        return 0;
    int ch = 2 * s + back;
    double latency = c->wires && c->wires[ch].used ? c->wires[ch].latency : c->latency;
    return latency + (c->transfer ? c->transfer[ch] * b->least : 0);
}

static void add_stage(struct bound *b, int s, double head, double turn, double tail)
{
    const struct pp_sim_costs *c = b->costs;
    struct rank *r = &b->ranks[b->plan->rank_of[s]];
    double launches = b->m * b->launch;
    r->fi += 2 * launches + b->scale * (c->f[s] + c->i[s]) * b->all;
    r->i += launches + b->scale * c->i[s] * b->all;
    r->w += b->scale * c->w[s] * b->all;
    r->head = r->seen ? PP_MIN(r->head, head) : head;
    r->turn = r->seen ? PP_MIN(r->turn, turn) : turn;
    r->tail = r->seen ? PP_MIN(r->tail, tail) : tail;
    r->seen = true;
}

/* Adds the stages first..last to the bounds of their ranks. They form one pipeline; a plan with two
 * copies of the model has two. */
static void add_pipeline(struct bound *b, int first, int last)
{
    double all = forward_time(b, last), back = 0;
    for (int s = first; s < last; s++) {
        all += forward_time(b, s) + transfer_seconds(b, s, false);
        back += input_seconds(b, s + 1) + transfer_seconds(b, s, true);
    }
    double head = 0, turn = all + back;
    double tail = weight_time(b, first) + optimizer_time(b, b->plan->rank_of[first]);
    for (int s = first; s <= last; s++) {
        add_stage(b, s, head, turn, tail);
        if (s < last) {
            head += forward_time(b, s) + transfer_seconds(b, s, false);
            turn -= input_seconds(b, s + 1) + transfer_seconds(b, s, true);
            tail += input_seconds(b, s) + transfer_seconds(b, s, true);
        }
    }
}

static double compute_bound(const struct bound *b)
{
    int steps = b->costs->steps > 1 ? b->costs->steps : 1;
    double one_step = 0, chain = 0, many_steps = 0;
    for (int p = 0; p < b->plan->geometry.stages; p++) {
        const struct rank *r = &b->ranks[p];
        double work = r->fi + r->w + optimizer_time(b, p);
        double way = PP_MAX(r->head + r->fi, r->turn + r->i) + r->tail;
        one_step = PP_MAX(one_step, PP_MAX(r->head + work, way));
        chain = PP_MAX(chain, way);
        many_steps = PP_MAX(many_steps, r->head + steps * work);
    }
    /* Two pipelines in opposite directions do not end where they begin, so the steps are not
     * linked. */
    return PP_MAX(many_steps, b->plan->copies == 1 ? (steps - 1) * chain + one_step : one_step);
}

int pp_sim_bound(const struct pp_plan *plan, const struct pp_sim_costs *costs, double *out)
{
    struct bound b = {.plan = plan, .costs = costs, .m = plan->geometry.microbatches};
    pp_assert(plan->kind == PP_PLAN_TRAIN);
    PP_ALLOC(b.ranks, plan->geometry.stages);
    b.scale = costs->overlap > 0 && costs->overlap < 1 ? costs->overlap : 1;
    b.launch = b.scale * costs->launch;
    for (int mb = 0; mb < b.m; mb++) {
        double rows = costs->rows ? costs->rows[mb] : 1;
        b.all += rows;
        b.least = mb == 0 ? rows : PP_MIN(b.least, rows);
    }
    int n = plan->n_virtual / plan->copies;
    for (int copy = 0; copy < plan->copies; copy++)
        add_pipeline(&b, copy * n, (copy + 1) * n - 1);
    *out = compute_bound(&b);
    pp_free(b.ranks);
    return 0;
}
