/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Say a deadlock as people read it. Each stuck rank waits for exactly one event of exactly one
 * other rank, so following "who must do it" from any stuck rank runs into the circle.
 */
#include "pass.h"

#include <stdio.h>
#include <string.h>

#include "ppcli/err.h"
#include "ppcli/mem.h"

/* Ranks of the circle that are spelled out; the rest is counted. */
enum {
    SHOWN_MAX = 16
};

const char *pp_cell_name(const struct pp_plan *plan, const struct pp_action *a,
                         char name[PP_CELL_NAME_MAX])
{
    if (plan->geometry.chunks == 1) {
        snprintf(name, PP_CELL_NAME_MAX, "%c%d", PP_OP_LETTERS[a->op], a->mb);
    } else {
        snprintf(name, PP_CELL_NAME_MAX, "%c%d of stage %d", PP_OP_LETTERS[a->op], a->mb, a->stage);
    }
    return name;
}

/* The channel and micro-batch of what rank r waits for. The walk that finds out how many slots
 * there are runs before the messages are filled in, but their numbers are arithmetic. */
static int channel_of(const struct pp_walk *w, int r)
{
    int c = w->wait[r].message / w->plan->geometry.microbatches;
    return w->plan->kind == PP_PLAN_EVAL ? 2 * c : c;
}

static int mb_of(const struct pp_walk *w, int r)
{
    return w->wait[r].message % w->plan->geometry.microbatches;
}

/* The rank whose action ends the wait of rank r. */
static int waits_for(const struct pp_walk *w, int r)
{
    const struct pp_channel *ch = &w->plan->channels[channel_of(w, r)];
    return w->wait[r].kind == PP_WAIT_MESSAGE ? ch->src_rank : ch->dst_rank;
}

/* Is `a` the action that rank r's wait ends with? */
static bool ends_wait(const struct pp_walk *w, int r, const struct pp_action *a)
{
    if (w->wait[r].kind == PP_WAIT_MESSAGE) {
        return a->send == w->wait[r].message;
    }
    if (a->stage != w->plan->channels[channel_of(w, r)].dst_stage || a->mb != mb_of(w, r)) {
        return false;
    }
    return w->plan->kind == PP_PLAN_EVAL || a->op == PP_OP_W || a->op == PP_OP_B;
}

/* "rank 0 waits in F2 for slot 0 of channel 0 (rank 1 frees it in B0)" */
static void say_wait(const struct pp_walk *w, int r, char *text, size_t bytes)
{
    bool message = w->wait[r].kind == PP_WAIT_MESSAGE;
    int what = message ? mb_of(w, r) : w->plan->messages[w->wait[r].message].slot;
    int other = waits_for(w, r);
    char in[PP_CELL_NAME_MAX];
    char by[PP_CELL_NAME_MAX] = "no action";

    const struct pp_rank_plan *list = &w->plan->ranks[other];
    for (int k = w->at[other]; k < list->n_actions; k++) {
        if (ends_wait(w, r, &list->actions[k])) {
            pp_cell_name(w->plan, &list->actions[k], by);
            break;
        }
    }
    pp_cell_name(w->plan, &w->plan->ranks[r].actions[w->at[r]], in);
    snprintf(text, bytes, "rank %d waits in %s for %s %d of channel %d (rank %d %s it in %s)", r,
             in, message ? "message" : "slot", what, channel_of(w, r), other,
             message ? "sends" : "frees", by);
}

/* The first rank on the circle, or the last before a rank that is done (a message nobody sends). */
static int find_circle(const struct pp_walk *w, bool *visited)
{
    int r = 0;
    while (w->wait[r].kind == PP_WAIT_NONE) {
        r++;
    }
    while (!visited[r] && w->wait[waits_for(w, r)].kind != PP_WAIT_NONE) {
        visited[r] = true;
        r = waits_for(w, r);
    }
    return r;
}

int pp_walk_fail_cycle(const struct pp_walk *w)
{
    bool *visited = pp_alloc((size_t)w->plan->geometry.stages, sizeof(*visited));
    if (!visited) {
        return PP_ERESOURCE;
    }
    char text[PP_ERROR_TEXT_MAX] = "";
    size_t used = 0;
    int n = 0;
    int first = find_circle(w, visited);
    int r = first;
    do {
        if (n < SHOWN_MAX) {
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s", n ? "; " : "");
            say_wait(w, r, text + used, sizeof(text) - used);
            used += strlen(text + used);
        }
        n++;
        r = waits_for(w, r);
    } while (r != first && w->wait[r].kind != PP_WAIT_NONE);
    pp_free(visited);

    if (n > SHOWN_MAX) {
        return pp_fail(PP_EFORMAT, "these ranks wait for each other: %s; and %d more", text,
                       n - SHOWN_MAX);
    }
    return pp_fail(PP_EFORMAT, "%s: %s",
                   n > 1 ? "these ranks wait for each other" : "a rank waits for ever", text);
}
