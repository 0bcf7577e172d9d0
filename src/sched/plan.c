/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the memory of a plan and runs the passes in their order. */
#include "plan.h"

#include "ppcli/base/base.h"
#include "csv.h"

/* All ids and list lengths are int32, and each (stage, micro-batch) has at most four actions and
 * messages. */
#define CELLS_MAX (INT32_MAX / 4)

int pp_check_geometry(const struct pp_geometry *g)
{
    if (g->stages < 1 || g->chunks < 1 || g->microbatches < 1) {
        return pp_fail(PP_ECONFIG,
                       "%d stages, %d chunks, %d micro-batches: each must be at least 1", g->stages,
                       g->chunks, g->microbatches);
    }
    int64_t n_virtual = (int64_t)g->stages * g->chunks;
    if (g->coalesce < 0)
        return pp_fail(PP_ECONFIG, "coalesce = %d, must be at least 1 (0: no groups)", g->coalesce);
    if (n_virtual > CELLS_MAX || n_virtual * g->microbatches > CELLS_MAX) {
        return pp_fail(PP_ECONFIG,
                       "%d stages x %d chunks x %d micro-batches are too many: their product must "
                       "be at most %d",
                       g->stages, g->chunks, g->microbatches, CELLS_MAX);
    }
    return 0;
}

/* Returns an upper bound of the bytes of a plan, which counts three actions and two messages for
 * each cell, and the order and times of each message (slots.c). */
double pp_plan_bytes(const struct pp_geometry *g)
{
    if (pp_check_geometry(g) < 0) {
        pp_error_clear();
        return 0;
    }
    double bytes_each = 3 * sizeof(struct pp_action) +
                        2 * (sizeof(struct pp_message) + 2 * sizeof(int64_t) + sizeof(int32_t));
    return bytes_each * g->stages * g->chunks * g->microbatches;
}

/* Sets rank_of and chunk_of of each stage, and checks that every rank holds equally many stages. */
static int place_stages(struct pp_plan *plan, const int *rank_of, enum pp_placement placement)
{
    const struct pp_geometry *g = &plan->geometry;
    PP_TAKE(int, held, g->stages);
    for (int s = 0; s < plan->n_virtual; s++) {
        int r = rank_of ? rank_of[s] : pp_place(placement, g->stages, s);
        if (r < 0 || r >= g->stages) {
            return pp_fail(PP_EFORMAT, "stage %d is on rank %d, ranks are 0..%d", s, r,
                           g->stages - 1);
        }
        if (held[r] == g->chunks) {
            return pp_fail(PP_EFORMAT, "rank %d holds more than %d stage%s (chunks = %d)", r,
                           g->chunks, pp_plural(g->chunks), g->chunks);
        }
        plan->rank_of[s] = r;
        plan->chunk_of[s] = held[r]++;
    }
    return 0;
}

int pp_plan_create(enum pp_plan_kind kind, const struct pp_geometry *g, const int *rank_of,
                   enum pp_placement placement, struct pp_plan **out)
{
    PP_TRY(pp_check_geometry(g));
    struct pp_plan *plan;
    PP_ALLOC(plan, 1);
    plan->kind = kind;
    plan->geometry = *g;
    plan->n_virtual = g->stages * g->chunks;
    plan->copies = 1;
    plan->rank_of = pp_alloc((size_t)plan->n_virtual, sizeof(*plan->rank_of));
    plan->chunk_of = pp_alloc((size_t)plan->n_virtual, sizeof(*plan->chunk_of));
    plan->state_slots = pp_alloc((size_t)plan->n_virtual, sizeof(*plan->state_slots));
    plan->grad_slots = pp_alloc((size_t)plan->n_virtual, sizeof(*plan->grad_slots));
    plan->shared = pp_alloc((size_t)plan->n_virtual, sizeof(*plan->shared));
    plan->frozen = pp_alloc((size_t)plan->n_virtual, sizeof(*plan->frozen));
    plan->ranks = pp_alloc((size_t)g->stages, sizeof(*plan->ranks));

    int rc = PP_ERESOURCE;
    if (plan->rank_of && plan->chunk_of && plan->state_slots && plan->grad_slots && plan->shared &&
        plan->frozen && plan->ranks)
        rc = place_stages(plan, rank_of, placement);
    return pp_plan_hand_over(plan, rc, out);
}

int pp_plan_take_actions(struct pp_plan *plan, int rank, int n)
{
    struct pp_action *actions;
    PP_ALLOC(actions, n);
    pp_free(plan->ranks[rank].actions);
    plan->ranks[rank] = (struct pp_rank_plan){.actions = actions, .n_actions = n};
    return 0;
}

int pp_plan_take_cells(struct pp_plan *plan, int rank, const struct pp_cell *cells, size_t n)
{
    if (n > INT32_MAX)
        return pp_fail(PP_EFORMAT, "rank %d: %zu cells are too many", rank, n);
    PP_TRY(pp_plan_take_actions(plan, rank, (int)n));
    struct pp_action *actions = plan->ranks[rank].actions;
    for (size_t k = 0; k < n; k++) {
        actions[k].op = cells[k].op;
        actions[k].overlap = cells[k].overlap;
        actions[k].stage = cells[k].stage;
        actions[k].mb = cells[k].mb;
    }
    return 0;
}

void pp_plan_destroy(struct pp_plan **plan)
{
    struct pp_plan *p = *plan;
    if (!p)
        return;
    for (int r = 0; p->ranks && r < p->geometry.stages; r++)
        pp_free(p->ranks[r].actions);
    pp_free(p->ranks);
    pp_free(p->rank_of);
    pp_free(p->chunk_of);
    pp_free(p->state_slots);
    pp_free(p->grad_slots);
    pp_free(p->shared);
    pp_free(p->frozen);
    pp_free(p->ties);
    pp_free(p->channels);
    pp_free(p->messages);
    pp_free(p);
    *plan = NULL;
}

int pp_plan_hand_over(struct pp_plan *plan, int rc, struct pp_plan **out)
{
    if (rc < 0)
        pp_plan_destroy(&plan);
    else
        *out = plan;
    return rc;
}

int pp_plan_make_slots(struct pp_plan *plan)
{
    int32_t *order = NULL;
    pp_free(plan->channels);
    pp_free(plan->messages);
    plan->channels = NULL;
    plan->messages = NULL;
    PP_TRY(pp_pass_lower(plan, &order));
    int rc = pp_pass_slots(plan, order);
    pp_free(order);
    PP_TRY(rc);
    return pp_plan_prove(plan);
}

int pp_plan_run_passes(struct pp_plan *plan, const struct pp_table *table)
{
    bool descends;
    bool groups = plan->kind == PP_PLAN_TRAIN && plan->geometry.coalesce > 1;
    PP_TRY(pp_pass_check(plan, table, &descends));
    if (descends)
        PP_TRY(pp_pass_ascend(plan));
    if (groups)
        PP_TRY(pp_pass_coalesce(plan));
    if (descends || groups) {
        PP_TRY(pp_pass_check(plan, NULL, &descends));
        pp_assert(!descends);
    }
    int rc = pp_plan_make_slots(plan);
    if (rc < 0 && table)
        pp_error_context("%s", table->csv.name);
    return rc;
}

/* Turns the error of a list that did not pass the checks into PP_EINTERNAL: the list came from a
 * schedule of ppcli, so this is a bug and not a mistake in the user's data. Returns the new
 * error. */
static int blame_us(int rc, const char *name, const struct pp_geometry *g)
{
    if (rc != PP_EFORMAT)
        return rc;
    struct pp_error e = *pp_error_get();
    e.code = PP_EINTERNAL;
    pp_error_adopt(&e);
    return pp_error_context("schedule %s (%d stages, %d chunks, %d micro-batches) is refused", name,
                            g->stages, g->chunks, g->microbatches);
}

static int fail_unknown_schedule(const char *name)
{
    char known[512] = "";
    size_t used = 0;
    for (const char *const *n = pp_schedule_names(); *n && used < sizeof(known); n++)
        used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", used ? ", " : "", *n);
    return pp_fail(PP_ECONFIG, "there is no schedule '%s': choose one of %s", name, known);
}

int pp_plan_build(const char *schedule, const struct pp_geometry *g, struct pp_plan **out)
{
    const struct pp_schedule_ops *ops = pp_schedule_find(schedule);
    if (!ops)
        return fail_unknown_schedule(schedule);
    PP_TRY(pp_check_geometry(g));
    PP_TRY(pp_schedule_check(ops, g));

    struct pp_plan *plan = NULL;
    struct pp_geometry share = pp_schedule_share(ops, g);
    PP_TRY(pp_plan_create(PP_PLAN_TRAIN, &share, NULL, ops->placement, &plan));
    plan->schedule = ops;
    plan->copies = ops->copies > 0 ? ops->copies : 1;
    int rc = pp_pass_generate(plan);
    if (rc == 0)
        rc = pp_plan_run_passes(plan, NULL);
    plan->geometry.ticks = NULL; /* the caller owns ticks, and may free them before the plan */
    plan->geometry.recompute = NULL;
    return pp_plan_hand_over(plan, blame_us(rc, schedule, g), out);
}

int pp_plan_fit(const struct pp_geometry *g, const double *costs, double comm,
                struct pp_plan **plan)
{
    struct pp_geometry fitted = *g;
    const char *schedule = pp_schedule_name((*plan)->schedule);
    int n = (*plan)->n_virtual;
    PP_TAKE(int64_t, ticks, 3 * (size_t)n + 1);
    pp_schedule_ticks(costs, n, comm, ticks);
    fitted.ticks = ticks;
    pp_plan_destroy(plan);
    return pp_plan_build(schedule, &fitted, plan);
}

int pp_plan_build_eval(const struct pp_geometry *g, enum pp_placement placement,
                       struct pp_plan **out)
{
    struct pp_plan *plan = NULL;
    PP_TRY(pp_plan_create(PP_PLAN_EVAL, g, NULL, placement, &plan));
    int rc = pp_pass_generate_eval(plan, placement);
    if (rc == 0)
        rc = pp_plan_run_passes(plan, NULL);
    return pp_plan_hand_over(plan, blame_us(rc, "(forward only)", g), out);
}

int pp_plan_from_cells(const struct pp_geometry *g, const int *rank_of,
                       const struct pp_cell *const *cells, const int *n_cells, struct pp_plan **out)
{
    struct pp_plan *plan = NULL;
    PP_TRY(pp_plan_create(PP_PLAN_TRAIN, g, rank_of, PP_PLACE_LOOP, &plan));
    int rc = 0;
    for (int r = 0; r < g->stages && rc == 0; r++)
        rc = pp_plan_take_cells(plan, r, cells[r], (size_t)n_cells[r]);
    if (rc == 0)
        rc = pp_plan_run_passes(plan, NULL);
    return pp_plan_hand_over(plan, rc, out);
}
