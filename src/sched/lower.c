/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pass 3, lower: turns every transfer between neighbouring stages into a message. The action that
 * makes a message posts it, and the action that needs the message waits for it, not an earlier one,
 * so a rank never waits for a neighbour while it has other work.
 *
 * Message ids are arithmetic (channel by channel, micro-batch by micro-batch), so no pass has to
 * look up a message.
 */
#include "pass.h"

#include "ppcli/base/base.h"

int32_t pp_plan_message(const struct pp_plan *plan, int channel, int mb)
{
    if (channel < 0 || channel >= 2 * (plan->n_virtual - 1))
        return -1;
    if (plan->copies > 1 && channel / 2 == plan->n_virtual / 2 - 1)
        return -1; /* between the last stage of one copy and the first of the next */
    if (plan->kind == PP_PLAN_EVAL)
        return channel % 2 == 0 ? channel / 2 * plan->geometry.microbatches + mb : -1;
    return channel * plan->geometry.microbatches + mb;
}

static int make_channels(struct pp_plan *plan)
{
    plan->n_channels = 2 * (plan->n_virtual - 1);
    PP_ALLOC(plan->channels, plan->n_channels);
    for (int c = 0; c < plan->n_channels; c++) {
        struct pp_channel *ch = &plan->channels[c];
        ch->src_stage = c % 2 == 0 ? c / 2 : c / 2 + 1;
        ch->dst_stage = c % 2 == 0 ? c / 2 + 1 : c / 2;
        ch->src_rank = plan->rank_of[ch->src_stage];
        ch->dst_rank = plan->rank_of[ch->dst_stage];
    }
    return 0;
}

static int make_messages(struct pp_plan *plan)
{
    int used = plan->kind == PP_PLAN_EVAL ? plan->n_channels / 2 : plan->n_channels;
    plan->n_messages = used * plan->geometry.microbatches;
    PP_ALLOC(plan->messages, plan->n_messages);
    return 0;
}

/* The order in which each channel carries its micro-batches. The end of the channel that is visited
 * first sets it. */
struct traffic {
    const struct pp_plan *plan;
    int32_t *order;        /* as pp_pass_lower() returns it */
    int32_t *sent, *taken; /* [n_channels] */
};

/* Reports that action `a` comes before the action of micro-batch `first` on this rank, although the
 * rank at the other end of the channel has `first` before the micro-batch of `a`. */
static int fail_order(const struct traffic *t, int channel, const struct pp_action *a, int first,
                      bool sends)
{
    const struct pp_channel *ch = &t->plan->channels[channel];
    int rank = sends ? ch->src_rank : ch->dst_rank, peer = sends ? ch->dst_rank : ch->src_rank;
    char op = a->op == PP_OP_F ? 'F' : a->op == PP_OP_I ? 'I' : 'B';
    return pp_fail(
        PP_EFORMAT,
        "row %d cell %d: %d%c%d comes before %d%c%d, but rank %d %s %s %d first; use one "
        "order in both rows",
        rank + 1, (int)(a - t->plan->ranks[rank].actions) + 1, a->stage, op, a->mb, a->stage, op,
        first, peer, sends ? "takes" : "sends", channel % 2 ? "gradient" : "activations", first);
}

/* Checks that the receiver takes messages in the order in which they are sent; a transport that
 * only matches calls in order, such as NCCL, could not run another plan. `mine` counts the messages
 * that were visited at this end of each channel, `other` those at the other end. */
static int check_channel_order(struct traffic *t, int channel, const struct pp_action *a,
                               int32_t *mine, const int32_t *other)
{
    int k = mine[channel]++, mb = a->mb;
    int32_t *place = &t->order[pp_plan_message(t->plan, channel, 0) + k];
    if (k >= other[channel]) {
        *place = mb;
        return 0;
    }
    if (*place == mb)
        return 0;
    return fail_order(t, channel, a, *place, mine == t->sent);
}

static int bind_messages(struct traffic *t, struct pp_action *a)
{
    /* A channel outside the plan (before the first stage, after the last) has no message. */
    int below = 2 * (a->stage - 1); /* forward channel into this stage */
    int above = 2 * a->stage;       /* forward channel out of it */
    int from = a->op == PP_OP_F ? below : above + 1;
    int to = a->op == PP_OP_F ? above : below + 1;
    bool alone = a->op == PP_OP_W || a->op == PP_OP_R;
    a->recv = alone ? -1 : pp_plan_message(t->plan, from, a->mb);
    a->send = alone ? -1 : pp_plan_message(t->plan, to, a->mb);
    if (a->recv >= 0)
        PP_TRY(check_channel_order(t, from, a, t->taken, t->sent));
    return a->send >= 0 ? check_channel_order(t, to, a, t->sent, t->taken) : 0;
}

static int bind_all_messages(struct traffic *t, struct pp_plan *plan)
{
    for (int r = 0; r < plan->geometry.stages; r++)
        for (int k = 0; k < plan->ranks[r].n_actions; k++)
            PP_TRY(bind_messages(t, &plan->ranks[r].actions[k]));
    return 0;
}

int pp_pass_lower(struct pp_plan *plan, int32_t **out_order)
{
    PP_TRY(make_channels(plan));
    PP_TRY(make_messages(plan));

    PP_TAKE(int32_t, order, plan->n_messages);
    PP_TAKE(int32_t, sent, plan->n_channels);
    PP_TAKE(int32_t, taken, plan->n_channels);
    struct traffic t = {.plan = plan, .order = order, .sent = sent, .taken = taken};
    PP_TRY(bind_all_messages(&t, plan));
    *out_order = order;
    order = NULL;
    return 0;
}
