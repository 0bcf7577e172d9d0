/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle of schedules. It shares no idea with the product and is slow.
 *
 *   rows_are_legal()   rows of cells, of a table or of lists: every cell is there once, and the rows,
 *                      each in its order, come to an end
 *   run(), all_done()  a plan, which also has messages and slots: ranks progress in random order,
 *                      memory is labelled with what was written there, and whoever reads looks at the
 *                      label. Nothing may be overwritten while in use, and nobody may wait for ever
 */
#ifndef PPCLI_TESTS_SCHED_ORACLE_H
#define PPCLI_TESTS_SCHED_ORACLE_H

#include "test_sched_lists.h"

static inline void *need(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    assert_non_null(p);
    return p;
}

/* ---- rows of cells */

enum {
    SEND_F = 4, /* types of cells that are no enum pp_op */
    RECV_F,
    SEND_B,
    RECV_B,
    CELLS_MAX = 2000,
};

/* All cells, row after row. rank_of: the row of each stage. */
struct rows {
    struct {
        int type, stage, mb, row;
    } cells[CELLS_MAX];
    int n, n_rows, stages, mbs;
    bool messages, ascending; /* there are SEND and RECV; W must ascend */
    int rank_of[CELLS_MAX];
};

static inline void add_cell(struct rows *t, int type, int stage, int mb, int row)
{
    assert_true(t->n < CELLS_MAX);
    t->cells[t->n].type = type;
    t->cells[t->n].stage = stage;
    t->cells[t->n].mb = mb;
    t->cells[t->n++].row = row;
    t->messages |= type >= SEND_F;
}

/* How many cells (type, stage, mb), and the place of the first. */
static inline int count_cells(const struct rows *t, int type, int stage, int mb, int *at)
{
    int n = 0;
    for (int i = 0; i < t->n; i++)
        if (t->cells[i].type == type && t->cells[i].stage == stage && t->cells[i].mb == mb)
            *at = n++ == 0 ? i : *at;
    return n;
}

/* Every stage has F and B, or F, I and W, of every micro-batch once, on its rank. */
static inline bool cells_are_complete(const struct rows *t)
{
    for (int i = 0; i < t->n; i++) {
        int s = t->cells[i].stage, mb = t->cells[i].mb;
        if (s < 0 || s >= t->stages || mb < 0 || mb >= t->mbs || t->rank_of[s] != t->cells[i].row)
            return false;
    }
    for (int s = 0; s < t->stages; s++) {
        for (int mb = 0; mb < t->mbs; mb++) {
            int at, n[4];
            for (int op = 0; op < 4; op++)
                n[op] = count_cells(t, op, s, mb, &at);
            bool fused = n[PP_OP_B] == 1 && n[PP_OP_I] == 0 && n[PP_OP_W] == 0;
            bool split = n[PP_OP_B] == 0 && n[PP_OP_I] == 1 && n[PP_OP_W] == 1;
            if (n[PP_OP_F] != 1 || !(fused || split))
                return false;
        }
    }
    return true;
}

/* The other half of the SEND or RECV in cell i; -1: none, or several. */
static inline int other_half(const struct rows *t, int i)
{
    static const int others[] = {RECV_F, SEND_F, RECV_B, SEND_B}, steps[] = {1, -1, -1, 1};
    int type = t->cells[i].type - SEND_F, at = -1;
    int n = count_cells(t, others[type], t->cells[i].stage + steps[type], t->cells[i].mb, &at);
    return n == 1 ? at : -1;
}

/* Does F (backward: I or B) of a stage get its input from another rank? */
static inline bool has_message(const struct rows *t, int stage, bool backward)
{
    int from = backward ? stage + 1 : stage - 1;
    return from >= 0 && from < t->stages && t->rank_of[from] != t->rank_of[stage];
}

/* Are there two halves, between two rows, for every message, and no others? */
static inline bool halves_are_right(const struct rows *t)
{
    int surplus = 0;
    for (int i = 0; i < t->n; i++) {
        int type = t->cells[i].type;
        if (type >= SEND_F) {
            int other = other_half(t, i);
            if (other < 0 || other_half(t, other) != i || t->cells[other].row == t->cells[i].row)
                return false;
            surplus++;
        } else if (type != PP_OP_W) {
            surplus -= 2 * has_message(t, t->cells[i].stage, type != PP_OP_F);
        }
    }
    return !t->messages || surplus == 0;
}

/* What is done: places of the rows, cells, and the order of F (0), I or B (1) and W or B (2). */
struct progress {
    int at[CELLS_MAX];
    bool done[CELLS_MAX];
    int order[3][CELLS_MAX], n[3][CELLS_MAX]; /* [stage * mbs + k], [stage] */
};

static inline bool is_done(const struct rows *t, const struct progress *p, int type, int stage,
                           int mb)
{
    int at = -1;
    return count_cells(t, type, stage, mb, &at) > 0 && p->done[at];
}

/* Neighbours take micro-batches in one order, and messages have arrived. */
static inline bool has_input(const struct rows *t, const struct progress *p, int stage, int mb,
                             bool backward)
{
    int from = backward ? stage + 1 : stage - 1, k = p->n[backward][stage];
    if (from < 0 || from >= t->stages)
        return true;
    if (k >= p->n[backward][from] || p->order[backward][from * t->mbs + k] != mb)
        return false;
    return !t->messages || !has_message(t, stage, backward) ||
           is_done(t, p, backward ? RECV_B : RECV_F, stage, mb);
}

/* May cell i, the next of its row, be done? A SEND and its RECV meet. */
static inline bool may_be_done(const struct rows *t, const struct progress *p, int i)
{
    int type = t->cells[i].type, s = t->cells[i].stage, mb = t->cells[i].mb;
    bool is_turn = !t->ascending || p->n[2][s] == mb;
    switch (type) {
    case PP_OP_F:
        return has_input(t, p, s, mb, false);
    case PP_OP_I:
    case PP_OP_B:
        return is_done(t, p, PP_OP_F, s, mb) && has_input(t, p, s, mb, true) &&
               (type == PP_OP_I || is_turn);
    case PP_OP_W:
        return is_done(t, p, PP_OP_I, s, mb) && is_turn;
    case SEND_F:
        return is_done(t, p, PP_OP_F, s, mb);
    case SEND_B:
        return is_done(t, p, PP_OP_I, s, mb) || is_done(t, p, PP_OP_B, s, mb);
    default:
        return false; /* a RECV is done with its SEND */
    }
}

static inline void do_cell(const struct rows *t, struct progress *p, int i)
{
    int type = t->cells[i].type, s = t->cells[i].stage;
    p->done[i] = true;
    p->at[t->cells[i].row]++;
    for (int kind = 0; kind < 3 && type < SEND_F; kind++) {
        bool counts = kind == 0   ? type == PP_OP_F
                      : kind == 1 ? type == PP_OP_I || type == PP_OP_B
                                  : type == PP_OP_W || type == PP_OP_B;
        if (counts)
            p->order[kind][s * t->mbs + p->n[kind][s]++] = t->cells[i].mb;
    }
}

static inline bool rows_come_to_an_end(const struct rows *t)
{
    static struct progress p; /* large */
    int n_done = 0;
    memset(&p, 0, sizeof(p));
    for (int i = t->n - 1; i >= 0; i--)
        p.at[t->cells[i].row] = i;
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < t->n_rows; r++) {
            int i = p.at[r];
            if (i >= t->n || t->cells[i].row != r || !may_be_done(t, &p, i))
                continue;
            int other = t->cells[i].type >= SEND_F ? other_half(t, i) : -1;
            if (other >= 0 && p.at[t->cells[other].row] != other)
                continue;
            do_cell(t, &p, i);
            if (other >= 0)
                do_cell(t, &p, other);
            n_done += other >= 0 ? 2 : 1;
            moved = true;
        }
    }
    return n_done == t->n;
}

static inline bool rows_are_legal(const struct rows *t)
{
    return cells_are_complete(t) && halves_are_right(t) && rows_come_to_an_end(t);
}

/* ---- plans */

static uint64_t random_state = 1;

static inline int random_below(int n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (int)((random_state >> 33) % (uint64_t)n);
}

/* SHARED: sender and receiver use the same memory, as threads do; a slot is free when the receiver
 * has released it. COPIES: each has its own, and the n-th send goes into the n-th posted receive,
 * whatever that is, as messages without tags do; the sender's slot is free when the copy is done.
 */
enum memory {
    SHARED,
    COPIES
};
enum pace {
    EVEN,
    BURSTS,
    RANKED,
    N_PACES
};

struct note { /* about one message */
    bool sent, posted, arrived, released, writer_done;
};

struct sim {
    const struct pp_plan *plan;
    enum memory memory;
    int m;
    int *at;                           /* [P] */
    bool *i_half;                      /* [P] the I half of the current B is done */
    int *width;                        /* [n_channels] slots */
    int32_t **src;                     /* [n_channels][slots] label: message; -1 */
    int32_t **dst;                     /* the same memory as src, or the receiver's copy */
    int32_t **sends;                   /* [n_channels][M] in order */
    int32_t **posts;                   /* [n_channels][M] in order */
    int *n_sends, *n_posts, *n_copied; /* [n_channels] */
    struct note *notes;
    int **state, **grad;         /* [n_virtual][slots] label: micro-batch; -1 */
    int32_t **in, **back, **out; /* [n_virtual][M] messages of F's and I's recv, of F's send */
    int **done_f;                /* [n_virtual][M] 1: F has been */
    int *next_w;                 /* [n_virtual] */
};

/* n rows of `width` (or width_of[i]) ints, all -1 */
static inline int32_t **rows_of(int n, const int *width_of, int width)
{
    int32_t **rows = need((size_t)n, sizeof(*rows));
    for (int i = 0; i < n; i++) {
        int w = width_of ? width_of[i] : width;
        rows[i] = need((size_t)w, sizeof(**rows));
        memset(rows[i], 0xff, (size_t)w * sizeof(**rows));
    }
    return rows;
}

static inline void free_rows(int32_t **rows, int n)
{
    for (int i = 0; i < n; i++)
        free(rows[i]);
    free(rows);
}

static inline void sim_post(struct sim *s, int32_t message)
{
    int c = s->plan->messages[message].channel;
    s->posts[c][s->n_posts[c]++] = message;
    assert_false(s->notes[message].posted);
    s->notes[message].posted = true;
}

static inline void sim_init(struct sim *s, const struct pp_plan *plan, enum memory memory)
{
    int c_n = plan->n_channels;
    int p = plan->geometry.stages;
    *s = (struct sim){.plan = plan, .memory = memory, .m = plan->geometry.microbatches};
    s->at = need((size_t)p, sizeof(int));
    s->i_half = need((size_t)p, sizeof(bool));
    s->width = need((size_t)c_n, sizeof(int));
    for (int c = 0; c < c_n; c++) {
        s->width[c] = plan->channels[c].slots;
        assert_true(s->width[c] <= s->m);
    }
    s->src = rows_of(c_n, s->width, 0);
    s->dst = memory == SHARED ? s->src : rows_of(c_n, s->width, 0);
    s->sends = rows_of(c_n, NULL, s->m);
    s->posts = rows_of(c_n, NULL, s->m);
    s->n_sends = need((size_t)c_n, sizeof(int));
    s->n_posts = need((size_t)c_n, sizeof(int));
    s->n_copied = need((size_t)c_n, sizeof(int));
    s->notes = need((size_t)plan->n_messages, sizeof(struct note));
    int most = 1;
    for (int i = 0; i < plan->n_virtual; i++) {
        most = plan->state_slots[i] > most ? plan->state_slots[i] : most;
        most = plan->grad_slots[i] > most ? plan->grad_slots[i] : most;
    }
    s->state = rows_of(plan->n_virtual, NULL, most);
    s->grad = rows_of(plan->n_virtual, NULL, most);
    s->in = rows_of(plan->n_virtual, NULL, s->m);
    s->back = rows_of(plan->n_virtual, NULL, s->m);
    s->out = rows_of(plan->n_virtual, NULL, s->m);
    s->done_f = rows_of(plan->n_virtual, NULL, s->m);
    s->next_w = need((size_t)plan->n_virtual, sizeof(int));
    for (int c = 0; c < c_n; c++) {
        for (int slot = 0; slot < s->width[c]; slot++) {
            for (int i = 0; i < plan->n_messages; i++) {
                const struct pp_message *msg = &plan->messages[i];
                if (msg->channel == c && msg->first_in_slot && msg->slot == slot)
                    sim_post(s, i);
            }
        }
    }
}

static inline void sim_fini(struct sim *s)
{
    int c_n = s->plan->n_channels;
    int n = s->plan->n_virtual;
    if (s->memory == COPIES)
        free_rows(s->dst, c_n);
    free_rows(s->src, c_n);
    free_rows(s->sends, c_n);
    free_rows(s->posts, c_n);
    free_rows(s->state, n);
    free_rows(s->grad, n);
    free_rows(s->in, n);
    free_rows(s->back, n);
    free_rows(s->out, n);
    free_rows(s->done_f, n);
    free(s->at);
    free(s->i_half);
    free(s->width);
    free(s->n_sends);
    free(s->n_posts);
    free(s->n_copied);
    free(s->notes);
    free(s->next_w);
}

/* May `message` be written now? */
static inline bool may_take(const struct sim *s, int32_t message)
{
    if (message < 0)
        return true;
    const struct pp_message *msg = &s->plan->messages[message];
    int32_t before = s->src[msg->channel][msg->slot];
    if (before < 0)
        return true;
    return s->memory == SHARED ? s->notes[before].released : s->notes[before].arrived;
}

static inline void write_message(struct sim *s, int32_t message, bool writer_reads_it_later)
{
    if (message < 0)
        return;
    const struct pp_message *msg = &s->plan->messages[message];
    int32_t before = s->src[msg->channel][msg->slot];
    if (before >= 0 && !s->notes[before].writer_done)
        fail_msg("message %d overwrites %d, which its writer still reads", message, before);
    s->src[msg->channel][msg->slot] = message;
    s->notes[message].writer_done = !writer_reads_it_later;
    s->notes[message].sent = true;
    s->sends[msg->channel][s->n_sends[msg->channel]++] = message;
    if (s->memory == SHARED) {
        assert_true(s->notes[message].posted);
        s->notes[message].arrived = true;
    }
}

static inline void read_message(const struct sim *s, int32_t message)
{
    if (message >= 0) {
        const struct pp_message *msg = &s->plan->messages[message];
        CHECK_INT_EQ(s->dst[msg->channel][msg->slot], message);
        assert_false(s->notes[message].released);
    }
}

static inline void release_message(struct sim *s, int32_t message)
{
    if (message >= 0) {
        read_message(s, message);
        s->notes[message].released = true;
        if (s->plan->messages[message].next_in_slot >= 0)
            sim_post(s, s->plan->messages[message].next_in_slot);
    }
}

static inline bool arrived(const struct sim *s, int32_t message)
{
    return message < 0 || s->notes[message].arrived;
}

/* The stage in whose rows the slots of the action's stage are: the first of its rank that shares. */
static inline int pool_of(const struct sim *s, const struct pp_action *a)
{
    const struct pp_plan *plan = s->plan;
    int t = plan->shared[a->stage] ? 0 : a->stage;
    while (plan->shared[a->stage] &&
           (!plan->shared[t] || plan->rank_of[t] != plan->rank_of[a->stage]))
        t++;
    return t;
}

static inline int32_t *state_of(const struct sim *s, const struct pp_action *a)
{
    assert_in_range(a->slot, 0, s->plan->state_slots[a->stage] - 1);
    return &s->state[pool_of(s, a)][a->slot];
}

static inline int32_t *grad_of(const struct sim *s, const struct pp_action *a)
{
    assert_in_range(a->gslot, 0, s->plan->grad_slots[a->stage] - 1);
    return &s->grad[pool_of(s, a)][a->gslot];
}

/* Who holds a slot. */
static inline int32_t holder(const struct sim *s, const struct pp_action *a)
{
    return a->stage * s->m + a->mb;
}

static inline void do_forward(struct sim *s, const struct pp_action *a)
{
    bool train = s->plan->kind == PP_PLAN_TRAIN;
    read_message(s, a->recv);
    CHECK_INT_EQ(*state_of(s, a), -1);
    CHECK_INT_EQ(a->gslot, -1);
    write_message(s, a->send, train);
    if (train) {
        *state_of(s, a) = a->recompute ? -1 : holder(s, a);
        s->done_f[a->stage][a->mb] = 1;
        s->in[a->stage][a->mb] = a->recv;
        s->out[a->stage][a->mb] = a->send;
    } else {
        CHECK_INT_EQ(a->slot, 0);
        release_message(s, a->recv);
    }
}

/* What F received is still there, and so is what it sent, which the I reads. */
static inline void do_again(struct sim *s, const struct pp_action *a)
{
    int32_t out = s->out[a->stage][a->mb];
    CHECK_INT_EQ(a->gslot, -1);
    assert_true(s->done_f[a->stage][a->mb] == 1 && s->next_w[a->stage] <= a->mb);
    CHECK_INT_EQ(*state_of(s, a), -1);
    read_message(s, s->in[a->stage][a->mb]);
    if (out >= 0)
        assert_false(s->notes[out].writer_done);
    *state_of(s, a) = holder(s, a);
}

static inline void do_input_gradient(struct sim *s, const struct pp_action *a)
{
    int32_t out = s->out[a->stage][a->mb];
    read_message(s, a->recv);
    CHECK_INT_EQ(*state_of(s, a), holder(s, a));
    CHECK_INT_EQ(*grad_of(s, a), -1);
    if (out >= 0) { /* the derivative of the activation reads the output, in the sender's memory */
        CHECK_INT_EQ(s->src[s->plan->messages[out].channel][s->plan->messages[out].slot], out);
        s->notes[out].writer_done = true;
    }
    *grad_of(s, a) = holder(s, a);
    s->back[a->stage][a->mb] = a->recv;
    write_message(s, a->send, false);
}

/* a and the n - 1 actions behind it are one: everything is read before anything is released. */
static inline void do_weight_gradient(struct sim *s, const struct pp_action *a, int n)
{
    for (const struct pp_action *w = a; w < a + n; w++) {
        CHECK_INT_EQ(*state_of(s, w), holder(s, w));
        CHECK_INT_EQ(*grad_of(s, w), holder(s, w));
        CHECK_INT_EQ(s->next_w[w->stage], w->mb);
        CHECK_INT_EQ(w->first_w, w->mb == 0);
        read_message(s, s->in[w->stage][w->mb]);
        read_message(s, s->back[w->stage][w->mb]);
        s->next_w[w->stage]++;
    }
    for (const struct pp_action *w = a; w < a + n; w++) {
        *state_of(s, w) = -1;
        *grad_of(s, w) = -1;
        release_message(s, s->in[w->stage][w->mb]);
        release_message(s, s->back[w->stage][w->mb]);
    }
}

/* Of a whole gradient: every W of the stage is done. G or T without a message finds both on its
 * rank. */
static inline void do_tied(struct sim *s, const struct pp_action *a)
{
    const struct pp_tie *t = &s->plan->ties[a->mb];
    bool local = (a->op == PP_OP_T ? a->recv : a->send) < 0;
    CHECK_INT_EQ(s->next_w[a->stage], s->m);
    CHECK_INT_EQ(local, s->plan->rank_of[t->owner] == s->plan->rank_of[t->copy]);
    CHECK_INT_EQ(s->next_w[local ? t->copy : a->stage], s->m);
    write_message(s, a->send, false);
    release_message(s, a->recv);
}

/* One step of one rank; a B takes two, and anybody may run in between. False: it must wait. */
static inline bool step_rank(struct sim *s, int r)
{
    if (s->at[r] == s->plan->ranks[r].n_actions)
        return false;
    const struct pp_action *a = &s->plan->ranks[r].actions[s->at[r]];
    CHECK_INT_EQ(s->plan->rank_of[a->stage], r);
    if (a->op == PP_OP_W || s->i_half[r]) {
        int n = pp_plan_together(s->plan, r, s->at[r]);
        do_weight_gradient(s, a, n);
        s->i_half[r] = false;
        s->at[r] += n;
        return true;
    }
    if (!arrived(s, a->recv) || !may_take(s, a->send))
        return false;
    if (a->op >= PP_OP_G)
        do_tied(s, a);
    else if (a->op == PP_OP_R)
        do_again(s, a);
    else if (a->op == PP_OP_F)
        do_forward(s, a);
    else
        do_input_gradient(s, a);
    s->i_half[r] = a->op == PP_OP_B;
    s->at[r] += a->op != PP_OP_B;
    return true;
}

/* Carry the next message of a channel from its sender's memory to its receiver's. */
static inline bool step_channel(struct sim *s, int c)
{
    int n = s->n_copied[c];
    if (s->memory == SHARED || n == s->n_sends[c] || n == s->n_posts[c])
        return false;
    int32_t message = s->sends[c][n];
    CHECK_INT_EQ(s->posts[c][n], message);
    int slot = s->plan->messages[message].slot;
    CHECK_INT_EQ(s->src[c][slot], message);
    s->dst[c][slot] = message;
    s->notes[message].arrived = true;
    s->n_copied[c]++;
    return true;
}

static inline bool step(struct sim *s, int who)
{
    int p = s->plan->geometry.stages;
    return who < p ? step_rank(s, who) : step_channel(s, who - p);
}

/* Nobody moved for a while: is there anybody who could? */
static inline bool sweep(struct sim *s, int n)
{
    bool moved = false;
    for (int who = 0; who < n; who++)
        moved = step(s, who) || moved;
    return moved;
}

/* Let the ranks run; do all come to the end of their lists? */
static inline bool all_done(const struct pp_plan *plan, enum memory memory, enum pace pace)
{
    struct sim s;
    bool done = true;
    sim_init(&s, plan, memory);
    int n = plan->geometry.stages + plan->n_channels;
    int shift = random_below(n);
    for (int idle = 0; idle < 2 * n || sweep(&s, n);) {
        int who = random_below(n);
        int steps = pace == BURSTS ? 1 + random_below(8) : 1;
        if (pace == RANKED) { /* somebody is always faster than the others */
            who = (shift + (random_below(4) ? 0 : who)) % n;
            steps = plan->n_messages + 8;
            shift = random_below(16) ? shift : random_below(n);
        }
        bool moved = false;
        while (steps-- > 0 && step(&s, who))
            moved = true;
        idle = moved ? 0 : idle + 1;
    }
    for (int r = 0; r < plan->geometry.stages; r++)
        done = done && s.at[r] == plan->ranks[r].n_actions;
    for (int i = 0; done && i < plan->n_messages; i++)
        if (plan->channels[plan->messages[i].channel].slots > 0)
            assert_true(s.notes[i].released && s.notes[i].writer_done);
    sim_fini(&s);
    return done;
}

static inline void run(const struct pp_plan *plan, enum memory memory, enum pace pace)
{
    assert_true(all_done(plan, memory, pace));
}

static inline void run_in_all_ways(const struct pp_plan *plan)
{
    for (int pace = 0; pace < N_PACES; pace++) {
        run(plan, SHARED, (enum pace)pace);
        run(plan, COPIES, (enum pace)pace);
    }
}

#endif
