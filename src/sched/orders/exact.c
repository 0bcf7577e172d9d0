/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds lists of least makespan by branch and bound over rows of states. A state records which
 * cells every rank has done, and when; all states of a row have done the same number of cells.
 * Branching follows Giffler and Thompson (Operations Research 8, 1960): take the cell that can end
 * first, and try all cells of its rank that can start before that end. A state is dropped if
 * another state with the same counts is no later in any time, or if its bound is not below the best
 * makespan. The bound is that of each rank alone (jobs.c), with the times that other ranks need
 * before and after each of its cells.
 *
 * A row that gets too wide keeps only the states with the least bounds, as in a beam search. If no
 * row did, the best list is proved to be optimal.
 *
 * With one chunk, a memory limit of K orders cells: W of micro-batch j comes before F of j + K.
 * With several chunks this rule would miss lists in which an F waits for memory, so "not this F
 * yet" is a branch of its own.
 */
#include "repair.h"

#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"

#define NEVER INT64_MAX

enum {
    N_CHAINS = 1 << 12, /* 12 bits of a hash */
    FIRST_CAPACITY = 64,
    BEAM = 1600,      /* cells times states of a row */
    WIDEST = 64 << 8, /* states of a row, some 50 MB of memory */
};

struct node { /* how a state was reached */
    int32_t parent, cell;
};

struct state {
    int64_t bound;   /* NEVER: dominated by another state */
    uint64_t banned; /* stages whose F must wait for another cell of its rank */
    int32_t node, next, times;
};

struct row {
    struct state *states;
    int64_t *times;  /* [.][n_times], see struct search */
    int32_t *chains; /* [N_CHAINS] states of equal hashes; -1: none */
    int n, capacity;
};

struct search {
    const struct pp_repair *r;
    int *rank_of; /* [n_virtual] */
    /* Layout of a state: [p] end of each rank's last cell; [n_virtual][3] micro-batches done;
     * [n_virtual][2][M] when the input of F and I is available, NEVER when this is unknown, 0 after
     * its use. */
    size_t n_times;
    int64_t *child; /* [n_times] */
    size_t *at;     /* [p] cells of a list */
    /* [n_virtual][3][M] least time after the end and before the start of a cell */
    int64_t *tail, *head;
    struct pp_job *jobs; /* [row] */
    struct node *nodes;
    int n_nodes, nodes_capacity;
    struct row rows[2];
    int width;
    bool cut;
    int64_t best;
    int32_t best_node; /* -1: the list that was given is the best */
};

static size_t job_index(const struct search *s, int cell, int mb)
{
    return (size_t)cell * (size_t)s->r->m + (size_t)mb;
}

static int64_t *done_of(const struct search *s, int64_t *state)
{
    return state + s->r->p;
}

static int64_t *input_of(const struct search *s, int64_t *state, int stage, int op, int mb)
{
    size_t first = (size_t)s->r->p + 3 * (size_t)s->r->n_virtual;
    return state + first + (2 * (size_t)stage + (size_t)op) * (size_t)s->r->m + (size_t)mb;
}

/* Returns the micro-batch whose W frees the memory that the F of `mb` needs; -1 if ranks have
 * several chunks, where that is not one fixed micro-batch. */
static int freeing_mb(const struct search *s, int mb)
{
    return s->r->n_virtual == s->r->p ? mb - s->r->limit : -1;
}

/* ---- bounds */

/* Returns the ticks of a cell plus the ticks of the longest chain of cells that must follow it. */
static int64_t ticks_with_tail(const struct search *s, int cell, int mb)
{
    return s->r->cost[cell] + s->tail[job_index(s, cell, mb)];
}

static void set_tails(struct search *s)
{
    const struct pp_repair *r = s->r;
    int n = r->n_virtual;
    for (int j = r->m - 1; j >= 0; j--) {
        for (int c = 0; c < 3 * n; c += 3) {
            int64_t *w = &s->tail[job_index(s, c + PP_OP_W, j)], *i = w - r->m;
            if (n == r->p && j + r->limit < r->m)
                *w = ticks_with_tail(s, c, j + r->limit);
            if (j + 1 < r->m)
                *w = PP_MAX(*w, ticks_with_tail(s, c + PP_OP_W, j + 1));
            *i = ticks_with_tail(s, c + PP_OP_W, j);
            if (j + 1 < r->m)
                *i = PP_MAX(*i, ticks_with_tail(s, c + PP_OP_I, j + 1));
            if (c > 0)
                *i = PP_MAX(*i, r->hop[c / 3 - 1] + ticks_with_tail(s, c - 3 + PP_OP_I, j));
        }
        for (int c = 3 * n - 3; c >= 0; c -= 3) {
            int64_t *f = &s->tail[job_index(s, c, j)];
            *f = ticks_with_tail(s, c + PP_OP_I, j);
            if (c + 3 < 3 * n)
                *f = PP_MAX(*f, r->hop[c / 3] + ticks_with_tail(s, c + 3, j));
            if (j + 1 < r->m)
                *f = PP_MAX(*f, ticks_with_tail(s, c, j + 1));
        }
    }
}

/* Returns the earliest end of a cell; 0 if the cell is already done. */
static int64_t earliest_end(const struct search *s, int64_t *state, int cell, int mb)
{
    return mb < done_of(s, state)[cell] ? 0 : s->head[job_index(s, cell, mb)] + s->r->cost[cell];
}

static void set_head(struct search *s, int64_t *state, int cell, int j)
{
    const struct pp_repair *r = s->r;
    int k = cell / 3, op = cell % 3;
    int64_t t = state[s->rank_of[k]];
    if (j < done_of(s, state)[cell])
        return;
    if (j > 0)
        t = PP_MAX(t, earliest_end(s, state, cell, j - 1));
    if (op > PP_OP_F)
        t = PP_MAX(t, earliest_end(s, state, cell - 1, j));
    else if (freeing_mb(s, j) >= 0)
        t = PP_MAX(t, earliest_end(s, state, cell + PP_OP_W, freeing_mb(s, j)));
    if (op < PP_OP_W) {
        int64_t input = *input_of(s, state, k, op, j);
        int from = op == PP_OP_F ? cell - 3 : cell + 3;
        if (input == NEVER)
            input = earliest_end(s, state, from, j) + r->hop[op == PP_OP_F ? k - 1 : k];
        t = PP_MAX(t, input);
    }
    s->head[job_index(s, cell, j)] = t;
}

/* Returns a lower bound of the makespan of all lists that begin with this state. */
static int64_t bound_state(struct search *s, int64_t *state)
{
    const struct pp_repair *r = s->r;
    int64_t bound = 0;
    for (int j = 0; j < r->m; j++) {
        for (int k = 0; k < r->n_virtual; k++)
            set_head(s, state, 3 * k + PP_OP_F, j);
        for (int k = r->n_virtual - 1; k >= 0; k--) {
            set_head(s, state, 3 * k + PP_OP_I, j);
            set_head(s, state, 3 * k + PP_OP_W, j);
        }
    }
    for (int rank = 0; rank < r->p && bound < s->best; rank++) {
        int n = 0;
        for (int cell = 0; cell < 3 * r->n_virtual; cell++)
            for (int j = (int)done_of(s, state)[cell]; s->rank_of[cell / 3] == rank && j < r->m;
                 j++)
                s->jobs[n++] = (struct pp_job){s->head[job_index(s, cell, j)], r->cost[cell],
                                               s->tail[job_index(s, cell, j)]};
        bound = PP_MAX(bound, PP_MAX(state[rank], pp_jobs_bound(s->jobs, n)));
    }
    return bound;
}

/* ---- rows */

static bool is_no_later(const int64_t *a, const int64_t *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (a[i] > b[i])
            return false;
    return true;
}

static int compare_states(const void *a, const void *b)
{
    const struct state *x = a, *y = b;
    if (x->bound != y->bound)
        return x->bound < y->bound ? -1 : 1;
    return x->node < y->node ? -1 : 1;
}

/* Returns in which hash chain, 0 .. N_CHAINS - 1, states with these counts are kept. The arithmetic
 * is modulo 2^64. */
static size_t hash_counts(const int64_t *counts, size_t n)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < n; i++)
        hash = (hash + (uint64_t)counts[i]) * UINT64_C(0x9e3779b97f4a7c15);
    return hash >> 52;
}

/* Adds the state s->child to a row, unless the row has a state that is at least as good. */
static int add_state(struct search *s, struct row *row, int64_t bound, uint64_t banned,
                     struct node how)
{
    if (row->n >= 2 * s->width) {
        s->cut = true;
        return 0;
    }
    const int64_t *done = done_of(s, s->child);
    size_t counts = 3 * (size_t)s->r->n_virtual;
    int32_t *chain = &row->chains[hash_counts(done, counts)];
    for (int32_t k = *chain; k >= 0; k = row->states[k].next) {
        int64_t *known = row->times + (size_t)k * s->n_times;
        if (row->states[k].bound == NEVER ||
            memcmp(done_of(s, known), done, counts * sizeof(*done)) != 0)
            continue;
        if ((row->states[k].banned & ~banned) == 0 && is_no_later(known, s->child, s->n_times))
            return 0;
        if ((banned & ~row->states[k].banned) == 0 && is_no_later(s->child, known, s->n_times))
            row->states[k].bound = NEVER;
    }
    if (row->n == row->capacity) {
        PP_GROW(row->states, 2 * row->capacity);
        PP_GROW(row->times, 2 * (size_t)row->capacity * s->n_times);
        row->capacity *= 2;
    }
    PP_RESERVE(s->nodes, s->n_nodes, s->nodes_capacity);
    memcpy(row->times + (size_t)row->n * s->n_times, s->child, s->n_times * sizeof(*s->child));
    row->states[row->n] = (struct state){bound, banned, s->n_nodes, *chain, row->n};
    *chain = row->n++;
    s->nodes[s->n_nodes++] = how;
    return 0;
}

/* ---- branches */

/* Returns the time at which a cell can start; NEVER if another cell must run before it. */
static int64_t start_of(const struct search *s, int64_t *state, uint64_t banned, int cell)
{
    const struct pp_repair *r = s->r;
    const int64_t *done = done_of(s, state);
    int k = cell / 3, op = cell % 3, held = 0;
    if (done[cell] == r->m || (op > PP_OP_F && done[cell] == done[cell - 1]))
        return NEVER;
    for (int i = 0; op == PP_OP_F && i < 3 * r->n_virtual; i += 3)
        held += s->rank_of[i / 3] == s->rank_of[k] ? (int)(done[i] - done[i + PP_OP_W]) : 0;
    if (op == PP_OP_F && (held >= r->limit || banned >> k & 1))
        return NEVER;
    int64_t input = op == PP_OP_W ? 0 : *input_of(s, state, k, op, (int)done[cell]);
    return PP_MAX(state[s->rank_of[k]], input);
}

static void run_cell(struct search *s, int64_t *state, int cell, int64_t start)
{
    const struct pp_repair *r = s->r;
    int k = cell / 3, op = cell % 3, rank = s->rank_of[k];
    int mb = (int)done_of(s, state)[cell]++, to = op == PP_OP_F ? k + 1 : k - 1;
    state[rank] = start + r->cost[cell];
    if (op == PP_OP_W)
        return;
    *input_of(s, state, k, op, mb) = 0;
    if (to >= 0 && to < r->n_virtual)
        *input_of(s, state, to, op, mb) =
            PP_MAX(state[rank] + r->hop[op == PP_OP_F ? k : to], state[s->rank_of[to]]);
}

static int try_cell(struct search *s, const int64_t *state, int cell, int64_t start,
                    uint64_t banned, int32_t node)
{
    memcpy(s->child, state, s->n_times * sizeof(*state));
    run_cell(s, s->child, cell, start);
    for (int k = 0; k < s->r->n_virtual; k++) {
        if (s->rank_of[k] != s->rank_of[cell / 3])
            continue;
        banned &= ~(UINT64_C(1) << k);
        /* input that is available before its rank is free counts as available at that time */
        for (int op = PP_OP_F; op < PP_OP_W; op++)
            for (int mb = (int)done_of(s, s->child)[3 * k + op]; mb < s->r->m; mb++) {
                int64_t *t = input_of(s, s->child, k, op, mb);
                *t = PP_MAX(*t, s->child[s->rank_of[k]]);
            }
    }
    int64_t bound = bound_state(s, s->child);
    if (bound >= s->best)
        return 0;
    return add_state(s, &s->rows[1], bound, banned, (struct node){node, cell});
}

static int expand_state(struct search *s, int64_t *state, uint64_t banned, int32_t node)
{
    const struct pp_repair *r = s->r;
    for (;;) {
        int first = -1;
        int64_t end = NEVER;
        for (int cell = 0; cell < 3 * r->n_virtual; cell++) {
            int64_t start = start_of(s, state, banned, cell);
            if (start != NEVER && start + r->cost[cell] < end) {
                end = start + r->cost[cell];
                first = cell;
            }
        }
        if (first < 0)
            return 0;
        for (int cell = 0; cell < 3 * r->n_virtual; cell++) {
            int64_t start = start_of(s, state, banned, cell);
            if (s->rank_of[cell / 3] == s->rank_of[first / 3] && (start < end || cell == first))
                PP_TRY(try_cell(s, state, cell, start, banned, node));
        }
        if (first % 3 != PP_OP_F || r->n_virtual == r->p || r->limit >= r->m * r->n_virtual / r->p)
            return 0;
        banned |= UINT64_C(1) << (first / 3);
    }
}

/* ---- the search */

static void clear_row(struct row *row)
{
    row->n = 0;
    memset(row->chains, 0xff, N_CHAINS * sizeof(*row->chains));
}

/* Expands the states of a row, those with the smallest bounds first, but at most s->width of
 * them. */
static int expand_row(struct search *s)
{
    struct row *row = &s->rows[0];
    qsort(row->states, (size_t)row->n, sizeof(*row->states), compare_states);
    clear_row(&s->rows[1]);
    for (int k = 0; k < row->n && row->states[k].bound < s->best; k++) {
        const struct state *state = &row->states[k];
        if (k == s->width) {
            s->cut = true;
            break;
        }
        PP_TRY(expand_state(s, row->times + (size_t)state->times * s->n_times, state->banned,
                            state->node));
    }
    struct row last = s->rows[0];
    s->rows[0] = s->rows[1];
    s->rows[1] = last;
    return 0;
}

/* Sets s->child to the initial state, in which no cell is done. */
static void set_start(struct search *s)
{
    const struct pp_repair *r = s->r;
    memset(s->child, 0, s->n_times * sizeof(*s->child));
    for (int k = 0; k < r->n_virtual; k++)
        for (int mb = 0; mb < r->m; mb++) {
            *input_of(s, s->child, k, PP_OP_F, mb) = k > 0 ? NEVER : 0;
            *input_of(s, s->child, k, PP_OP_I, mb) = k < r->n_virtual - 1 ? NEVER : 0;
        }
}

/* Computes the makespan of the lists s->r->cells. */
static int64_t find_makespan(struct search *s)
{
    const struct pp_repair *r = s->r;
    int64_t makespan = 0;
    set_start(s);
    memset(s->at, 0, (size_t)r->p * sizeof(*s->at));
    for (bool moved = true; moved;) {
        moved = false;
        for (int k = 0; k < r->p; k++) {
            int cell = s->at[k] < r->row ? r->cells[(size_t)k * r->row + s->at[k]] : -1;
            int64_t start = cell < 0 ? NEVER : start_of(s, s->child, 0, cell);
            if (start == NEVER)
                continue;
            run_cell(s, s->child, cell, start);
            makespan = PP_MAX(makespan, s->child[k]);
            s->at[k]++;
            moved = true;
        }
    }
    return makespan;
}

static int search_width(struct search *s)
{
    const struct pp_repair *r = s->r;
    s->cut = false;
    s->n_nodes = 0;
    s->best_node = -1;
    clear_row(&s->rows[0]);
    set_start(s);
    PP_TRY(add_state(s, &s->rows[0], 0, 0, (struct node){-1, -1}));
    for (size_t k = 0; k < r->row * (size_t)r->p; k++)
        PP_TRY(expand_row(s));
    for (int k = 0; k < s->rows[0].n; k++) {
        if (s->rows[0].states[k].bound < s->best) {
            s->best = s->rows[0].states[k].bound;
            s->best_node = s->rows[0].states[k].node;
        }
    }
    return 0;
}

static void write_best(struct search *s)
{
    const struct pp_repair *r = s->r;
    for (int k = 0; k < r->p; k++)
        s->at[k] = r->row;
    for (int32_t node = s->best_node; node > 0; node = s->nodes[node].parent) {
        int cell = s->nodes[node].cell, rank = s->rank_of[cell / 3];
        r->cells[(size_t)rank * r->row + --s->at[rank]] = cell;
    }
}

static void search_fini(struct search *s)
{
    for (int k = 0; k < 2; k++) {
        pp_free(s->rows[k].states);
        pp_free(s->rows[k].times);
        pp_free(s->rows[k].chains);
    }
    pp_free(s->nodes);
}

/* Searches several times, with rows that grow from `first` to `widest` states. Sets *out_cut if
 * even the widest rows had to drop states, so that a better list may exist. */
static int search_widths(const struct pp_repair *r, int first, int widest, bool *out_cut)
{
    size_t n = (size_t)r->n_virtual, m = (size_t)r->m, n_times = (size_t)r->p + 3 * n + 2 * n * m;
    PP_TAKE(int, rank_of, n);
    PP_TAKE(size_t, at, r->p);
    PP_TAKE(int64_t, times, n_times + 6 * n * m);
    PP_TAKE(struct pp_job, jobs, r->row);
    PP_OWN(search_fini)
    struct search s = {.r = r,
                       .rank_of = rank_of,
                       .n_times = n_times,
                       .child = times,
                       .at = at,
                       .tail = times + n_times,
                       .head = times + n_times + 3 * n * m,
                       .jobs = jobs,
                       .width = first};
    for (struct row *row = s.rows; row < s.rows + 2; row++) {
        PP_ALLOC(row->chains, N_CHAINS);
        PP_ALLOC(row->states, FIRST_CAPACITY);
        PP_ALLOC(row->times, FIRST_CAPACITY * n_times);
        row->capacity = FIRST_CAPACITY;
    }
    for (size_t k = 0; k < r->row * (size_t)r->p; k++)
        rank_of[r->cells[k] / 3] = (int)(k / r->row);
    set_tails(&s);
    s.best = find_makespan(&s);
    do {
        PP_TRY(search_width(&s));
        if (s.best_node > 0)
            write_best(&s);
        s.width *= 8;
    } while (s.cut && s.width <= widest);
    *out_cut = s.cut;
    return 0;
}

int pp_exact_beam(const struct pp_repair *r)
{
    size_t width = BEAM / (r->row * (size_t)r->p);
    bool cut;
    bool small = width >= 4 && r->n_virtual <= 64; /* the bits of `banned` suffice */
    return small ? search_widths(r, width < 32 ? (int)width : 32, 0, &cut) : 0;
}

int pp_exact_prove(const struct pp_repair *r)
{
    bool cut;
    PP_TRY(search_widths(r, 64, WIDEST, &cut));
    return !cut ? 0
                : pp_fail(PP_ECONFIG,
                          "no proof with %d partial orders of the same length: take fewer "
                          "micro-batches, or zb-fit",
                          WIDEST);
}
