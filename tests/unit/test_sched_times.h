/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A second, slow time line, for what the plan's own does not know: hand-overs between ranks that
 * take time, and overlapped pairs that run as one piece of work.
 */
#ifndef PPCLI_TESTS_SCHED_TIMES_H
#define PPCLI_TESTS_SCHED_TIMES_H

#include "test_sched_lists.h"

struct times {
    int64_t f, i, w; /* of one cell; B = i + w, and its message leaves at its end */
    int64_t comm;    /* of a hand-over between two ranks */
    int64_t pair;    /* of an overlapped F;B; 0: one after the other */
};

struct spans {
    int64_t makespan, longest; /* longest: most that a rank needs from its first to its last cell */
    int64_t start[RANKS_MAX], end[RANKS_MAX];
};

/* When the message is there, -1: not yet. */
static inline int64_t arrival_of(const struct pp_plan *plan, const int64_t *sent, int32_t message,
                                 int64_t comm)
{
    if (message < 0 || sent[message] < 0)
        return message < 0 ? 0 : -1;
    const struct pp_channel *c = &plan->channels[plan->messages[message].channel];
    return sent[message] + (c->src_rank != c->dst_rank ? comm : 0);
}

/* Run one cell or pair of a rank if its inputs are there; returns how many cells that was. */
static inline int run_cells(const struct pp_plan *plan, const struct times *t, int64_t *sent, int r,
                            int at, struct spans *s)
{
    const struct pp_action *a = &plan->ranks[r].actions[at];
    bool pair = t->pair > 0 && a->overlap;
    int n = pair ? 2 : 1;
    int64_t start = at > 0 ? s->end[r] : 0;
    for (int k = 0; k < n; k++) {
        int64_t there = arrival_of(plan, sent, a[k].recv, t->comm);
        if (there < 0)
            return 0;
        start = there > start ? there : start;
    }
    int64_t cost = pair               ? t->pair
                   : a->op == PP_OP_F ? t->f
                   : a->op == PP_OP_I ? t->i
                   : a->op == PP_OP_W ? t->w
                                      : t->i + t->w;
    s->start[r] = at > 0 ? s->start[r] : start;
    s->end[r] = start + cost;
    for (int k = 0; k < n; k++)
        if (a[k].send >= 0)
            sent[a[k].send] = s->end[r];
    return n;
}

static inline void spans_of(const struct pp_plan *plan, const struct times *t, struct spans *s)
{
    int at[RANKS_MAX] = {0};
    size_t bytes = (size_t)plan->n_messages * sizeof(int64_t);
    PP_OWN_MEMORY int64_t *sent = malloc(bytes + 1);
    assert_non_null(sent);
    memset(sent, 0xff, bytes);
    memset(s, 0, sizeof(*s));
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < plan->geometry.stages; r++) {
            for (int n = 1; n > 0 && at[r] < plan->ranks[r].n_actions; at[r] += n) {
                n = run_cells(plan, t, sent, r, at[r], s);
                moved = moved || n > 0;
            }
        }
    }
    for (int r = 0; r < plan->geometry.stages; r++) {
        CHECK_INT_EQ(at[r], plan->ranks[r].n_actions);
        s->makespan = s->end[r] > s->makespan ? s->end[r] : s->makespan;
        s->longest = s->end[r] - s->start[r] > s->longest ? s->end[r] - s->start[r] : s->longest;
    }
}

#endif
