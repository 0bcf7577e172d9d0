/* SPDX-License-Identifier: Apache-2.0 */
/* The largest part of a bubble decides what is said; a cut is compared with the best there is. */
#include "ppcli/plan/search.h"

#define NOTICEABLE 0.02 /* of all work: what a better cut must gain to be named */
#define SMALL 0.05      /* a bubble below this needs no advice */

void pp_advice_costs(const struct pp_layout *l, const double *f, const double *i, const double *w,
                     double *cost)
{
    for (int v = 0; v < l->n_virtual; v++) {
        double flops = 0;
        for (int k = l->first[v]; k <= l->last[v]; k++)
            flops += pp_layer_flops(l->model, k);
        for (int k = l->first[v]; k <= l->last[v]; k++) {
            double share = 1.0 / (l->last[v] - l->first[v] + 1); /* none has a product */
            share = flops > 0 ? pp_layer_flops(l->model, k) / flops : share;
            cost[k] = (f[v] + i[v] + w[v]) * share;
        }
    }
}

/* Sets share[r] to rank r's share of all work, for chunks that are the layers first[v] to last[v]
 * with the costs of `cost`. */
static void shares_of(const struct pp_layout *l, const double *cost, const int *first,
                      const int *last, double *share)
{
    double all = 0;
    for (int r = 0; r < l->stages; r++)
        share[r] = 0;
    for (int v = 0; v < l->n_virtual; v++) {
        for (int k = first[v]; k <= last[v]; k++) {
            share[l->rank_of[v]] += cost[k];
            all += cost[k];
        }
    }
    for (int r = 0; r < l->stages && all > 0; r++)
        share[r] /= all;
}

/* Returns the index of the largest of x[n] if sign is 1, and of the smallest if it is -1. */
static int extreme_of(const double *x, int n, int sign)
{
    int k = 0;
    for (int i = 1; i < n; i++)
        k = sign * x[i] > sign * x[k] ? i : k;
    return k;
}

static void cut_text(const struct pp_advice_spec *spec, const int *first, const int *last,
                     double *share, char *out)
{
    const struct pp_layout *l = spec->layout;
    char ranges[192];
    shares_of(l, spec->cost, l->first, l->last, share);
    int busiest = extreme_of(share, l->stages, 1);
    double now = share[busiest], all = 0;
    shares_of(l, spec->cost, first, last, share);
    double most = share[extreme_of(share, l->stages, 1)];
    if (most < now - NOTICEABLE) {
        snprintf(out, PP_ADVICE_MAX,
                 "uneven stages: stage %d has %.0f %% of the work; assignment = %s would leave "
                 "no stage more than %.0f %%",
                 busiest, now * 100,
                 pp_ranges_text(l->model, first, last, l->n_virtual, ranges, sizeof(ranges)),
                 most * 100);
        return;
    }
    int least = extreme_of(share, l->stages, -1),
        layer = extreme_of(spec->cost, l->model->n_layers, 1);
    for (int k = 0; k < l->model->n_layers; k++)
        all += spec->cost[k];
    snprintf(out, PP_ADVICE_MAX,
             "uneven stages: layer %d alone is %.0f %% of the work, so stage %d (%.0f %%) idles "
             "under every schedule; use layers of similar size, or fewer stages",
             layer, 100 * spec->cost[layer] / all, least, share[least] * 100);
}

static int advise_cut(const struct pp_advice_spec *spec, char *out)
{
    const struct pp_layout *l = spec->layout;
    PP_TAKE(int, cut, 2 * l->n_virtual);
    PP_TAKE(double, share, l->stages);
    PP_TRY(pp_partition_costs(l->model, spec->cost, l->n_virtual, cut, cut + l->n_virtual));
    cut_text(spec, cut, cut + l->n_virtual, share, out);
    return 0;
}

int pp_advice(const struct pp_advice_spec *spec, char out[PP_ADVICE_MAX])
{
    const struct pp_bubble *b = spec->bubble;
    const struct pp_layout *l = spec->layout;
    out[0] = '\0';
    if (l->stages == 1)
        return 0;
    if (b->idle < SMALL) {
        snprintf(out, PP_ADVICE_MAX, "nothing left to gain: ranks idle %.1f %% of the time",
                 b->idle * 100);
        return 0;
    }
    /* what idles although the busiest stage never would: no schedule changes it */
    double cut = b->work > 0 ? 1 - 1 / (b->stages * b->work) : 0;
    double order = b->schedule + b->imbalance - cut;
    if (cut >= order && cut >= b->waiting)
        return advise_cut(spec, out);
    if (order >= b->waiting) {
        char change[64] = "the search found none that waits less";
        if (!spec->searched) {
            snprintf(change, sizeof(change), "use more than %d micro-batches, or another schedule",
                     l->plans[0].m);
        }
        snprintf(out, PP_ADVICE_MAX, "limited by the schedule: the pipeline fills and drains; %s",
                 change);
    } else if (spec->waited > PP_BUBBLE_WAITED) {
        snprintf(out, PP_ADVICE_MAX,
                 "limited by the machine: ranks waited for a core %.0f %% of the time",
                 spec->waited * 100);
    } else {
        snprintf(out, PP_ADVICE_MAX,
                 "limited by transfers and waiting: micro-batches of %d samples are short; use "
                 "fewer of them, or wider layers",
                 l->max_rows);
    }
    return 0;
}
