/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adds messages to lists, as torch.distributed.pipelining lowers and writes them. torch goes round
 * robin over the ranks, one cell each. When a cell is placed, its SEND goes right after it and the
 * RECV to the end of the peer's list. In torch's dialect an I and the adjacent W of one (stage, mb)
 * become B first, unless the plan has overlapped pairs; such a plan may be slower, because B sends
 * its gradient at its end. Both halves of a message are added at one point of one sequence, so the
 * lists are safe without any buffer.
 */
#include "csv.h"

#include "plan.h"
#include "ppcli/base/base.h"

/* Returns whether the message goes to another rank. */
static bool message_travels(const struct pp_plan *plan, int32_t message)
{
    if (message < 0)
        return false;
    const struct pp_channel *ch = &plan->channels[plan->messages[message].channel];
    return ch->src_rank != ch->dst_rank;
}

/* A rank whose next cell has no input leaves the round until a RECV is put into its list. This
 * gives the same sequence as torch without asking all ranks in every round. */
struct lowering {
    const struct pp_plan *plan;
    struct pp_csv_row *rows; /* [P] */
    bool merges;             /* I and the W after it become B */
    int *at;                 /* [P] next action */
    uint8_t *arrived;        /* [n_messages] its RECV is in its list */
    uint64_t *now, *later;   /* [words] bit r: rank r takes part in this round, or in the next */
    size_t words;
};

static void set_bit(uint64_t *bits, int r)
{
    bits[r / 64] |= 1ull << r % 64;
}

static bool get_bit(const uint64_t *bits, int r)
{
    return bits[r / 64] >> r % 64 & 1;
}

static bool input_arrived(const struct lowering *l, const struct pp_action *a)
{
    return !message_travels(l->plan, a->recv) || l->arrived[a->recv];
}

static int put_half(struct lowering *l, int rank, enum pp_csv_type type, int stage, int mb)
{
    struct pp_csv_cell c = {.type = (uint8_t)type, .stage = stage, .mb = mb};
    return pp_csv_add(&l->rows[rank], &c);
}

/* Adds the SEND of a message to the list of its rank, and the RECV to that of the peer. Lets the
 * peer take part in this or the next round, because its next cell may have waited for this
 * message. */
static int put_message(struct lowering *l, int rank, int32_t message)
{
    if (!message_travels(l->plan, message))
        return 0;
    const struct pp_message *m = &l->plan->messages[message];
    const struct pp_channel *ch = &l->plan->channels[m->channel];
    bool back = m->channel % 2 == 1;
    int peer = ch->dst_rank;
    PP_TRY(put_half(l, rank, back ? PP_CSV_SEND_B : PP_CSV_SEND_F, ch->src_stage, m->mb));
    PP_TRY(put_half(l, peer, back ? PP_CSV_RECV_B : PP_CSV_RECV_F, ch->dst_stage, m->mb));
    l->arrived[message] = true;
    if (!get_bit(l->now, peer))
        set_bit(peer > rank ? l->now : l->later, peer);
    return 0;
}

static int lower_action(struct lowering *l, int rank, const struct pp_action *a, bool merged)
{
    struct pp_csv_cell c = {
        .type = merged ? PP_CSV_B : a->op, .overlap = a->overlap, .stage = a->stage, .mb = a->mb};
    return pp_csv_add(&l->rows[rank], &c);
}

/* Returns whether an I and the W right after it become a B. They do not in a plan with overlapped
 * pairs, because torch keeps them apart there: its table of DualPipeV has both. */
static bool merges_i_and_w(const struct pp_plan *plan)
{
    for (int r = 0; r < plan->geometry.stages; r++) {
        for (int k = 0; k < plan->ranks[r].n_actions; k++)
            if (plan->ranks[r].actions[k].overlap)
                return false;
    }
    return true;
}

/* Returns how many actions, from action k on, become one cell: 2 for an overlapped pair or for an I
 * with its W, else 1. */
static int count_cell_actions(const struct lowering *l, int r, int k)
{
    const struct pp_rank_plan *list = &l->plan->ranks[r];
    const struct pp_action *a = &list->actions[k];
    if (k + 1 == list->n_actions)
        return 1;
    bool apart = !l->merges || a->op != PP_OP_I || a[1].op != PP_OP_W;
    return a->overlap || (!apart && a[1].stage == a->stage && a[1].mb == a->mb) ? 2 : 1;
}

static int take_turn(struct lowering *l, int r)
{
    const struct pp_rank_plan *list = &l->plan->ranks[r];
    int k = l->at[r];
    if (k == pp_plan_first_tied(list)) /* torch has no cells for G and T */
        return 0;
    const struct pp_action *a = &list->actions[k];
    int n = count_cell_actions(l, r, k);
    if (!input_arrived(l, a) || (a->overlap && !input_arrived(l, a + 1)))
        return 0;
    l->at[r] += n;
    set_bit(l->later, r);
    if (a->overlap) {
        PP_TRY(lower_action(l, r, a, false));
        PP_TRY(lower_action(l, r, a + 1, false));
        PP_TRY(put_message(l, r, a[0].send));
        return put_message(l, r, a[1].send);
    }
    PP_TRY(lower_action(l, r, a, n == 2));
    return put_message(l, r, a->send);
}

/* Runs one round: gives each rank that takes part its turn. Returns 1 if there may be more to do, 0
 * when no rank took part. */
static int take_round(struct lowering *l)
{
    int rc = 0;
    uint64_t *swap = l->now;
    l->now = l->later;
    l->later = swap;
    for (size_t i = 0; i < l->words; i++)
        l->later[i] = 0;
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

/* Reports that no rank can continue, and blames an overlapped pair: the plan is proved, so every
 * single cell gets its input, and only such pairs can block each other. */
static int fail_stuck(const struct lowering *l)
{
    for (int r = 0; r < l->plan->geometry.stages; r++) {
        const struct pp_rank_plan *list = &l->plan->ranks[r];
        if (l->at[r] < list->n_actions && list->actions[l->at[r]].overlap) {
            const struct pp_action *a = &list->actions[l->at[r]];
            return pp_fail(PP_EFORMAT,
                           "rank %d: the pair (%dF%d;%dB%d) needs two inputs, and one of them only "
                           "comes after the pair; write the two cells one after the other",
                           r, a[0].stage, a[0].mb, a[1].stage, a[1].mb);
        }
    }
    return 0;
}

static void print_csv_row(const struct pp_csv_row *row, FILE *f)
{
    struct pp_csv_printer p = {.f = f};
    for (int k = 0; k < row->n; k++) {
        const struct pp_csv_cell *c = &row->cells[k];
        pp_csv_print(&p, c->type, c->stage, c->mb, c->overlap);
    }
    putc('\n', f);
}

static int print_lowered(const struct pp_plan *plan, bool merged, FILE *f)
{
    int rc, p = plan->geometry.stages;
    size_t words = ((size_t)p + 63) / 64;
    PP_TAKE(struct pp_csv_row, rows, p);
    PP_TAKE(int, at, p);
    PP_TAKE(uint8_t, arrived, plan->n_messages);
    PP_TAKE(uint64_t, now, words);
    PP_TAKE(uint64_t, later, words);
    struct lowering l = {plan,  rows, merged && merges_i_and_w(plan), at, arrived, now,
                         later, words};
    for (int r = 0; r < p; r++)
        set_bit(l.later, r);
    do {
        rc = take_round(&l);
    } while (rc > 0);
    if (rc == 0)
        rc = fail_stuck(&l);
    for (int r = 0; rc == 0 && r < p; r++)
        print_csv_row(&l.rows[r], f);
    for (int r = 0; r < p; r++)
        pp_free(l.rows[r].cells);
    return rc == 0 ? pp_csv_written(f) : rc;
}

int pp_plan_print_csv_comms(const struct pp_plan *plan, FILE *f)
{
    return print_lowered(plan, false, f);
}

int pp_plan_print_csv_torch(const struct pp_plan *plan, FILE *f)
{
    return print_lowered(plan, true, f);
}
