/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Second half of the proof of lists with messages: run them against each other once, under what the
 * transport guarantees. No receive is from "anyone", a message has one sender and one receiver, and
 * whatever lets a rank go on once lets it go on for ever: so if this one order of events comes to
 * an end, every order does, and if it gets stuck, every order gets stuck.
 *
 * A rank takes its list in steps: one cell, or, grouped, the SEND and RECV cells that stand
 * together. A step is entered (the rank has come to all its cells) and left when all of them are
 * through.
 */
#include "guarantee.h"

#include <string.h>

#include "ppcli/err.h"
#include "ppcli/mem.h"

/* Ranks of the circle that are spelled out; the rest is counted. */
enum {
    SHOWN_MAX = 16
};

/* How far a message is, as bits. */
enum {
    OFFERED = 1, /* the sender has come to its SEND */
    POSTED = 2,  /* the receiver has come to its RECV or POST */
    BUFFERED = 4 /* it left without a receive */
};

struct machine {
    const struct pp_plan *plan;
    const struct pp_comms *comms;
    enum pp_guarantee guarantee;
    int k;
    uint8_t *is;     /* [n_messages] */
    int *in_buffers; /* [n_channels] */
    int *at, *end;   /* [P] first cell that is not through; end of the entered step */
    bool *waits;     /* [P] */
    int *ready;      /* stack of ranks that may go on */
    int n_ready;
};

static const struct pp_channel *channel_of(const struct machine *x, int32_t message)
{
    return &x->plan->channels[x->plan->messages[message].channel];
}

static bool groups(const struct pp_comm *c)
{
    return c->kind == PP_COMM_SEND || c->kind == PP_COMM_RECV;
}

static void wake(struct machine *x, int rank)
{
    if (x->waits[rank]) {
        x->waits[rank] = false;
        x->ready[x->n_ready++] = rank;
    }
}

/* The rank has come to a cell. */
static void enter(struct machine *x, const struct pp_comm *c)
{
    if (c->kind == PP_COMM_SEND) {
        x->is[c->index] |= OFFERED;
        wake(x, channel_of(x, c->index)->dst_rank);
    } else if (c->kind == PP_COMM_RECV || c->kind == PP_COMM_POST) {
        if (x->is[c->index] & BUFFERED) {
            x->in_buffers[x->plan->messages[c->index].channel]--;
        }
        x->is[c->index] |= POSTED;
        wake(x, channel_of(x, c->index)->src_rank);
    }
}

/* Does the guarantee let the rank leave its SEND? */
static bool leaves(struct machine *x, int32_t message)
{
    if (x->is[message] & POSTED) {
        return true;
    }
    int *in_buffers = &x->in_buffers[x->plan->messages[message].channel];
    if (x->guarantee != PP_SEND_BUFFERED || *in_buffers >= x->k) {
        return false;
    }
    (*in_buffers)++;
    x->is[message] |= BUFFERED;
    return true;
}

static bool is_through(struct machine *x, const struct pp_comm *c)
{
    switch (c->kind) {
    case PP_COMM_SEND:
        return leaves(x, c->index);
    case PP_COMM_RECV:
    case PP_COMM_WAIT:
        return x->is[c->index] & OFFERED;
    default:
        return true;
    }
}

static void enter_step(struct machine *x, int r)
{
    const struct pp_comm_list *list = &x->comms->ranks[r];
    const struct pp_comm *first = &list->cells[x->at[r]];
    int end = x->at[r];
    do {
        enter(x, &list->cells[end]);
        end++;
    } while (x->guarantee == PP_SEND_GROUPED && groups(first) && end < list->n &&
             groups(&list->cells[end]));
    x->end[r] = end;
}

/* Run one rank until it waits or is done. */
static void run_rank(struct machine *x, int r)
{
    const struct pp_comm_list *list = &x->comms->ranks[r];
    while (x->at[r] < list->n) {
        if (x->at[r] == x->end[r]) {
            enter_step(x, r);
        }
        if (!is_through(x, &list->cells[x->at[r]])) {
            x->waits[r] = true;
            return;
        }
        x->at[r]++;
    }
}

/* The cell of another rank that would let the waiting rank r go on. */
static struct pp_comm awaited(const struct machine *x, int r, int *out_rank)
{
    const struct pp_comm *c = &x->comms->ranks[r].cells[x->at[r]];
    const struct pp_channel *ch = channel_of(x, c->index);
    if (c->kind != PP_COMM_SEND) {
        *out_rank = ch->src_rank;
        return (struct pp_comm){.kind = PP_COMM_SEND, .index = c->index};
    }
    *out_rank = ch->dst_rank;
    if (x->guarantee != PP_SEND_BUFFERED) {
        return (struct pp_comm){.kind = PP_COMM_RECV, .index = c->index};
    }
    /* The buffers are full: any receive of the channel makes room, so the receiver's next. */
    const struct pp_comm_list *list = &x->comms->ranks[*out_rank];
    for (int k = x->end[*out_rank]; k < list->n; k++) {
        const struct pp_comm *other = &list->cells[k];
        bool takes = other->kind == PP_COMM_RECV || other->kind == PP_COMM_POST;
        if (takes && channel_of(x, other->index) == ch) {
            return *other;
        }
    }
    return (struct pp_comm){.kind = PP_COMM_RECV, .index = c->index};
}

/* "rank 0 waits in 0SEND_F1 for rank 1 to come to 1RECV_F1" */
static int say_wait(const struct machine *x, int r, char *text, size_t bytes)
{
    const struct pp_comm *c = &x->comms->ranks[r].cells[x->at[r]];
    char in[PP_COMM_NAME_MAX];
    char by[PP_COMM_NAME_MAX];
    int other;
    struct pp_comm cell = awaited(x, r, &other);
    snprintf(text, bytes, "rank %d waits in %s for rank %d to come to %s", r,
             pp_comm_name(x->plan, r, c, in), other, pp_comm_name(x->plan, other, &cell, by));
    return other;
}

/* Each waiting rank waits for one other, and paired lists lack nothing, so that one waits too:
 * following them ends in the circle. */
static int fail_circle(const struct machine *x)
{
    static const char *const sends[] = {"synchronous sends", "grouped sends and receives",
                                        "buffered sends"};
    bool *visited = pp_alloc((size_t)x->comms->n_ranks, sizeof(*visited));
    if (!visited) {
        return PP_ERESOURCE;
    }
    char text[PP_ERROR_TEXT_MAX] = "";
    size_t used = 0;
    int n = 0;
    int r = 0;
    while (!x->waits[r]) {
        r++;
    }
    for (; !visited[r]; awaited(x, r, &r)) {
        visited[r] = true;
    }
    int first = r;
    do {
        if (n < SHOWN_MAX) {
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s", n ? "; " : "");
            int other = say_wait(x, r, text + used, sizeof(text) - used);
            used += strlen(text + used);
            r = other;
        } else {
            awaited(x, r, &r);
        }
        n++;
    } while (r != first);
    pp_free(visited);

    char buffers[64] = "";
    if (x->guarantee == PP_SEND_BUFFERED) {
        snprintf(buffers, sizeof(buffers), " (%d per channel)", x->k);
    }
    char more[32] = "";
    if (n > SHOWN_MAX) {
        snprintf(more, sizeof(more), "; and %d more", n - SHOWN_MAX);
    }
    return pp_fail(PP_EFORMAT, "with %s%s these ranks wait for each other: %s%s",
                   sends[x->guarantee], buffers, text, more);
}

static int run_all(struct machine *x)
{
    for (int r = x->comms->n_ranks - 1; r >= 0; r--) {
        x->ready[x->n_ready++] = r;
    }
    while (x->n_ready > 0) {
        run_rank(x, x->ready[--x->n_ready]);
    }
    for (int r = 0; r < x->comms->n_ranks; r++) {
        if (x->waits[r]) {
            return fail_circle(x);
        }
    }
    return 0;
}

/* Of paired lists. */
static int run(const struct pp_plan *plan, const struct pp_comms *comms, enum pp_guarantee g, int k)
{
    size_t p = (size_t)comms->n_ranks;
    int rc = PP_ERESOURCE;
    struct machine x = {.plan = plan, .comms = comms, .guarantee = g, .k = k};
    x.is = pp_alloc((size_t)plan->n_messages, 1);
    x.in_buffers = pp_alloc((size_t)plan->n_channels, sizeof(*x.in_buffers));
    x.at = pp_alloc(p, sizeof(*x.at));
    x.end = pp_alloc(p, sizeof(*x.end));
    x.waits = pp_alloc(p, sizeof(*x.waits));
    x.ready = pp_alloc(p, sizeof(*x.ready));
    if (x.is && x.in_buffers && x.at && x.end && x.waits && x.ready) {
        rc = run_all(&x);
    }
    pp_free(x.is);
    pp_free(x.in_buffers);
    pp_free(x.at);
    pp_free(x.end);
    pp_free(x.waits);
    pp_free(x.ready);
    return rc;
}

int pp_comms_prove(const struct pp_plan *plan, const struct pp_comms *comms, enum pp_guarantee g,
                   int k)
{
    if (g == PP_SEND_BUFFERED && k < 1) {
        return pp_fail(PP_ECONFIG, "%d buffers per channel: there must be at least 1", k);
    }
    PP_TRY(pp_comms_pair(plan, comms, NULL));
    if (g == PP_SEND_GROUPED) {
        PP_TRY(pp_comms_one_order(plan, comms));
    }
    return run(plan, comms, g, k);
}

int pp_plan_prove_transport(const struct pp_plan *plan, enum pp_comm_order order,
                            enum pp_guarantee g, int k)
{
    struct pp_comms comms;
    PP_TRY(pp_comms_build(plan, order, &comms));
    int rc = pp_comms_prove(plan, &comms, g, k);
    pp_comms_fini(&comms);
    return rc;
}

int pp_comms_least_buffers(const struct pp_plan *plan, const struct pp_comms *comms, int *out)
{
    int rc = pp_comms_prove(plan, comms, PP_SEND_SYNCHRONOUS, 0);
    if (rc == 0) {
        *out = 0;
    }
    if (rc != PP_EFORMAT) {
        return rc;
    }
    /* A message per micro-batch: more buffers than that change nothing. */
    int enough = plan->geometry.microbatches;
    int too_few = 0;
    PP_TRY(pp_comms_prove(plan, comms, PP_SEND_BUFFERED, enough));
    while (enough - too_few > 1) {
        int k = too_few + (enough - too_few) / 2;
        rc = run(plan, comms, PP_SEND_BUFFERED, k);
        if (rc != 0 && rc != PP_EFORMAT) {
            return rc;
        }
        if (rc == 0) {
            enough = k;
        } else {
            too_few = k;
        }
    }
    *out = enough;
    return 0;
}
