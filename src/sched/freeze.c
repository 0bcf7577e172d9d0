/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pass over a finished plan that takes the W out of stages that have no weight gradients; their I
 * then releases what their W would have released. Receivers release micro-batches in ascending
 * order, so a stage whose I descend keeps its W. So does one whose F do not ascend, because a stage
 * without W sums the statistics of its batch norms in F, and the order decides their bits.
 */
#include "pass.h"

#include <string.h>

#include "ppcli/base/base.h"

/* Sets frozen[s] to stages[s] for the stages of a rank whose F and I ascend. next[V][2] is working
 * memory: the micro-batch of the next F and I. */
static void find_frozen(const struct pp_plan *plan, int rank, const bool *stages, int32_t *next)
{
    const struct pp_rank_plan *list = &plan->ranks[rank];
    memset(next, 0, 2 * (size_t)plan->geometry.chunks * sizeof(*next));
    for (int k = 0; k < list->n_actions; k++)
        plan->frozen[list->actions[k].stage] = stages[list->actions[k].stage];
    for (int k = 0; k < list->n_actions; k++) {
        const struct pp_action *a = &list->actions[k];
        int32_t *of = &next[2 * plan->chunk_of[a->stage] + (a->op != PP_OP_F)];
        if (a->op != PP_OP_W && a->mb != (*of)++)
            plan->frozen[a->stage] = false;
    }
}

/* Removes the W of frozen stages from the list of a rank. */
static void remove_weight_gradients(struct pp_plan *plan, int rank)
{
    struct pp_rank_plan *list = &plan->ranks[rank];
    int n = 0;
    for (int k = 0; k < list->n_actions; k++) {
        struct pp_action a = list->actions[k];
        if (plan->frozen[a.stage] && a.op == PP_OP_W)
            continue;
        if (plan->frozen[a.stage] && a.op == PP_OP_B) {
            a.op = PP_OP_I;
            if (n > 0)
                list->actions[n - 1].overlap = false; /* an F overlaps only a B */
        }
        list->actions[n++] = a;
    }
    list->n_actions = n;
}

int pp_plan_freeze(struct pp_plan *plan, const bool *stages)
{
    pp_assert(plan->kind == PP_PLAN_TRAIN && plan->n_ties == 0);
    PP_TAKE(int32_t, next, 2 * (size_t)plan->geometry.chunks);
    for (int r = 0; r < plan->geometry.stages; r++) {
        find_frozen(plan, r, stages, next);
        remove_weight_gradients(plan, r);
    }
    return pp_plan_make_slots(plan);
}
