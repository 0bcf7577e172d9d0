/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists with messages. The plan says which action needs and makes which message; here every SEND
 * and RECV gets a place in its rank's list.
 */
#include "comms.h"

#include "ppcli/err.h"
#include "ppcli/mem.h"

bool pp_comm_travels(const struct pp_plan *plan, int32_t message)
{
    if (message < 0) {
        return false;
    }
    const struct pp_channel *ch = &plan->channels[plan->messages[message].channel];
    return ch->src_rank != ch->dst_rank;
}

const char *pp_comm_name(const struct pp_plan *plan, int rank, const struct pp_comm *c,
                         char name[PP_COMM_NAME_MAX])
{
    if (c->kind == PP_COMM_RUN) {
        const struct pp_action *a = &plan->ranks[rank].actions[c->index];
        snprintf(name, PP_COMM_NAME_MAX, "%d%c%d", a->stage, c->merged ? 'B' : PP_OP_LETTERS[a->op],
                 a->mb);
        return name;
    }
    const struct pp_message *m = &plan->messages[c->index];
    const struct pp_channel *ch = &plan->channels[m->channel];
    bool send = c->kind == PP_COMM_SEND;
    snprintf(name, PP_COMM_NAME_MAX, "%d%s_%c%d", send ? ch->src_stage : ch->dst_stage,
             send ? "SEND" : "RECV", m->channel % 2 == 0 ? 'F' : 'B', m->mb);
    return name;
}

int pp_comms_init(int n_ranks, struct pp_comms *out)
{
    struct pp_comm_list *ranks = pp_alloc((size_t)n_ranks, sizeof(*ranks));
    if (!ranks) {
        return PP_ERESOURCE;
    }
    *out = (struct pp_comms){.n_ranks = n_ranks, .ranks = ranks};
    return 0;
}

void pp_comms_fini(struct pp_comms *comms)
{
    for (int r = 0; r < comms->n_ranks; r++) {
        pp_free(comms->ranks[r].cells);
    }
    pp_free(comms->ranks);
    *comms = (struct pp_comms){0};
}

int pp_comm_add(struct pp_comm_list *list, enum pp_comm_kind kind, bool merged, int32_t index)
{
    if (list->n == list->capacity) {
        if (list->capacity > INT32_MAX / 2) {
            return pp_fail(PP_ERESOURCE, "a list of %d cells is too long", list->n);
        }
        int capacity = list->capacity ? 2 * list->capacity : 64;
        struct pp_comm *cells = pp_realloc(list->cells, (size_t)capacity, sizeof(*cells));
        if (!cells) {
            return PP_ERESOURCE;
        }
        list->cells = cells;
        list->capacity = capacity;
    }
    list->cells[list->n++] =
        (struct pp_comm){.kind = (uint8_t)kind, .merged = merged, .index = index};
    return 0;
}

static int add_message(const struct pp_plan *plan, struct pp_comm_list *list,
                       enum pp_comm_kind kind, int32_t message)
{
    return pp_comm_travels(plan, message) ? pp_comm_add(list, kind, false, message) : 0;
}

/* Receives that are posted before the first action: a channel's by ascending slot. */
static int post_first(const struct pp_plan *plan, struct pp_comms *out)
{
    int m = plan->geometry.microbatches;
    int32_t *of_slot = pp_alloc((size_t)m, sizeof(*of_slot));
    int rc = of_slot ? 0 : PP_ERESOURCE;
    for (int c = 0; c < plan->n_channels && rc == 0; c++) {
        int32_t first = pp_plan_message(plan, c, 0);
        int slots = plan->channels[c].slots;
        if (!pp_comm_travels(plan, first)) {
            continue;
        }
        for (int i = 0; i < m; i++) {
            const struct pp_message *msg = &plan->messages[first + i];
            if (msg->first_in_slot) {
                of_slot[msg->slot] = first + i;
            }
        }
        for (int i = 0; i < slots && rc == 0; i++) {
            rc = pp_comm_add(&out->ranks[plan->channels[c].dst_rank], PP_COMM_POST, false,
                             of_slot[i]);
        }
    }
    pp_free(of_slot);
    return rc;
}

/* The receives that an action posts by releasing what it, or its micro-batch, held. */
static int post_next(const struct pp_plan *plan, struct pp_comm_list *list,
                     const struct pp_action *a)
{
    int32_t held[2] = {a->recv, -1};
    if (plan->kind == PP_PLAN_TRAIN) {
        bool frees = a->op == PP_OP_W || a->op == PP_OP_B;
        held[0] = frees ? pp_plan_message(plan, 2 * (a->stage - 1), a->mb) : -1;
        held[1] = frees ? pp_plan_message(plan, 2 * a->stage + 1, a->mb) : -1;
    }
    for (int i = 0; i < 2; i++) {
        if (held[i] >= 0) {
            PP_TRY(add_message(plan, list, PP_COMM_POST, plan->messages[held[i]].next_in_slot));
        }
    }
    return 0;
}

static int build_by_action(const struct pp_plan *plan, enum pp_comm_order order,
                           struct pp_comms *out)
{
    bool posts = order == PP_COMM_PREPOSTED;
    if (posts) {
        PP_TRY(post_first(plan, out));
    }
    for (int r = 0; r < out->n_ranks; r++) {
        struct pp_comm_list *list = &out->ranks[r];
        for (int k = 0; k < plan->ranks[r].n_actions; k++) {
            const struct pp_action *a = &plan->ranks[r].actions[k];
            PP_TRY(add_message(plan, list, posts ? PP_COMM_WAIT : PP_COMM_RECV, a->recv));
            PP_TRY(pp_comm_add(list, PP_COMM_RUN, false, k));
            PP_TRY(add_message(plan, list, PP_COMM_SEND, a->send));
            if (posts) {
                PP_TRY(post_next(plan, list, a));
            }
        }
    }
    return 0;
}

/* torch's round robin. A rank whose next cell has no input leaves the round until a RECV is put
 * into its list: the same sequence, without asking all ranks all the time. */
struct lowering {
    const struct pp_plan *plan;
    struct pp_comms *out;
    bool merges;           /* I and W behind it become B */
    int *at;               /* [P] next action */
    uint8_t *arrived;      /* [n_messages] its RECV is in its list */
    uint64_t *now, *later; /* [words] bit r: rank r has its turn in this round, in the next */
    size_t words;
};

static void set(uint64_t *bits, int r)
{
    bits[r / 64] |= 1ull << r % 64;
}

static bool get(const uint64_t *bits, int r)
{
    return bits[r / 64] >> r % 64 & 1;
}

static bool ready(const struct lowering *l, const struct pp_action *a)
{
    return !pp_comm_travels(l->plan, a->recv) || l->arrived[a->recv];
}

/* Put both halves of a message. The peer's next cell may have waited for just this. */
static int put_message(struct lowering *l, int rank, int32_t message)
{
    if (!pp_comm_travels(l->plan, message)) {
        return 0;
    }
    int peer = l->plan->channels[l->plan->messages[message].channel].dst_rank;
    PP_TRY(pp_comm_add(&l->out->ranks[rank], PP_COMM_SEND, false, message));
    PP_TRY(pp_comm_add(&l->out->ranks[peer], PP_COMM_RECV, false, message));
    l->arrived[message] = true;
    if (!get(l->now, peer)) {
        set(peer > rank ? l->now : l->later, peer);
    }
    return 0;
}

/* torch leaves I and W alone where cells overlap: its DualPipeV table has them apart. */
static bool merges(const struct pp_plan *plan)
{
    for (int r = 0; r < plan->geometry.stages; r++) {
        for (int k = 0; k < plan->ranks[r].n_actions; k++) {
            if (plan->ranks[r].actions[k].overlap) {
                return false;
            }
        }
    }
    return true;
}

/* Actions that make one cell: an overlapped pair, or an I with its W. */
static int cell_length(const struct lowering *l, int r, int k)
{
    const struct pp_rank_plan *list = &l->plan->ranks[r];
    const struct pp_action *a = &list->actions[k];
    if (k + 1 == list->n_actions) {
        return 1;
    }
    bool apart = !l->merges || a->op != PP_OP_I || a[1].op != PP_OP_W;
    return a->overlap || (!apart && a[1].stage == a->stage && a[1].mb == a->mb) ? 2 : 1;
}

static int take_turn(struct lowering *l, int r)
{
    const struct pp_rank_plan *list = &l->plan->ranks[r];
    int k = l->at[r];
    if (k == list->n_actions) {
        return 0;
    }
    const struct pp_action *a = &list->actions[k];
    int n = cell_length(l, r, k);
    if (!ready(l, a) || (a->overlap && !ready(l, a + 1))) {
        return 0;
    }
    l->at[r] += n;
    set(l->later, r);
    if (a->overlap) {
        PP_TRY(pp_comm_add(&l->out->ranks[r], PP_COMM_RUN, false, k));
        PP_TRY(pp_comm_add(&l->out->ranks[r], PP_COMM_RUN, false, k + 1));
        PP_TRY(put_message(l, r, a[0].send));
        return put_message(l, r, a[1].send);
    }
    PP_TRY(pp_comm_add(&l->out->ranks[r], PP_COMM_RUN, n == 2, k));
    return put_message(l, r, a->send);
}

/* One round; 0: there was nothing left to do, 1: go on. */
static int take_round(struct lowering *l)
{
    int rc = 0;
    uint64_t *swap = l->now;
    l->now = l->later;
    l->later = swap;
    for (size_t i = 0; i < l->words; i++) {
        l->later[i] = 0;
    }
    for (size_t i = 0; i < l->words; i++) {
        while (l->now[i]) {
            int r = (int)(i * 64) + __builtin_ctzll(l->now[i]);
            PP_TRY(take_turn(l, r));
            l->now[i] &= ~(1ull << r % 64);
            rc = 1;
        }
    }
    return rc;
}

/* Of the plan's proof every cell has its input one day, so only pairs can be stuck. */
static int fail_stuck(const struct lowering *l)
{
    for (int r = 0; r < l->out->n_ranks; r++) {
        const struct pp_rank_plan *list = &l->plan->ranks[r];
        if (l->at[r] < list->n_actions && list->actions[l->at[r]].overlap) {
            const struct pp_action *a = &list->actions[l->at[r]];
            return pp_fail(PP_EFORMAT,
                           "rank %d: the pair (%dF%d;%dB%d) begins when both its inputs are there, "
                           "and that is never: it waits for what only comes after it; write the "
                           "two cells one after the other",
                           r, a[0].stage, a[0].mb, a[1].stage, a[1].mb);
        }
    }
    return 0;
}

static int build_lowered(const struct pp_plan *plan, struct pp_comms *out)
{
    int rc = PP_ERESOURCE;
    struct lowering l = {

        .plan = plan,
        .out = out,
        .merges = merges(plan),
        .words = ((size_t)plan->geometry.stages + 63) / 64};
    l.at = pp_alloc((size_t)plan->geometry.stages, sizeof(*l.at));
    l.arrived = pp_alloc((size_t)plan->n_messages, 1);
    l.now = pp_alloc(l.words, sizeof(*l.now));
    l.later = pp_alloc(l.words, sizeof(*l.later));
    if (!l.at || !l.arrived || !l.now || !l.later) {
        goto out;
    }
    for (int r = 0; r < plan->geometry.stages; r++) {
        set(l.later, r);
    }
    do {
        rc = take_round(&l);
    } while (rc > 0);
    if (rc == 0) {
        rc = fail_stuck(&l);
    }
out:
    pp_free(l.at);
    pp_free(l.arrived);
    pp_free(l.now);
    pp_free(l.later);
    return rc;
}

int pp_comms_build(const struct pp_plan *plan, enum pp_comm_order order, struct pp_comms *out)
{
    struct pp_comms comms = {0};
    PP_TRY(pp_comms_init(plan->geometry.stages, &comms));
    int rc = order == PP_COMM_LOWERED ? build_lowered(plan, &comms)
                                      : build_by_action(plan, order, &comms);
    if (rc < 0) {
        pp_comms_fini(&comms);
        return rc;
    }
    *out = comms;
    return 0;
}
