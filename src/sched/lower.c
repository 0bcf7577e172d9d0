/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pass 3, lower: every hand-over between neighbouring stages becomes a message. A message is posted
 * by the action that makes it and waited for by the action that needs it, not before: a rank never
 * stalls on a neighbour while it has other work to do.
 *
 * Message ids are arithmetic (channel by channel, micro-batch by micro-batch), so nothing here or
 * later has to look a message up.
 */
#include "pass.h"

#include "ppcli/err.h"
#include "ppcli/mem.h"

int32_t pp_plan_message(const struct pp_plan *plan, int channel, int mb)
{
    if (channel < 0 || channel >= plan->n_channels) {
        return -1;
    }
    if (plan->kind == PP_PLAN_EVAL) {
        return channel % 2 == 0 ? channel / 2 * plan->geometry.microbatches + mb : -1;
    }
    return channel * plan->geometry.microbatches + mb;
}

static int make_channels(struct pp_plan *plan)
{
    plan->n_channels = 2 * (plan->n_virtual - 1);
    plan->channels = pp_alloc((size_t)plan->n_channels, sizeof(*plan->channels));
    if (!plan->channels) {
        return PP_ERESOURCE;
    }
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
    int m = plan->geometry.microbatches;
    int used = plan->kind == PP_PLAN_EVAL ? plan->n_channels / 2 : plan->n_channels;
    plan->n_messages = used * m;
    plan->messages = pp_alloc((size_t)plan->n_messages, sizeof(*plan->messages));
    if (!plan->messages) {
        return PP_ERESOURCE;
    }
    for (int c = 0; c < plan->n_channels; c++) {
        int32_t first = pp_plan_message(plan, c, 0);
        for (int mb = 0; first >= 0 && mb < m; mb++) {
            plan->messages[first + mb] =
                (struct pp_message){.channel = c, .mb = mb, .slot = -1, .next_in_slot = -1};
        }
    }
    return 0;
}

static void bind_messages(const struct pp_plan *plan, struct pp_action *a)
{
    /* A channel outside the plan (before the first stage, behind the last) has no message. */
    int below = 2 * (a->stage - 1); /* forward channel into this stage */
    int above = 2 * a->stage;       /* forward channel out of it */
    a->recv = -1;
    a->send = -1;
    if (a->op == PP_OP_F) {
        a->recv = pp_plan_message(plan, below, a->mb);
        a->send = pp_plan_message(plan, above, a->mb);
    } else if (a->op != PP_OP_W) {
        a->recv = pp_plan_message(plan, above + 1, a->mb);
        a->send = pp_plan_message(plan, below + 1, a->mb);
    }
}

/*
 * Receivers take messages in the order in which they were sent. Transports whose only order is the
 * order of the calls (NCCL) could not run anything else.
 */
static int check_order(const struct pp_plan *plan, const int32_t *order, int32_t *taken)
{
    for (int r = 0; r < plan->geometry.stages; r++) {
        for (int k = 0; k < plan->ranks[r].n_actions; k++) {
            const struct pp_action *a = &plan->ranks[r].actions[k];
            if (a->recv < 0) {
                continue;
            }
            int c = plan->messages[a->recv].channel;
            int32_t sent = order[pp_plan_message(plan, c, 0) + taken[c]++];
            if (sent != a->mb) {
                return pp_fail(PP_EFORMAT,
                               "channel %d (stage %d to %d): rank %d sends micro-batch %d where "
                               "rank %d takes %d: messages must be taken in the order sent",
                               c, plan->channels[c].src_stage, plan->channels[c].dst_stage,
                               plan->channels[c].src_rank, sent, r, a->mb);
            }
        }
    }
    return 0;
}

int pp_pass_lower(struct pp_plan *plan, int32_t **out_order)
{
    PP_TRY(make_channels(plan));
    PP_TRY(make_messages(plan));

    int rc = PP_ERESOURCE;
    int32_t *order = pp_alloc((size_t)plan->n_messages, sizeof(*order));
    int32_t *sent = pp_alloc((size_t)plan->n_channels, sizeof(*sent));
    int32_t *taken = pp_alloc((size_t)plan->n_channels, sizeof(*taken));
    if (!order || !sent || !taken) {
        goto out;
    }
    for (int r = 0; r < plan->geometry.stages; r++) {
        for (int k = 0; k < plan->ranks[r].n_actions; k++) {
            struct pp_action *a = &plan->ranks[r].actions[k];
            bind_messages(plan, a);
            if (a->send >= 0) {
                int c = plan->messages[a->send].channel;
                order[pp_plan_message(plan, c, 0) + sent[c]++] = a->mb;
            }
        }
    }
    rc = check_order(plan, order, taken);
    if (rc == 0) {
        *out_order = order;
        order = NULL;
    }
out:
    pp_free(order);
    pp_free(sent);
    pp_free(taken);
    return rc;
}
