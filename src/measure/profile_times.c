/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measured times made to agree: the clocks of ranks, and an action that began before its input was
 * there begins when it was.
 */
#include "profile_read.h"

#include <math.h>

#include "ppcli/base/base.h"

static int position_of(const struct pp_plan *plan, const int *cells, int op, int stage, int mb)
{
    int kind = op == PP_OP_B ? PP_OP_I : op;
    return cells[(3 * (size_t)stage + (size_t)kind) * (size_t)plan->geometry.microbatches +
                 (size_t)mb];
}

int profile_cells(const struct pp_plan *plan, int **out)
{
    size_t m = (size_t)plan->geometry.microbatches;
    PP_ALLOC(*out, 3 * (size_t)plan->n_virtual * m);
    for (int r = 0; r < plan->geometry.stages; r++) {
        for (int k = 0; k < plan->ranks[r].n_actions; k++) {
            const struct pp_action *a = &plan->ranks[r].actions[k];
            size_t kind = a->op == PP_OP_B ? PP_OP_I : a->op;
            (*out)[(3 * (size_t)a->stage + kind) * m + (size_t)a->mb] = k;
        }
    }
    return 0;
}

bool profile_producer(const struct pp_plan *plan, const int *cells, const struct pp_action *a,
                      int *rank, int *at)
{
    int from = a->op == PP_OP_F ? a->stage - 1 : a->stage + 1;
    if (a->op == PP_OP_W || from < 0 || from == plan->n_virtual)
        return false;
    *rank = plan->rank_of[from];
    *at = position_of(plan, cells, a->op, from, a->mb);
    return true;
}

/* The messages from one rank to another: the least time from the sender's end to the end of the
 * action that needs the message, the same without the least time of such an action, and the least
 * time from the sender's start. */
struct lag {
    double whole, net, start;
};

static struct lag find_lag(const struct pp_profile *p, const int *cells, int from, int to)
{
    double lag[2] = {1e300, 1e300}, takes[2] = {1e300, 1e300}, start = 1e300;
    int ranks = p->plan->geometry.stages, rank, at;
    for (int k = 0; k < p->plan->ranks[to].n_actions; k++) {
        const struct pp_action *a = &p->plan->ranks[to].actions[k];
        int kind = a->op != PP_OP_F;
        if (!profile_producer(p->plan, cells, a, &rank, &at) || rank != from)
            continue;
        for (int t = 0; t < p->steps; t++) {
            double end = p->end[t * ranks + to][k];
            lag[kind] = fmin(lag[kind], end - p->end[t * ranks + from][at]);
            takes[kind] = fmin(takes[kind], end - p->start[t * ranks + to][k]);
            start = fmin(start, end - p->start[t * ranks + from][at]);
        }
    }
    double f = lag[0] < 1e300 ? lag[0] - takes[0] : 1e300;
    double b = lag[1] < 1e300 ? lag[1] - takes[1] : 1e300;
    return (struct lag){fmin(lag[0], lag[1]), fmin(f, b), start};
}

/* Corrects the clocks of two neighbours if an action seems to end before the message that it needs
 * is sent; where the files name one host, before the sender began, because hosts of containers may
 * have the same name. The shift makes messages of both directions equally fast. */
static void align_clocks(struct pp_profile *p, const int *cells, bool one_host)
{
    int ranks = p->plan->geometry.stages;
    for (int r = 1; r < ranks; r++) {
        struct lag there = find_lag(p, cells, r - 1, r), back = find_lag(p, cells, r, r - 1);
        bool late =
            one_host ? there.start < 0 || back.start < 0 : there.whole < 0 || back.whole < 0;
        double shift = late ? (there.net - back.net) / 2 : 0;
        if (shift == 0 || there.whole >= 1e300 || back.whole >= 1e300)
            continue;
        for (int t = 0; t < p->steps; t++) {
            for (int k = 0; k < p->plan->ranks[r].n_actions; k++) {
                p->start[t * ranks + r][k] -= shift;
                p->end[t * ranks + r][k] -= shift;
            }
        }
        double size = shift < 0 ? -shift : shift;
        p->shift = size > p->shift ? size : p->shift;
    }
}

static void trim_starts(struct pp_profile *p, const int *cells, int step)
{
    int ranks = p->plan->geometry.stages, rank, at;
    for (int r = 0; r < ranks; r++) {
        double *start = p->start[step * ranks + r], *end = p->end[step * ranks + r],
               before = -1e300;
        for (int k = 0; k < p->plan->ranks[r].n_actions; k++) {
            const struct pp_action *a = &p->plan->ranks[r].actions[k];
            double from = before;
            if (profile_producer(p->plan, cells, a, &rank, &at)) {
                double sent = p->end[step * ranks + rank][at];
                from = sent > from ? sent : from;
            }
            start[k] = from > start[k] ? from : start[k];
            start[k] = start[k] < end[k] ? start[k] : end[k];
            before = end[k];
        }
    }
}

int profile_settle(struct pp_profile *p, bool one_clock)
{
    int *cells;
    int ranks = p->plan->geometry.stages;
    PP_TRY(profile_cells(p->plan, &cells));
    align_clocks(p, cells, one_clock);
    for (int t = 0; t < p->steps; t++)
        trim_starts(p, cells, t);
    for (int t = 0; t + 1 < p->steps; t++) {
        double **start = &p->start[(size_t)t * (size_t)ranks];
        double first = start[0][0], next = start[ranks][0];
        if (p->total[t] == 0 && next > first)
            p->total[t] = next - first;
    }
    pp_free(cells);
    return 0;
}
