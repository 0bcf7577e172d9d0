/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fits the simulator to a measured pipeline: how long actions take, what passes between them, and
 * where ranks idle. A rank that waits for a message begins `latency + launch` after the sender's
 * end, another one `launch` after its own last action. The latency is a median, because single
 * messages may be late for other reasons; the launch is a mean. A simulation of one step uses that
 * step's own values.
 */
#include "profile_read.h"

#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"

static int ranks_of(const struct pp_profile *p)
{
    return p->plan->geometry.stages;
}

static double action_seconds(const struct pp_profile *p, int step, int rank, int k)
{
    int row = step * ranks_of(p) + rank;
    return p->end[row][k] - p->start[row][k];
}

/* ---- between actions */

struct gaps {
    double *waits; /* [actions of all ranks] */
    int64_t n_waits;
    double launched, after; /* sums, then means */
    int64_t n_launched, n;
};

/* Collects from one step the waits after a sender's end, the gaps between other actions, and the
 * times of calls. */
static void find_gaps(const struct pp_profile *p, const int *cells, int step, struct gaps *g)
{
    int ranks = ranks_of(p), rank, at;
    g->n_waits = g->n_launched = g->n = 0;
    g->launched = g->after = 0;
    for (int r = 0; r < ranks; r++) {
        const double *start = p->start[step * ranks + r], *end = p->end[step * ranks + r];
        const double *after = p->after[step * ranks + r];
        for (int k = 1; k < p->plan->ranks[r].n_actions; k++) {
            const struct pp_action *a = &p->plan->ranks[r].actions[k];
            double from = end[k - 1] + after[k - 1];
            bool waits = profile_producer(p->plan, cells, a, &rank, &at) && rank != r &&
                         p->end[step * ranks + rank][at] > from;
            if (waits) {
                g->waits[g->n_waits++] = start[k] - p->end[step * ranks + rank][at];
            } else {
                g->launched += fmax(0, start[k] - from);
                g->n_launched++;
            }
            g->after += after[k - 1];
            g->n++;
        }
    }
    g->launched /= g->n_launched > 0 ? (double)g->n_launched : 1;
    g->after /= g->n > 0 ? (double)g->n : 1;
}

static int fit_gaps(const struct pp_profile *p, struct pp_profile_fit *f)
{
    int n = p->steps - p->first;
    int64_t all = 0;
    PP_OWN_MEMORY int *cells = NULL;
    for (int r = 0; r < ranks_of(p); r++)
        all += p->plan->ranks[r].n_actions;
    PP_TAKE(double, waits, all);
    PP_TAKE(double, sorted, 3 * (size_t)n);
    PP_TRY(profile_cells(p->plan, &cells));
    struct gaps g = {.waits = waits};
    for (int t = 0; t < n; t++) {
        find_gaps(p, cells, p->first + t, &g);
        double wait = g.n_waits > 0 ? pp_median(waits, g.n_waits) - g.launched : 0;
        sorted[t] = f->latencies[t] = fmax(0, wait);
        sorted[n + t] = f->launches[t] = g.launched;
        sorted[2 * n + t] = g.after;
    }
    f->latency = pp_median(sorted, n);
    f->launch = pp_median(sorted + n, n) + pp_median(sorted + 2 * (size_t)n, n);
    return 0;
}

/* ---- of the actions */

/* Sets *out to the range of values[n]: least, 5 %, mean, 95 % and most. The values are the times of
 * one kind of action of a rank. */
static void set_range(double *values, int64_t n, struct pp_profile_range *out)
{
    double sum = 0;
    if (n == 0)
        return;
    for (int64_t i = 0; i < n; i++)
        sum += values[i];
    pp_sort_doubles(values, n);
    *out = (struct pp_profile_range){values[0], pp_quantile(values, n, 0.05), sum / (double)n,
                                     pp_quantile(values, n, 0.95), values[n - 1]};
}

static int fit_ranges(const struct pp_profile *p, struct pp_profile_fit *f)
{
    int most = 0, steps = p->steps - p->first;
    for (int r = 0; r < ranks_of(p); r++)
        most = p->plan->ranks[r].n_actions > most ? p->plan->ranks[r].n_actions : most;
    PP_TAKE(double, values, (size_t)most *(size_t)steps);
    for (int r = 0; r < ranks_of(p); r++) {
        for (int op = 0; op <= PP_OP_B; op++) {
            int64_t n = 0;
            for (int k = 0; k < p->plan->ranks[r].n_actions; k++)
                for (int t = p->first; t < p->steps && p->plan->ranks[r].actions[k].op == op; t++)
                    values[n++] = action_seconds(p, t, r, k);
            set_range(values, n, &f->ranges[r * PP_OPS + op]);
        }
    }
    return 0;
}

/* Adds the mean times of one step's actions to out[4][n_virtual], by op and stage. */
static void add_means(const struct pp_profile *p, int step, double *out)
{
    int n = p->plan->n_virtual;
    for (int r = 0; r < ranks_of(p); r++)
        for (int k = 0; k < p->plan->ranks[r].n_actions; k++) {
            const struct pp_action *a = &p->plan->ranks[r].actions[k];
            out[a->op * n + a->stage] +=
                action_seconds(p, step, r, k) / p->plan->geometry.microbatches;
        }
}

static int fit_costs(const struct pp_profile *p, struct pp_profile_fit *f)
{
    int n = p->plan->n_virtual, steps = p->steps - p->first;
    PP_TAKE(double, means, 4 * (size_t)n * (size_t)steps);
    PP_TAKE(double, values, steps);
    double middle[4];
    for (int t = 0; t < steps; t++)
        add_means(p, p->first + t, means + 4 * (size_t)n * (size_t)t);
    for (int s = 0; s < n; s++) {
        for (int op = 0; op < 4; op++) {
            for (int t = 0; t < steps; t++)
                values[t] = means[(4 * t + op) * n + s];
            middle[op] = pp_median(values, steps);
        }
        f->split = f->split || middle[PP_OP_W] > 0;
        f->costs[s] = middle[PP_OP_F];
        f->costs[n + s] = middle[PP_OP_I] + middle[PP_OP_B] / 2;
        f->costs[2 * n + s] = middle[PP_OP_W] + middle[PP_OP_B] / 2;
    }
    return 0;
}

/* ---- simulations */

int pp_profile_simulate(const struct pp_profile *p, const struct pp_profile_fit *f, int step,
                        bool with_times, struct pp_sim_costs *costs, struct pp_sim_result *out)
{
    size_t all = 0, ranks = (size_t)ranks_of(p);
    for (size_t r = 0; r < ranks; r++)
        all += (size_t)p->plan->ranks[r].n_actions;
    PP_TAKE(double, times, all);
    PP_TAKE(const double *, rows, ranks);
    double *at = times;
    for (size_t r = 0; step >= 0 && r < ranks; r++) {
        rows[r] = at;
        for (int k = 0; k < p->plan->ranks[r].n_actions; k++)
            *at++ = action_seconds(p, step, (int)r, k);
    }
    *costs = pp_sim_costs_of(f->costs, p->plan->n_virtual);
    costs->each = step >= 0 ? rows : NULL;
    costs->after = step >= 0 ? (const double *const *)(p->after + (size_t)step * ranks) : NULL;
    costs->latency = step >= 0 ? f->latencies[step - p->first] : f->latency;
    costs->launch = step >= 0 ? f->launches[step - p->first] : f->launch;
    costs->fused_send = true;
    int rc = pp_sim_run(p->plan, costs, with_times, out);
    costs->each = costs->after = NULL;
    return rc;
}

static double length_of(const struct pp_profile *p, int step)
{
    double first = 1e300, last = -1e300;
    for (int r = 0; r < ranks_of(p); r++) {
        int row = step * ranks_of(p) + r, n = p->plan->ranks[r].n_actions;
        first = fmin(first, p->start[row][0]);
        last = fmax(last, p->end[row][n - 1]);
    }
    return last - first;
}

/* Returns for how many seconds a rank computes in a step. */
static double work_of(const struct pp_profile *p, int step, int rank)
{
    double sum = 0;
    for (int k = 0; k < p->plan->ranks[rank].n_actions; k++)
        sum += action_seconds(p, step, rank, k);
    return sum;
}

static int simulate_steps(const struct pp_profile *p, struct pp_profile_fit *f)
{
    int n = p->steps - p->first, outside = 0;
    PP_TAKE(double, values, 4 * (size_t)n);
    double *length = values, *error = length + n, *rest = error + n, *each = rest + n;
    for (int t = 0; t < n; t++) {
        PP_OWN(pp_sim_result_fini) struct pp_sim_result result = {0};
        struct pp_sim_costs costs;
        int step = p->first + t;
        length[t] = length_of(p, step);
        PP_TRY(pp_profile_simulate(p, f, step, false, &costs, &result));
        each[t] = result.makespan;
        error[t] = length[t] > 0 ? result.makespan / length[t] - 1 : 0;
        if (p->total[step] > length[t])
            rest[outside++] = p->total[step] - length[t];
        for (int r = 0; r < ranks_of(p); r++) {
            f->busy[r] += length[t] > 0 ? work_of(p, step, r) / length[t] / n : 0;
            f->peak[r] = (double)result.peak[r] / p->plan->geometry.chunks;
        }
    }
    f->outside = outside > 0 ? pp_median(rest, outside) : 0;
    f->each = pp_median(each, n);
    f->error = pp_median(error, n);
    f->step = pp_median(length, n); /* sorts */
    f->step_least = length[0];
    f->step_most = length[n - 1];
    for (int t = n - 1; t >= 0; t--)
        if (t == n - 1 ||
            fabs(length_of(p, p->first + t) - f->step) < fabs(length_of(p, f->typical) - f->step))
            f->typical = p->first + t;
    return 0;
}

/* Splits the measured idle share into the causes that a simulation with mean times shows (schedule,
 * imbalance, transfers) and the rest, which is jitter. */
static int explain_idle(const struct pp_profile *p, struct pp_profile_fit *f)
{
    PP_OWN(pp_sim_result_fini) struct pp_sim_result result = {0};
    struct pp_sim_costs costs;
    int ranks = ranks_of(p);
    double work = 0, busy = 0;
    PP_TRY(pp_profile_simulate(p, f, -1, false, &costs, &result));
    f->means = result.makespan;
    for (int s = 0; s < 3 * p->plan->n_virtual; s++)
        work += f->costs[s] * p->plan->geometry.microbatches;
    for (int r = 0; r < ranks; r++)
        busy += f->busy[r];
    f->idle = 1 - busy / ranks;
    double simulated = pp_bubble_idle(work, result.makespan, ranks);
    double idle = fmin(simulated, f->idle);
    f->jitter = f->idle - idle;
    return pp_bubble_explain(p->plan, &costs, 1, idle, &f->bubble);
}

/* Fits memory = base + slope * (micro-batches held) to the ranks by least squares of the relative
 * errors. */
static void fit_memory(const struct pp_profile *p, struct pp_profile_fit *f)
{
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (int r = 0; r < ranks_of(p); r++) {
        if (!(p->memory[r] > 0))
            return;
        double weight = 1 / (p->memory[r] * p->memory[r]);
        n += weight;
        x += weight * f->peak[r];
        y += weight * p->memory[r];
        xx += weight * f->peak[r] * f->peak[r];
        xy += weight * f->peak[r] * p->memory[r];
    }
    double spread = n * xx - x * x;
    f->memory_slope = spread > 1e-9 * n * xx ? (n * xy - x * y) / spread : 0;
    f->memory_base = (y - f->memory_slope * x) / n;
    for (int r = 0; r < ranks_of(p); r++) {
        double error = (f->memory_base + f->memory_slope * f->peak[r]) / p->memory[r] - 1;
        f->memory_error = fmax(f->memory_error, fabs(error));
    }
}

int pp_profile_fit_make(const struct pp_profile *p, struct pp_profile_fit *out)
{
    struct pp_profile_fit *f = out;
    size_t ranks = (size_t)ranks_of(p);
    *f = (struct pp_profile_fit){0};
    PP_ALLOC(f->ranges, ranks * PP_OPS);
    PP_ALLOC(f->busy, ranks);
    PP_ALLOC(f->latencies, p->steps);
    PP_ALLOC(f->launches, p->steps);
    PP_ALLOC(f->peak, ranks);
    PP_ALLOC(f->costs, 3 * (size_t)p->plan->n_virtual);
    PP_TRY(fit_gaps(p, f));
    PP_TRY(fit_ranges(p, f));
    PP_TRY(fit_costs(p, f));
    PP_TRY(simulate_steps(p, f));
    PP_TRY(explain_idle(p, f));
    fit_memory(p, f);
    return 0;
}

void pp_profile_fit_fini(struct pp_profile_fit *f)
{
    pp_free(f->ranges);
    pp_free(f->busy);
    pp_free(f->peak);
    pp_free(f->latencies);
    pp_free(f->launches);
    pp_free(f->costs);
}
