/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pass 5, prove: makes no assumption about how the slots were chosen. It shows that no rank
 * overwrites data that another action still needs, that a receive is posted for every message in
 * the order of the sends, and that the ranks cannot wait for each other in a circle, waits for
 * message slots included.
 */
#include "pass.h"
#include "plan.h"

#include <string.h>

#include "ppcli/base/base.h"

enum done {
    DONE_F = 1, /* a recomputed F is done and kept no state */
    DONE_I = 2
};

/* The micro-batch that each state and gradient slot holds: stage * M + micro-batch + 1, 0 for
 * free. */
struct held {
    int32_t *state, *grad;
    int64_t *first_state, *first_grad; /* [n_virtual] index of the stage's first slot */
};

/* Checks that `slot` is in range and holds the micro-batch `from`, then sets it to `to`; 0 means
 * that the slot is free. */
static int change_slot(const struct pp_plan *plan, const struct pp_action *a, const char *what,
                       int32_t *slots, int n, int slot, int32_t from, int32_t to)
{
    char name[PP_CELL_NAME_MAX];
    if (slot < 0 || slot >= n) {
        return pp_fail(PP_EFORMAT, "rank %d: %s has %s slot %d, stage %d has %d of them",
                       plan->rank_of[a->stage], pp_cell_name(plan, a, name), what, slot, a->stage,
                       n);
    }
    if (slots[slot] != from) {
        return pp_fail(PP_EFORMAT, "rank %d: %s finds %s slot %d of stage %d %s micro-batch %d",
                       plan->rank_of[a->stage], pp_cell_name(plan, a, name), what, slot, a->stage,
                       slots[slot] ? "held by" : "free, not held by",
                       slots[slot] ? (slots[slot] - 1) % plan->geometry.microbatches : a->mb);
    }
    slots[slot] = to;
    return 0;
}

static int prove_held(const struct pp_plan *plan, const struct held *h, const struct pp_action *a)
{
    int32_t *state = h->state + h->first_state[a->stage];
    int32_t *grad = h->grad + h->first_grad[a->stage];
    int n_state = plan->state_slots[a->stage];
    int n_grad = plan->grad_slots[a->stage];
    int32_t mine = a->stage * plan->geometry.microbatches + a->mb + 1;

    if (plan->kind == PP_PLAN_EVAL)
        return change_slot(plan, a, "state", state, n_state, a->slot, 0, 0);
    switch (a->op) {
    case PP_OP_F:
        return change_slot(plan, a, "state", state, n_state, a->slot, 0, a->recompute ? 0 : mine);
    case PP_OP_R:
        return change_slot(plan, a, "state", state, n_state, a->slot, 0, mine);
    case PP_OP_I:
        PP_TRY(change_slot(plan, a, "state", state, n_state, a->slot, mine,
                           plan->frozen[a->stage] ? 0 : mine));
        return change_slot(plan, a, "gradient", grad, n_grad, a->gslot, 0,
                           plan->frozen[a->stage] ? 0 : mine);
    case PP_OP_W:
        PP_TRY(change_slot(plan, a, "state", state, n_state, a->slot, mine, 0));
        return change_slot(plan, a, "gradient", grad, n_grad, a->gslot, mine, 0);
    default:
        PP_TRY(change_slot(plan, a, "state", state, n_state, a->slot, mine, 0));
        return change_slot(plan, a, "gradient", grad, n_grad, a->gslot, 0, 0);
    }
}

/* Proves that the receive of a message is posted in the order of the sends. The receiver posts the
 * first messages of all slots by slot number, and a later one each time it releases micro-batch 0,
 * 1, 2... `k` is the number of messages that the channel sent before this one. */
static int prove_posted(const struct pp_plan *plan, const struct pp_action *a, int k)
{
    const struct pp_message *m = &plan->messages[a->send];
    int slots = plan->channels[m->channel].slots;
    char name[PP_CELL_NAME_MAX];

    if (m->slot < 0 || m->slot >= slots) {
        return pp_fail(PP_EFORMAT, "rank %d: %s sends in slot %d of channel %d, which has %d",
                       plan->rank_of[a->stage], pp_cell_name(plan, a, name), m->slot, m->channel,
                       slots);
    }
    bool posted;
    if (k < slots) {
        posted = m->first_in_slot && m->slot == k;
    } else {
        const struct pp_message *before =
            &plan->messages[pp_plan_message(plan, m->channel, k - slots)];
        posted = !m->first_in_slot && before->next_in_slot == a->send && before->slot == m->slot;
    }
    if (!posted) {
        return pp_fail(PP_EFORMAT,
                       "channel %d: the receive for %s of rank %d (slot %d) is not posted in the "
                       "order of the sends",
                       m->channel, pp_cell_name(plan, a, name), plan->rank_of[a->stage], m->slot);
    }
    return 0;
}

/* Proves that the slot into which F sends has been read. Message k of the channel replaces
 * micro-batch k - slots; the backward of that micro-batch, which runs on the same rank, must come
 * earlier in the list. done[M] says what has run for each micro-batch of the stage (bits of enum
 * done). */
static int prove_read(const struct pp_plan *plan, const struct pp_action *a, int k,
                      const uint8_t *done)
{
    const struct pp_message *m = &plan->messages[a->send];
    int before = k - plan->channels[m->channel].slots;
    char name[PP_CELL_NAME_MAX];
    if (before >= 0 && !(done[before] & DONE_I)) {
        return pp_fail(PP_EFORMAT,
                       "rank %d: %s would overwrite slot %d of channel %d, which the backward of "
                       "its own micro-batch %d still reads",
                       plan->rank_of[a->stage], pp_cell_name(plan, a, name), m->slot, m->channel,
                       before);
    }
    return 0;
}

/* Proves that the W's of micro-batches whose weight gradients are computed as one sum follow each
 * other directly. */
static int prove_together(const struct pp_plan *plan, int rank, int i)
{
    const struct pp_rank_plan *list = &plan->ranks[rank];
    const struct pp_action *a = &list->actions[i];
    int k = plan->geometry.coalesce;
    if (k <= 1 || (a->op != PP_OP_W && a->op != PP_OP_B))
        return 0;
    char name[PP_CELL_NAME_MAX];
    bool first = a->mb % k == 0;
    if (a->op == PP_OP_B && !(first && a->mb + 1 == plan->geometry.microbatches)) {
        return pp_fail(PP_EFORMAT, "rank %d: %s is one of a group of weight gradients, so not a B",
                       rank, pp_cell_name(plan, a, name));
    }
    bool follows = i > 0 && a[-1].op == PP_OP_W && a[-1].stage == a->stage && a[-1].mb == a->mb - 1;
    if (!first && !follows) {
        return pp_fail(PP_EFORMAT, "rank %d: %s does not follow W%d, with which it is one sum",
                       rank, pp_cell_name(plan, a, name), a->mb - 1);
    }
    return 0;
}

static int fail_recompute(const struct pp_plan *plan, const struct pp_action *a)
{
    char name[PP_CELL_NAME_MAX];
    return pp_fail(PP_EFORMAT,
                   "rank %d: %s is before its F, after its I, or where F has kept its state",
                   plan->rank_of[a->stage], pp_cell_name(plan, a, name));
}

/* Proves that the list of one rank uses its state, gradient and message slots without a conflict.
 * done[V][M] is working memory. */
static int prove_rank(const struct pp_plan *plan, int rank, const struct held *h, int *n_sent,
                      uint8_t *done)
{
    int n = pp_plan_first_tied(&plan->ranks[rank]); /* pp_prove_ties() proves the rest */
    for (int i = 0; i < n; i++) {
        const struct pp_action *a = &plan->ranks[rank].actions[i];
        uint8_t *mine =
            done + (size_t)plan->chunk_of[a->stage] * (size_t)plan->geometry.microbatches;
        PP_TRY(prove_held(plan, h, a));
        PP_TRY(prove_together(plan, rank, i));
        if (a->send >= 0) {
            int k = n_sent[pp_sends_on(plan, a)]++;
            PP_TRY(prove_posted(plan, a, k));
            if (a->op == PP_OP_F && plan->kind == PP_PLAN_TRAIN)
                PP_TRY(prove_read(plan, a, k, mine));
        }
        if (a->op == PP_OP_R && mine[a->mb] != DONE_F)
            return fail_recompute(plan, a);
        if (a->op == PP_OP_F && a->recompute)
            mine[a->mb] |= DONE_F;
        if (a->op == PP_OP_I || a->op == PP_OP_B)
            mine[a->mb] |= DONE_I;
    }
    return 0;
}

static int prove_lists(const struct pp_plan *plan, const struct held *h, int *n_sent, uint8_t *done)
{
    size_t cells = (size_t)plan->geometry.chunks * (size_t)plan->geometry.microbatches;
    for (int r = 0; r < plan->geometry.stages; r++) {
        memset(done, 0, cells);
        PP_TRY(prove_rank(plan, r, h, n_sent, done));
    }
    return 0;
}

/* Returns the index of each stage's first slot in one array of all slots, and sets *out_n to the
 * size of the array. Stages of a rank that share slots have the same index. */
static int64_t *slot_starts(const struct pp_plan *plan, const int *slots, int64_t *out_n)
{
    size_t n = (size_t)plan->n_virtual;
    int64_t *first = pp_alloc(n + (size_t)plan->geometry.stages, sizeof(*first)), sum = 0;
    int64_t *shared = first ? first + n : NULL; /* [P] number of slots, then index of the first */
    for (int s = 0; first && s < plan->n_virtual; s++)
        if (plan->shared[s] && slots[s] > shared[plan->rank_of[s]])
            shared[plan->rank_of[s]] = slots[s];
    for (int r = 0; first && r < plan->geometry.stages; r++) {
        sum += shared[r];
        shared[r] = sum - shared[r];
    }
    for (int s = 0; first && s < plan->n_virtual; s++) {
        first[s] = plan->shared[s] ? shared[plan->rank_of[s]] : sum;
        sum += plan->shared[s] ? 0 : slots[s];
    }
    *out_n = sum;
    return first;
}

static int prove_memory(const struct pp_plan *plan)
{
    int64_t n_state, n_grad;
    PP_OWN_MEMORY int64_t *first_state = slot_starts(plan, plan->state_slots, &n_state);
    PP_OWN_MEMORY int64_t *first_grad = slot_starts(plan, plan->grad_slots, &n_grad);
    PP_TRY(first_state && first_grad ? 0 : PP_ERESOURCE);
    PP_TAKE(int32_t, state, n_state);
    PP_TAKE(int32_t, grad, n_grad);
    PP_TAKE(int, n_sent, plan->n_channels);
    PP_TAKE(uint8_t, done, (size_t)plan->geometry.chunks * (size_t)plan->geometry.microbatches);
    struct held h = {
        .first_state = first_state, .first_grad = first_grad, .state = state, .grad = grad};
    return prove_lists(plan, &h, n_sent, done);
}

int pp_plan_prove(const struct pp_plan *plan)
{
    PP_TRY(prove_memory(plan));
    PP_TRY(plan->n_ties > 0 ? pp_prove_ties(plan) : 0);

    PP_OWN(pp_walk_fini) struct pp_walk w = {0};
    PP_TRY(pp_walk_init(&w, plan, true));
    return pp_walk_run(&w);
}
