/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a shape allows beyond its schedule: which chunks to recompute so that it fits, how many W to
 * compute at once, and where to cut. The lists of a schedule do not depend on the cut, so a cut is
 * judged by simulating the plan that is there; few cuts are all tried. Of many, boundaries are
 * moved: one, or a run of neighbours, which hands a layer from a stage to one far away past those
 * between.
 */
#include "search.h"

enum {
    SETS_CHUNKS = 4, /* up to here all subsets of a rank's chunks are tried */
    LET_GO = 16,     /* up to here fit_chunks() looks at them one by one, else at quarters */
    CUTS_ALL = 600,  /* up to here all cuts of a shape are */
    STEPS = 9,       /* of a plan that a prediction simulates */
    PEAK = 2000,     /* actions that take as long as counting a rank's memory */
    LAY_OUT = 60,    /* and as long as laying out and simulating a chunk's micro-batch */
};

/* ---- memory */

struct fit { /* of a rank: its chunks that are computed again */
    int set;
    size_t peak;
    double time;
};

/* Returns whether virtual stage s, which is chunk s / P of its rank, is in the k-th set of chunks.
 * The sets are all subsets if a rank has few chunks, else the first k chunks. */
static bool in_set(const struct pp_row *c, int k, int s)
{
    int chunk = s / c->d.stages;
    return c->d.chunks <= SETS_CHUNKS ? k >> chunk & 1 : chunk < k;
}

/* Tries set k of chunks to recompute on all ranks at once, and keeps it in fits[r] if it is the
 * best for rank r. One try serves all ranks, because the set of a rank does not change the memory
 * of another. */
static int try_set(const struct pp_space *spec, const struct pp_costs *costs, int k,
                   struct pp_row *c, size_t *peaks, struct fit *fits, enum pp_placement *placement)
{
    PP_OWN(pp_layout_destroy) struct pp_layout *l = NULL;
    size_t most;
    for (int s = 0; s < c->d.stages * c->d.chunks; s++)
        c->d.recompute[s] = in_set(c, k, s);
    PP_TRY(best_lay_out(spec, costs, c, &l));
    PP_TRY(best_peaks(spec, l, peaks, &most));
    *placement = l->placement;
    for (int r = 0; r < c->d.stages; r++) {
        struct fit now = {.set = k, .peak = peaks[r]}, *was = &fits[r];
        for (int s = 0; s < l->n_virtual; s++)
            for (int i = l->first[s]; l->rank_of[s] == r && c->d.recompute[s] && i <= l->last[s];
                 i++)
                now.time += pp_costs_layer(costs, i, pp_best_rows(spec, c->d.microbatches)).f;
        bool fits_now = now.peak <= spec->memory, fitted = was->peak <= spec->memory;
        bool better = fits_now ? now.time < was->time : now.peak < was->peak;
        if (was->peak == 0 || (fits_now == fitted ? better : fits_now))
            *was = now;
    }
    return 0;
}

/* Chooses which chunks each rank recomputes. Only for schedules whose order does not depend on
 * that. */
static int fit_ranks(const struct pp_space *spec, const struct pp_costs *costs, struct pp_row *c)
{
    enum pp_placement placement = PP_PLACE_LOOP;
    int sets = c->d.chunks <= SETS_CHUNKS ? 1 << c->d.chunks : c->d.chunks + 1;
    PP_TAKE(struct fit, fits, c->d.stages);
    PP_TAKE(size_t, peaks, c->d.stages);
    bool choice = true; /* all of them come first: where that is far too much, there is none */
    for (int n = 0; choice && n < sets; n++) {
        PP_TRY(try_set(spec, costs, n == 0 ? sets - 1 : n - 1, c, peaks, fits, &placement));
        for (int r = 0; r < c->d.stages; r++)
            choice = choice && fits[r].peak - fits[r].peak / 8 <= spec->memory;
    }
    for (int s = 0; s < c->d.stages * c->d.chunks; s++)
        c->d.recompute[s] = in_set(c, fits[pp_place(placement, c->d.stages, s)].set, s);
    return pp_best_try(spec, costs, c);
}

/* Chooses the recomputed chunks for a schedule whose order depends on them. If the plan does not
 * fit without recomputing, all chunks are recomputed; then one after the other is spared if the
 * plan still fits and is not slower. */
static int fit_chunks(const struct pp_space *spec, const struct pp_costs *costs, struct pp_row *c)
{
    int n = c->d.stages * c->d.chunks, each = n > LET_GO ? n / 4 : 1;
    for (int all = 0; all < 2 && (all == 0 || c->over); all++) { /* another cut may need none */
        for (int s = 0; s < n; s++)
            c->d.recompute[s] = all;
        PP_TRY(pp_best_try(spec, costs, c));
    }
    if (!c->d.recompute[0])
        return 0;
    for (int s = 0; !c->over && s < n; s += each) {
        struct pp_row now = *c;
        for (int k = s; k < n && k < s + each; k++)
            now.d.recompute[k] = false;
        PP_TRY(pp_best_try(spec, costs, &now));
        if (!now.over && now.time.step <= c->time.step)
            *c = now;
    }
    return 0;
}

int best_fit(const struct pp_space *spec, const struct pp_costs *costs, struct pp_row *c)
{
    return c->fitted ? fit_chunks(spec, costs, c) : fit_ranks(spec, costs, c);
}

/* ---- sums */

int best_most_sums(const struct pp_space *spec, int m)
{
    struct pp_division d = spec->base;
    d.microbatches = m;
    return spec->coalesce ? pp_layout_coalesce_most(&d, &spec->training, spec->model) : 1;
}

int best_sums(const struct pp_space *spec, const struct pp_costs *costs, struct pp_row *c,
              double *left)
{
    int most = best_most_sums(spec, c->d.microbatches);
    struct pp_division d = spec->base;
    d.microbatches = c->d.microbatches;
    int own = pp_layout_coalesce(&d, &spec->training, spec->model);
    struct pp_row now = *c;
    for (int i = 0, k = own; k <= most && *left > 0; k = 2 << i++) {
        if (k == c->d.coalesce || (i > 0 && k == own))
            continue;
        now.d.coalesce = k;
        PP_TRY(pp_best_try(spec, costs, &now));
        *left -= LAY_OUT * c->d.microbatches * c->d.stages * c->d.chunks;
        if (rows_compare(&now, c) < 0)
            *c = now;
    }
    return 0;
}

/* ---- cuts */

struct cutter {
    const struct pp_space *spec;
    const struct pp_costs *costs;
    struct pp_layout *l;
    int *end;          /* [n_virtual] the last layers of the cut that is tried; of l */
    struct pp_row c;   /* the best so far */
    struct pp_row was; /* what it began with */
    size_t over;       /* bytes that it holds too much */
    bool better;       /* than what it began with */
    double left;       /* see best_refine() */
};

/* Returns whether both ends of each tied tensor are on the stages where the plan has them. */
static bool ties_stay(const struct pp_layout *l)
{
    bool stay = true;
    for (int i = 0; stay && i < l->n_ties; i++) {
        const struct pp_tie *t = &l->ties[i];
        const int ends[][2] = {{t->owner, l->tied_to[i]}, {t->copy, l->tied[i]}};
        for (int k = 0; k < 2; k++) {
            const struct pp_layer *a = &l->model->layers[l->first[ends[k][0]]];
            const struct pp_layer *b = &l->model->layers[l->last[ends[k][0]]];
            stay =
                stay && a->first_param <= ends[k][1] && ends[k][1] < b->first_param + b->n_params;
        }
    }
    return stay;
}

/* Prices the cut in t->end, and keeps it in t->c if it is better than the best so far. */
static int try_cut(struct cutter *t)
{
    struct pp_layout *l = t->l;
    const struct pp_plan *plan = l->plans[0].plan;
    struct pp_prediction now;
    size_t peak = 0, over = 0;
    double best = t->c.time.step;
    for (int s = 0; s < l->n_virtual; s++)
        l->first[s] = s > 0 ? t->end[s - 1] + 1 : 0;
    if (!ties_stay(l))
        return 0;
    if (t->over > 0) {
        PP_TRY(best_peaks(t->spec, l, NULL, &peak));
        over = peak > t->spec->memory ? peak - t->spec->memory : 0;
        t->left -= PEAK * l->stages;
        if (over > t->over)
            return 0;
    }
    double enough = over < t->over ? 0 : best;
    PP_TRY(best_predict(t->spec, t->costs, l, enough, false, &now));
    for (int r = 0; r < l->stages; r++)
        t->left -= plan->ranks[r].n_actions * (enough > 0 && now.step >= enough ? 1.0 : STEPS + 1);
    if (over == t->over && now.step >= best * (1 - 1e-9))
        return 0;
    if (t->over == 0 && t->spec->memory > 0) {
        PP_TRY(best_peaks(t->spec, l, NULL, &peak));
        if (peak > t->spec->memory)
            return 0;
    }
    t->c.time = now;
    t->over = over;
    t->better = true;
    for (int s = 0; s < l->n_virtual; s++)
        t->c.d.last[s] = (uint16_t)t->end[s];
    return 0;
}

/* Changes `end` to the next cut in lexicographic order. Returns false if there is none. */
static bool next_cut(int *end, int n, int layers)
{
    int s = n - 2;
    while (s >= 0 && end[s] == layers - n + s)
        s--;
    if (s < 0)
        return false;
    end[s]++;
    for (int k = s + 1; k < n - 1; k++)
        end[k] = end[k - 1] + 1;
    return true;
}

static int try_all(struct cutter *t)
{
    int n = t->l->n_virtual, layers = t->spec->model->n_layers;
    for (int s = 0; s < n; s++)
        t->end[s] = s < n - 1 ? s : layers - 1;
    do
        PP_TRY(try_cut(t));
    while (next_cut(t->end, n, layers));
    return 0;
}

/* Tries the best cut with the boundaries after stages a to b moved by `by` layers, and keeps the
 * result if it is better. */
static int move(struct cutter *t, int a, int b, int by)
{
    int layers = t->spec->model->n_layers, n = t->l->n_virtual;
    for (int s = 0; s < n - 1; s++)
        t->end[s] = t->c.d.last[s] + (a <= s && s <= b ? by : 0);
    t->end[n - 1] = layers - 1;
    bool legal = t->end[a] >= (a > 0 ? t->end[a - 1] + 1 : 0) && t->end[b] < t->end[b + 1];
    return legal ? try_cut(t) : 0;
}

/* Moves runs of 1, 2, 3, 4, 6, 9, 13, ... boundaries, and repeats this as long as a move makes the
 * cut better. */
static int try_moves(struct cutter *t)
{
    int n = t->l->n_virtual;
    for (bool again = true; again && t->left > 0;) {
        again = false;
        for (int length = 1; length < n; length += length < 4 ? 1 : length / 2) {
            for (int k = 0; k < 2 * (n - length) && t->left > 0; k++) {
                bool before = t->better;
                t->better = false;
                PP_TRY(move(t, k / 2, k / 2 + length - 1, k % 2 ? 1 : -1));
                again = again || t->better;
                t->better = t->better || before;
            }
        }
    }
    return 0;
}

/* Returns the number of ways to cut the layers into n pieces; above CUTS_ALL it need not be
 * exact. */
static double cuts_of(int layers, int n)
{
    double all = 1;
    for (int k = 1; k < n && all <= CUTS_ALL; k++)
        all *= (double)(layers - k) / k;
    return all;
}

int best_refine(const struct pp_space *spec, const struct pp_costs *costs, struct pp_row *c,
                double *left)
{
    PP_TAKE(struct cutter, t, 1);
    int n = c->d.stages * c->d.chunks, layers = spec->model->n_layers;
    *t = (struct cutter){.spec = spec, .costs = costs, .c = *c, .left = *left};
    if (c->over)
        t->over = c->peak_bytes - spec->memory;
    int rc = best_lay_out(spec, costs, c, &t->l);
    if (rc == 0) {
        t->end = t->l->last;
        rc = cuts_of(layers, n) <= CUTS_ALL ? try_all(t) : try_moves(t);
    }
    *left = t->left;
    pp_layout_destroy(&t->l);
    bool fits = rc == 0 && c->over && t->over == 0;
    if (rc == 0 && t->better) {
        t->was = *c;
        *c = t->c;
        rc = fits && c->chooses_redo ? best_fit(spec, costs, c) : pp_best_try(spec, costs, c);
        /* an order that is made for costs is another one on another cut, and may be worse */
        if (rc == 0 && !t->was.over && (c->over || c->time.step > t->was.time.step))
            *c = t->was;
    }
    return rc;
}
