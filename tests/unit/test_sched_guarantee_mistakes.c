/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of sends and receives with two cells swapped or one moved: what the proof says of them
 * against a slow simulation, and a graph, that share none of its ideas.
 */
#include "ppcli/exchange.h"
#include "test_sched_sim.h"

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

struct world {
    const struct pp_plan *plan;
    const struct pp_comms *comms;
    int p, m;
    int at[RANKS_MAX];
    bool *sent, *taken; /* [n_messages] done */
};

static const struct pp_comm *cell(const struct world *w, int r, int k)
{
    return k < w->comms->ranks[r].n ? &w->comms->ranks[r].cells[k] : NULL;
}

static int ends_of(const struct world *w, int32_t message, bool dst)
{
    const struct pp_channel *ch = &w->plan->channels[w->plan->messages[message].channel];
    return dst ? ch->dst_rank : ch->src_rank;
}

static bool travels(const struct world *w, int32_t message)
{
    return message >= 0 && ends_of(w, message, false) != ends_of(w, message, true);
}

static int count(const struct world *w, int r, int from, int to, enum pp_comm_kind kind,
                 int32_t index)
{
    int n = 0;
    for (int k = from; k < to; k++) {
        n += cell(w, r, k)->kind == kind && cell(w, r, k)->index == index;
    }
    return n;
}

/* Looked at one list at a time: is every half of a message where it can be? */
static bool well_formed(const struct world *w)
{
    for (int r = 0; r < w->p; r++) {
        int next = 0;
        int n = w->comms->ranks[r].n;
        for (int k = 0; k < n; k++) {
            const struct pp_comm *c = cell(w, r, k);
            const struct pp_action *actions = w->plan->ranks[r].actions;
            if (c->kind == PP_COMM_RUN) {
                int32_t in = actions[c->index].recv;
                bool here = !travels(w, in) || count(w, r, 0, k, PP_COMM_RECV, in) == 1 ||
                            count(w, r, 0, k, PP_COMM_WAIT, in) == 1;
                if (c->index != next || !here) {
                    return false;
                }
                next += c->merged ? 2 : 1;
            } else if (c->kind == PP_COMM_SEND) {
                bool made = false;
                for (int i = 0; i < next; i++) {
                    made |= actions[i].send == c->index;
                }
                if (!made || ends_of(w, c->index, false) != r ||
                    count(w, r, 0, n, PP_COMM_SEND, c->index) != 1) {
                    return false;
                }
            } else if (c->kind == PP_COMM_WAIT && count(w, r, 0, k, PP_COMM_POST, c->index) != 1) {
                return false;
            }
        }
    }
    return true;
}

static const struct pp_comm *now(const struct world *w, int r)
{
    return cell(w, r, w->at[r]);
}

/* Was the receive of a message posted ahead by rank r? */
static bool is_posted(const struct world *w, int r, int32_t message)
{
    return count(w, r, 0, w->at[r], PP_COMM_POST, message) == 1;
}

/* Messages of the channel that left and were neither taken nor posted for: they lie in buffers. */
static int in_buffers(const struct world *w, int32_t message)
{
    int n = 0;
    for (int i = 0; i < w->plan->n_messages; i++) {
        n += w->plan->messages[i].channel == w->plan->messages[message].channel && w->sent[i] &&
             !w->taken[i] && !is_posted(w, ends_of(w, i, true), i);
    }
    return n;
}

/* One rank, one cell; buffers: k, 0 for synchronous. Did anything move? */
static bool step_alone(struct world *w, int r, int buffers)
{
    const struct pp_comm *c = now(w, r);
    if (!c) {
        return false;
    }
    if (c->kind == PP_COMM_SEND) {
        int dst = ends_of(w, c->index, true);
        const struct pp_comm *other = now(w, dst);
        bool meets = other && other->kind == PP_COMM_RECV && other->index == c->index;
        if (!meets && !is_posted(w, dst, c->index) && in_buffers(w, c->index) >= buffers) {
            return false;
        }
        w->sent[c->index] = true;
        if (meets) {
            w->taken[c->index] = true;
            w->at[dst]++;
        }
    } else if (c->kind == PP_COMM_RECV || c->kind == PP_COMM_WAIT) {
        if (!w->sent[c->index]) {
            return false;
        }
        w->taken[c->index] = true;
    }
    w->at[r]++;
    return true;
}

static bool in_group(const struct pp_comm *c)
{
    return c && (c->kind == PP_COMM_SEND || c->kind == PP_COMM_RECV);
}

/* First cell of `kind` of rank r's present group that is not done and is for rank `peer`. */
static const struct pp_comm *first_open(const struct world *w, int r, enum pp_comm_kind kind,
                                        int peer)
{
    for (int k = w->at[r]; in_group(cell(w, r, k)); k++) {
        const struct pp_comm *c = cell(w, r, k);
        bool send = kind == PP_COMM_SEND;
        if (c->kind == kind && ends_of(w, c->index, send) == peer &&
            !(send ? w->sent[c->index] : w->taken[c->index])) {
            return c;
        }
    }
    return NULL;
}

/* One rank: a message of its group, or leave the group. *lost: without tags, the wrong one came. */
static bool step_in_group(struct world *w, int r, bool *lost)
{
    if (!now(w, r)) {
        return false;
    }
    if (!in_group(now(w, r))) {
        w->at[r]++;
        return true;
    }
    bool open = false;
    for (int peer = 0; peer < w->p; peer++) {
        const struct pp_comm *send = first_open(w, r, PP_COMM_SEND, peer);
        const struct pp_comm *recv = send ? first_open(w, peer, PP_COMM_RECV, r) : NULL;
        open |= send || first_open(w, r, PP_COMM_RECV, peer);
        if (recv) {
            *lost |= recv->index != send->index;
            w->sent[send->index] = true;
            w->taken[recv->index] = true;
            return true;
        }
    }
    while (!open && in_group(now(w, r))) {
        w->at[r]++;
    }
    return !open;
}

static bool comes_to_an_end(struct world *w, enum pp_guarantee g, int k)
{
    bool lost = false;
    bool moved = true;
    size_t n = (size_t)w->plan->n_messages;
    memset(w->at, 0, sizeof(w->at));
    memset(w->sent, 0, n);
    memset(w->taken, 0, n);
    while (moved && !lost) {
        moved = false;
        int first = random_below(w->p);
        for (int i = 0; i < w->p; i++) {
            int r = (first + i) % w->p;
            moved |= g == PP_SEND_GROUPED ? step_in_group(w, r, &lost)
                                          : step_alone(w, r, g == PP_SEND_BUFFERED ? k : 0);
        }
    }
    for (int r = 0; r < w->p; r++) {
        if (now(w, r)) {
            return false;
        }
    }
    for (int i = 0; i < w->plan->n_messages; i++) {
        if (travels(w, i) && (!w->sent[i] || !w->taken[i])) {
            return false;
        }
    }
    return !lost;
}

/*
 * Safe without buffers, as a graph: a node per message (its SEND and its RECV are one) and per
 * other cell, edges along each list and along the sends of one rank to another. Only for lists
 * without POST.
 */
struct graph {
    int n;
    bool *edge; /* [n][n] */
};

static int node_of(const struct world *w, int r, int k)
{
    const struct pp_comm *c = cell(w, r, k);
    int base = w->plan->n_messages;
    for (int i = 0; i < r; i++) {
        base += w->comms->ranks[i].n;
    }
    return c->kind == PP_COMM_RUN ? base + k : c->index;
}

static bool is_acyclic(const struct world *w)
{
    struct graph g = {.n = w->plan->n_messages};
    for (int r = 0; r < w->p; r++) {
        g.n += w->comms->ranks[r].n;
    }
    size_t n = (size_t)g.n;
    g.edge = need(n * n, sizeof(bool));
    int *left = need(n, sizeof(int));
    for (int r = 0; r < w->p; r++) {
        int last_to[RANKS_MAX];
        memset(last_to, 0xff, sizeof(last_to));
        for (int k = 0; cell(w, r, k); k++) {
            int to = node_of(w, r, k);
            if (k > 0) {
                g.edge[(size_t)node_of(w, r, k - 1) * n + (size_t)to] = true;
            }
            if (cell(w, r, k)->kind == PP_COMM_SEND) {
                int dst = ends_of(w, cell(w, r, k)->index, true);
                if (last_to[dst] >= 0) {
                    g.edge[(size_t)last_to[dst] * n + (size_t)to] = true;
                }
                last_to[dst] = to;
            }
        }
    }
    for (size_t i = 0; i < n * n; i++) {
        left[i % n] += g.edge[i];
    }
    int done = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t i = 0; i < n; i++) {
            if (left[i] == 0) {
                left[i] = -1;
                done++;
                moved = true;
                for (size_t j = 0; j < n; j++) {
                    left[j] -= g.edge[i * n + j];
                }
            }
        }
    }
    free(g.edge);
    free(left);
    return done == g.n;
}

struct tally {
    int lists, malformed, safe[4], unsafe[4];
};

static void check_verdicts(struct world *w, bool posts, struct tally *t)
{
    static const struct {
        enum pp_guarantee g;
        int k;
    } cases[] = {{PP_SEND_SYNCHRONOUS, 0},
                 {PP_SEND_BUFFERED, 1},
                 {PP_SEND_BUFFERED, 2},
                 {PP_SEND_GROUPED, 0}};
    bool formed = well_formed(w);
    bool safe_alone = false;
    t->lists++;
    t->malformed += !formed;
    for (size_t i = 0; i < (posts ? 3 : LEN(cases)); i++) {
        bool safe = formed && comes_to_an_end(w, cases[i].g, cases[i].k);
        int rc = pp_comms_prove(w->plan, w->comms, cases[i].g, cases[i].k);
        if ((rc == 0) != safe || (rc != 0 && rc != PP_EFORMAT)) {
            fail_msg("guarantee %d, k %d: proof %d '%s', simulation says %s", cases[i].g,
                     cases[i].k, rc, rc ? pp_error_get()->text : "", safe ? "safe" : "not safe");
        }
        t->safe[i] += safe;
        t->unsafe[i] += formed && !safe;
        safe_alone = i == 0 ? safe : safe_alone;
        /* safe when every send meets its receive: then safe whatever is in between */
        assert_true(!safe_alone || safe || cases[i].g == PP_SEND_GROUPED);
    }
    if (formed && !posts) {
        CHECK_INT_EQ(is_acyclic(w), safe_alone);
    }
}

static void move(struct pp_comm *cells, int from, int to)
{
    struct pp_comm c = cells[from];
    for (int k = from; k != to; k += from < to ? 1 : -1) {
        cells[k] = cells[k + (from < to ? 1 : -1)];
    }
    cells[to] = c;
}

/* All moves of one SEND, RECV, POST or WAIT of a rank, `stride` places further each time. */
static void move_all(struct world *w, struct pp_comm_list *list, int stride, bool posts,
                     struct tally *t)
{
    for (int i = 0; i < list->n; i++) {
        for (int j = i % stride; j < list->n && list->cells[i].kind != PP_COMM_RUN; j += stride) {
            move(list->cells, i, j);
            check_verdicts(w, posts, t);
            move(list->cells, j, i);
        }
    }
}

/* All swaps of two cells of one rank, all moves, and moves on top of some moves. */
static void mistake_all(const struct pp_plan *plan, enum pp_comm_order order, struct tally *t)
{
    struct pp_comms comms;
    CHECK_OK(pp_comms_build(plan, order, &comms));
    struct world w = {.plan = plan, .comms = &comms, .p = comms.n_ranks};
    w.sent = need((size_t)plan->n_messages, sizeof(bool));
    w.taken = need((size_t)plan->n_messages, sizeof(bool));
    bool posts = order == PP_COMM_PREPOSTED;
    check_verdicts(&w, posts, t);
    for (int r = 0; r < comms.n_ranks; r++) {
        struct pp_comm *cells = comms.ranks[r].cells;
        for (int i = 0; i < comms.ranks[r].n; i++) {
            for (int j = i + 1; j < comms.ranks[r].n; j++) {
                struct pp_comm a = cells[i];
                struct pp_comm b = cells[j];
                if (a.kind == PP_COMM_RUN && b.kind == PP_COMM_RUN) {
                    continue; /* another plan */
                }
                cells[i] = b;
                cells[j] = a;
                check_verdicts(&w, posts, t);
                cells[i] = a;
                cells[j] = b;
            }
        }
        move_all(&w, &comms.ranks[r], 1, posts, t);
        for (int i = 0; i < 6; i++) {
            int from = random_below(comms.ranks[r].n);
            int to = random_below(comms.ranks[r].n);
            if (cells[from].kind != PP_COMM_RUN) {
                move(cells, from, to);
                move_all(&w, &comms.ranks[(r + 1) % w.p], 5, posts, t);
                move(cells, to, from);
            }
        }
    }
    free(w.sent);
    free(w.taken);
    pp_comms_fini(&comms);
}

static void misplaced_cells_are_judged_as_a_simulation_judges_them(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int p, v, m;
    } table[] = {
        {"1f1b", 2, 1, 2},        {"1f1b", 2, 1, 4},           {"1f1b", 3, 1, 3},
        {"gpipe", 3, 1, 3},       {"zb-h1", 2, 1, 4},          {"zb-h2", 3, 1, 3},
        {"interleaved", 2, 2, 2}, {"interleaved-zb", 2, 2, 2}, {"zb-v", 2, 2, 2},
        {"looped-bfs", 2, 2, 2},  {"interleaved", 2, 3, 2},    {"v-min", 3, 2, 2},
    };
    static const enum pp_comm_order orders[] = {PP_COMM_LOWERED, PP_COMM_AT_USE, PP_COMM_PREPOSTED};
    for (size_t o = 0; o < LEN(orders); o++) {
        struct tally t = {0};
        for (size_t i = 0; i < LEN(table); i++) {
            struct pp_geometry g = {
                .stages = table[i].p, .chunks = table[i].v, .microbatches = table[i].m};
            struct pp_plan *plan = NULL;
            CHECK_OK(pp_plan_build(table[i].name, &g, &plan));
            mistake_all(plan, orders[o], &t);
            pp_plan_destroy(&plan);
        }
        print_message("# order %d: %d lists, %d malformed; safe and not: synchronous %d %d, one "
                      "buffer %d %d, two %d %d, grouped %d %d\n",
                      orders[o], t.lists, t.malformed, t.safe[0], t.unsafe[0], t.safe[1],
                      t.unsafe[1], t.safe[2], t.unsafe[2], t.safe[3], t.unsafe[3]);
        assert_true(t.lists > 2000 && t.safe[0] > 50 && t.unsafe[0] > 50);
        assert_true(t.safe[1] > t.safe[0] && t.safe[2] >= t.safe[1]);
    }
}

/* Give a channel only n slots, in turn. */
static void squeeze(struct pp_plan *plan, int channel, int n)
{
    int m = plan->geometry.microbatches;
    int32_t first = pp_plan_message(plan, channel, 0);
    plan->channels[channel].slots = n;
    for (int mb = 0; mb < m; mb++) {
        struct pp_message *msg = &plan->messages[first + mb];
        msg->slot = mb % n;
        msg->first_in_slot = mb < n;
        msg->next_in_slot = mb + n < m ? first + mb + n : -1;
    }
}

/* Blocking where the executor waits for a slot: the plan's own proof must agree. */
static void the_executors_order_agrees_with_the_plans_own_proof(void **state)
{
    (void)state;
    static const char *const names[] = {"1f1b", "gpipe", "zb-h1", "zb-h2"};
    int n_safe = 0;
    int n_stuck = 0;
    for (int round = 0; round < 2000; round++) {
        struct pp_geometry g = {
            .stages = 2 + random_below(4), .chunks = 1, .microbatches = 1 + random_below(9)};
        struct pp_plan *plan = NULL;
        CHECK_OK(pp_plan_build(names[round % (int)LEN(names)], &g, &plan));
        for (int i = 0; i < 2; i++) {
            /* backward channels: the sender's own backward needs nothing in them */
            int channel = 2 * random_below(plan->n_channels / 2) + 1;
            squeeze(plan, channel, 1 + random_below(plan->channels[channel].slots));
        }
        int rc = pp_plan_prove(plan);
        CHECK_INT_EQ(pp_plan_prove_transport(plan, PP_COMM_PREPOSTED, PP_SEND_SYNCHRONOUS, 0), rc);
        n_safe += rc == 0;
        n_stuck += rc == PP_EFORMAT;
        pp_plan_destroy(&plan);
    }
    print_message("# %d safe, %d stuck\n", n_safe, n_stuck);
    assert_true(n_safe > 100 && n_stuck > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(misplaced_cells_are_judged_as_a_simulation_judges_them),
        cmocka_unit_test(the_executors_order_agrees_with_the_plans_own_proof),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
