/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the mean times of all ranks and simulates a step with them. The same arithmetic on every
 * rank. */
#include "ppcli/runlog/runlog.h"

#include <limits.h>

#define STEPS_SHOWN 6 /* the last of these steps is in the steady state */

/* Collective. Gathers the times of all chunks as times[ranks][chunks] and those of updates as
 * updates[ranks]. */
static int gather_times(const struct pp_layout *l, const struct pp_exec *x, struct pp_transport *tp,
                        struct pp_exec_times *times, struct pp_exec_time *updates)
{
    int k = 0;
    PP_OWN_MEMORY struct pp_exec_times *mine = pp_alloc((size_t)l->chunks, sizeof(*mine));
    PP_TRY(pp_transport_agree(tp, mine ? 0 : PP_ERESOURCE));
    for (int s = 0; mine && s < l->n_virtual; s++)
        k += pp_exec_times(x, s, &mine[k]);
    PP_TRY(pp_transport_allgather(tp, mine, (size_t)l->chunks * sizeof(*mine), times));
    struct pp_exec_time update = pp_exec_update_time(x);
    return pp_transport_allgather(tp, &update, sizeof(update), updates);
}

static double mean_seconds(uint64_t ns, uint64_t n)
{
    return n > 0 ? (double)ns * 1e-9 / (double)n : 0;
}

/* Computes the mean times of each stage over the replicas. Returns whether every stage has computed
 * full-size micro-batches. */
static bool average_times(struct pp_forecast *f, const struct pp_exec_times *times,
                          const struct pp_exec_time *updates)
{
    const struct pp_layout *l = f->layout;
    bool seen = true;
    for (int s = 0; s < l->n_virtual; s++) {
        struct pp_exec_times sum = {{0}, {0}};
        for (int d = 0; d < l->replicas; d++) {
            int rank = d * l->stages + l->rank_of[s];
            const struct pp_exec_times *t = &times[rank * l->chunks + f->plan->chunk_of[s]];
            for (int op = 0; op < 3; op++) {
                sum.ns[op] += t->ns[op];
                sum.n[op] += t->n[op];
            }
        }
        f->stages.f[s] = mean_seconds(sum.ns[PP_OP_F], sum.n[PP_OP_F]);
        f->stages.i[s] = mean_seconds(sum.ns[PP_OP_I], sum.n[PP_OP_I]);
        f->stages.w[s] = mean_seconds(sum.ns[PP_OP_W], sum.n[PP_OP_W]);
        seen = seen && sum.n[PP_OP_F] > 0 && sum.n[PP_OP_I] > 0 &&
               (sum.n[PP_OP_W] > 0 || f->plan->frozen[s]);
    }
    for (int r = 0; r < l->stages; r++) {
        struct pp_exec_time sum = {0, 0};
        for (int d = 0; d < l->replicas; d++) {
            sum.ns += updates[d * l->stages + r].ns;
            sum.n += updates[d * l->stages + r].n;
        }
        f->stages.between[r] = mean_seconds(sum.ns, sum.n);
    }
    return seen;
}

/* Sets the sizes of the micro-batches in replica 0's share of a full batch, relative to the largest
 * micro-batch. */
static void size_microbatches(struct pp_forecast *f)
{
    const struct pp_layout *l = f->layout;
    int batch = l->training.batch < l->train_n ? l->training.batch : l->train_n;
    int first, share, rows;
    pp_balanced_piece(batch, l->replicas, 0, &first, &share);
    for (int mb = 0; mb < f->plan->geometry.microbatches; mb++) {
        pp_balanced_piece(share, f->plan->geometry.microbatches, mb, &first, &rows);
        f->stages.rows[mb] = (double)rows / l->max_rows;
    }
}

static int find_least_seconds(struct pp_forecast *f, double n)
{
    struct pp_sim_costs costs = f->stages.costs;
    double bound;
    costs.steps = n < INT_MAX ? (int)n : INT_MAX; /* rounded down, so that it stays a lower bound */
    costs.steps = costs.steps > 1 ? costs.steps : 1;
    PP_TRY(pp_sim_bound(f->plan, &costs, &bound));
    f->least_seconds = bound / (n > 1 ? n : 1);
    return 0;
}

static int predict_step(struct pp_forecast *f, double n)
{
    struct pp_sim_costs costs = f->stages.costs;
    costs.steps = n < STEPS_SHOWN ? (int)(n + 0.5) : STEPS_SHOWN;
    PP_TRY(pp_sim_run(f->plan, &costs, true, &f->result));
    PP_TRY(pp_sim_step(f->plan, &f->stages.costs, n, 0, &f->step_seconds, &f->bubble));
    PP_TRY(find_least_seconds(f, n));
    f->meet_every = n;
    return 0;
}

static int allocate_costs(struct pp_forecast *f, const struct pp_layout *l)
{
    struct pp_stage_costs *q = &f->stages;
    f->layout = l;
    f->plan = l->plans[0].plan;
    PP_TRY(pp_stage_costs_init(f->plan, q));
    q->costs.rows = q->rows;
    q->costs.between = q->between;
    q->costs.slots = true; /* as the executor */
    q->costs.vote = pp_layout_proves_finite(l) ? PP_SIM_VOTE_AT_I : PP_SIM_VOTE_AT_END;
    return 0;
}

int pp_forecast_create(const struct pp_layout *l, const struct pp_exec *x, struct pp_transport *tp,
                       double meet_every, struct pp_forecast **out)
{
    PP_OWN(pp_forecast_destroy) struct pp_forecast *f = pp_alloc(1, sizeof(*f));
    PP_OWN_MEMORY struct pp_exec_times *times =
        pp_alloc((size_t)l->ranks * (size_t)l->chunks, sizeof(*times));
    PP_OWN_MEMORY struct pp_exec_time *updates = pp_alloc((size_t)l->ranks, sizeof(*updates));
    PP_TRY(pp_transport_agree(tp, f && times && updates ? allocate_costs(f, l) : PP_ERESOURCE));
    PP_TRY(gather_times(l, x, tp, times, updates));
    /* else the ranks had not agreed */
    pp_assert(f != NULL && times != NULL && updates != NULL);
    f->known = average_times(f, times, updates);
    size_microbatches(f);
    PP_TRY(f->known ? predict_step(f, meet_every) : 0);
    *out = f;
    f = NULL;
    return 0;
}

int pp_forecast_explain(const struct pp_forecast *f, double idle, struct pp_bubble *out)
{
    *out = (struct pp_bubble){.idle = idle, .waiting = idle, .stages = f->layout->stages};
    return f->known ? pp_bubble_explain(f->plan, &f->stages.costs, f->meet_every, idle, out) : 0;
}

void pp_forecast_destroy(struct pp_forecast **forecast)
{
    struct pp_forecast *f = *forecast;
    if (f) {
        pp_sim_result_fini(&f->result);
        pp_stage_costs_fini(&f->stages);
        pp_free(f);
        *forecast = NULL;
    }
}
