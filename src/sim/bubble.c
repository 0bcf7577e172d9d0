/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Explains why ranks idle with three simulations: equal stages, the real stages, and what was
 * measured (or predicted with transfers). Each difference between two of them is one part.
 */
#include "sim.h"

#include <math.h>

#include "ppcli/base/base.h"

/* Steps after which the pipeline has reached its steady state, and further steps that are timed. */
#define STEPS_BEFORE 3
#define STEPS_AFTER 3

double pp_bubble_idle(double busy, double time, int ranks)
{
    return time > 0 ? 1.0 - busy / (time * ranks) : 0.0;
}

double pp_sim_work(const struct pp_plan *plan, const struct pp_sim_costs *c, double *work)
{
    double all = 0;
    for (int r = 0; r < plan->geometry.stages; r++) {
        double sum = c->between ? c->between[r] : 0;
        for (int k = 0; k < plan->ranks[r].n_actions; k++) {
            const struct pp_action *a = &plan->ranks[r].actions[k];
            if (a->op >= PP_OP_G) {
                sum += pp_sim_tie(plan, c, a) + c->launch;
                continue;
            }
            double t = a->op == PP_OP_F   ? c->f[a->stage]
                       : a->op == PP_OP_R ? c->f[a->stage]
                       : a->op == PP_OP_I ? c->i[a->stage]
                       : a->op == PP_OP_W ? c->w[a->stage]
                                          : c->i[a->stage] + c->w[a->stage];
            sum += t * (c->rows ? c->rows[a->mb] : 1.0) + c->launch;
        }
        work[r] = sum;
        all += sum;
    }
    return all;
}

int pp_bubble_equal(const struct pp_plan *plan, double *out)
{
    PP_OWN(pp_sim_result_fini) struct pp_sim_result res = {0};
    struct pp_sim_costs costs;
    PP_TAKE(double, arrays, 3 * plan->n_virtual);
    pp_sim_textbook(plan, arrays, &costs);
    PP_TRY(pp_sim_run(plan, &costs, false, &res));
    *out = res.bubble;
    return 0;
}

int pp_bubble_ideal(const struct pp_plan *plan, double *out)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *textbook = NULL;
    struct pp_geometry g = plan->geometry;
    g.coalesce = 0;
    g.ticks = NULL;
    g.recompute = NULL;
    if (!plan->schedule) /* a table has no schedule */
        return pp_bubble_equal(plan, out);
    PP_TRY(pp_plan_build(pp_schedule_name(plan->schedule), &g, &textbook));
    return pp_bubble_equal(textbook, out);
}

static int simulate_makespan(const struct pp_plan *plan, const struct pp_sim_costs *costs,
                             int steps, double *out)
{
    struct pp_sim_costs repeated = *costs;
    struct pp_sim_result res;
    repeated.steps = steps;
    PP_TRY(pp_sim_run(plan, &repeated, false, &res));
    *out = res.makespan;
    pp_sim_result_fini(&res);
    return 0;
}

static int simulate_period(const struct pp_plan *plan, const struct pp_sim_costs *costs,
                           double meet_every, double meet_after, double *out)
{
    int settled = STEPS_BEFORE + STEPS_AFTER;
    double early, late, all, n = meet_every;
    PP_TRY(simulate_makespan(plan, costs, STEPS_BEFORE, &early));
    PP_TRY(simulate_makespan(plan, costs, settled, &late));
    double period = (late - early) / STEPS_AFTER;
    double by_time = meet_after > 0 && period > 0 ? floor(meet_after / period) + 1 : 0;
    if (by_time > 0 && (n <= 0 || by_time < n))
        n = by_time;
    if (n > 0 && n < settled) {
        int steps = n > 1 ? (int)(n + 0.5) : 1;
        PP_TRY(simulate_makespan(plan, costs, steps, &all));
        *out = all / steps;
        return 0;
    }
    /* costs of filling and draining the pipeline, once in n steps */
    *out = period + (n > 0 ? (late - settled * period) / n : 0);
    return 0;
}

int pp_sim_step(const struct pp_plan *plan, const struct pp_sim_costs *costs, double meet_every,
                double meet_after, double *out_step, double *out_idle)
{
    double step;
    PP_TAKE(double, work, plan->geometry.stages);
    PP_TRY(simulate_period(plan, costs, meet_every, meet_after, &step));
    *out_step = step;
    if (out_idle)
        *out_idle = pp_bubble_idle(pp_sim_work(plan, costs, work), step, plan->geometry.stages);
    return 0;
}

static void fill_mean(const double *values, int n, double *out)
{
    double sum = 0;
    for (int k = 0; values && k < n; k++)
        sum += values[k];
    for (int k = 0; k < n; k++)
        out[k] = sum / n;
}

static double clamp_time(double x, double most)
{
    return x < 0 || most < 0 ? 0 : x < most ? x : most;
}

static int explain_bubble(const struct pp_plan *plan, const struct pp_sim_costs *costs,
                          double meet_every, double idle, double *arrays, struct pp_bubble *out)
{
    int n = plan->n_virtual, p = plan->geometry.stages;
    double *work = arrays + 3 * (size_t)n, *between = work + p, real, even, step;
    struct pp_sim_costs free_costs = *costs;
    free_costs.latency = free_costs.launch = 0;
    free_costs.transfer = NULL;
    free_costs.wires = NULL;
    struct pp_sim_costs equal = free_costs;
    fill_mean(costs->f, n, arrays);
    fill_mean(costs->i, n, arrays + n);
    fill_mean(costs->w, n, arrays + 2 * (size_t)n);
    fill_mean(costs->between, p, between);
    equal.f = arrays;
    equal.i = arrays + n;
    equal.w = arrays + 2 * (size_t)n;
    equal.between = between;
    PP_TRY(pp_sim_step(plan, &equal, meet_every, 0, &step, &even));
    PP_TRY(pp_sim_step(plan, &free_costs, meet_every, 0, &step, &real));
    double all = pp_sim_work(plan, &free_costs, work);
    struct pp_bubble b = {.idle = idle, .stages = p};
    for (int r = 0; r < p; r++)
        b.busiest = work[r] > work[b.busiest] ? r : b.busiest;
    b.work = all > 0 ? work[b.busiest] / all : 0;
    /* the schedule was made for these stages, not for equal ones: charge the cut what no order
     * avoids */
    if (plan->schedule && plan->schedule->fits && all > 0)
        even = real - (1 - 1 / (p * b.work));
    b.schedule = clamp_time(even, idle);
    b.imbalance = clamp_time(real - even, idle - b.schedule);
    b.waiting = idle - b.schedule - b.imbalance;
    *out = b;
    return 0;
}

int pp_bubble_explain(const struct pp_plan *plan, const struct pp_sim_costs *costs,
                      double meet_every, double idle, struct pp_bubble *out)
{
    PP_TAKE(double, arrays, 3 * (size_t)plan->n_virtual + 2 * (size_t)plan->geometry.stages);
    return explain_bubble(plan, costs, meet_every, idle, arrays, out);
}

void pp_bubble_write_json(const struct pp_bubble *b, struct pp_json *j)
{
    pp_json_dbl(j, "bubble_schedule", b->schedule);
    pp_json_dbl(j, "bubble_imbalance", b->imbalance);
    pp_json_dbl(j, "bubble_waiting", b->waiting);
    pp_json_int(j, "busiest_stage", b->busiest);
    pp_json_dbl(j, "busiest_share", b->work);
}

/* Rounds the three shares of the bubble to tenths of a percent, and returns their sum. Each part is
 * a difference of rounded sums, so that the printed parts add up to the printed total. */
static double round_to_tenths(const struct pp_bubble *b, double parts[3])
{
    double sums[3] = {b->schedule, b->schedule + b->imbalance, b->idle}, before = 0;
    for (int k = 0; k < 3; k++) {
        double sum = round(sums[k] * 1000) / 10 + 0.0; /* -0 is 0 */
        parts[k] = sum - before;
        before = sum;
    }
    return before;
}

char *pp_bubble_parts(const struct pp_bubble *b, char out[PP_BUBBLE_TEXT_MAX])
{
    double parts[3], idle = round_to_tenths(b, parts);
    snprintf(out, PP_BUBBLE_TEXT_MAX, "%.1f", idle);
    if (b->stages > 1)
        pp_text_add(out, PP_BUBBLE_TEXT_MAX, " = %.1f + %.1f + %.1f", parts[0], parts[1], parts[2]);
    return out;
}

char *pp_bubble_text(const struct pp_bubble *b, char out[PP_BUBBLE_TEXT_MAX])
{
    double parts[3], idle = round_to_tenths(b, parts);
    snprintf(out, PP_BUBBLE_TEXT_MAX, "%.1f %%", idle);
    if (b->stages > 1) {
        pp_text_add(out, PP_BUBBLE_TEXT_MAX,
                    ": schedule %.1f + imbalance %.1f + transfers and waiting %.1f; stage %d has "
                    "%.0f %% of the work",
                    parts[0], parts[1], parts[2], b->busiest, b->work * 100);
    }
    return out;
}
