/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After the proof, for models in which several stages hold the same tensor: adds G and T at the end
 * of the lists, and for each tie a channel in either direction with a message for each piece,
 * through one slot. All lists have the order of rounds (pieces), then of steps (ties on the way of
 * a sum), then G before T. A G of the first piece waits for no message of this step, the G of
 * another piece for the T of the piece before, and a T for a G of the same round and step. So the
 * lists stay free of circles; the proof checks this again.
 */
#include "pass.h"
#include "plan.h"

#include <string.h>

#include "ppcli/base/base.h"

int pp_plan_first_tied(const struct pp_rank_plan *list)
{
    int n = list->n_actions;
    while (n > 0 && list->actions[n - 1].op >= PP_OP_G)
        n--;
    return n;
}

/* Returns the first of the two channels of a tied tensor. */
static int channel_of_tie(const struct pp_plan *plan, int tie)
{
    return 2 * (plan->n_virtual - 1) + 2 * tie;
}

/* Returns the number of the message that carries a piece of a tied tensor. These messages are
 * numbered after those of all stage boundaries, by tie, then direction, then piece. */
static int32_t find_piece_message(const struct pp_plan *plan, int channel, int piece)
{
    int first = channel_of_tie(plan, 0), tie = (channel - first) / 2;
    int32_t message = first * plan->geometry.microbatches + piece;
    for (int i = 0; i < tie; i++)
        message += 2 * (plan->ties[i].more + 1);
    return message + (channel - first) % 2 * (plan->ties[tie].more + 1);
}

static int count_pieces(const struct pp_plan *plan)
{
    int most = 0;
    for (int i = 0; i < plan->n_ties; i++)
        most = plan->ties[i].more >= most ? plan->ties[i].more + 1 : most;
    return most;
}

/* Return the step of a round in which the owner gives to the copy, and that in which the copy gives
 * to the owner: the same one if this tie completes the sum. */
static int step_up(const struct pp_tie *t)
{
    return t->before;
}

static int step_down(const struct pp_tie *t)
{
    return t->before + 2 * t->after;
}

static int count_steps(const struct pp_plan *plan)
{
    int most = 0;
    for (int i = 0; i < plan->n_ties; i++)
        most = step_down(&plan->ties[i]) >= most ? step_down(&plan->ties[i]) + 1 : most;
    return most;
}

static bool is_local(const struct pp_plan *plan, int tie)
{
    const struct pp_tie *t = &plan->ties[tie];
    return plan->rank_of[t->owner] == plan->rank_of[t->copy];
}

/* Returns the action that a rank runs for a tie in a step of a round; its op is 0 if there is none.
 * Within a rank a T is the step up, and a G the step down, if that is another one. */
static struct pp_action make_tie_action(const struct pp_plan *plan, int rank, int round, int step,
                                        int tie, int op)
{
    const struct pp_tie *t = &plan->ties[tie];
    bool owner = plan->rank_of[t->owner] == rank, local = is_local(plan, tie),
         gives = op == PP_OP_G;
    bool up = local ? !gives : owner == gives; /* from the owner to the copy */
    int channel = channel_of_tie(plan, tie) + !up;
    struct pp_action a = {.op = (uint8_t)op,
                          .stage = owner ? t->owner : t->copy,
                          .mb = tie,
                          .slot = local ? round : 0,
                          .gslot = -1,
                          .recv = -1,
                          .send = -1};
    if ((!owner && plan->rank_of[t->copy] != rank) || round > t->more ||
        step != (up ? step_up(t) : step_down(t)) || (local && gives && t->after == 0))
        a.op = 0;
    else if (gives && !local)
        a.send = find_piece_message(plan, channel, round);
    else if (!local)
        a.recv = find_piece_message(plan, channel, round);
    return a;
}

/* Writes the actions that the list of a rank must end with, from its first G or T on, to `out`, and
 * returns their number. `out` may be NULL. */
static int make_tie_list(const struct pp_plan *plan, int rank, struct pp_action *out)
{
    int n = 0, steps = count_steps(plan), all = count_pieces(plan) * steps;
    for (int k = 0; k < all; k++) {
        for (int op = PP_OP_G; op <= PP_OP_T; op++) {
            for (int i = 0; i < plan->n_ties; i++) {
                struct pp_action a = make_tie_action(plan, rank, k / steps, k % steps, i, op);
                if (a.op == op && out)
                    out[n] = a;
                n += a.op == op;
            }
        }
    }
    return n;
}

static int add_channels(struct pp_plan *plan)
{
    int first = channel_of_tie(plan, 0), n = first + 2 * plan->n_ties;
    int messages = plan->n_messages;
    for (int i = 0; i < plan->n_ties; i++)
        messages += 2 * (plan->ties[i].more + 1);
    PP_GROW(plan->channels, n);
    PP_GROW(plan->messages, messages);
    for (int c = first; c < n; c++) {
        int i = (c - first) / 2;
        bool back = (c - first) % 2 == 1;
        const struct pp_tie *t = &plan->ties[i];
        int src = back ? t->copy : t->owner, dst = back ? t->owner : t->copy;
        bool local = is_local(plan, i);
        plan->channels[c] = (struct pp_channel){.src_stage = src,
                                                .dst_stage = dst,
                                                .src_rank = plan->rank_of[src],
                                                .dst_rank = plan->rank_of[dst],
                                                .slots = local ? 0 : 1};
        for (int k = 0; k <= t->more; k++) {
            int32_t m = find_piece_message(plan, c, k);
            plan->messages[m] = (struct pp_message){.channel = c,
                                                    .mb = k,
                                                    .next_in_slot = k < t->more ? m + 1 : -1,
                                                    .first_in_slot = k == 0 && !local};
        }
    }
    plan->n_channels = n;
    plan->n_messages = messages;
    return 0;
}

static int add_actions(struct pp_plan *plan, int rank)
{
    struct pp_rank_plan *list = &plan->ranks[rank];
    int64_t n = (int64_t)list->n_actions + make_tie_list(plan, rank, NULL);
    if (n > INT32_MAX)
        return pp_fail(PP_ERESOURCE, "rank %d: %lld actions are too many", rank, (long long)n);
    PP_GROW(list->actions, n);
    make_tie_list(plan, rank, list->actions + list->n_actions);
    list->n_actions = (int)n;
    return 0;
}

int pp_plan_tie(struct pp_plan *plan, const struct pp_tie *ties, int n)
{
    pp_assert(plan->kind == PP_PLAN_TRAIN && plan->copies == 1 && plan->n_ties == 0 && n >= 1);
    PP_ALLOC(plan->ties, n);
    memcpy(plan->ties, ties, (size_t)n * sizeof(*ties));
    plan->n_ties = n;
    PP_TRY(add_channels(plan));
    for (int r = 0; r < plan->geometry.stages; r++)
        PP_TRY(add_actions(plan, r));
    return pp_plan_prove(plan);
}

/* ---- the proof */

static bool is_same_action(const struct pp_action *a, const struct pp_action *b)
{
    return a->op == b->op && a->stage == b->stage && a->mb == b->mb && a->slot == b->slot &&
           a->recv == b->recv && a->send == b->send;
}

/* Proves that the list of a rank ends with the G and T actions that its tied tensors need. `rest`
 * is working memory for the longest such end of a list. */
static int prove_tie_list(const struct pp_plan *plan, int rank, struct pp_action *rest)
{
    const struct pp_rank_plan *list = &plan->ranks[rank];
    int first = pp_plan_first_tied(list), n = make_tie_list(plan, rank, rest);
    bool good = list->n_actions - first == n;
    for (int k = 0; k < first && good; k++)
        good = list->actions[k].op < PP_OP_G;
    for (int k = 0; k < n && good; k++)
        good = is_same_action(&list->actions[first + k], &rest[k]);
    if (good)
        return 0;
    return pp_fail(PP_EFORMAT,
                   "rank %d: its list does not end with a G and a T for each tied tensor that it "
                   "shares with another rank, and a T for each other one that it holds twice",
                   rank);
}

static int prove_messages(const struct pp_plan *plan)
{
    for (int c = channel_of_tie(plan, 0); c < plan->n_channels; c++) {
        const struct pp_channel *ch = &plan->channels[c];
        bool travels = ch->src_rank != ch->dst_rank, good = ch->slots == travels;
        int more = plan->ties[(c - channel_of_tie(plan, 0)) / 2].more;
        for (int k = 0; k <= more && good; k++) {
            int32_t at = find_piece_message(plan, c, k);
            const struct pp_message *m = &plan->messages[at];
            good = m->channel == c && m->mb == k && m->slot == 0 &&
                   m->first_in_slot == (k == 0 && travels) &&
                   m->next_in_slot == (k < more ? at + 1 : -1);
        }
        if (!good)
            return pp_fail(PP_EFORMAT,
                           "channel %d of a tied tensor: not a message for each piece in one slot",
                           c);
    }
    return 0;
}

int pp_prove_ties(const struct pp_plan *plan)
{
    PP_TAKE(struct pp_action, rest, 2 * (size_t)plan->n_ties * (size_t)count_pieces(plan) + 1);
    PP_TRY(prove_messages(plan));
    for (int r = 0; r < plan->geometry.stages; r++)
        PP_TRY(prove_tie_list(plan, r, rest));
    return 0;
}
