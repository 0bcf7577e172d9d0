/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk runs all ranks' lists together in one simulated order. A rank runs until it must wait;
 * the event it waits for (a message posted, a slot released) wakes it. No receive accepts any
 * sender, and every slot has one writer and one reader, so waiting is deterministic: if this one
 * order of events ends, every order ends, and if it gets stuck, every order gets stuck.
 *
 * Slots are used in turn: message k on a channel of K slots takes the slot of micro-batch k - K.
 * The receiver releases micro-batches in ascending order, because its W's ascend. So after the
 * proof of the lists (see prove.c) this walk only has to count.
 *
 * A B is an I half and a W half. They need not be two nodes: the W half waits for nothing, so it
 * runs whenever its I half did; they differ only in the time at which the message leaves.
 */
#include "pass.h"

#include "ppcli/base/base.h"

enum {
    BLOCK = 64
};

int pp_walk_init(struct pp_walk *w, const struct pp_plan *plan, bool slots)
{
    *w = (struct pp_walk){.plan = plan, .slots = slots};
    size_t p = (size_t)plan->geometry.stages;
    w->now = pp_alloc(p, sizeof(*w->now));
    w->at = pp_alloc(p, sizeof(*w->at));
    w->wait = pp_alloc(p, sizeof(*w->wait));
    w->n_blocks = (plan->geometry.stages + BLOCK - 1) / BLOCK;
    w->ready = pp_alloc((size_t)w->n_blocks, sizeof(*w->ready));
    w->turn = pp_alloc((size_t)w->n_blocks, sizeof(*w->turn));
    if (!w->now || !w->at || !w->wait || !w->ready || !w->turn)
        return PP_ERESOURCE;
    if (!slots) {
        w->avail = pp_alloc((size_t)plan->n_messages, sizeof(*w->avail));
        return w->avail ? 0 : PP_ERESOURCE;
    }
    size_t c = (size_t)plan->n_channels;
    w->there = pp_alloc((size_t)plan->n_messages, sizeof(*w->there));
    w->sent = pp_alloc(c, sizeof(*w->sent));
    w->released = pp_alloc(c, sizeof(*w->released));
    return w->there && w->sent && w->released ? 0 : PP_ERESOURCE;
}

void pp_walk_fini(struct pp_walk *w)
{
    pp_free(w->avail);
    pp_free(w->there);
    pp_free(w->now);
    pp_free(w->at);
    pp_free(w->wait);
    pp_free(w->ready);
    pp_free(w->turn);
    pp_free(w->sent);
    pp_free(w->released);
    *w = (struct pp_walk){0};
}

static void make_ready(struct pp_walk *w, int rank)
{
    int block = rank / BLOCK;
    if (w->ready[block] == 0)
        w->turn[(w->first_turn + w->n_turns++) % w->n_blocks] = block;
    w->ready[block] |= UINT64_C(1) << (rank % BLOCK);
}

static void wake_rank(struct pp_walk *w, int rank, enum pp_wait_kind kind, int32_t message)
{
    if (w->wait[rank].kind == kind && w->wait[rank].message == message) {
        w->wait[rank].kind = PP_WAIT_NONE;
        make_ready(w, rank);
    }
}

/* Frees the slot of `message`, the oldest message of `channel` that occupies one, because its
 * receiver is done; wakes a sender that waits for the slot. */
static void release_message(struct pp_walk *w, int channel, int32_t message)
{
    if (message >= 0) {
        w->released[channel]++;
        wake_rank(w, w->plan->channels[channel].src_rank, PP_WAIT_SLOT, message);
    }
}

static void release_mb(struct pp_walk *w, int channel, int mb)
{
    release_message(w, channel, pp_plan_message(w->plan, channel, mb));
}

/* Returns the message that still occupies the slot which action `a` needs to send; -1 if the slot
 * is free. */
static int32_t find_blocking_message(const struct pp_walk *w, const struct pp_action *a)
{
    int channel = pp_sends_on(w->plan, a);
    int before = w->sent[channel] - w->plan->channels[channel].slots;
    return before < w->released[channel] ? -1 : pp_plan_message(w->plan, channel, before);
}

/* Returns the rank that receives the message of action `a`. */
static int receiving_rank(const struct pp_plan *plan, const struct pp_action *a)
{
    if (a->op >= PP_OP_G)
        return plan->channels[plan->messages[a->send].channel].dst_rank;
    return plan->rank_of[a->op == PP_OP_F ? a->stage + 1 : a->stage - 1];
}

/* Runs the actions of one rank until it has to wait for a message or a slot, or is done. */
static void run_in_slots(struct pp_walk *w, int r)
{
    const struct pp_rank_plan *list = &w->plan->ranks[r];

    for (; w->at[r] < list->n_actions; w->at[r]++) {
        const struct pp_action *a = &list->actions[w->at[r]];
        if (a->recv >= 0 && !w->there[a->recv]) {
            w->wait[r] = (struct pp_wait){PP_WAIT_MESSAGE, a->recv};
            return;
        }
        if (a->send >= 0) {
            int32_t before = find_blocking_message(w, a);
            if (before >= 0) {
                w->wait[r] = (struct pp_wait){PP_WAIT_SLOT, before};
                return;
            }
            w->sent[pp_sends_on(w->plan, a)]++;
            w->there[a->send] = true;
            wake_rank(w, receiving_rank(w->plan, a), PP_WAIT_MESSAGE, a->send);
        }
        if (pp_plan_releases(w->plan, a)) {
            release_mb(w, 2 * (a->stage - 1), a->mb);
            release_mb(w, 2 * a->stage + 1, a->mb); /* a forward-only plan has no such channel */
        }
        if (a->op == PP_OP_T && a->recv >= 0)
            release_message(w, w->plan->messages[a->recv].channel, a->recv);
    }
}

/* Runs the actions of one rank on the time line until it has to wait for a message or is done. */
static void run_in_time(struct pp_walk *w, int r)
{
    const struct pp_rank_plan *list = &w->plan->ranks[r];
    int64_t now = w->now[r];
    int k = w->at[r];

    for (; k < list->n_actions; k++) {
        const struct pp_action *a = &list->actions[k];
        int64_t start = now;
        if (a->recv >= 0) {
            int64_t avail = w->avail[a->recv] - 1;
            if (avail < 0) {
                w->wait[r] = (struct pp_wait){PP_WAIT_MESSAGE, a->recv};
                break;
            }
            start = avail > start ? avail : start;
        }
        int64_t mid = start + 1;
        now = a->op == PP_OP_B ? mid + 1 : mid;
        if (a->send >= 0) {
            w->avail[a->send] = mid + 1;
            wake_rank(w, receiving_rank(w->plan, a), PP_WAIT_MESSAGE, a->send);
        }
        w->visit(w->ctx, r, k, mid, now);
    }
    w->now[r] = now;
    w->at[r] = k;
}

int pp_walk_run(struct pp_walk *w)
{
    int p = w->plan->geometry.stages;
    for (int r = p - 1; r >= 0; r--)
        make_ready(w, r);
    while (w->n_turns > 0) {
        int block = w->turn[w->first_turn];
        while (w->ready[block] != 0) {
            int i = __builtin_ctzll(w->ready[block]);
            int r = block * BLOCK + i;
            if (w->slots)
                run_in_slots(w, r);
            else
                run_in_time(w, r);
            w->ready[block] &= ~(UINT64_C(1) << i);
        }
        w->first_turn = (w->first_turn + 1) % w->n_blocks;
        w->n_turns--;
    }
    for (int r = 0; r < p; r++)
        if (w->wait[r].kind != PP_WAIT_NONE)
            return pp_walk_fail_cycle(w);
    return 0;
}
