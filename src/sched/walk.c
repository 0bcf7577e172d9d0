/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk: run all ranks' lists against each other, once. A rank runs until it must wait; the
 * event it waits for (a message posted, a slot released) wakes it. No receive is from "anyone" and
 * every slot has one writer and one reader, so waiting is deterministic: if this one order of
 * events comes to an end, every order does, and if it gets stuck, every order gets stuck.
 *
 * A B is its I half and its W half. They need not be two nodes: the W half waits for nothing, so
 * it runs whenever its I half did; only the time at which the message leaves tells them apart.
 */
#include "pass.h"

#include "ppcli/err.h"
#include "ppcli/mem.h"

/* Who still needs what lies in a message slot. */
struct pp_slot_use {
    int32_t message; /* last occupant, -1: none yet */
    bool writer;     /* the sender's I still reads what its F wrote there */
    bool reader;     /* the receiver has not come to its release */
};

int pp_walk_init(struct pp_walk *w, const struct pp_plan *plan, const struct pp_ticks *ticks,
                 bool slots)
{
    *w = (struct pp_walk){.plan = plan, .ticks = *ticks, .slots = slots};
    size_t p = (size_t)plan->geometry.stages;
    w->avail = pp_alloc((size_t)plan->n_messages, sizeof(*w->avail));
    w->now = pp_alloc(p, sizeof(*w->now));
    w->at = pp_alloc(p, sizeof(*w->at));
    w->wait = pp_alloc(p, sizeof(*w->wait));
    w->ready = pp_alloc(p, sizeof(*w->ready));
    if (!w->avail || !w->now || !w->at || !w->wait || !w->ready) {
        return PP_ERESOURCE;
    }
    for (int i = 0; i < plan->n_messages; i++) {
        w->avail[i] = -1;
    }
    if (!slots) {
        return 0;
    }
    int64_t n = 0;
    w->first_slot = pp_alloc((size_t)plan->n_channels, sizeof(*w->first_slot));
    if (!w->first_slot) {
        return PP_ERESOURCE;
    }
    for (int c = 0; c < plan->n_channels; c++) {
        w->first_slot[c] = n;
        n += plan->channels[c].slots;
    }
    w->use = pp_alloc((size_t)n, sizeof(*w->use));
    if (!w->use) {
        return PP_ERESOURCE;
    }
    for (int64_t i = 0; i < n; i++) {
        w->use[i].message = -1;
    }
    return 0;
}

void pp_walk_fini(struct pp_walk *w)
{
    pp_free(w->avail);
    pp_free(w->now);
    pp_free(w->at);
    pp_free(w->wait);
    pp_free(w->ready);
    pp_free(w->first_slot);
    pp_free(w->use);
    *w = (struct pp_walk){0};
}

static void wake(struct pp_walk *w, int rank, enum pp_wait_kind kind, int32_t message)
{
    if (w->wait[rank].kind == kind && w->wait[rank].message == message) {
        w->wait[rank].kind = PP_WAIT_NONE;
        w->ready[w->n_ready++] = rank;
    }
}

static struct pp_slot_use *slot_of(const struct pp_walk *w, int32_t message)
{
    const struct pp_message *m = &w->plan->messages[message];
    return &w->use[w->first_slot[m->channel] + m->slot];
}

static void release(struct pp_walk *w, int32_t message)
{
    if (message >= 0) {
        slot_of(w, message)->reader = false;
        wake(w, w->plan->channels[w->plan->messages[message].channel].src_rank, PP_WAIT_SLOT,
             message);
    }
}

/* Action a releases what it, or an earlier action of its (stage, mb), held. */
static void release_slots(struct pp_walk *w, const struct pp_action *a)
{
    int in = 2 * (a->stage - 1); /* forward channel into the stage */
    int out = 2 * a->stage;      /* forward channel out of it; out + 1 comes back */
    if (w->plan->kind == PP_PLAN_EVAL) {
        release(w, a->recv);
        return;
    }
    if (a->op == PP_OP_I || a->op == PP_OP_B) {
        int32_t own = pp_plan_message(w->plan, out, a->mb);
        if (own >= 0) {
            slot_of(w, own)->writer = false;
        }
    }
    if (a->op == PP_OP_W || a->op == PP_OP_B) {
        release(w, pp_plan_message(w->plan, in, a->mb));
        release(w, pp_plan_message(w->plan, out + 1, a->mb));
    }
}

/* 1: taken, 0: must wait, negative: the plan is wrong. */
static int take_slot(struct pp_walk *w, int rank, const struct pp_action *a)
{
    const struct pp_plan *plan = w->plan;
    const struct pp_message *m = &plan->messages[a->send];
    struct pp_slot_use *use = slot_of(w, a->send);
    char name[PP_CELL_NAME_MAX];

    if (use->writer) {
        return pp_fail(PP_EFORMAT,
                       "rank %d: %s would overwrite slot %d of channel %d, which the backward of "
                       "its own micro-batch %d still reads",
                       rank, pp_cell_name(plan, a, name), m->slot, m->channel,
                       plan->messages[use->message].mb);
    }
    if (use->reader) {
        w->wait[rank] = (struct pp_wait){PP_WAIT_SLOT, use->message};
        return 0;
    }
    bool linked = use->message < 0
                      ? m->first_in_slot
                      : !m->first_in_slot && plan->messages[use->message].next_in_slot == a->send;
    if (!linked) {
        return pp_fail(PP_EFORMAT,
                       "rank %d: no receive is posted for %s in slot %d of channel %d when it is "
                       "sent",
                       rank, pp_cell_name(plan, a, name), m->slot, m->channel);
    }
    use->message = a->send;
    use->reader = true;
    use->writer = a->op == PP_OP_F && plan->kind == PP_PLAN_TRAIN;
    return 1;
}

/* Run one rank until it waits or is done. */
static int run_rank(struct pp_walk *w, int r)
{
    const struct pp_plan *plan = w->plan;
    const struct pp_rank_plan *list = &plan->ranks[r];

    for (; w->at[r] < list->n_actions; w->at[r]++) {
        const struct pp_action *a = &list->actions[w->at[r]];
        int64_t start = w->now[r];
        if (a->recv >= 0) {
            if (w->avail[a->recv] < 0) {
                w->wait[r] = (struct pp_wait){PP_WAIT_MESSAGE, a->recv};
                return 0;
            }
            start = w->avail[a->recv] > start ? w->avail[a->recv] : start;
        }
        if (w->slots && a->send >= 0) {
            int rc = take_slot(w, r, a);
            if (rc <= 0) {
                return rc;
            }
        }
        int64_t mid = start + (a->op == PP_OP_F   ? w->ticks.f
                               : a->op == PP_OP_W ? w->ticks.w
                                                  : w->ticks.i);
        int64_t end = a->op == PP_OP_B ? mid + w->ticks.w : mid;
        w->now[r] = end;
        if (a->send >= 0) {
            w->avail[a->send] = w->ticks.fused_send ? end : mid;
            wake(w, plan->channels[plan->messages[a->send].channel].dst_rank, PP_WAIT_MESSAGE,
                 a->send);
        }
        if (w->slots) {
            release_slots(w, a);
        }
        if (w->visit) {
            w->visit(w->ctx, r, w->at[r], start, mid, end);
        }
    }
    return 0;
}

int pp_walk_run(struct pp_walk *w)
{
    int p = w->plan->geometry.stages;
    for (int r = p - 1; r >= 0; r--) {
        w->ready[w->n_ready++] = r;
    }
    while (w->n_ready > 0) {
        PP_TRY(run_rank(w, w->ready[--w->n_ready]));
    }
    for (int r = 0; r < p; r++) {
        if (w->wait[r].kind != PP_WAIT_NONE) {
            return pp_walk_fail_cycle(w);
        }
    }
    return 0;
}
