/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What else would have run on a measured machine. A rank's own time, as it was measured, is divided
 * among its chunks; a micro-batch of half the rows takes half the time, and what lies between two
 * actions stays. With equal work the mean of all ranks takes its place.
 */
#include "ppcli/measure/profile.h"

#include <math.h>
#include <stdlib.h>
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

static int predict(const struct pp_profile *p, const struct pp_profile_fit *f,
                   const struct pp_plan *plan, const double *costs, struct pp_profile_other *out,
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
    double work = 0, rows = (double)p->plan->geometry.microbatches / g->microbatches;
    PP_TRY(pp_sim_run(plan, &c, false, &result));
    for (size_t s = 0; s < 3 * n; s++)
        work += costs[s] * g->microbatches;
    out->step = result.makespan;
    out->idle = pp_bubble_idle(work, result.makespan, g->stages);
    out->memory = 0;
    for (int r = 0; f->memory_base > 0 && r < g->stages; r++) {
        double held = (double)result.peak[r] / g->chunks * rows;
        double takes = f->memory_base + f->memory_slope * held;
        out->memory = fmax(out->memory, takes);
        if (memory)
            memory[r] = takes;
    }
    return 0;
}

int pp_profile_predict(const struct pp_profile *p, const struct pp_profile_fit *f,
                       const struct pp_plan *plan, struct pp_profile_other *out, double *memory)
{
    if (plan->geometry.stages != p->plan->geometry.stages)
        return pp_fail(PP_EUSAGE, "a profile of %d stages predicts plans of %d stages, not of %d",
                       p->plan->geometry.stages, p->plan->geometry.stages, plan->geometry.stages);
    PP_TAKE(double, costs, 3 * (size_t)plan->n_virtual);
    spread_costs(p, f, plan, out->even, costs);
    return predict(p, f, plan, costs, out, memory);
}

/* ---- all */

struct ranking {
    const struct pp_profile *p;
    const struct pp_profile_fit *f;
    double memory;
    struct pp_profile_other *at;
    int n, room;
};

/* The plan of a candidate: one that is made for costs gets those of the ranks. */
static int build(const struct ranking *k, const struct pp_schedule_ops *ops,
                 const struct pp_profile_other *o, struct pp_plan **out)
{
    struct pp_geometry g = {.stages = k->p->plan->geometry.stages,
                            .chunks = o->chunks,
                            .microbatches = o->microbatches,
                            .memory_cap = o->cap};
    PP_TRY(pp_plan_build(o->schedule, &g, out));
    if (!ops->fits)
        return 0;
    PP_TAKE(double, costs, 3 * (size_t)(*out)->n_virtual);
    spread_costs(k->p, k->f, *out, o->even, costs);
    return pp_plan_fit(&g, costs, k->f->latency, out);
}

/* Equal in all that is printed: the same plan by another name, of which the first stays. */
static bool is_known(const struct ranking *k, const struct pp_profile_other *o)
{
    for (int i = 0; i < k->n; i++) {
        const struct pp_profile_other *a = &k->at[i];
        if (a->chunks == o->chunks && a->microbatches == o->microbatches && a->even == o->even &&
            a->step == o->step && a->memory == o->memory)
            return true;
    }
    return false;
}

static int try_one(struct ranking *k, const struct pp_schedule_ops *ops, struct pp_profile_other o)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    if (build(k, ops, &o, &plan) < 0) {
        bool refused = pp_error_get()->code == PP_ECONFIG;
        return refused ? (pp_error_clear(), 0) : pp_error_get()->code;
    }
    PP_TRY(pp_profile_predict(k->p, k->f, plan, &o, NULL));
    if ((k->memory > 0 && o.memory > k->memory) || is_known(k, &o))
        return 0;
    PP_RESERVE(k->at, k->n, k->room);
    k->at[k->n++] = o;
    return 0;
}

static int try_schedule(struct ranking *k, const char *name, int m, bool even)
{
    const struct pp_schedule_ops *ops = pp_schedule_find(name);
    int own = k->p->plan->geometry.chunks, p = k->p->plan->geometry.stages,
        counts[] = {1, 2, 4, own};
    for (int i = 0; i < 4; i++) {
        struct pp_profile_other o = {.chunks = counts[i], .microbatches = m, .even = even};
        bool legal = !ops->proves && (ops->chunks == 0 || ops->chunks == o.chunks) &&
                     (i < 3 || (own != 1 && own != 2 && own != 4));
        bool capped = ops->fits || strcmp(name, "zb-auto") == 0;
        snprintf(o.schedule, sizeof(o.schedule), "%s", name);
        for (int twice = 0; legal && twice <= capped; twice++) {
            o.cap = capped ? (1 + twice) * p : 0;
            PP_TRY(try_one(k, ops, o));
        }
    }
    return 0;
}

static int by_step(const void *a, const void *b)
{
    const struct pp_profile_other *x = a, *y = b;
    return (x->step > y->step) - (x->step < y->step);
}

int pp_profile_others(const struct pp_profile *p, const struct pp_profile_fit *f, double memory,
                      struct pp_profile_other **out, int *n)
{
    struct ranking k = {.p = p, .f = f, .memory = memory};
    int m = p->plan->geometry.microbatches, rc = 0;
    for (const char *const *name = pp_schedule_names(); *name && rc == 0; name++)
        for (int twice = m % 2 == 0 ? m / 2 : m; twice <= 2 * m && rc == 0; twice *= 2)
            for (int even = 0; even < 2 && rc == 0; even++)
                rc = try_schedule(&k, *name, twice, even > 0);
    PP_TRY_UNDO(rc, pp_free(k.at));
    if (k.n > 0)
        qsort(k.at, (size_t)k.n, sizeof(*k.at), by_step);
    *out = k.at;
    *n = k.n;
    return 0;
}
