/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pass 4, slots: assigns fixed memory to everything that is in flight.
 *
 * State and gradient slots belong to one rank, so program order decides: each action takes the
 * lowest free slot. Each stage has slots of its own, but the recomputed stages of a rank share one
 * pool.
 *
 * A message slot is one piece of memory that two ranks share. The sender's action takes it; it is
 * free again when the receiver's W is done and, on a forward channel, also the sender's own I (the
 * derivative of its last activation reads its output there). Program order does not say which of
 * these comes first; the unit time line (F = I = W = 1) of the lists does:
 *
 *   - Slots are used in turn: message number i of a channel takes the slot that was freed as number
 *     i - K. Slots are freed in micro-batch order on both kinds of channel, because W ascends. So
 *     the receiver posts its receives in exactly the order of the sends, and K is found with two
 *     pointers.
 *   - K is the smallest number with which, on the time line, every slot is free before it is taken
 *     again, plus one spare slot where two ranks meet, so that a sender rarely waits when real ranks
 *     are less even than the time line. K is never more than M.
 *
 * The time line is then itself an order that satisfies every wait for a slot, so these slots cannot
 * make the lists hang. The proof checks this independently.
 */
#include "pass.h"

#include <string.h>

#include "ppcli/base/base.h"

/* A pool that gives the lowest free number of 0..n-1: a heap of the freed numbers, then the next
 * new number. */
struct pool {
    int32_t *heap; /* [M] of each of its chunks: never more numbers are free than were taken */
    int n_free;
    int n_new; /* numbers ever used: the peak */
};

static int32_t pool_take(struct pool *p)
{
    if (p->n_free == 0)
        return p->n_new++;
    int32_t lowest = p->heap[0];
    int32_t last = p->heap[--p->n_free];
    int i = 0;
    for (int child = 1; child < p->n_free; child = 2 * i + 1) {
        if (child + 1 < p->n_free && p->heap[child + 1] < p->heap[child])
            child++;
        if (last <= p->heap[child])
            break;
        p->heap[i] = p->heap[child];
        i = child;
    }
    p->heap[i] = last;
    return lowest;
}

static void pool_give(struct pool *p, int32_t slot)
{
    int i = p->n_free++;
    while (i > 0 && p->heap[(i - 1) / 2] > slot) {
        p->heap[i] = p->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    p->heap[i] = slot;
}

/* The slots of one rank: a row of M numbers per chunk, in each of six tables. */
struct holder {
    int32_t *state,
        *grad; /* [V][M] slot held by (chunk, mb); state at first: -1 if an R is to come */
    int32_t *state_heap, *grad_heap;     /* [V][M], then as much for the shared pool */
    struct pool *state_pool, *grad_pool; /* [V + 1]: one of each chunk, then the shared pool */
};

static void assign_action_slots(const struct pp_plan *plan, struct holder *h, struct pp_action *a,
                                int chunk, int pool, size_t m)
{
    size_t i = (size_t)chunk * m + (size_t)a->mb;
    struct pool *state = &h->state_pool[pool];
    struct pool *grad = &h->grad_pool[pool];
    a->gslot = -1;
    a->recompute = a->op == PP_OP_F && h->state[i] < 0;
    if (a->op == PP_OP_F || a->op == PP_OP_R)
        h->state[i] = pool_take(state);
    if (a->recompute)
        pool_give(state, h->state[i]);
    if (a->op == PP_OP_I || a->op == PP_OP_B)
        h->grad[i] = pool_take(grad);
    a->slot = h->state[i];
    if (a->op != PP_OP_F && a->op != PP_OP_R)
        a->gslot = h->grad[i];
    if (pp_plan_releases(plan, a)) {
        a->first_w = a->mb == 0;
        pool_give(state, a->slot);
        pool_give(grad, a->gslot);
    }
}

static void assign_rank_slots(struct pp_plan *plan, int rank, struct holder *h)
{
    size_t m = (size_t)plan->geometry.microbatches;
    for (int c = 0; c <= plan->geometry.chunks; c++) {
        h->state_pool[c] = (struct pool){.heap = h->state_heap + (size_t)c * m};
        h->grad_pool[c] = (struct pool){.heap = h->grad_heap + (size_t)c * m};
    }
    memset(h->state, 0, (size_t)plan->geometry.chunks * m * sizeof(*h->state));
    for (int k = 0; k < plan->ranks[rank].n_actions; k++) {
        const struct pp_action *a = &plan->ranks[rank].actions[k];
        if (a->op == PP_OP_R)
            h->state[(size_t)plan->chunk_of[a->stage] * m + (size_t)a->mb] = -1;
        plan->state_slots[a->stage] = plan->grad_slots[a->stage] = 0;
    }
    for (int k = 0; k < plan->ranks[rank].n_actions; k++) {
        struct pp_action *a = &plan->ranks[rank].actions[k];
        int chunk = plan->chunk_of[a->stage];
        assign_action_slots(plan, h, a, chunk,
                            plan->shared[a->stage] ? plan->geometry.chunks : chunk, m);
        int *states = &plan->state_slots[a->stage], *grads = &plan->grad_slots[a->stage];
        *states = a->slot < *states ? *states : a->slot + 1;
        *grads = a->gslot < *grads ? *grads : a->gslot + 1;
    }
}

static int assign_all_rank_slots(struct pp_plan *plan)
{
    size_t chunks = (size_t)plan->geometry.chunks;
    size_t n = chunks * (size_t)plan->geometry.microbatches;
    PP_TAKE(int32_t, tables, 6 * n);
    PP_TAKE(struct pool, pools, 2 * (chunks + 1));
    struct holder h = {.state = tables,
                       .grad = tables + n,
                       .state_heap = tables + 2 * n,
                       .grad_heap = tables + 4 * n,
                       .state_pool = pools,
                       .grad_pool = pools + chunks + 1};
    for (int r = 0; r < plan->geometry.stages; r++)
        assign_rank_slots(plan, r, &h);
    return 0;
}

/* Assigns the slots of a forward-only plan: one state slot, because no state is kept after F. */
static void assign_eval_slots(struct pp_plan *plan)
{
    for (int r = 0; r < plan->geometry.stages; r++) {
        for (int k = 0; k < plan->ranks[r].n_actions; k++) {
            plan->ranks[r].actions[k].slot = 0;
            plan->ranks[r].actions[k].gslot = -1;
        }
    }
    for (int s = 0; s < plan->n_virtual; s++)
        plan->state_slots[s] = 1;
}

/* When each message's memory is free again on the unit time line. */
struct freeing {
    const struct pp_plan *plan;
    int64_t *free_at; /* [n_messages] */
};

static void free_at_least(struct freeing *f, int32_t message, int64_t t)
{
    if (message >= 0 && f->free_at[message] < t)
        f->free_at[message] = t;
}

static void free_messages(void *ctx, int rank, int k, int64_t mid, int64_t end)
{
    struct freeing *f = ctx;
    const struct pp_action *a = &f->plan->ranks[rank].actions[k];
    int in = 2 * (a->stage - 1);
    int out = 2 * a->stage;
    if (f->plan->kind == PP_PLAN_EVAL) {
        free_at_least(f, a->recv, end);
        return;
    }
    if (a->op == PP_OP_I || a->op == PP_OP_B)
        free_at_least(f, pp_plan_message(f->plan, out, a->mb), mid);
    if (pp_plan_releases(f->plan, a)) {
        free_at_least(f, pp_plan_message(f->plan, in, a->mb), end);
        free_at_least(f, pp_plan_message(f->plan, out + 1, a->mb), end);
    }
}

/* Returns the smallest number of slots with which every message of the channel finds its slot free
 * on the time line. */
static int fewest_slots(const int32_t *order, const int64_t *sent_at, const int64_t *free_at, int m)
{
    int fewest = 1;
    int n_free = 0; /* micro-batches 0..n_free-1 are free when message i is made */
    for (int i = 0; i < m; i++) {
        /* every sender takes one tick; the walk stores times plus 1 */
        int64_t made_from = sent_at[order[i]] - 2;
        while (n_free < i && free_at[n_free] <= made_from)
            n_free++;
        fewest = i - n_free + 1 > fewest ? i - n_free + 1 : fewest;
    }
    return fewest;
}

static void assign_channel_slots(struct pp_plan *plan, int c, const int32_t *order,
                                 const int64_t *sent_at, const int64_t *free_at)
{
    struct pp_channel *ch = &plan->channels[c];
    int m = plan->geometry.microbatches;
    int32_t first = pp_plan_message(plan, c, 0);
    if (first < 0) {
        ch->slots = 0;
        return;
    }
    int spare = ch->src_rank != ch->dst_rank ? 1 : 0;
    int slots = fewest_slots(order + first, sent_at + first, free_at + first, m) + spare;
    ch->slots = slots < m ? slots : m;

    struct pp_message *messages = plan->messages + first;
    for (int mb = 0; mb < m; mb++)
        messages[mb] = (struct pp_message){.channel = c, .mb = mb, .next_in_slot = -1};
    for (int i = 0; i < m; i++) {
        struct pp_message *msg = &messages[order[first + i]];
        msg->first_in_slot = i < ch->slots;
        if (msg->first_in_slot) {
            msg->slot = i;
        } else {
            /* the message that was freed as number i - slots */
            struct pp_message *before = &messages[i - ch->slots];
            msg->slot = before->slot;
            before->next_in_slot = first + order[first + i];
        }
    }
}

static int assign_message_slots(struct pp_plan *plan, const int32_t *order)
{
    PP_OWN(pp_walk_fini) struct pp_walk w = {0};
    PP_TRY(pp_walk_init(&w, plan, false));
    PP_TAKE(int64_t, free_at, plan->n_messages);
    struct freeing f = {.plan = plan, .free_at = free_at};
    w.visit = free_messages;
    w.ctx = &f;
    PP_TRY(pp_walk_run(&w));
    for (int c = 0; c < plan->n_channels; c++)
        assign_channel_slots(plan, c, order, w.avail, free_at);
    return 0;
}

int pp_pass_slots(struct pp_plan *plan, const int32_t *order)
{
    if (plan->kind == PP_PLAN_EVAL)
        assign_eval_slots(plan);
    else
        PP_TRY(assign_all_rank_slots(plan));
    return assign_message_slots(plan, order);
}
