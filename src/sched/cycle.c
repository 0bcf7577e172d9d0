/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Describes a deadlock for people. Each stuck rank waits for exactly one event of exactly one other
 * rank, so the chain of waits from any stuck rank ends in a circle.
 */
#include "pass.h"

#include <string.h>

#include "ppcli/base/base.h"

/* ranks of the circle that are described; the rest are counted */
enum {
    SHOWN_MAX = 16
};

const char *pp_cell_name(const struct pp_plan *plan, const struct pp_action *a,
                         char name[PP_CELL_NAME_MAX])
{
    snprintf(name, PP_CELL_NAME_MAX, "%d%c%d", a->stage, PP_OP_LETTERS[a->op], a->mb);
    return name;
}

/* Returns the channel of the message that rank r waits for. Computes it from the number of the
 * message, because messages are not filled in yet when the walk counts slots. */
static int find_awaited_channel(const struct pp_walk *w, int r)
{
    int32_t message = w->wait[r].message;
    int c = message / w->plan->geometry.microbatches;
    if (c >= 2 * (w->plan->n_virtual - 1) && w->plan->n_ties > 0)
        return w->plan->messages[message].channel; /* the slots are known */
    return w->plan->kind == PP_PLAN_EVAL ? 2 * c : c;
}

static int find_awaited_mb(const struct pp_walk *w, int r)
{
    bool tied = find_awaited_channel(w, r) >= 2 * (w->plan->n_virtual - 1);
    int32_t message = w->wait[r].message;
    return tied ? w->plan->messages[message].mb : message % w->plan->geometry.microbatches;
}

/* Returns the rank for which rank r waits: the sender of the message, or the receiver that must
 * free the slot. */
static int find_awaited_rank(const struct pp_walk *w, int r)
{
    const struct pp_channel *ch = &w->plan->channels[find_awaited_channel(w, r)];
    return w->wait[r].kind == PP_WAIT_MESSAGE ? ch->src_rank : ch->dst_rank;
}

/* Returns whether rank r stops waiting when action `a` has run. */
static bool ends_wait(const struct pp_walk *w, int r, const struct pp_action *a)
{
    if (w->wait[r].kind == PP_WAIT_MESSAGE)
        return a->send == w->wait[r].message;
    if (a->op >= PP_OP_G)
        return a->recv == w->wait[r].message;
    if (a->stage != w->plan->channels[find_awaited_channel(w, r)].dst_stage ||
        a->mb != find_awaited_mb(w, r))
        return false;
    return w->plan->kind == PP_PLAN_EVAL || a->op == PP_OP_W || a->op == PP_OP_B;
}

/* Describes what rank r waits for: "0F2 waits for 1B0", or "0F2 waits for the slot that 1B0 frees".
 * With several chunks the ranks are named too: "0F2 (rank 0) waits for 1B0 (rank 1)". */
static int tell_wait(const void *ctx, int r, char *text, size_t bytes)
{
    const struct pp_walk *w = ctx;
    bool message = w->wait[r].kind == PP_WAIT_MESSAGE;
    int awaited = find_awaited_rank(w, r);
    if (bytes > 0) {
        char in[PP_CELL_NAME_MAX];
        char by[PP_CELL_NAME_MAX] = "what no cell does";
        const struct pp_rank_plan *list = &w->plan->ranks[awaited];
        int k = w->at[awaited];
        while (k < list->n_actions && !ends_wait(w, r, &list->actions[k]))
            k++;
        if (k < list->n_actions)
            pp_cell_name(w->plan, &list->actions[k], by);
        pp_cell_name(w->plan, &w->plan->ranks[r].actions[w->at[r]], in);
        char rank[24] = "", of[24] = "";
        if (w->plan->geometry.chunks > 1) {
            snprintf(rank, sizeof(rank), " (rank %d)", r);
            snprintf(of, sizeof(of), " (rank %d)", awaited);
        }
        snprintf(text, bytes, "%s%s waits for %s%s%s%s", in, rank, message ? "" : "the slot that ",
                 by, of, message ? "" : " frees");
    }
    return w->wait[awaited].kind != PP_WAIT_NONE ? awaited : -1;
}

int pp_fail_circle(const char *under, int n_ranks, int r, pp_tell_wait *tell, const void *ctx)
{
    bool *visited;
    PP_ALLOC(visited, n_ranks);
    int next = r;
    while (next >= 0 && !visited[next]) {
        r = next;
        visited[r] = true;
        next = tell(ctx, r, NULL, 0);
    }
    pp_free(visited);
    int first =
        next >= 0 ? next : r; /* a rank on the circle, or the last one before a rank that is done */
    char text[PP_ERROR_TEXT_MAX] = "";
    char more[32] = "";
    size_t used = 0;
    int n = 0;
    r = first;
    do {
        if (n < SHOWN_MAX) {
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s", n ? "; " : "");
            tell(ctx, r, text + used, sizeof(text) - used);
            used += strlen(text + used);
        }
        n++;
        r = tell(ctx, r, NULL, 0);
    } while (r >= 0 && r != first);
    if (n > SHOWN_MAX)
        snprintf(more, sizeof(more), "; and %d more", n - SHOWN_MAX);
    return pp_fail(PP_EFORMAT, "%s%s: %s%s", under,
                   n > 1 ? "these ranks wait for each other" : "a rank waits forever", text, more);
}

int pp_walk_fail_cycle(const struct pp_walk *w)
{
    int r = 0;
    while (w->wait[r].kind == PP_WAIT_NONE)
        r++;
    return pp_fail_circle("", w->plan->geometry.stages, r, tell_wait, w);
}
