/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The forward-only list: on every tick each rank runs the deepest stage that has an input. Deepest
 * first keeps queues short, and no rank is idle while it could work. With one chunk per rank this
 * is F0, F1, F2...; with more it finds the interleaving that fits the placement.
 */
#include "pass.h"

#include "ppcli/mem.h"

struct greedy {
    struct pp_plan *plan;
    int *stage_of; /* [P][V] stages of each rank, ascending */
    int *done;     /* [n_virtual] micro-batches that have left the stage */
    int *pick;     /* [P] stage of this tick, -1: idle */
};

static int deepest_runnable(const struct greedy *g, int rank)
{
    int v = g->plan->geometry.chunks;
    for (int c = v - 1; c >= 0; c--) {
        int s = g->stage_of[(size_t)rank * (size_t)v + (size_t)c];
        int there = s == 0 ? g->plan->geometry.microbatches : g->done[s - 1];
        if (g->done[s] < there)
            return s;
    }
    return -1;
}

static void run(struct greedy *g)
{
    int p = g->plan->geometry.stages;
    int v = g->plan->geometry.chunks;
    for (int s = 0; s < g->plan->n_virtual; s++) {
        size_t rank = (size_t)g->plan->rank_of[s];
        g->stage_of[rank * (size_t)v + (size_t)g->plan->chunk_of[s]] = s;
    }
    for (int *n = &g->done[g->plan->n_virtual - 1]; *n < g->plan->geometry.microbatches;) {
        /* All ranks choose before any of them runs: what is made now is there next tick. */
        for (int r = 0; r < p; r++)
            g->pick[r] = deepest_runnable(g, r);
        for (int r = 0; r < p; r++) {
            if (g->pick[r] < 0)
                continue;
            struct pp_rank_plan *list = &g->plan->ranks[r];
            struct pp_action *a = &list->actions[list->n_actions++];
            a->op = PP_OP_F;
            a->stage = g->pick[r];
            a->mb = g->done[a->stage]++;
        }
    }
}

int pp_pass_generate_eval(struct pp_plan *plan)
{
    int rc = 0;
    struct greedy g = {.plan = plan};
    size_t p = (size_t)plan->geometry.stages;
    for (int r = 0; r < plan->geometry.stages && rc == 0; r++) {
        rc = pp_plan_take_actions(plan, r, plan->geometry.chunks * plan->geometry.microbatches);
        plan->ranks[r].n_actions = 0;
    }
    g.stage_of = pp_alloc((size_t)plan->n_virtual, sizeof(*g.stage_of));
    g.done = pp_alloc((size_t)plan->n_virtual, sizeof(*g.done));
    g.pick = pp_alloc(p, sizeof(*g.pick));
    if (!g.stage_of || !g.done || !g.pick)
        rc = PP_ERESOURCE;
    if (rc == 0)
        run(&g);
    pp_free(g.stage_of);
    pp_free(g.done);
    pp_free(g.pick);
    return rc;
}
