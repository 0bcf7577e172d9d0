/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pass over a finished plan: it puts R into the lists and counts the slots again. An R waits for
 * nothing, so where it stands, right before its I, it runs while the gradient that the I wants is on
 * its way. Where the I follows its own F nothing would be gained, and what F leaves is kept.
 */
#include "pass.h"

#include <string.h>

#include "ppcli/mem.h"

/* What the list of a rank becomes; returns its length. out NULL: it is only counted. from: [V][M] of
 * the rank; where the last F stands whose state is to be there, -1: nowhere, or an R makes it. */
static int64_t rewrite(const struct pp_plan *plan, int rank, const bool *stages, int32_t *from,
                       struct pp_action *out)
{
    const struct pp_rank_plan *list = &plan->ranks[rank];
    size_t m = (size_t)plan->geometry.microbatches;
    int64_t n = 0;
    memset(from, 0xff, (size_t)plan->geometry.chunks * m * sizeof(*from));
    for (int k = 0; k < list->n_actions; k++) {
        const struct pp_action *a = &list->actions[k];
        int32_t *mine = &from[(size_t)plan->chunk_of[a->stage] * m + (size_t)a->mb];
        /* a pair that overlaps stays one: R comes before both */
        const struct pp_action *b = a->overlap ? a + 1 : a;
        int32_t *state = &from[(size_t)plan->chunk_of[b->stage] * m + (size_t)b->mb];
        bool second = k > 0 && a[-1].overlap;
        bool reads = (b->op == PP_OP_I || b->op == PP_OP_B) && !second;
        if (reads && stages[b->stage] && *state >= 0 && *state < k - 1) {
            if (out)
                out[n] = (struct pp_action){.op = PP_OP_R, .stage = b->stage, .mb = b->mb};
            *state = -1;
            n++;
        }
        if (a->op == PP_OP_F || a->op == PP_OP_R)
            *mine = a->op == PP_OP_F ? k : -1;
        if (out)
            out[n] = *a;
        n++;
    }
    return n;
}

static int add_to_rank(struct pp_plan *plan, int rank, const bool *stages, int32_t *from)
{
    int64_t n = rewrite(plan, rank, stages, from, NULL);
    if (n > INT32_MAX)
        return pp_fail(PP_ERESOURCE, "rank %d: %lld actions are too many", rank, (long long)n);
    struct pp_action *actions = pp_alloc((size_t)n, sizeof(*actions));
    if (!actions)
        return PP_ERESOURCE;
    rewrite(plan, rank, stages, from, actions);
    pp_free(plan->ranks[rank].actions);
    plan->ranks[rank] = (struct pp_rank_plan){.actions = actions, .n_actions = (int)n};
    return 0;
}

int pp_plan_recompute(struct pp_plan *plan, const bool *stages)
{
    pp_assert(plan->kind == PP_PLAN_TRAIN && plan->n_ties == 0);
    int rc = 0;
    int32_t *from = pp_alloc((size_t)plan->geometry.chunks * (size_t)plan->geometry.microbatches,
                             sizeof(*from));
    if (!from)
        return PP_ERESOURCE;
    for (int r = 0; r < plan->geometry.stages && rc == 0; r++)
        rc = add_to_rank(plan, r, stages, from);
    pp_free(from);
    PP_TRY(rc);
    pp_free(plan->channels);
    pp_free(plan->messages);
    plan->channels = NULL;
    plan->messages = NULL;
    return pp_plan_make_slots(plan);
}

bool pp_plan_recomputes(const struct pp_plan *plan, int stage)
{
    const struct pp_rank_plan *list = &plan->ranks[plan->rank_of[stage]];
    int k = 0;
    while (k < list->n_actions &&
           (list->actions[k].op != PP_OP_R || list->actions[k].stage != stage))
        k++;
    return k < list->n_actions;
}
