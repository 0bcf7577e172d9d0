/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures links. pp_link_time() times messages over any transport: links.c uses it between
 * processes, handover.c for `bench`, and the preflight of hosts over TCP. The rest of this file
 * measures the link between two rank threads: the time until the other side sees a message, what
 * its bytes cost more when another core has written them, and the calls that every action of the
 * executor makes.
 */
#include "measure.h"

#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"

enum {
    MANY = 64,      /* slots of the channel 0 -> 1 */
    ROUNDS = 9,     /* of a visit; of them the lower quartile */
    ROUNDS_MIN = 3, /* when the time is over: a machine that others use */
    TRIPS = 20,     /* there and back in one round */
    BYTES = 262144, /* of a message */
};

int link_open(struct pp_transport *tp, int slots, size_t bytes, struct pp_arena *memory)
{
    bool shared = tp->caps.shared_slots; /* then the receiver provides them */
    struct pp_channel_spec specs[2] = {
        {.src = 0, .dst = 1, .id = 0, .slots = slots, .bytes = bytes},
        {.src = 1, .dst = 0, .id = 1, .slots = 1, .bytes = bytes},
    };
    size_t there = (size_t)slots * bytes, back = bytes;
    bool has[2] = {tp->rank == 1 || (tp->rank == 0 && !shared),
                   tp->rank == 0 || (tp->rank == 1 && !shared)};
    size_t total = (has[0] ? there : 0) + (has[1] ? back : 0);
    PP_TRY(pp_transport_agree(tp, total > 0 ? pp_arena_create(total, memory) : 0));
    void *slot_memory[2] = {has[0] ? memory->base : NULL,
                            has[1] ? memory->base + (has[0] ? there : 0) : NULL};
    return pp_transport_open_channels(tp, specs, tp->rank < 2 ? 2 : 0, slot_memory);
}

int link_swap(struct pp_transport *tp, double *x)
{
    double mine = *x;
    for (int turn = 0; turn < 2; turn++)
        if (tp->rank == turn)
            PP_TRY(pp_transport_send(tp, 1 - turn, &mine, sizeof(mine)));
        else
            PP_TRY(pp_transport_recv(tp, turn, x, sizeof(*x)));
    return 0;
}

int link_share(struct pp_transport *tp, double *x)
{
    double other = *x;
    PP_TRY(link_swap(tp, &other));
    *x = tp->rank == 0 ? *x : other;
    return 0;
}

int pp_link_time(const struct pp_link_end *end, int trips, int rounds, double *t)
{
    for (int round = 0; round < rounds; round++) {
        PP_TRY(end->meet ? end->meet(end->ctx) : 0);
        uint64_t start = pp_clock_ns();
        for (int i = 0; i < trips; i++) {
            PP_TRY(end->leads ? end->send(end->ctx) : end->receive(end->ctx));
            PP_TRY(end->leads ? end->receive(end->ctx) : end->send(end->ctx));
        }
        t[round] = (double)(pp_clock_ns() - start) * 1e-9 / (2.0 * trips);
    }
    return 0;
}

/* ---- between two threads */

static int send_slot(struct pp_transport *tp, int ch, int slot)
{
    PP_TRY(pp_transport_acquire(tp, ch, slot));
    return pp_transport_post_send(tp, ch, slot, BYTES, slot);
}

static int receive_slot(struct pp_transport *tp, int ch, int slot)
{
    PP_TRY(pp_transport_post_recv(tp, ch, slot, BYTES, slot));
    return pp_transport_wait_recv(tp, ch, slot);
}

static int meet_other(void *tp)
{
    return link_swap(tp, &(double){0});
}

static int send_first_slot(void *ctx)
{
    struct pp_transport *tp = ctx;
    return send_slot(tp, tp->rank, 0);
}

static int receive_first_slot(void *ctx)
{
    struct pp_transport *tp = ctx;
    PP_TRY(receive_slot(tp, 1 - tp->rank, 0));
    return pp_transport_release(tp, 1 - tp->rank, 0);
}

/* Measures the calls of a sender that finds its slots free and of a receiver whose messages have
 * arrived; *t is their sum. */
static int measure_calls(struct worker *w, double *t)
{
    struct pp_transport *tp = w->tp;
    double mine = 0, other;
    for (int side = 0; side < 2; side++) {
        PP_TRY(link_swap(tp, &(double){0}));
        uint64_t start = pp_clock_ns();
        for (int i = 0; tp->rank == side && i < MANY; i++) {
            if (side == 0) {
                PP_TRY(send_slot(tp, 0, i));
            } else {
                PP_TRY(receive_slot(tp, 0, i));
                PP_TRY(pp_transport_release(tp, 0, i));
            }
        }
        if (tp->rank == side)
            mine = (double)(pp_clock_ns() - start) * 1e-9 / MANY;
    }
    other = mine;
    PP_TRY(link_swap(tp, &other));
    *t = mine + other;
    return 0;
}

static double time_reading(const char *p, uint64_t *sink)
{
    uint64_t start = pp_clock_ns(), seen = 0, word;
    for (size_t i = 0; i < BYTES; i += sizeof(word)) {
        memcpy(&word, p + i, sizeof(word));
        seen |= word;
    }
    *sink |= seen;
    return (double)(pp_clock_ns() - start) * 1e-9;
}

/* Measures how much longer a byte takes to read when another core has written it: rank 1 reads the
 * bytes that rank 0 has just written, and then reads them a second time, from its own cache. */
static int measure_byte(struct worker *w, double *t)
{
    struct pp_transport *tp = w->tp;
    double more = 0;
    PP_TRY(link_swap(tp, &(double){0}));
    if (tp->rank == 0) {
        PP_TRY(pp_transport_acquire(tp, 0, 0));
        memset(pp_transport_slot(tp, 0, 0), 1, BYTES);
        PP_TRY(pp_transport_post_send(tp, 0, 0, BYTES, 0));
        PP_TRY(pp_transport_recv(tp, 1, &more, sizeof(more)));
    } else {
        uint64_t sink = 0;
        PP_TRY(receive_slot(tp, 0, 0));
        const char *p = pp_transport_slot(tp, 0, 0);
        more = time_reading(p, &sink);
        more -= time_reading(p, &sink);
        more = sink == 0 ? 0 : more / BYTES; /* used, so that the reads are not left out */
        PP_TRY(pp_transport_release(tp, 0, 0));
        PP_TRY(pp_transport_send(tp, 0, &more, sizeof(more)));
    }
    *t = more > 0 ? more : 0;
    return 0;
}

/* Returns the lower quartile of n times. Another program on one of the two cores spoils a round,
 * which happens too often for a median. */
static double lower_quartile(double *t, int n)
{
    pp_median(t, n); /* sorts */
    return t[n / 4];
}

double link_settle(const struct link_visits *v, double low[LINK_FIGURES])
{
    double t[LINK_VISITS], most = 1;
    for (int k = 0; k < LINK_FIGURES; k++) {
        for (int i = 0; i < v->n;
             i++) /* bytes with their transfer: of themselves they may be noise */
            t[i] = v->t[k][i] + (k == LINK_BYTE ? v->t[LINK_LATENCY][i] / BYTES : 0);
        low[k] = lower_quartile(t, v->n);
        most = fmax(most, t[v->n / 4 + (v->n > 1)] / low[k]);
    }
    low[LINK_BYTE] = fmax(0, low[LINK_BYTE] - low[LINK_LATENCY] / BYTES);
    return most;
}

/* Measures the link in one visit of several rounds. Rank 0's clock decides for both ranks whether
 * another round follows. */
static int measure_pair(struct worker *w)
{
    double t[LINK_FIGURES][ROUNDS], late = 0;
    const struct pp_link_end end = {w->rank == 0, meet_other, send_first_slot, receive_first_slot,
                                    w->tp};
    uint64_t deadline = pp_clock_ns() + w->m->visit_ns;
    int n = 0;
    while (n < ROUNDS && late == 0) {
        PP_TRY(pp_link_time(&end, TRIPS, 1, &t[LINK_LATENCY][n]));
        PP_TRY(measure_calls(w, &t[LINK_CALLS][n]));
        PP_TRY(measure_byte(w, &t[LINK_BYTE][n]));
        late = ++n >= ROUNDS_MIN && pp_clock_ns() > deadline;
        PP_TRY(n >= ROUNDS_MIN ? link_share(w->tp, &late) : 0);
    }
    for (int k = 0; k < LINK_FIGURES; k++) {
        w->visits.t[k][w->visits.n] = lower_quartile(t[k], n);
        PP_TRY(link_share(w->tp, &w->visits.t[k][w->visits.n])); /* so that both judge alike */
    }
    w->visits.n++;
    return 0;
}

int measure_link(struct worker *w)
{
    if (w->m->workers < 2)
        return 0;
    if (!w->opened)
        PP_TRY(link_open(w->tp, MANY, BYTES, &w->link));
    w->opened = true;
    return w->rank < 2 ? measure_pair(w) : 0;
}
