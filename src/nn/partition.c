/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts the list of layers into contiguous pieces. For balanced cuts, bisection over whole numbers
 * finds the exact least largest piece T. Of the cuts that reach T, a dynamic programme takes one
 * with the fewest values crossing the cuts and, of those, the one whose earlier pieces are larger
 * (the last piece also computes the loss). A window minimum makes it O(layers * pieces): 4096
 * layers in 1024 pieces take under 0.1 s.
 */
#include "nn.h"

#include <math.h>

struct cut {
    int n, k;            /* layers, pieces; 1 <= k <= n */
    const uint64_t *sum; /* [n+1] cost of the layers before i */
    const int *width;    /* [n+1] values that cross a cut before layer i */
};

/* Returns the last end that a piece of cost <= T can have if it starts at layer i. */
static int find_last_end(const struct cut *c, int i, uint64_t T)
{
    int lo = i, hi = c->n;
    while (lo < hi) {
        int mid = lo + (hi - lo + 1) / 2;
        if (c->sum[mid] - c->sum[i] <= T)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

/* Returns whether k pieces of cost <= T can hold all layers. If fewer pieces suffice they can be
 * split, so k do too. */
static bool fits_pieces(const struct cut *c, uint64_t T)
{
    int at = 0;
    for (int j = 0; j < c->k && at < c->n; j++) {
        int next = find_last_end(c, at, T);
        if (next == at)
            return false;
        at = next;
    }
    return at == c->n;
}

static uint64_t find_least_largest(const struct cut *c)
{
    uint64_t lo = 0, hi = c->sum[c->n];
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        if (fits_pieces(c, mid))
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

#define NEVER UINT64_MAX

/*
 * Computes best[i] = the fewest values over the cuts when layers i..n-1 make j pieces of cost <= T,
 * and next[j][i] = the end of the first of these pieces. For j + 1 pieces, with p the end of the
 * first one,
 *   best'[i] = min over p in i+1 .. reach(i) of best[p] + width[p].
 * Both ends of that range fall with i, so a queue of candidates gives each minimum in O(1).
 */
static void find_fewest_values(const struct cut *c, uint64_t T, const int *ends, uint64_t *best,
                               uint64_t *better, int *queue, int *next)
{
    int n = c->n;
    for (int i = 0; i <= n; i++) {
        best[i] = i < n && ends[i] == n ? 0 : NEVER;
        next[i] = n;
    }
    for (int j = 1; j < c->k; j++) {
        int *next_j = next + (size_t)j * ((size_t)n + 1);
        int head = 0, tail = 0; /* queue[head..tail-1]: p falls, cost rises */
        for (int i = n; i >= 0; i--) {
            better[i] = NEVER;
            next_j[i] = n;
            int p = i + 1;
            if (p < n && best[p] != NEVER) {
                uint64_t cost = best[p] + (uint64_t)c->width[p];
                while (tail > head &&
                       best[queue[tail - 1]] + (uint64_t)c->width[queue[tail - 1]] > cost)
                    tail--;
                queue[tail++] = p;
            }
            while (tail > head && i < n && queue[head] > ends[i])
                head++;
            if (i < n && tail > head) {
                better[i] = best[queue[head]] + (uint64_t)c->width[queue[head]];
                next_j[i] = queue[head];
            }
        }
        uint64_t *t = best;
        best = better;
        better = t;
    }
}

static int cut_balanced(const struct cut *c, int *first, int *last)
{
    uint64_t T = find_least_largest(c);
    size_t row = (size_t)c->n + 1;
    PP_TAKE(int, ends, row *((size_t)c->k + 2));
    PP_TAKE(uint64_t, best, 2 * row);
    int *queue = ends + row, *next = queue + row; /* next: [k][row] */
    for (int i = 0; i < c->n; i++)
        ends[i] = find_last_end(c, i, T);
    find_fewest_values(c, T, ends, best, best + row, queue, next);
    for (int s = 0, at = 0; s < c->k; s++) {
        first[s] = at;
        at = next[(size_t)(c->k - 1 - s) * row + (size_t)at];
        last[s] = at - 1;
    }
    return 0;
}

static uint64_t weigh_layer(const struct pp_model *m, int layer, enum pp_assignment how)
{
    return how == PP_ASSIGN_PARAMS ? m->layers[layer].n_floats : (uint64_t)pp_layer_flops(m, layer);
}

/* Cuts the layers into n pieces by cost[] of each layer or, if that is NULL, by the weights that
 * `how` asks for. */
static int cut_by_weight(const struct pp_model *m, enum pp_assignment how, const uint64_t *cost,
                         int n, int *first, int *last)
{
    PP_TAKE(uint64_t, sum, m->n_layers + 1);
    PP_TAKE(int, width, m->n_layers + 1);
    for (int i = 0; i < m->n_layers; i++) {
        sum[i + 1] = sum[i] + (cost ? cost[i] : weigh_layer(m, i, how));
        width[i] = m->layers[i].in;
    }
    struct cut c = {.n = m->n_layers, .k = n, .sum = sum, .width = width};
    return cut_balanced(&c, first, last);
}

/* Cuts the layers into n pieces by measured times. Converts the times to whole numbers, about 2^52
 * in all, so that sums are exact and equal times stay equal. The scale is a power of two, which
 * rounds nothing itself. */
int pp_partition_costs(const struct pp_model *m, const double *costs, int n, int *first, int *last)
{
    pp_assert(n >= 1 && n <= m->n_layers);
    double total = 0;
    for (int i = 0; i < m->n_layers; i++) {
        pp_assert(isfinite(costs[i]) && costs[i] >= 0);
        total += costs[i];
    }
    int exponent;
    (void)frexp(total, &exponent);
    PP_TAKE(uint64_t, whole, m->n_layers);
    for (int i = 0; i < m->n_layers; i++)
        whole[i] = (uint64_t)(ldexp(costs[i], 52 - exponent) + 0.5);
    return cut_by_weight(m, PP_ASSIGN_TIME, whole, n, first, last);
}

static void cut_equally(int layers, int n, int *first, int *last)
{
    for (int s = 0, at = 0; s < n; s++) {
        first[s] = at;
        at += layers / n + (s < layers % n);
        last[s] = at - 1;
    }
}

int pp_partition(const struct pp_model *m, const struct pp_config *cfg, int n, int *first,
                 int *last)
{
    pp_assert(n >= 1);
    if (n > m->n_layers) {
        int stages = cfg->pipeline.stages, chunks = n / stages, most = m->n_layers / chunks;
        char pieces[64] = "", way_out[64] = "fewer chunks";
        if (chunks > 1)
            snprintf(pieces, sizeof(pieces), " x %d chunks = %d pieces", chunks, n);
        if (most > 0)
            snprintf(way_out, sizeof(way_out), "at most %d stage%s", most, pp_plural(most));
        return pp_fail(
            PP_ECONFIG, "pipeline.stages: %d stage%s%s for %d layer%s: each needs a layer, so %s",
            stages, pp_plural(stages), pieces, m->n_layers, pp_plural(m->n_layers), way_out);
    }
    switch (cfg->pipeline.assignment) {
    case PP_ASSIGN_EQUAL:
        cut_equally(m->n_layers, n, first, last);
        return 0;
    case PP_ASSIGN_EXPLICIT:
        return cut_as_written(m, cfg, n, first, last);
    case PP_ASSIGN_AUTO:
    case PP_ASSIGN_FLOPS:
    case PP_ASSIGN_PARAMS:
        return cut_by_weight(m, cfg->pipeline.assignment, NULL, n, first, last);
    case PP_ASSIGN_TIME:
        return pp_fail(PP_ECONFIG, "pipeline.assignment = time needs measured times, which are not "
                                   "here; use flops, or give ranges");
    }
    pp_assert(!"known assignment");
    return PP_EINTERNAL;
}
