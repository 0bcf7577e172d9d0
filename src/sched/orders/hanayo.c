/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hanayo (Liu et al., "Hanayo: Harnessing Wave-like Pipeline Parallelism for Enhanced Large Model
 * Training Efficiency", 2023): the model is folded W times, so that a micro-batch runs down and up
 * the ranks in W waves of two chunks each. More waves, smaller chunks, less bubble, more messages.
 *
 * The order is the one that finds itself when every rank takes, whenever it is free, a backward if
 * one can run (of the lowest micro-batch, and of its lowest stage), else the forward of its deepest
 * stage that has an input. Time is counted with F = I = W = 1, and a gradient leaves after the I
 * half of its B, as it does when the list is run. Without being told to, no rank then holds more
 * than 2WP chunks, P whole micro-batches, and with M a multiple of P all is done after 6WM + 2P-2
 * ticks of a chunk. No list can be faster: the last rank starts P-1 ticks late, and its last I is
 * P-1 hand-overs away from the end. Any other M costs a last round that is not full.
 */
#include "../pass.h"

#include "ppcli/mem.h"

struct waves {
    const struct pp_geometry *g;
    int n_virtual;
    int *n_f, *n_b;   /* [n_virtual] F's and B's that have begun before this tick */
    int *pick;        /* [P] the stage of this tick's choice, -1: none */
    bool *pick_b;     /* [P] it is a B */
    int64_t *free_at; /* [P] */
};

static int check(const struct pp_geometry *g)
{
    if (g->chunks % 2 != 0) {
        struct pp_geometry nearest = *g;
        nearest.chunks = g->chunks + 1;
        return pp_refuse_shape(g, &nearest, "two chunks per wave, an even number");
    }
    return 0;
}

static int stage_of(const struct waves *w, int rank, int c)
{
    int p = w->g->stages;
    return c * p + (c % 2 == 0 ? rank : p - 1 - rank);
}

static bool may_run_b(const struct waves *w, int s)
{
    int there = s == w->n_virtual - 1 ? w->n_f[s] : w->n_b[s + 1];
    return w->n_b[s] < there;
}

static bool may_run_f(const struct waves *w, int s)
{
    int there = s == 0 ? w->g->microbatches : w->n_f[s - 1];
    return w->n_f[s] < there;
}

static void choose(struct waves *w, int rank)
{
    int lowest = w->g->microbatches;
    w->pick[rank] = -1;
    for (int c = 0; c < w->g->chunks; c++) {
        int s = stage_of(w, rank, c);
        if (may_run_b(w, s) && w->n_b[s] < lowest) {
            lowest = w->n_b[s];
            w->pick[rank] = s;
        }
    }
    w->pick_b[rank] = w->pick[rank] >= 0;
    for (int c = w->g->chunks - 1; c >= 0 && w->pick[rank] < 0; c--)
        if (may_run_f(w, stage_of(w, rank, c)))
            w->pick[rank] = stage_of(w, rank, c);
}

static int play(struct waves *w, struct pp_emit_all *e)
{
    int64_t left = 2 * (int64_t)w->n_virtual * w->g->microbatches;
    for (int64_t t = 0; left > 0; t++) {
        /* All choose before any begins: what is made in this tick is there in the next. */
        for (int r = 0; r < w->g->stages; r++) {
            w->pick[r] = -1;
            if (w->free_at[r] <= t)
                choose(w, r);
        }
        for (int r = 0; r < w->g->stages; r++) {
            int s = w->pick[r];
            if (s < 0)
                continue;
            bool b = w->pick_b[r];
            PP_TRY(pp_emit_cell(e->ranks[r], b ? PP_OP_B : PP_OP_F, s, b ? w->n_b[s] : w->n_f[s]));
            w->n_b[s] += b;
            w->n_f[s] += !b;
            w->free_at[r] = t + (b ? 2 : 1);
            left--;
        }
    }
    return 0;
}

static int emit_all(const struct pp_geometry *g, struct pp_emit_all *e)
{
    int rc = PP_ERESOURCE;
    struct waves w = {.g = g, .n_virtual = g->stages * g->chunks};
    w.n_f = pp_alloc((size_t)w.n_virtual, sizeof(*w.n_f));
    w.n_b = pp_alloc((size_t)w.n_virtual, sizeof(*w.n_b));
    w.pick = pp_alloc((size_t)g->stages, sizeof(*w.pick));
    w.pick_b = pp_alloc((size_t)g->stages, sizeof(*w.pick_b));
    w.free_at = pp_alloc((size_t)g->stages, sizeof(*w.free_at));
    if (w.n_f && w.n_b && w.pick && w.pick_b && w.free_at)
        rc = play(&w, e);
    pp_free(w.n_f);
    pp_free(w.n_b);
    pp_free(w.pick);
    pp_free(w.pick_b);
    pp_free(w.free_at);
    return rc;
}

const struct pp_schedule_ops schedule_hanayo = {
    .placement = PP_PLACE_V,
    .default_chunks = 2,
    .check = check,
    .emit_all = emit_all,
};
