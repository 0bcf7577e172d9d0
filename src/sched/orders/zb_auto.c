/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ZB-auto: the zero-bubble heuristic of Qi et al., "Zero Bubble (Almost) Pipeline Parallelism"
 * (2023), which the paper runs as ZB-1p (cap P) and ZB-2p (cap 2P). It simulates the pipeline for
 * given costs and a given memory cap: as many forwards ahead as help, then one round of F and I per
 * micro-batch, with W's wherever a rank would otherwise wait or run out of memory. No setting of
 * the three knobs is always best, so all eight lists are made; the one whose busiest rank has the
 * shortest span is taken (the first of equals).
 *
 * Memory: a rank is charged one forward from F to W, because a layer keeps its input until then.
 * (The authors give part of it back at I, and then hold more than their cap allows.) The best list
 * for F = I = W and cap P is ZB-H1.
 */
#include "zb_auto.h"
#include "../schedule.h"

#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "orders.h"
#include "repair.h"

enum {
    KNOB_GREEDY_W = 1, /* a W into every gap, even where waiting would cost nothing */
    KNOB_I_FIRST = 2,  /* no F that would make the next rank's I late, if this rank may wait */
    KNOB_FIT = 4,      /* no F before the first I if the F ends after that I could start */
    N_KNOBS = 8,
};

/* One rank of one run. */
struct state {
    int n[3];       /* by op: F, I, W done so far */
    int n_cells;    /* their sum */
    int64_t now;    /* end of the last cell */
    int64_t start;  /* start of the first cell */
    int64_t bubble; /* time waited since the first F */
    double held;    /* memory in use */
};

struct search {
    const struct pp_zb_auto *z;
    unsigned knobs;
    int64_t cost[3];
    double memory[3];   /* by op: memory that a cell adds */
    struct state *rank; /* [p] */
    int *ahead;         /* [p] F's to run next */
    int64_t *end_f;     /* [p][m] */
    int64_t *end_i;     /* [p][m] */
    uint8_t *cells;     /* [p][3m] ops in order */
    uint8_t *best;      /* the same of the best run */
    int64_t max_bubble; /* over ranks */
};

static size_t index_of(const struct search *s, int rank, int mb)
{
    return (size_t)rank * (size_t)s->z->m + (size_t)mb;
}

/* Returns the time at which the input of the next F or I of a rank arrives; 0 if it needs no
 * input. */
static int64_t input_time(const struct search *s, int r, enum pp_op op)
{
    if (op == PP_OP_F && r > 0)
        return s->end_f[index_of(s, r - 1, s->rank[r].n[op])] + s->z->comm;
    if (op == PP_OP_I && r < s->z->p - 1)
        return s->end_i[index_of(s, r + 1, s->rank[r].n[op])] + s->z->comm;
    return 0;
}

static void put_cell(struct search *s, int r, enum pp_op op)
{
    struct state *k = &s->rank[r];
    int mb = k->n[op];
    int64_t there = input_time(s, r, op);
    int64_t start = there > k->now ? there : k->now;
    if (k->n_cells == 0) {
        k->start = start;
    } else {
        k->bubble += start - k->now;
        s->max_bubble = k->bubble > s->max_bubble ? k->bubble : s->max_bubble;
    }
    k->now = start + s->cost[op];
    k->held += s->memory[op];
    k->n[op]++;
    s->cells[3 * index_of(s, r, 0) + (size_t)k->n_cells++] = (uint8_t)op;
    if (op == PP_OP_F)
        s->end_f[index_of(s, r, mb)] = k->now;
    else if (op == PP_OP_I)
        s->end_i[index_of(s, r, mb)] = k->now;
}

static bool has_w(const struct state *k)
{
    return k->n[PP_OP_W] < k->n[PP_OP_I];
}

/* Runs the op on rank r. Before it, runs W's until the op fits in memory, and further W's that fit
 * into the time until its input arrives. */
static void put_with_w(struct search *s, int r, enum pp_op op)
{
    struct state *k = &s->rank[r];
    while (k->held + s->memory[op] > s->z->cap && has_w(k))
        put_cell(s, r, PP_OP_W);
    int64_t there = input_time(s, r, op);
    while (has_w(k) && k->now + s->cost[PP_OP_W] <= there)
        put_cell(s, r, PP_OP_W);
    /* The gap that is left is shorter than a W. Waiting is free as long as this rank has waited
     * less than another rank. */
    if (has_w(k) && k->now < there &&
        (there - k->now > s->max_bubble - k->bubble || (s->knobs & KNOB_GREEDY_W)))
        put_cell(s, r, PP_OP_W);
    put_cell(s, r, op);
}

/* Sets s->ahead[r] to the number of F's that rank r runs before its first I, whose input arrives at
 * `due`. Returns the time at which that I ends. */
static int64_t plan_warmup(struct search *s, int r, int64_t due)
{
    const struct state *k = &s->rank[r];
    double held = k->held;
    int64_t now = k->now;
    s->ahead[r] = 0;
    while (k->n[PP_OP_F] + s->ahead[r] < s->z->m && held + s->memory[PP_OP_F] <= s->z->cap) {
        int64_t end = now + s->cost[PP_OP_F];
        if ((s->knobs & KNOB_FIT) ? end > due : now >= due)
            break;
        held += s->memory[PP_OP_F];
        now = end;
        s->ahead[r]++;
    }
    return (now > due ? now : due) + s->cost[PP_OP_I];
}

static void warm_up(struct search *s)
{
    int p = s->z->p;
    for (int r = 0; r < p; r++)
        put_cell(s, r, PP_OP_F);
    s->ahead[p - 1] = 0;
    int64_t done = s->rank[p - 1].now + s->cost[PP_OP_I];
    for (int r = p - 2; r >= 0; r--)
        done = plan_warmup(s, r, done + s->z->comm);
    /* Fewer than the rank before, or its I's would come too late, unless it runs all of them. */
    for (int r = 1; r < p; r++)
        while (s->ahead[r] > 0 && s->ahead[r] >= s->ahead[r - 1] &&
               s->rank[r].n[PP_OP_F] + s->ahead[r] < s->z->m)
            s->ahead[r]--;
    for (int r = 0; r < p; r++)
        for (int i = 0; i < s->ahead[r]; i++)
            put_cell(s, r, PP_OP_F);
    for (int r = p - 1; r >= 0; r--)
        put_cell(s, r, PP_OP_I);
}

/* Returns whether rank r, which is two F's ahead of the next rank, should run one more F now: it
 * ends before the next rank needs the I, or the rank has waited so little that it can afford the
 * delay. */
static bool f_is_early(const struct search *s, int r)
{
    const struct state *k = &s->rank[r];
    int64_t need = s->rank[r + 1].now + s->cost[PP_OP_F] + s->cost[PP_OP_I] + s->z->comm;
    if (k->now >= need)
        return false;
    int64_t end = k->now + s->cost[PP_OP_F];
    double held = k->held + s->memory[PP_OP_F];
    for (int w = k->n[PP_OP_W]; held > s->z->cap && w < k->n[PP_OP_I]; w++) {
        held += s->memory[PP_OP_W];
        end += s->cost[PP_OP_W];
    }
    return end <= need || need - k->now > s->max_bubble - k->bubble;
}

/* Sets s->ahead[r] for all ranks: whether the rank runs an F in this round. A rank runs one only if
 * all later ranks do. */
static void plan_round(struct search *s)
{
    int p = s->z->p;
    for (int r = 0; r < p; r++) {
        const struct state *k = &s->rank[r];
        bool lead = r + 1 < p && k->n[PP_OP_F] >= s->rank[r + 1].n[PP_OP_F] + 2;
        s->ahead[r] =
            k->n[PP_OP_F] < s->z->m && (!(s->knobs & KNOB_I_FIRST) || !lead || f_is_early(s, r));
    }
    for (int r = p - 2; r >= 0; r--)
        s->ahead[r] = s->ahead[r] && s->ahead[r + 1];
}

static void play_round(struct search *s)
{
    int p = s->z->p;
    plan_round(s);
    for (int r = 0; r < p; r++)
        if (s->ahead[r])
            put_with_w(s, r, PP_OP_F);
    for (int r = p - 1; r > 0; r--)
        put_with_w(s, r, PP_OP_I);
    /* No rank waits for an I of rank 0: after its last F its W's can go first. */
    while (s->rank[0].n[PP_OP_F] == s->z->m && has_w(&s->rank[0]))
        put_cell(s, 0, PP_OP_W);
    put_with_w(s, 0, PP_OP_I);
}

/* Simulates the lists with the current knobs, and returns the longest span of a rank. */
static int64_t play_lists(struct search *s)
{
    int64_t span = 0;
    memset(s->rank, 0, (size_t)s->z->p * sizeof(*s->rank));
    s->max_bubble = 0;
    warm_up(s);
    for (int round = 1; round < s->z->m; round++)
        play_round(s);
    for (int r = 0; r < s->z->p; r++) {
        struct state *k = &s->rank[r];
        while (has_w(k))
            put_cell(s, r, PP_OP_W);
        span = k->now - k->start > span ? k->now - k->start : span;
    }
    return span;
}

static int64_t search_lists(struct search *s)
{
    int64_t best = INT64_MAX;
    for (unsigned left = N_KNOBS; left > 0; left--) {
        s->knobs = left - 1;
        int64_t span = play_lists(s);
        if (span < best) {
            uint8_t *last = s->best;
            best = span;
            s->best = s->cells;
            s->cells = last;
        }
    }
    return best;
}

static int emit_best(const struct search *s, struct pp_emit **e)
{
    for (int r = 0; r < s->z->p; r++) {
        int n[3] = {0};
        const uint8_t *cells = s->best + 3 * index_of(s, r, 0);
        for (size_t k = 0; k < 3 * (size_t)s->z->m; k++)
            PP_TRY(pp_emit_cell(e[r], (enum pp_op)cells[k], r, n[cells[k]]++));
    }
    return 0;
}

/* Shortens the best lists by exchange (repair.c), unless memory is charged in a way that the
 * exchange does not know. */
static int shorten_lists(struct search *s)
{
    const struct pp_zb_auto *z = s->z;
    size_t p = (size_t)z->p, n = 3 * p * (size_t)z->m;
    double cap = z->cap / z->mem_f;
    if (z->mem_i != 0)
        return 0;
    PP_TAKE(int64_t, costs, 4 * p);
    PP_TAKE(int32_t, cells, n);
    for (size_t k = 0; k < n; k++)
        cells[k] = 3 * (int32_t)(k / (n / p)) + s->best[k];
    for (size_t k = 0; k < 4 * p; k++)
        costs[k] = k < 3 * p ? s->cost[k % 3] : z->comm;
    struct pp_repair r = {.p = z->p,
                          .m = z->m,
                          .n_virtual = z->p,
                          .limit = cap < z->m ? (int)cap : z->m,
                          .cost = costs,
                          .hop = costs + 3 * p,
                          .cells = cells,
                          .row = n / p};
    PP_TRY(pp_exact_beam(&r));
    for (size_t k = 0; k < n; k++)
        s->best[k] = (uint8_t)(cells[k] % 3);
    return 0;
}

int pp_zb_auto_emit(const struct pp_zb_auto *z, struct pp_emit **e, int64_t *out_span)
{
    size_t p = (size_t)z->p, cells = p * (size_t)z->m;
    PP_TAKE(struct state, rank, p);
    PP_TAKE(int, ahead, p);
    PP_TAKE(int64_t, ends, 2 * cells);
    PP_TAKE(uint8_t, ops, 6 * cells);
    struct search s = {.z = z,
                       .cost = {z->f, z->i, z->w},
                       .memory = {z->mem_f, -z->mem_i, -z->mem_w},
                       .rank = rank,
                       .ahead = ahead,
                       .end_f = ends,
                       .end_i = ends + cells,
                       .cells = ops,
                       .best = ops + 3 * cells};
    int64_t span = search_lists(&s);
    PP_TRY(shorten_lists(&s));
    PP_TRY(emit_best(&s, e));
    if (out_span)
        *out_span = span;
    return 0;
}

int pp_check_cap(const struct pp_geometry *g)
{
    if (isnan(g->memory_cap) || (g->memory_cap != 0 && g->memory_cap < 1)) {
        return pp_fail(PP_ECONFIG,
                       "a memory cap of %g forwards per rank is too small: at "
                       "least 1, or 0 for %d",
                       g->memory_cap, 2 * g->stages);
    }
    return 0;
}

static int check(const struct pp_geometry *g)
{
    const struct pp_schedule_costs *c = &g->costs;
    PP_TRY(pp_check_cap(g));
    if (!(c->f >= 0 && c->i >= 0 && c->w >= 0 && c->comm >= 0 &&
          isfinite(c->f + c->i + c->w + c->comm))) {
        return pp_fail(PP_ECONFIG,
                       "costs F %g, I %g, W %g, comm %g: each must be a number, "
                       "0 or more",
                       c->f, c->i, c->w, c->comm);
    }
    return 0;
}

static int64_t scale_to_ticks(double cost, double longest)
{
    return llround(longest > 0 ? cost / longest * 0x1p20 : cost);
}

/* Converts costs to whole ticks, so that costs that should be equal are equal. Whole numbers stay;
 * others are scaled so that the longest is about a million. */
static void set_ticks(struct pp_zb_auto *z, const struct pp_schedule_costs *c)
{
    double longest = fmax(fmax(c->f, c->i), fmax(c->w, c->comm));
    bool whole = c->f == floor(c->f) && c->i == floor(c->i) && c->w == floor(c->w) &&
                 c->comm == floor(c->comm) && longest < 0x1p30;
    z->f = scale_to_ticks(c->f, whole ? 0 : longest);
    z->i = scale_to_ticks(c->i, whole ? 0 : longest);
    z->w = scale_to_ticks(c->w, whole ? 0 : longest);
    z->comm = scale_to_ticks(c->comm, whole ? 0 : longest);
}

static int emit_all(const struct pp_geometry *g, struct pp_emit **e)
{
    static const struct pp_schedule_costs unit = {.f = 1, .i = 1, .w = 1};
    const struct pp_schedule_costs *c = &g->costs;
    bool given = c->f > 0 || c->i > 0 || c->w > 0 || c->comm > 0;
    struct pp_zb_auto z = {
        .p = g->stages, .m = g->microbatches, .mem_f = 1, .mem_w = 1, .cap = pp_cap(g)};
    set_ticks(&z, given ? c : &unit);
    return pp_zb_auto_emit(&z, e, NULL);
}

const struct pp_schedule_ops schedule_zb_auto = {
    .placement = PP_PLACE_LOOP,
    .chunks = 1,
    .check = check,
    .emit_all = emit_all,
};
