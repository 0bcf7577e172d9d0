/* SPDX-License-Identifier: Apache-2.0 */
/* The costs of a plan's stages: their memory, and how lists of numbers fill it. */
#include "ppcli/sim/sim.h"

#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"

#define COST_MAX 1e12 /* sums of costs stay finite */

int pp_stage_costs_init(const struct pp_plan *plan, struct pp_stage_costs *out)
{
    size_t n = (size_t)plan->n_virtual, channels = (size_t)plan->n_channels;
    size_t ties = (size_t)plan->n_ties, m = (size_t)plan->geometry.microbatches;
    struct pp_stage_costs q = {.wires = NULL};
    PP_ALLOC(q.f, 4 * n + ties + m + channels + (size_t)plan->geometry.stages);
    q.i = q.f + n;
    q.w = q.i + n;
    q.reduce = q.w + n;
    q.tie = q.reduce + n;
    q.rows = q.tie + ties;
    q.transfer = q.rows + m;
    q.between = q.transfer + channels;
    q.costs = pp_sim_costs_of(q.f, plan->n_virtual);
    q.costs.tie = q.tie;
    *out = q;
    PP_ALLOC(out->wires, channels);
    return 0;
}

void pp_stage_costs_fini(struct pp_stage_costs *q)
{
    pp_free(q->f);
    pp_free(q->wires);
    *q = (struct pp_stage_costs){.f = NULL};
}

const char *const pp_cost_names[PP_COSTS] = {"cost-f",    "cost-i",       "cost-w",  "cost-b",
                                             "cost-comm", "cost-overlap", "cost-tie"};

static int read_number(const char *option, const char *text, double *out)
{
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end || !(x >= 0 && x <= COST_MAX)) {
        return pp_fail(PP_EUSAGE, "--%s needs a number from 0 to %g, not '%s'", option, COST_MAX,
                       text);
    }
    *out = x;
    return 0;
}

static int read_list(int cost, const char *text, struct pp_cost_list *out)
{
    PP_OWN_MEMORY char *copy = pp_strdup(text);
    PP_TRY(copy ? 0 : PP_ERESOURCE);
    PP_ALLOC(out->at, strlen(text) / 2 + 1);
    for (char *rest = copy, *word; (word = strsep(&rest, ","));)
        PP_TRY(read_number(pp_cost_names[cost], word, &out->at[out->n++]));
    return 0;
}

/* Sets the costs of I and W each to half of --cost-b, if that is given. */
static int halve_backward(struct pp_cost_list lists[PP_COSTS])
{
    const struct pp_cost_list *b = &lists[PP_COST_B];
    if (b->n == 0)
        return 0;
    for (int op = PP_COST_I; op <= PP_COST_W; op++) {
        struct pp_cost_list *l = &lists[op];
        if (l->n > 0)
            return pp_fail(PP_EUSAGE,
                           "--cost-b is the sum of --cost-i and --cost-w: give one or both "
                           "of these, or it");
        PP_ALLOC(l->at, b->n);
        for (l->n = 0; l->n < b->n; l->n++)
            l->at[l->n] = b->at[l->n] / 2;
    }
    return 0;
}

int pp_cost_lists_read(const char *const texts[PP_COSTS], struct pp_cost_list out[PP_COSTS])
{
    for (int cost = 0; cost < PP_COSTS; cost++)
        if (texts[cost])
            PP_TRY(read_list(cost, texts[cost], &out[cost]));
    return halve_backward(out);
}

static double find_mean(const struct pp_cost_list *l, double none)
{
    double sum = 0;
    for (int i = 0; i < l->n; i++)
        sum += l->at[i];
    return l->n > 0 ? sum / l->n : none;
}

struct pp_schedule_costs pp_cost_means(const struct pp_cost_list lists[PP_COSTS])
{
    return (struct pp_schedule_costs){.f = find_mean(&lists[PP_COST_F], 1),
                                      .i = find_mean(&lists[PP_COST_I], 1),
                                      .w = find_mean(&lists[PP_COST_W], 1),
                                      .comm = find_mean(&lists[PP_COST_COMM], 0)};
}

/* Sets out[n_virtual], the cost of each chunk, from a list of one number for all ranks, one number
 * a rank, which the chunks of the rank share, or one number a chunk. */
static int spread_costs(const struct pp_plan *plan, const char *option,
                        const struct pp_cost_list *l, double none, double *out)
{
    int p = plan->geometry.stages, n = plan->n_virtual;
    int share =
        plan->geometry.chunks / plan->copies; /* a rank's work is that of one copy's chunks */
    if (l->n > 1 && l->n != p && l->n != n) {
        char chunks[96] = "";
        if (n != p)
            snprintf(chunks, sizeof(chunks), ", shared by its %d chunks) or %d (one per chunk",
                     share, n);
        return pp_fail(PP_EUSAGE, "--%s has %d numbers; this plan needs 1, %d (one per stage%s)",
                       option, l->n, p, chunks);
    }
    for (int s = 0; s < n; s++) {
        double x = l->n == 0   ? none
                   : l->n == 1 ? l->at[0]
                   : l->n == p ? l->at[plan->rank_of[s]]
                               : l->at[s] * share;
        out[s] = x / share;
    }
    return 0;
}

/* Sets the transfer times from a list of one number for all boundaries between stages, or one
 * number a boundary, in model order. */
static int spread_comm(const struct pp_plan *plan, const struct pp_cost_list *l,
                       struct pp_stage_costs *q)
{
    int n = plan->n_virtual - 1;
    if (l->n <= 1) {
        q->costs.latency = find_mean(l, 0);
        return 0;
    }
    if (l->n != n) {
        return pp_fail(PP_EUSAGE, "--%s has %d numbers; this plan needs 1 or %d (one per boundary)",
                       pp_cost_names[PP_COST_COMM], l->n, n);
    }
    for (int c = 0; c < 2 * n; c++)
        q->transfer[c] = l->at[c / 2];
    q->costs.transfer = q->transfer;
    return 0;
}

int pp_stage_costs_set(const struct pp_plan *plan, const struct pp_cost_list lists[PP_COSTS],
                       struct pp_stage_costs *q)
{
    size_t n = (size_t)plan->n_virtual;
    double sum = 0;
    pp_stage_costs_fini(q);
    PP_TRY(pp_stage_costs_init(plan, q));
    for (size_t op = 0; op < 3; op++)
        PP_TRY(spread_costs(plan, pp_cost_names[op], &lists[op], 1, q->f + op * n));
    for (size_t i = 0; i < 3 * n; i++)
        sum += q->f[i];
    if (sum <= 0)
        return pp_fail(PP_EUSAGE, "one of --cost-f, --cost-i and --cost-w must be more than 0");
    for (int i = 0; i < plan->n_ties; i++)
        q->tie[i] = find_mean(&lists[PP_COST_TIE], 0);
    q->costs.overlap = find_mean(&lists[PP_COST_OVERLAP], 0);
    q->costs.fused_send = true; /* as published tables count */
    return spread_comm(plan, &lists[PP_COST_COMM], q);
}

void pp_cost_lists_write(const struct pp_cost_list lists[PP_COSTS], char text[4][PP_COST_TEXT_MAX],
                         const char *words[4])
{
    static const int of[4] = {PP_COST_F, PP_COST_I, PP_COST_W, PP_COST_COMM};
    for (int i = 0; i < 4; i++) {
        const struct pp_cost_list *l = &lists[of[i]];
        text[i][0] = '\0';
        for (int k = 0; k < l->n; k++)
            pp_text_add(text[i], PP_COST_TEXT_MAX, "%s%.9g", k > 0 ? "," : "", l->at[k]);
        words[i] = l->n > 0 ? text[i] : NULL;
    }
}
