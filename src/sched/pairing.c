/* SPDX-License-Identifier: Apache-2.0 */
/*
 * First half of the proof of lists with messages: each list alone. Every message between ranks is
 * sent once, behind the cell that makes it, and taken once, before the cell that needs it. Whether
 * the lists wait for each other is the second half, guarantee.c.
 */
#include "guarantee.h"

#include <stdlib.h>

#include "ppcli/err.h"
#include "ppcli/mem.h"

/* What the lists have done about a message so far, as bits. */
enum {
    MADE = 1,
    SENT = 2,
    POSTED = 4,
    TAKEN = 8,
};

struct pairing {
    const struct pp_plan *plan;
    const struct pp_comms *comms;
    uint8_t *did; /* [n_messages] */
    struct pp_comm_place at;
};

static int say(const struct pairing *p, int rank, const struct pp_comm *c, const char *what)
{
    char name[PP_COMM_NAME_MAX];
    return pp_fail(PP_EFORMAT, "rank %d: %s %s", rank, pp_comm_name(p->plan, rank, c, name), what);
}

/* RUN of action `next`, the first that this rank has not run. */
static int pair_run(const struct pairing *p, int rank, const struct pp_comm *c, int next)
{
    const struct pp_rank_plan *list = &p->plan->ranks[rank];
    if (c->index != next || next + (c->merged ? 2 : 1) > list->n_actions) {
        return pp_fail(PP_EFORMAT, "rank %d: a cell runs action %d where action %d is next", rank,
                       c->index, next);
    }
    const struct pp_action *a = &list->actions[next];
    if (pp_comm_travels(p->plan, a->recv) && !(p->did[a->recv] & TAKEN)) {
        struct pp_comm missing = {.kind = PP_COMM_RECV, .index = a->recv};
        char name[PP_COMM_NAME_MAX];
        char before[PP_COMM_NAME_MAX];
        return pp_fail(PP_EFORMAT, "rank %d: there is no %s before %s", rank,
                       pp_comm_name(p->plan, rank, &missing, before),
                       pp_comm_name(p->plan, rank, c, name));
    }
    if (a->send >= 0) {
        p->did[a->send] |= MADE;
    }
    return 0;
}

static int pair_message(const struct pairing *p, int rank, const struct pp_comm *c)
{
    if (c->index < 0 || c->index >= p->plan->n_messages) {
        return pp_fail(PP_EFORMAT, "rank %d: there is no message %d", rank, c->index);
    }
    const struct pp_channel *ch = &p->plan->channels[p->plan->messages[c->index].channel];
    uint8_t *did = &p->did[c->index];
    if (rank != (c->kind == PP_COMM_SEND ? ch->src_rank : ch->dst_rank)) {
        return say(p, rank, c, "is for another rank");
    }
    if (ch->src_rank == ch->dst_rank) {
        return say(p, rank, c,
                   "moves nothing: both stages are on this rank, and a hand-over within a rank has "
                   "no cell");
    }
    switch (c->kind) {
    case PP_COMM_SEND:
        if (!(*did & MADE)) {
            return say(p, rank, c, "comes before the cell that makes it");
        }
        if (*did & SENT) {
            return say(p, rank, c, "comes twice");
        }
        *did |= SENT;
        return 0;
    case PP_COMM_WAIT:
        if (!(*did & POSTED) || *did & TAKEN) {
            return say(p, rank, c, "is waited for without a receive of its own");
        }
        *did |= TAKEN;
        return 0;
    default:
        if (*did & POSTED) {
            return say(p, rank, c, "comes twice");
        }
        *did |= c->kind == PP_COMM_RECV ? POSTED | TAKEN : POSTED;
        return 0;
    }
}

static int pair_rank(struct pairing *p, int rank)
{
    const struct pp_comm_list *list = &p->comms->ranks[rank];
    int next = 0;
    for (int k = 0; k < list->n; k++) {
        const struct pp_comm *c = &list->cells[k];
        p->at = (struct pp_comm_place){rank, k};
        if (c->kind == PP_COMM_RUN) {
            PP_TRY(pair_run(p, rank, c, next));
            next += c->merged ? 2 : 1;
        } else {
            PP_TRY(pair_message(p, rank, c));
        }
    }
    p->at = (struct pp_comm_place){-1, -1};
    if (next != p->plan->ranks[rank].n_actions) {
        return pp_fail(PP_EFORMAT, "rank %d: the list ends after %d of %d actions", rank, next,
                       p->plan->ranks[rank].n_actions);
    }
    return 0;
}

/* All that is needed was taken; was all that was taken sent, and the other way round? */
static int pair_halves(const struct pairing *p)
{
    for (int64_t n = 0; n < (int64_t)p->plan->n_channels * p->plan->geometry.microbatches; n++) {
        int32_t i = pp_plan_message(p->plan, (int)(n / p->plan->geometry.microbatches),
                                    (int)(n % p->plan->geometry.microbatches));
        if (!pp_comm_travels(p->plan, i)) {
            continue;
        }
        bool sent = p->did[i] & SENT;
        bool taken = p->did[i] & TAKEN;
        if (sent && taken) {
            continue;
        }
        const struct pp_channel *ch = &p->plan->channels[p->plan->messages[i].channel];
        struct pp_comm send = {.kind = PP_COMM_SEND, .index = i};
        struct pp_comm recv = {.kind = PP_COMM_RECV, .index = i};
        char s[PP_COMM_NAME_MAX];
        char r[PP_COMM_NAME_MAX];
        pp_comm_name(p->plan, ch->src_rank, &send, s);
        pp_comm_name(p->plan, ch->dst_rank, &recv, r);
        return pp_fail(PP_EFORMAT, "rank %d: there is no %s for the %s of rank %d",
                       sent ? ch->dst_rank : ch->src_rank, sent ? r : s, sent ? s : r,
                       sent ? ch->src_rank : ch->dst_rank);
    }
    return 0;
}

int pp_comms_pair(const struct pp_plan *plan, const struct pp_comms *comms,
                  struct pp_comm_place *out_at)
{
    if (comms->n_ranks != plan->geometry.stages) {
        return pp_fail(PP_EFORMAT, "%d lists for %d ranks", comms->n_ranks, plan->geometry.stages);
    }
    struct pairing p = {.plan = plan, .comms = comms, .at = {-1, -1}};
    p.did = pp_alloc((size_t)plan->n_messages, 1);
    if (!p.did) {
        return PP_ERESOURCE;
    }
    int rc = 0;
    for (int r = 0; r < comms->n_ranks && rc == 0; r++) {
        rc = pair_rank(&p, r);
    }
    if (rc == 0) {
        p.at = (struct pp_comm_place){-1, -1};
        rc = pair_halves(&p);
    }
    pp_free(p.did);
    if (rc == PP_EFORMAT && out_at) {
        *out_at = p.at;
    }
    return rc;
}

/* Without tags, messages between two ranks are one sequence, whatever their stages. */
struct path {
    int src, dst, channel;
};

static int by_ends(const void *a, const void *b)
{
    const struct path *x = a;
    const struct path *y = b;
    int d = x->src != y->src ? (x->src > y->src) - (x->src < y->src)
                             : (x->dst > y->dst) - (x->dst < y->dst);
    return d ? d : (x->channel > y->channel) - (x->channel < y->channel);
}

/* path_of[channel]: the same number for all channels from one rank to another. */
static int number_paths(const struct pp_plan *plan, int *path_of)
{
    struct path *paths = pp_alloc((size_t)plan->n_channels, sizeof(*paths));
    if (!paths) {
        return PP_ERESOURCE;
    }
    for (int c = 0; c < plan->n_channels; c++) {
        paths[c] = (struct path){plan->channels[c].src_rank, plan->channels[c].dst_rank, c};
    }
    qsort(paths, (size_t)plan->n_channels, sizeof(*paths), by_ends);
    for (int i = 0, n = 0; i < plan->n_channels; i++) {
        n += i > 0 && (paths[i].src != paths[i - 1].src || paths[i].dst != paths[i - 1].dst);
        path_of[paths[i].channel] = n;
    }
    pp_free(paths);
    return 0;
}

struct counting {
    const struct pp_plan *plan;
    const struct pp_comms *comms;
    const int *path_of;
    int32_t *sent, *taken; /* [paths] so far */
    int32_t *number;       /* [n_messages] place among the sends of its path */
};

static void count_sends(const struct counting *n)
{
    for (int r = 0; r < n->comms->n_ranks; r++) {
        for (int k = 0; k < n->comms->ranks[r].n; k++) {
            const struct pp_comm *c = &n->comms->ranks[r].cells[k];
            if (c->kind == PP_COMM_SEND) {
                n->number[c->index] = n->sent[n->path_of[n->plan->messages[c->index].channel]]++;
            }
        }
    }
}

static int count_takes(const struct counting *n)
{
    for (int r = 0; r < n->comms->n_ranks; r++) {
        for (int k = 0; k < n->comms->ranks[r].n; k++) {
            const struct pp_comm *c = &n->comms->ranks[r].cells[k];
            if (c->kind != PP_COMM_RECV && c->kind != PP_COMM_POST) {
                continue;
            }
            int channel = n->plan->messages[c->index].channel;
            int32_t due = n->taken[n->path_of[channel]]++;
            if (n->number[c->index] != due) {
                char name[PP_COMM_NAME_MAX];
                return pp_fail(PP_EFORMAT,
                               "rank %d: %s is receive number %d from rank %d, but that message is "
                               "sent as number %d: grouped messages have no tags, two ranks must "
                               "send and take them in one order",
                               r, pp_comm_name(n->plan, r, c, name), due + 1,
                               n->plan->channels[channel].src_rank, n->number[c->index] + 1);
            }
        }
    }
    return 0;
}

int pp_comms_one_order(const struct pp_plan *plan, const struct pp_comms *comms)
{
    int rc = PP_ERESOURCE;
    size_t n = (size_t)plan->n_channels;
    int *path_of = pp_alloc(n, sizeof(*path_of));
    struct counting c = {.plan = plan, .comms = comms, .path_of = path_of};
    c.sent = pp_alloc(n, sizeof(*c.sent));
    c.taken = pp_alloc(n, sizeof(*c.taken));
    c.number = pp_alloc((size_t)plan->n_messages, sizeof(*c.number));
    if (path_of && c.sent && c.taken && c.number) {
        rc = number_paths(plan, path_of);
    }
    if (rc == 0) {
        count_sends(&c);
        rc = count_takes(&c);
    }
    pp_free(path_of);
    pp_free(c.sent);
    pp_free(c.taken);
    pp_free(c.number);
    return rc;
}
