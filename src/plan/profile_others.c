/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What else would have run on a measured machine. A rank's own time, as it was measured, is divided
 * among its chunks; a micro-batch of half the rows takes half the time, and what lies between two
 * actions stays. With equal work the mean of all ranks takes its place.
 */
#include "search.h"

#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"

/* costs[3][n_virtual] of another plan: F, I, W of the ranks. */
static void spread_costs(const struct pp_profile *p, const struct pp_profile_fit *f,
                         const struct pp_plan *plan, bool even, double *costs)
{
    int n = p->plan->n_virtual, ranks = p->plan->geometry.stages;
    double rows = (double)p->plan->geometry.microbatches / plan->geometry.microbatches;
    bool same = plan->n_virtual == n && !even &&
                memcmp(plan->rank_of, p->plan->rank_of, (size_t)n * sizeof(int)) == 0;
    for (int op = 0; op < 3; op++) {
        for (int s = 0; s < plan->n_virtual; s++) {
            double sum = 0;
            for (int k = 0; k < n; k++)
                sum += even || p->plan->rank_of[k] == plan->rank_of[s] ? f->costs[op * n + k] : 0;
            sum = same ? f->costs[op * n + s] : sum / plan->geometry.chunks / (even ? ranks : 1);
            costs[op * plan->n_virtual + s] = sum * rows;
        }
    }
}

static int simulate_plan(const struct pp_profile *p, const struct pp_profile_fit *f,
                         const struct pp_plan *plan, const double *costs, struct pp_row *row,
                         double *memory)
{
    PP_OWN(pp_sim_result_fini) struct pp_sim_result result = {0};
    size_t n = (size_t)plan->n_virtual;
    const struct pp_geometry *g = &plan->geometry;
    struct pp_sim_costs c = {.f = costs,
                             .i = costs + n,
                             .w = costs + 2 * n,
                             .latency = f->latency,
                             .launch = f->launch,
                             .fused_send = true};
    double work = 0, most = 0, rows = (double)p->plan->geometry.microbatches / g->microbatches;
    PP_TRY(pp_sim_run(plan, &c, false, &result));
    for (size_t s = 0; s < 3 * n; s++)
        work += costs[s] * g->microbatches;
    row->time.step = result.makespan;
    row->time.bubble.idle = pp_bubble_idle(work, result.makespan, g->stages);
    for (int r = 0; f->memory_base > 0 && r < g->stages; r++) {
        double held = (double)result.peak[r] / g->chunks * rows;
        double takes = f->memory_base + f->memory_slope * held;
        most = fmax(most, takes);
        if (memory)
            memory[r] = takes;
    }
    row->peak_bytes = (size_t)ceil(most);
    return 0;
}

int pp_profile_predict(const struct pp_profile *p, const struct pp_profile_fit *f,
                       const struct pp_plan *plan, struct pp_row *row, double *memory)
{
    if (plan->geometry.stages != p->plan->geometry.stages)
        return pp_fail(PP_EUSAGE, "a profile of %d stages predicts plans of %d stages, not of %d",
                       p->plan->geometry.stages, p->plan->geometry.stages, plan->geometry.stages);
    PP_TAKE(double, costs, 3 * (size_t)plan->n_virtual);
    spread_costs(p, f, plan, row->timed, costs);
    return simulate_plan(p, f, plan, costs, row, memory);
}

/* ---- the search */

struct search {
    const struct pp_profile *p;
    const struct pp_profile_fit *f;
    size_t memory;
    struct pp_rows *rows;
};

/* Builds the plan of a row: one that is made for costs gets those of the ranks. */
static int build_plan(const struct search *s, const struct pp_row *row, struct pp_plan **out)
{
    const struct pp_division *d = &row->d;
    struct pp_geometry g = {.stages = d->stages,
                            .chunks = d->chunks,
                            .microbatches = d->microbatches,
                            .memory_cap = d->memory_cap};
    PP_TRY(pp_plan_build(pp_schedule_name(d->schedule), &g, out));
    if (!d->schedule->fits)
        return 0;
    PP_TAKE(double, costs, 3 * (size_t)(*out)->n_virtual);
    spread_costs(s->p, s->f, *out, row->timed, costs);
    return pp_plan_fit(&g, costs, s->f->latency, out);
}

static int try_row(struct search *s, struct pp_row *row)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    int rc = build_plan(s, row, &plan);
    s->rows->tried++;
    if (rc == PP_ECONFIG) {
        pp_error_clear();
        s->rows->refused++;
        return 0;
    }
    PP_TRY(rc);
    PP_TRY(pp_profile_predict(s->p, s->f, plan, row, NULL));
    row->over = s->memory > 0 && row->peak_bytes > s->memory;
    return rows_add(s->rows, row, rows_are_priced_alike);
}

/* Tries the chunks and the memory caps of a row that has a schedule and micro-batches. */
static int try_schedule(struct search *s, struct pp_row *row)
{
    const struct pp_schedule_ops *ops = row->d.schedule;
    int own = s->p->plan->geometry.chunks, counts[] = {1, 2, 4, own};
    bool capped = ops->fits || strcmp(pp_schedule_name(ops), "zb-auto") == 0;
    for (int i = 0; i < 4; i++) {
        bool legal = !ops->proves && (ops->chunks == 0 || ops->chunks == counts[i]) &&
                     (i < 3 || (own != 1 && own != 2 && own != 4));
        row->d.chunks = counts[i];
        for (int twice = 0; legal && twice <= capped; twice++) {
            row->d.memory_cap = capped ? (1 + twice) * row->d.stages : 0;
            PP_TRY(try_row(s, row));
        }
    }
    return 0;
}

static int try_schedules(struct search *s)
{
    const char *const *names = pp_schedule_names();
    int m = s->p->plan->geometry.microbatches;
    for (int k = 0; names[k]; k++)
        for (int twice = m % 2 == 0 ? m / 2 : m; twice <= 2 * m; twice *= 2)
            for (int even = 0; even < 2; even++) {
                struct pp_row row = {.order = k, .timed = even > 0};
                row.d.schedule = pp_schedule_find(names[k]);
                row.d.stages = s->p->plan->geometry.stages;
                row.d.microbatches = twice;
                PP_TRY(try_schedule(s, &row));
            }
    return 0;
}

int pp_profile_others(const struct pp_profile *p, const struct pp_profile_fit *f, size_t memory,
                      struct pp_rows *out)
{
    struct pp_rows rows = {.items = NULL};
    struct search s = {.p = p, .f = f, .memory = memory, .rows = &rows};
    int rc = try_schedules(&s);
    PP_TRY_UNDO(rc, pp_rows_fini(&rows));
    rows_sort(&rows);
    *out = rows;
    return 0;
}
