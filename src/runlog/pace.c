/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds ranks that are slower than expected. The expected time of a rank is that of its stage in
 * the first windows of the run, the median over its replicas. If all ranks slow down, no rank is at
 * fault: a rank is compared with the median rank, or with the faster of two.
 */
#include "parts.h"

#include "ppcli/base/base.h"

#define OVER 1.25  /* a rank is slow from this factor on */
#define HOLD_S 5.0 /* seconds that a state must hold before it counts */

static double lower_median(double *values, int n)
{
    pp_sort_doubles(values, n);
    return values[(n - 1) / 2];
}

static void learn_planned_times(struct pp_pace *p)
{
    const struct pp_layout *l = p->layout;
    for (int r = 0; r < l->ranks; r++)
        p->ranks[r].ratio = lower_median(p->ranks[r].first, PACE_LEARN);
    for (int r = 0; r < l->ranks; r++) {
        for (int d = 0; d < l->replicas; d++)
            p->sorted[d] = p->ranks[d * l->stages + r % l->stages].ratio;
        p->ranks[r].planned = lower_median(p->sorted, l->replicas);
    }
}

/* Adds a window in which the rank took `times` its expected time. Returns whether the rank has now
 * become slow or has recovered. */
static bool update_pace(struct pace_rank *k, double times, const struct pp_window *w)
{
    bool over = times >= OVER, was = k->factor > 1;
    if (over != k->over) {
        k->from = w->t - w->sync_steps + 1;
        k->seconds = k->sum = 0;
    }
    k->over = over;
    k->seconds += w->sync_seconds;
    k->sum += times * w->sync_seconds;
    if (k->seconds >= HOLD_S)
        k->factor = over ? k->sum / k->seconds : 1;
    return was != (k->factor > 1);
}

int pace_create(const struct pp_layout *l, struct pp_pace **out)
{
    size_t n = (size_t)l->ranks;
    struct pp_pace *p = pp_alloc(1, sizeof(*p) + n * (sizeof(*p->ranks) + sizeof(*p->sorted)));
    if (!p)
        return PP_ERESOURCE;
    p->layout = l;
    p->sorted = (double *)(p->ranks + n);
    for (size_t r = 0; r < n; r++)
        p->ranks[r].factor = 1;
    *out = p;
    return 0;
}

void pace_window(struct pp_pace *p, const struct pp_window *w, pace_changed *changed, void *ctx)
{
    int n = p->layout->ranks, at = p->seen++ - 1;
    for (int r = 0; r < n; r++) {
        struct pace_rank *k = &p->ranks[r];
        double took = w->busy[r] * w->sync_seconds / (double)w->sync_steps;
        if (at >= 0 && at < PACE_LEARN)
            k->first[at] = took;
        k->ratio = k->planned > 0 ? took / k->planned : 1;
        p->sorted[r] = k->ratio;
    }
    double usual = lower_median(p->sorted, n);
    for (int r = 0; r < n && at >= PACE_LEARN; r++)
        if (update_pace(&p->ranks[r], usual > 0 ? p->ranks[r].ratio / usual : 1, w))
            changed(ctx, r, &p->ranks[r]);
    if (at == PACE_LEARN - 1)
        learn_planned_times(p);
}
