/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Greedy list scheduling: simulates the pipeline and picks each rank's next action, with the ticks
 * of F, I and W of every virtual stage, and of a transfer. A rank runs F and I in turn, or
 * whichever has its input: F of the deepest chunk, I of the oldest micro-batch. It runs a W where
 * it would wait or lacks memory, unless the W delays an action that is known to come. A rank holds
 * a chunk from F to W. A recomputed chunk needs little memory until its recompute, then its full
 * memory, so its W follows at once.
 *
 * The best list of several settings is kept, and made shorter by exchange (repair.c) and by branch
 * and bound (exact.c).
 *
 * The lists cannot hang: the F of a chunk leaves memory for one F of each deeper chunk of its rank.
 * Consider the oldest unfinished micro-batch at its next F. I and W need no memory, so all
 * micro-batches before it have freed theirs; the later ones are in less deep chunks, and have left
 * memory for this one.
 */
#include "orders.h"
#include "../schedule.h"
#include "repair.h"

#include <string.h>

#include "ppcli/base/base.h"

enum {
    KNOB_FILL = 1, /* fills every gap with a W, also a gap shorter than the W */
    KNOB_WAIT = 2, /* waits after an F for an I that comes soon, and after an I for an F */
    N_KNOBS = 4,
    KNOB_WHOLE = 4, /* W follows its I, and an I comes before any F */
};

struct lane {           /* one rank */
    int64_t start, now; /* start of its first cell, end of its last one */
    int stage, op;      /* its next cell */
    int wish;           /* the op to prefer next: F after an I, else I */
    int held;
    int64_t left; /* ticks of work still to do */
    size_t n;     /* cells so far */
};

struct greedy {
    const struct pp_geometry *g;
    const int64_t *ticks;
    const bool *recompute; /* [n_virtual], or NULL */
    enum pp_placement placement;
    int ops; /* 1: only F, else 3 */
    int n_virtual, limit;
    unsigned knobs;
    int32_t *done;         /* [n_virtual][3] micro-batches, by op */
    int64_t *end;          /* [n_virtual][2][M] of F and I */
    struct lane *lanes;    /* [P] */
    int64_t *begin;        /* [P] start of each rank's next cell; INT64_MAX: none can start yet */
    int32_t *cells, *best; /* [P][row] 3 * stage + op */
    size_t row;            /* cells of a rank: ops * V * M */
};

/* Returns the ticks of a cell. The I of a recomputed stage includes the recompute (R), but not on
 * the last stage, whose I follows its F directly. */
static int64_t action_ticks(const struct greedy *y, int s, int op)
{
    bool recompute = op == PP_OP_I && y->recompute && y->recompute[s] && s < y->n_virtual - 1;
    int64_t r = !recompute ? 0 : y->ticks ? y->ticks[3 * s + PP_OP_F] : 1;
    return r + (y->ticks ? y->ticks[3 * s + op] : 1);
}

/* Returns the ticks of a transfer between stages s and s + 1; 0 if both are on one rank. */
static int64_t transfer_ticks(const struct greedy *y, int s)
{
    int p = y->g->stages;
    bool local = p == 1 || (y->placement == PP_PLACE_V && (s + 1) % p == 0);
    return local || !y->ticks ? 0 : y->ticks[3 * (size_t)y->n_virtual];
}

/* Returns the time at which the input of the next F or I of stage s arrives; -1 if it is not known
 * yet or there is no such cell left. */
static int64_t input_time(const struct greedy *y, int s, int op)
{
    const int32_t *done = y->done + 3 * (size_t)s;
    int mb = done[op], m = y->g->microbatches, from = op == PP_OP_F ? s - 1 : s + 1;
    if (mb == m || (op == PP_OP_I && mb == done[PP_OP_F]))
        return -1;
    if (from < 0 || from == y->n_virtual)
        return 0;
    if (y->done[3 * from + op] <= mb)
        return -1;
    return y->end[(2 * (size_t)from + (size_t)op) * (size_t)m + (size_t)mb] +
           transfer_ticks(y, op == PP_OP_F ? from : s);
}

/* Returns the urgency of a cell: of cells that can begin at the same time the most urgent one runs.
 * Prefers an op equal to `wish`, then the F of the deepest chunk, or the I of the oldest
 * micro-batch on its lowest chunk. */
static int64_t cell_urgency(const struct greedy *y, int wish, int s, int op)
{
    int64_t chunk = s / y->g->stages, age = y->g->microbatches - y->done[3 * s + op];
    int64_t u = op == PP_OP_F ? chunk : age * y->g->chunks - chunk;
    return op == wish ? u + (INT64_C(1) << 60) : u;
}

static int stage_of(const struct greedy *y, int r, int chunk)
{
    int p = y->g->stages;
    return chunk * p + (y->placement == PP_PLACE_V && chunk % 2 == 1 ? p - 1 - r : r);
}

/* Returns the stage whose W the rank runs next: of a recomputed chunk, else the longest W that fits
 * into the gap, else the shortest; -1 if there is none. Sets *at_once if it must run before any
 * other cell. */
static int pick_w(const struct greedy *y, int r, int64_t gap, bool *at_once)
{
    int best = -1;
    *at_once = false;
    int64_t least = 0;
    for (int c = 0; c < y->g->chunks && !*at_once; c++) {
        int s = stage_of(y, r, c);
        int64_t w = action_ticks(y, s, PP_OP_W);
        bool some = y->done[3 * s + PP_OP_W] < y->done[3 * s + PP_OP_I];
        *at_once = some && y->recompute && y->recompute[s];
        if (some && (best < 0 || *at_once || (least > gap ? w < least : w > least && w <= gap))) {
            best = s;
            least = w;
        }
    }
    return best;
}

/* Chooses the next cell of a rank by what follows from the cells that have run so far. */
static void choose_next_cell(struct greedy *y, int r)
{
    struct lane *k = &y->lanes[r];
    int64_t most = 0, first = INT64_MAX, begin = INT64_MAX;
    int wish = y->knobs & KNOB_WHOLE ? PP_OP_I : k->wish;
    bool blocked = false; /* an F has its input, but there is no memory */
    for (int c = 0; c < y->g->chunks; c++) {
        int s = stage_of(y, r, c);
        for (int op = PP_OP_F; op < y->ops && op < PP_OP_W; op++) {
            int64_t there = input_time(y, s, op), u = cell_urgency(y, wish, s, op);
            if (there < 0)
                continue;
            there = there > k->now ? there : k->now;
            bool wait = op == wish && y->knobs & KNOB_WAIT;
            int64_t when = there - (wait ? action_ticks(y, s, PP_OP_I - op) / 2 : 0);
            if (op == PP_OP_F && k->held >= y->limit - (y->g->chunks - 1 - c)) {
                blocked = blocked || there == k->now;
            } else if (when < first || (when == first && u > most)) {
                first = when;
                begin = there;
                k->stage = s;
                k->op = op;
                most = u;
            }
        }
    }
    bool now = y->knobs & KNOB_WHOLE || (blocked && wish == PP_OP_F), at_once;
    int64_t gap = now ? 0 : begin - k->now;
    int w = pick_w(y, r, gap, &at_once);
    bool fills = w >= 0 && gap > 0 &&
                 (blocked || y->knobs & KNOB_FILL || action_ticks(y, w, PP_OP_W) <= gap);
    if (fills || at_once || (now && w >= 0)) {
        begin = k->now;
        k->stage = w;
        k->op = PP_OP_W;
    }
    y->begin[r] = begin;
}

/* Runs the next cell of a rank, and chooses the next cells of this rank and its neighbours, whose
 * choice may change. Returns a lower bound of the result of play_lists(). */
static int64_t run_next_cell(struct greedy *y, int r)
{
    struct lane *k = &y->lanes[r];
    size_t m = (size_t)y->g->microbatches;
    int s = k->stage, op = k->op, mb = y->done[3 * s + op]++;
    k->start = k->n == 0 ? y->begin[r] : k->start;
    k->now = y->begin[r] + action_ticks(y, s, op);
    k->left -= action_ticks(y, s, op);
    k->wish = op == PP_OP_W ? k->wish : PP_OP_I - op;
    k->held += op == PP_OP_F ? 1 : op == PP_OP_W ? -1 : 0;
    y->cells[(size_t)r * y->row + k->n++] = 3 * s + op;
    if (op != PP_OP_W)
        y->end[(2 * (size_t)s + (size_t)op) * m + (size_t)mb] = k->now;
    choose_next_cell(y, r);
    int to = op == PP_OP_F ? s + 1 : op == PP_OP_I ? s - 1 : -1;
    if (to >= 0 && to < y->n_virtual)
        choose_next_cell(y, pp_place(y->placement, y->g->stages, to));
    return 2 * (k->now + k->left) - k->start;
}

/* Simulates the list of each rank with the current settings. Returns the makespan plus the longest
 * span of a rank, or INT64_MAX as soon as that sum is certain to reach `best`. */
static int64_t play_lists(struct greedy *y, int64_t best)
{
    int p = y->g->stages;
    int64_t makespan = 0, span = 0;
    memset(y->done, 0, 3 * (size_t)y->n_virtual * sizeof(*y->done));
    memset(y->lanes, 0, (size_t)p * sizeof(*y->lanes));
    for (int i = 0; i < y->ops * y->n_virtual; i++)
        y->lanes[pp_place(y->placement, p, i / y->ops)].left +=
            y->g->microbatches * action_ticks(y, i / y->ops, i % y->ops);
    for (int r = 0; r < p; r++)
        choose_next_cell(y, r);
    for (size_t left = y->row * (size_t)p; left > 0; left--) {
        int next = 0;
        for (int r = 1; r < p; r++)
            next = y->begin[r] < y->begin[next] ? r : next;
        pp_assert(y->begin[next] < INT64_MAX);
        if (run_next_cell(y, next) >= best)
            return INT64_MAX;
    }
    for (int r = 0; r < p; r++) {
        const struct lane *k = &y->lanes[r];
        makespan = k->now > makespan ? k->now : makespan;
        span = k->now - k->start > span ? k->now - k->start : span;
    }
    return makespan + span;
}

/* Simulates with this memory limit and these knobs, and keeps the lists if they are better than the
 * best ones so far. */
static void try_knobs(struct greedy *y, int limit, unsigned knobs, int64_t *best)
{
    y->limit = limit < y->g->chunks ? y->g->chunks : limit;
    y->knobs = knobs;
    int64_t now = play_lists(y, *best);
    if (now < *best) {
        int32_t *last = y->best;
        *best = now;
        y->best = y->cells;
        y->cells = last;
    }
}

/* Tries all combinations of knobs and memory limits, because none is best for every model, and
 * keeps the best lists. Lists are compared by the sum that play_lists() returns: the makespan
 * counts if ranks meet after a step, the longest span if they do not. Of equal lists the first is
 * kept, which holds less. */
static void search_lists(struct greedy *y, enum pp_greedy mode)
{
    int chunks = y->g->chunks, all = chunks * y->g->microbatches;
    double cap = pp_cap(y->g) * chunks;
    int64_t best = INT64_MAX, held_most = cap < all ? (int64_t)cap : all;
    if (mode != PP_GREEDY_SPLIT)
        try_knobs(y, all, KNOB_WHOLE, &best);
    for (int part = 2; mode == PP_GREEDY_SPLIT && part <= 4; part++)
        for (unsigned knobs = 0; knobs < N_KNOBS; knobs++)
            try_knobs(y, (int)(held_most * part / 4), knobs, &best);
}

static int emit_best(struct greedy *y, bool whole, struct pp_emit **e)
{
    memset(y->done, 0, 3 * (size_t)y->n_virtual * sizeof(*y->done));
    for (size_t k = 0; k < y->row * (size_t)y->g->stages; k++) {
        int32_t cell = y->best[k];
        int op = cell % 3, mb = y->done[cell]++;
        if (whole && op == PP_OP_W)
            continue;
        op = whole && op == PP_OP_I ? PP_OP_B : op;
        PP_TRY(pp_emit_cell(e[k / y->row], (enum pp_op)op, cell / 3, mb));
    }
    return 0;
}

/* Shortens the best lists by exchange, and by branch and bound if `exact`; does nothing if chunks
 * are recomputed. */
static int shorten_lists(struct greedy *y, bool exact)
{
    double cap = pp_cap(y->g) * y->g->chunks;
    int all = y->g->chunks * y->g->microbatches;
    PP_TAKE(int64_t, costs, 4 * (size_t)y->n_virtual);
    int64_t *hops = costs + 3 * (size_t)y->n_virtual;
    for (int i = 0; i < 3 * y->n_virtual; i++)
        costs[i] = action_ticks(y, i / 3, i % 3);
    for (int s = 0; s < y->n_virtual; s++)
        hops[s] = transfer_ticks(y, s);
    struct pp_repair r = {.p = y->g->stages,
                          .m = y->g->microbatches,
                          .n_virtual = y->n_virtual,
                          .limit = cap < y->g->chunks ? y->g->chunks
                                   : cap < all        ? (int)cap
                                                      : all,
                          .cost = costs,
                          .hop = hops,
                          .cells = y->best,
                          .row = y->row};
    PP_TRY(pp_repair_run(&r));
    return exact ? pp_exact_prove(&r) : pp_exact_beam(&r);
}

int pp_greedy_emit(const struct pp_geometry *g, enum pp_placement placement, enum pp_greedy mode,
                   struct pp_emit **e)
{
    bool exact = mode == PP_GREEDY_EXACT;
    mode = exact ? PP_GREEDY_SPLIT : mode;
    size_t p = (size_t)g->stages, n = p * (size_t)g->chunks, m = (size_t)g->microbatches;
    size_t ops = mode == PP_GREEDY_FORWARD ? 1 : 3;
    PP_TAKE(int32_t, done, 3 * n);
    PP_TAKE(int64_t, end, 2 * n * m);
    PP_TAKE(struct lane, lanes, p);
    PP_TAKE(int64_t, begin, p);
    PP_TAKE(int32_t, cells, ops * n * m);
    PP_TAKE(int32_t, best, ops * n * m);
    struct greedy y = {.g = g,
                       .ticks = mode == PP_GREEDY_SPLIT ? g->ticks : NULL,
                       .recompute = mode == PP_GREEDY_SPLIT ? g->recompute : NULL,
                       .placement = placement,
                       .ops = (int)ops,
                       .n_virtual = (int)n,
                       .done = done,
                       .end = end,
                       .lanes = lanes,
                       .begin = begin,
                       .cells = cells,
                       .best = best,
                       .row = ops * (size_t)g->chunks * m};
    search_lists(&y, mode);
    bool recompute = y.recompute && memchr(y.recompute, true, n * sizeof(*y.recompute));
    if (recompute && exact)
        return pp_fail(PP_ECONFIG, "zb-exact and zb-exact-v compute no forward again: set "
                                   "pipeline.recompute = off, or take zb-fit");
    if (mode == PP_GREEDY_SPLIT && !recompute)
        PP_TRY(shorten_lists(&y, exact));
    return emit_best(&y, mode == PP_GREEDY_WHOLE, e);
}
