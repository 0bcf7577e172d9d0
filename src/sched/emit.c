/* SPDX-License-Identifier: Apache-2.0 */
/* Pass 1, generate: turns the cells of a schedule into the actions of each rank. */
#include "orders/orders.h"
#include "schedule.h"

#include "ppcli/base/base.h"

int pp_emit_cell(struct pp_emit *e, enum pp_op op, int stage, int mb)
{
    PP_RESERVE(e->cells, e->n, e->capacity);
    e->cells[e->n++] = (struct pp_cell){.op = (uint8_t)op, .stage = stage, .mb = mb};
    return 0;
}

/* Calls `visit` with the cells of one rank after the other. Reuses one buffer, so that only the
 * cells of one rank exist at a time. */
static int visit_rank_by_rank(const struct pp_schedule_ops *ops, const struct pp_geometry *g,
                              pp_cells_visit *visit, void *ctx)
{
    struct pp_emit e = {0};
    int rc = 0;
    for (int r = 0; r < g->stages && rc == 0; r++) {
        e.n = 0;
        rc = ops->emit(g, r, &e);
        if (rc == 0)
            rc = visit(ctx, r, &e);
    }
    pp_free(e.cells);
    return rc;
}

static int visit_all_ranks(const struct pp_schedule_ops *ops, const struct pp_geometry *g,
                           pp_cells_visit *visit, void *ctx)
{
    int p = g->stages;
    PP_TAKE(struct pp_emit, lists, p);
    PP_TAKE(struct pp_emit *, ranks, p);
    for (int r = 0; r < p; r++)
        ranks[r] = &lists[r];
    int rc = ops->emit_all(g, ranks);
    for (int r = 0; r < p; r++) {
        if (rc == 0)
            rc = visit(ctx, r, &lists[r]);
        pp_free(lists[r].cells);
    }
    return rc;
}

int pp_schedule_visit(const struct pp_schedule_ops *ops, const struct pp_geometry *g,
                      pp_cells_visit *visit, void *ctx)
{
    return ops->emit_all ? visit_all_ranks(ops, g, visit, ctx)
                         : visit_rank_by_rank(ops, g, visit, ctx);
}

static int take_cells(void *ctx, int rank, const struct pp_emit *e)
{
    return pp_plan_take_cells(ctx, rank, e->cells, e->n);
}

static int emit_forward_loop(const struct pp_geometry *g, struct pp_emit **e)
{
    return pp_greedy_emit(g, PP_PLACE_LOOP, PP_GREEDY_FORWARD, e);
}

static int emit_forward_v(const struct pp_geometry *g, struct pp_emit **e)
{
    return pp_greedy_emit(g, PP_PLACE_V, PP_GREEDY_FORWARD, e);
}

/* Generates the lists of a forward-only plan: F0, F1, F2, ... with one chunk per rank; with several
 * chunks the interleaved order that fits the placement. */
int pp_pass_generate_eval(struct pp_plan *plan, enum pp_placement placement)
{
    static const struct pp_schedule_ops forward[] = {
        [PP_PLACE_LOOP] = {.emit_all = emit_forward_loop},
        [PP_PLACE_V] = {.emit_all = emit_forward_v}};
    return pp_schedule_visit(&forward[placement], &plan->geometry, take_cells, plan);
}

int pp_pass_generate(struct pp_plan *plan)
{
    return pp_schedule_visit(plan->schedule, &plan->geometry, take_cells, plan);
}
