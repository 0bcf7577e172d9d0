/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks the SEND and RECV cells of a table: each list alone, then all lists together in one
 * simulated order. A SEND ends when its receiver has reached the RECV. A message has one sender and
 * one receiver, and a rank that can continue can continue in every order. So if this one order of
 * events ends, every order ends, with any number of buffers.
 */
#include "csv.h"

#include "ppcli/base/base.h"

/* The state of a message, as bits. */
enum {
    MADE = 1, /* in the list of one rank */
    SENT = 2,
    TAKEN = 4,
    OFFERED = 8, /* in all lists: its sender or receiver has reached it */
    AWAITED = 16
};

struct machine {
    const struct pp_table *t;
    const struct pp_plan *plan;
    uint8_t *did; /* [n_messages] */
    int *at;      /* [P] first cell that is not done */
    bool *waits;  /* [P] */
    int *ready;   /* stack of ranks that may run */
    int n_ready;
};

static bool is_send(const struct pp_csv_cell *c)
{
    return c->type == PP_CSV_SEND_F || c->type == PP_CSV_SEND_B;
}

static struct pp_csv_cell make_message_cell(enum pp_csv_type type, int stage, int mb)
{
    return (struct pp_csv_cell){.type = (uint8_t)type, .stage = stage, .mb = mb};
}

/* Returns the RECV cell that belongs to a SEND cell, or the SEND cell that belongs to a RECV
 * cell. */
static struct pp_csv_cell other_half(const struct pp_csv_cell *c)
{
    static const enum pp_csv_type types[] = {PP_CSV_RECV_F, PP_CSV_SEND_F, PP_CSV_RECV_B,
                                             PP_CSV_SEND_B};
    bool up = c->type == PP_CSV_SEND_F || c->type == PP_CSV_RECV_B;
    return make_message_cell(types[c->type - PP_CSV_SEND_F], c->stage + (up ? 1 : -1), c->mb);
}

/* Returns the message that a SEND or RECV cell moves; -1 if the stage has no neighbour on that
 * side. */
static int32_t find_cell_message(const struct machine *x, const struct pp_csv_cell *c)
{
    static const int channel[] = {0, -2, -1, 1};
    return pp_plan_message(x->plan, 2 * c->stage + channel[c->type - PP_CSV_SEND_F], c->mb);
}

static bool message_travels(const struct machine *x, int32_t message)
{
    const struct pp_channel *ch = &x->plan->channels[x->plan->messages[message].channel];
    return ch->src_rank != ch->dst_rank;
}

static int check_compute(const struct machine *x, int rank, int k)
{
    const struct pp_csv_cell *c = &x->t->csv.rows[rank].cells[k];
    enum pp_op op = pp_table_op(x->t, c);
    if (op == PP_OP_W || op == PP_OP_R)
        return 0;
    bool forward = op == PP_OP_F;
    struct pp_csv_cell in =
        make_message_cell(forward ? PP_CSV_RECV_F : PP_CSV_RECV_B, c->stage, c->mb);
    struct pp_csv_cell out =
        make_message_cell(forward ? PP_CSV_SEND_F : PP_CSV_SEND_B, c->stage, c->mb);
    int32_t needs = find_cell_message(x, &in);
    int32_t makes = find_cell_message(x, &out);
    if (needs >= 0 && message_travels(x, needs) && !(x->did[needs] & TAKEN)) {
        char name[PP_CSV_NAME_MAX], missing[PP_CSV_NAME_MAX];
        return PP_TABLE_FAIL(x->t, rank, k, "there is no %s before %s",
                             pp_csv_cell_name(&in, missing), pp_csv_cell_name(c, name));
    }
    if (makes >= 0)
        x->did[makes] |= MADE;
    return 0;
}

static int check_message(const struct machine *x, int rank, int k)
{
    const struct pp_table *t = x->t;
    const struct pp_csv_cell *c = &t->csv.rows[rank].cells[k];
    char name[PP_CSV_NAME_MAX];
    pp_csv_cell_name(c, name);
    if (c->stage >= t->n_virtual || c->mb >= t->g.microbatches || t->rank_of[c->stage] != rank) {
        return PP_TABLE_FAIL(t, rank, k, "%s: this rank has no %d%s%d", name, c->stage,
                             c->type <= PP_CSV_RECV_F ? "F" : "B", c->mb);
    }
    int32_t message = find_cell_message(x, c);
    if (message < 0) {
        return PP_TABLE_FAIL(t, rank, k, "%s: stage %d has no neighbour on that side", name,
                             c->stage);
    }
    if (!message_travels(x, message)) {
        return PP_TABLE_FAIL(t, rank, k,
                             "%s moves nothing: both stages are on this rank, and a transfer "
                             "within a rank has no cell",
                             name);
    }
    if (is_send(c) && !(x->did[message] & MADE))
        return PP_TABLE_FAIL(t, rank, k, "%s comes before the cell that makes it", name);
    int half = is_send(c) ? SENT : TAKEN;
    if (x->did[message] & half)
        return PP_TABLE_FAIL(t, rank, k, "%s comes twice", name);
    x->did[message] |= (uint8_t)half;
    return 0;
}

/* Checks that the message which RECV cell k receives has a SEND cell. The opposite, that each
 * message that a cell needs has a RECV, was checked before. */
static int check_sent(const struct machine *x, int rank, int k)
{
    const struct pp_csv_cell *c = &x->t->csv.rows[rank].cells[k];
    if (!pp_csv_is_message(c) || is_send(c) || x->did[find_cell_message(x, c)] & SENT)
        return 0;
    struct pp_csv_cell half = other_half(c);
    char name[PP_CSV_NAME_MAX], missing[PP_CSV_NAME_MAX];
    return PP_TABLE_FAIL(x->t, rank, k, "there is no %s on rank %d for %s",
                         pp_csv_cell_name(&half, missing), x->t->rank_of[half.stage],
                         pp_csv_cell_name(c, name));
}

static int check_lists(const struct machine *x)
{
    for (int pass = 0; pass < 2; pass++) {
        for (int r = 0; r < x->t->csv.n_rows; r++) {
            for (int k = 0; k < x->t->csv.rows[r].n; k++) {
                const struct pp_csv_cell *c = &x->t->csv.rows[r].cells[k];
                PP_TRY(pass == 1              ? check_sent(x, r, k)
                       : pp_csv_is_message(c) ? check_message(x, r, k)
                                              : check_compute(x, r, k));
            }
        }
    }
    return 0;
}

/* Runs the cells of one rank until it has to wait or is done. */
static void run_rank(struct machine *x, int r)
{
    const struct pp_csv_row *row = &x->t->csv.rows[r];
    for (; x->at[r] < row->n; x->at[r]++) {
        const struct pp_csv_cell *c = &row->cells[x->at[r]];
        if (!pp_csv_is_message(c))
            continue;
        int32_t message = find_cell_message(x, c);
        uint8_t *did = &x->did[message];
        struct pp_csv_cell half = other_half(c);
        int peer = x->t->rank_of[half.stage];
        *did |= is_send(c) ? OFFERED : AWAITED;
        if (x->waits[peer] &&
            find_cell_message(x, &x->t->csv.rows[peer].cells[x->at[peer]]) == message) {
            x->waits[peer] = false;
            x->ready[x->n_ready++] = peer;
        }
        if (!(*did & (is_send(c) ? AWAITED : OFFERED))) {
            x->waits[r] = true;
            return;
        }
    }
}

/* Describes what rank r waits for, such as "0SEND_F1 waits for 1RECV_F1". */
static int tell_wait(const void *ctx, int r, char *text, size_t bytes)
{
    const struct machine *x = ctx;
    const struct pp_csv_cell *c = &x->t->csv.rows[r].cells[x->at[r]];
    struct pp_csv_cell half = other_half(c);
    int peer = x->t->rank_of[half.stage];
    char in[PP_CSV_NAME_MAX], by[PP_CSV_NAME_MAX];
    if (bytes > 0)
        snprintf(text, bytes, "%s waits for %s", pp_csv_cell_name(c, in),
                 pp_csv_cell_name(&half, by));
    return peer;
}

static int run_machine(struct machine *x)
{
    int p = x->t->csv.n_rows;
    for (int r = p - 1; r >= 0; r--)
        x->ready[x->n_ready++] = r;
    while (x->n_ready > 0)
        run_rank(x, x->ready[--x->n_ready]);
    for (int r = 0; r < p; r++) {
        if (x->waits[r]) {
            int rc = pp_fail_circle("with synchronous sends ", p, r, tell_wait, x);
            pp_error_context("%s", x->t->csv.name);
            return rc;
        }
    }
    return 0;
}

int pp_table_prove_messages(const struct pp_table *t, const struct pp_plan *plan)
{
    size_t p = (size_t)t->csv.n_rows;
    PP_TAKE(uint8_t, did, plan->n_messages);
    PP_TAKE(int, at, p);
    PP_TAKE(bool, waits, p);
    PP_TAKE(int, ready, p);
    struct machine x = {.t = t, .plan = plan, .did = did, .at = at, .waits = waits, .ready = ready};
    PP_TRY(check_lists(&x));
    return run_machine(&x);
}
