/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repair by exchange: moves cells of a finished list to earlier places, one at a time, as long as
 * this shortens the step. Lists are compared by the makespan plus the longest span of a rank; among
 * equals the sum of the ranks' ends decides, because it shows which list can still improve. The
 * search ends after a fixed number of simulated cells, so that equal costs give equal lists.
 */
#include "repair.h"

#include <string.h>

#include "ppcli/base/base.h"

#define REACH 8      /* how many places a cell may move */
#define CELLS 200000 /* simulated cells: a few milliseconds */

struct state { /* one rank of a simulation */
    int64_t start, now;
    int at;
};

struct search {
    const struct pp_repair *r;
    int64_t *end;  /* [n_virtual][2][M] of F and I; -1: not yet */
    int32_t *done; /* [n_virtual][3] */
    struct state *rank;
    int64_t left;
};

struct score {
    int64_t step, ends;
};

static int64_t find_arrival(const struct search *s, int stage, int op, int mb)
{
    const struct pp_repair *r = s->r;
    int from = op == PP_OP_F ? stage - 1 : op == PP_OP_I ? stage + 1 : -1;
    if (from < 0 || from == r->n_virtual)
        return 0;
    int64_t t = s->end[(2 * (size_t)from + (size_t)op) * (size_t)r->m + (size_t)mb];
    return t < 0 ? -1 : t + r->hop[op == PP_OP_F ? from : stage];
}

/* Runs the cells of a rank until it has to wait or is done; returns whether any cell ran. */
static bool replay_rank(struct search *s, int rank)
{
    const struct pp_repair *r = s->r;
    struct state *k = &s->rank[rank];
    const int32_t *cells = r->cells + (size_t)rank * r->row;
    int first = k->at;
    for (; k->at < (int)r->row; k->at++) {
        int cell = cells[k->at], stage = cell / 3, op = cell % 3, mb = s->done[cell];
        int64_t there = op == PP_OP_W ? 0 : find_arrival(s, stage, op, mb);
        if (there < 0 || (op > PP_OP_F && mb >= s->done[cell - 1]))
            break;
        int64_t begin = there > k->now ? there : k->now;
        k->start = k->at == 0 ? begin : k->start;
        k->now = begin + r->cost[cell];
        s->done[cell]++;
        if (op != PP_OP_W)
            s->end[(2 * (size_t)stage + (size_t)op) * (size_t)r->m + (size_t)mb] = k->now;
    }
    return k->at > first;
}

static struct score score_lists(struct search *s)
{
    const struct pp_repair *r = s->r;
    struct score score = {INT64_MAX, INT64_MAX};
    int64_t makespan = 0, span = 0, ends = 0;
    memset(s->done, 0, 3 * (size_t)r->n_virtual * sizeof(*s->done));
    memset(s->end, 0xff, 2 * (size_t)r->n_virtual * (size_t)r->m * sizeof(*s->end));
    memset(s->rank, 0, (size_t)r->p * sizeof(*s->rank));
    s->left -= (int64_t)r->row * r->p;
    for (bool moved = true; moved;) {
        moved = false;
        for (int k = 0; k < r->p; k++)
            moved = replay_rank(s, k) || moved;
    }
    for (int k = 0; k < r->p; k++) {
        const struct state *t = &s->rank[k];
        if (t->at < (int)r->row)
            return score;
        makespan = t->now > makespan ? t->now : makespan;
        span = t->now - t->start > span ? t->now - t->start : span;
        ends += t->now - t->start;
    }
    return (struct score){makespan + span, ends};
}

static bool is_better(struct score a, struct score b)
{
    return a.step != b.step ? a.step < b.step : a.ends < b.ends;
}

/* Moves the cell at place `from` of a row to place `to`, and shifts the cells between them. */
static void move_cell(int32_t *row, int from, int to)
{
    int32_t cell = row[from];
    int step = from > to ? -1 : 1;
    for (int k = from; k != to; k += step)
        row[k] = row[k + step];
    row[to] = cell;
}

/* Returns whether the rank, with this list, never holds more chunks than the limit. */
static bool fits_memory(const struct pp_repair *r, const int32_t *row)
{
    int held = 0;
    for (size_t k = 0; k < r->row; k++) {
        held += row[k] % 3 == PP_OP_F ? 1 : row[k] % 3 == PP_OP_W ? -1 : 0;
        if (held > r->limit)
            return false;
    }
    return true;
}

/* Tries to move the cell at `from` to each earlier place within reach, and keeps the first move
 * that improves the score. Returns whether there was one. */
static bool move_cell_earlier(struct search *s, int rank, int from, struct score *best)
{
    int32_t *row = s->r->cells + (size_t)rank * s->r->row;
    for (int to = from - 1; to >= 0 && to >= from - REACH && s->left > 0; to--) {
        if (row[to] == row[from])
            return false;
        move_cell(row, from, to);
        if (row[to] % 3 != PP_OP_F || fits_memory(s->r, row)) {
            struct score now = score_lists(s);
            if (is_better(now, *best)) {
                *best = now;
                return true;
            }
        }
        move_cell(row, to, from);
    }
    return false;
}

int pp_repair_run(const struct pp_repair *r)
{
    size_t n = (size_t)r->n_virtual;
    if (r->row * (size_t)r->p > CELLS / 8)
        return 0; /* too few tries to find an improvement */
    PP_TAKE(int64_t, end, 2 * n * (size_t)r->m);
    PP_TAKE(int32_t, done, 3 * n);
    PP_TAKE(struct state, rank, r->p);
    struct search s = {.r = r, .end = end, .done = done, .rank = rank, .left = CELLS};
    struct score best = score_lists(&s);
    for (bool found = true; found && s.left > 0;) {
        found = false;
        for (int k = 0; k < r->p; k++)
            for (int at = 1; at < (int)r->row && s.left > 0; at++)
                found = move_cell_earlier(&s, k, at, &best) || found;
    }
    return 0;
}
