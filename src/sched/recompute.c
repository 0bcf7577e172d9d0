/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pass over a finished plan that puts R into the lists and counts the slots again. An R waits for
 * nothing, so right before its I it runs while the gradient for the I is on its way. If the I
 * follows its own F directly there is nothing to gain, and what F leaves is kept.
 *
 * Then each R moves forward to where its rank waits on the unit time line (F = I = W = R = 1), if
 * one of the slots that the rank already has is free until then. A list in which R fills a wait
 * takes no longer on any rank, so one pass over the lists is enough.
 */
#include "pass.h"

#include <string.h>

#include "ppcli/base/base.h"

/* Writes the list of a rank with R added to `out`, and returns its length, at most twice the old
 * one. from[V][M] is set to the index of the last F whose state must be kept; -1 if there is none
 * or an R makes the state. */
static int insert_recomputes(const struct pp_plan *plan, int rank, const bool *stages,
                             int32_t *from, struct pp_action *out)
{
    const struct pp_rank_plan *list = &plan->ranks[rank];
    size_t m = (size_t)plan->geometry.microbatches;
    int n = 0;
    memset(from, 0xff, (size_t)plan->geometry.chunks * m * sizeof(*from));
    for (int k = 0; k < list->n_actions; k++) {
        const struct pp_action *a = &list->actions[k];
        int32_t *mine = &from[(size_t)plan->chunk_of[a->stage] * m + (size_t)a->mb];
        /* an overlapped pair stays together: R comes before both */
        const struct pp_action *b = a->overlap ? a + 1 : a;
        int32_t *state = &from[(size_t)plan->chunk_of[b->stage] * m + (size_t)b->mb];
        bool second = k > 0 && a[-1].overlap;
        bool reads = (b->op == PP_OP_I || b->op == PP_OP_B) && !second;
        if (reads && stages[b->stage] && *state >= 0 && *state < k - 1) {
            out[n++] = (struct pp_action){.op = PP_OP_R, .stage = b->stage, .mb = b->mb};
            *state = -1;
        }
        if (a->op == PP_OP_F || a->op == PP_OP_R)
            *mine = a->op == PP_OP_F ? k : -1;
        out[n++] = *a;
    }
    return n;
}

static int add_to_rank(struct pp_plan *plan, int rank, const bool *stages, int32_t *from)
{
    struct pp_rank_plan *list = &plan->ranks[rank];
    struct pp_action *actions;
    PP_ALLOC(actions, 2 * (size_t)list->n_actions);
    int n = insert_recomputes(plan, rank, stages, from, actions);
    pp_free(list->actions);
    *list = (struct pp_rank_plan){.actions = actions, .n_actions = n};
    return 0;
}

/* ---- earlier */

struct waits {
    size_t most;     /* actions of a rank */
    int64_t *before; /* [P][most] how long the rank waits before it */
    int64_t *end;    /* [P] end of the last action seen */
};

static void note_wait(void *ctx, int rank, int k, int64_t mid, int64_t end)
{
    const struct waits *w = ctx;
    w->before[(size_t)rank * w->most + (size_t)k] = mid - 1 - w->end[rank];
    w->end[rank] = end;
}

/* Sets held[k] to the number of shared state slots that are in use during action k; returns the
 * largest. */
static int count_held_slots(const struct pp_plan *plan, const struct pp_rank_plan *list, int *held)
{
    int now = 0, most = 0;
    for (int k = 0; k < list->n_actions; k++) {
        const struct pp_action *a = &list->actions[k];
        bool shared = plan->shared[a->stage], f = a->op == PP_OP_F;
        now += shared && (a->op == PP_OP_R || (f && !a->recompute));
        held[k] = now + (shared && f && a->recompute);
        most = held[k] > most ? held[k] : most;
        now -= shared && pp_plan_releases(plan, a);
    }
    return most;
}

/* Returns whether action j, an R, may move to before action k: it must stay after its F, and no
 * action between may then need more than `limit` slots. */
static bool may_move(const struct pp_rank_plan *list, const int *held, int limit, int k, int j)
{
    const struct pp_action *r = &list->actions[j];
    while (k < j && held[k] < limit &&
           (list->actions[k].stage != r->stage || list->actions[k].mb != r->mb))
        k++;
    return k == j;
}

/* Moves each R forward to the first place where the rank waits and a slot is free; returns whether
 * any R moved. */
static bool fill_waits(const struct pp_plan *plan, const struct pp_rank_plan *list, int64_t *wait,
                       int *held)
{
    struct pp_action *a = list->actions;
    int most = count_held_slots(plan, list, held), n = list->n_actions;
    bool moved = false;
    for (int k = 0; k < n; k++) {
        int j = wait[k] > 0 && !(k > 0 && a[k - 1].overlap) ? k : n;
        while (j < n && a[j].op != PP_OP_R)
            j++;
        if (j == n || !may_move(list, held, most, k, j))
            continue;
        struct pp_action r = a[j];
        memmove(&a[k + 1], &a[k], (size_t)(j - k) * sizeof(*a));
        memmove(&wait[k + 1], &wait[k], (size_t)(j - k) * sizeof(*wait));
        a[k] = r;
        wait[k + 1]--;
        count_held_slots(plan, list, held);
        moved = true;
    }
    return moved;
}

static int move_earlier(struct pp_plan *plan)
{
    int p = plan->geometry.stages;
    bool moved = false;
    struct waits w = {0};
    PP_OWN(pp_walk_fini) struct pp_walk walk = {0};
    PP_TRY(pp_walk_init(&walk, plan, false));
    for (int r = 0; r < p; r++) {
        size_t n = (size_t)plan->ranks[r].n_actions;
        w.most = n > w.most ? n : w.most;
    }
    PP_TAKE(int64_t, before, (size_t)p * (w.most + 1));
    PP_TAKE(int, held, w.most);
    w.before = before;
    w.end = before + (size_t)p * w.most;
    walk.visit = note_wait;
    walk.ctx = &w;
    PP_TRY(pp_walk_run(&walk));
    for (int r = 0; r < p; r++)
        moved |= fill_waits(plan, &plan->ranks[r], w.before + (size_t)r * w.most, held);
    return moved ? pp_plan_make_slots(plan) : 0;
}

int pp_plan_add_recompute(struct pp_plan *plan, const bool *stages)
{
    pp_assert(plan->kind == PP_PLAN_TRAIN && plan->n_ties == 0);
    for (int s = 0; s < plan->n_virtual; s++)
        plan->shared[s] = plan->shared[s] || stages[s];
    int rc = 0;
    int32_t *from;
    PP_ALLOC(from, (size_t)plan->geometry.chunks * (size_t)plan->geometry.microbatches);
    for (int r = 0; r < plan->geometry.stages && rc == 0; r++)
        rc = add_to_rank(plan, r, stages, from);
    pp_free(from);
    PP_TRY(rc);
    PP_TRY(pp_plan_make_slots(plan));
    return plan->schedule ? move_earlier(plan) : 0; /* a table keeps its R where it has them */
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
