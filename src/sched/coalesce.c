/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the check and lowering, this pass serves plans that compute the weight gradients of k
 * consecutive micro-batches of a virtual stage as one sum. Each B becomes an I, and all W of a
 * group follow one another where the last of them was. No action moves to an earlier place and a W
 * waits for no message, so the lists stay legal; the slots pass counts what is held for longer.
 *
 * Groups go by micro-batch number (0..k-1, k..2k-1, ...), not by what happens to be adjacent, so
 * the groups, and with them the order of the sums, are the same for every schedule and every number
 * of stages. A group of one keeps its B. An F that was meant to overlap a B that is now an I
 * overlaps nothing.
 */
#include "pass.h"
#include "plan.h"

#include <string.h>

#include "ppcli/base/base.h"

/* Computes the group [*first, *end) of micro-batch mb: the micro-batches whose weight gradients are
 * summed together with its own. */
static void find_group(const struct pp_plan *plan, int mb, int *first, int *end)
{
    int k = plan->geometry.coalesce > 1 ? plan->geometry.coalesce : 1;
    int left = plan->geometry.microbatches - mb / k * k;
    *first = mb / k * k;
    *end = *first + (left < k ? left : k);
}

int pp_plan_together(const struct pp_plan *plan, int rank, int k)
{
    const struct pp_action *a = &plan->ranks[rank].actions[k];
    int first, end;
    find_group(plan, a->mb, &first, &end);
    return a->op == PP_OP_W ? end - a->mb : 1;
}

/* Returns whether the action computes weight gradients that are summed together with those of other
 * micro-batches, and computes their group [*first, *end). */
static bool in_group(const struct pp_plan *plan, const struct pp_action *a, int *first, int *end)
{
    find_group(plan, a->mb, first, end);
    return (a->op == PP_OP_W || a->op == PP_OP_B) && *end - *first > 1;
}

/* Returns how many actions the list of a rank has when each B of a group is replaced by an I and a
 * W. */
static int64_t count_actions(const struct pp_plan *plan, int rank)
{
    const struct pp_rank_plan *list = &plan->ranks[rank];
    int64_t n = list->n_actions;
    int first, end;
    for (int k = 0; k < list->n_actions; k++) {
        const struct pp_action *a = &list->actions[k];
        n += a->op == PP_OP_B && in_group(plan, a, &first, &end);
    }
    return n;
}

static void group_actions(const struct pp_plan *plan, const struct pp_rank_plan *from,
                          struct pp_action *to)
{
    for (int k = 0; k < from->n_actions; k++) {
        const struct pp_action *a = &from->actions[k];
        int first, end;
        if (!in_group(plan, a, &first, &end)) {
            *to++ = *a;
            continue;
        }
        if (a->op == PP_OP_B) {
            if (k > 0 && a[-1].overlap)
                to[-1].overlap = false;
            *to++ = (struct pp_action){.op = PP_OP_I, .stage = a->stage, .mb = a->mb};
        }
        for (int mb = first; mb < end && a->mb == end - 1; mb++)
            *to++ = (struct pp_action){.op = PP_OP_W, .stage = a->stage, .mb = mb};
    }
}

int pp_pass_coalesce(struct pp_plan *plan)
{
    for (int r = 0; r < plan->geometry.stages; r++) {
        int64_t n = count_actions(plan, r);
        if (n > INT32_MAX)
            return pp_fail(PP_EFORMAT, "rank %d: %lld actions are too many", r, (long long)n);
        struct pp_action *actions;
        PP_ALLOC(actions, n);
        group_actions(plan, &plan->ranks[r], actions);
        pp_free(plan->ranks[r].actions);
        plan->ranks[r] = (struct pp_rank_plan){.actions = actions, .n_actions = (int)n};
    }
    return 0;
}

int pp_plan_coalesce(const struct pp_plan *plan, int k, struct pp_plan **out)
{
    struct pp_geometry g = plan->geometry;
    struct pp_plan *copy = NULL;
    pp_assert(plan->kind == PP_PLAN_TRAIN && plan->copies == 1);
    g.coalesce = k;
    PP_TRY(pp_plan_create(PP_PLAN_TRAIN, &g, plan->rank_of, PP_PLACE_LOOP, &copy));
    int rc = 0;
    for (int r = 0; r < g.stages && rc == 0; r++) {
        const struct pp_rank_plan *list = &plan->ranks[r];
        int n = pp_plan_first_tied(list);
        rc = pp_plan_take_actions(copy, r, n);
        if (rc == 0) /* the passes set everything but the cells anew */
            memcpy(copy->ranks[r].actions, list->actions, (size_t)n * sizeof(*list->actions));
    }
    if (rc == 0)
        rc = pp_plan_run_passes(copy, NULL);
    return pp_plan_hand_over(copy, rc, out);
}
