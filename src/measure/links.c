/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The links between the processes of a run, measured where they are: from rank 0 to the first rank
 * beside it and to the first one on another host.
 */
#include "measure.h"

#include <math.h>

#include "ppcli/base/base.h"

enum {
    ROUNDS = 3, /* of a visit; of them the fastest */
    VISITS = 3,
    SMALL = 64, /* bytes */
    LEAST = 65536,
    MOST = 1048576
};
#define LONG_ENOUGH 0.02 /* seconds that a large message takes; then it is not made larger */

/* Half of there and back. */
static int one_way(struct pp_transport *tp, int peer, char *buf, size_t bytes, double *out)
{
    double t[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t start = pp_clock_ns();
        if (tp->rank == 0)
            PP_TRY(pp_transport_send(tp, peer, buf, bytes));
        PP_TRY(pp_transport_recv(tp, peer, buf, bytes));
        if (tp->rank != 0)
            PP_TRY(pp_transport_send(tp, peer, buf, bytes));
        t[i] = (double)(pp_clock_ns() - start) * 0.5e-9;
    }
    pp_sort_doubles(t, ROUNDS);
    *out = t[0];
    return 0;
}

/* What the calls take of a sender that is not waited for, and of a reader who comes late. */
static int copies(struct pp_transport *tp, int peer, char *buf, size_t bytes, double way,
                  double *out)
{
    double send[ROUNDS], recv[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        double *mine = tp->rank == 0 ? send : recv;
        if (tp->rank != 0)
            pp_clock_nap((uint64_t)(way * 2e9) + 1000000);
        uint64_t start = pp_clock_ns();
        PP_TRY(tp->rank == 0 ? pp_transport_send(tp, peer, buf, bytes)
                             : pp_transport_recv(tp, peer, buf, bytes));
        mine[i] = (double)(pp_clock_ns() - start) * 1e-9;
        PP_TRY(tp->rank == 0 ? pp_transport_recv(tp, peer, &recv[i], sizeof(recv[i]))
                             : pp_transport_send(tp, peer, &recv[i], sizeof(recv[i])));
    }
    pp_sort_doubles(recv, ROUNDS);
    pp_sort_doubles(send, tp->rank == 0 ? ROUNDS : 0);
    *out = tp->rank == 0 ? (send[0] + recv[0]) / 2 : 0;
    return 0;
}

/* Rank 0 and peer: larger messages until one takes long enough, and then visits until they agree.
 * Both measure, rank 0's clock counts and says what comes next. */
static int measure_one(struct pp_transport *tp, int peer, char *buf, struct pp_link_cost *out)
{
    struct link_visits v = {.n = 0};
    double low[LINK_FIGURES], latency, copy, way, unsteady = 1;
    size_t bytes = 0;
    for (size_t next = LEAST; next > 0;) {
        v.n = next == bytes ? v.n : 0;
        bytes = next;
        PP_TRY(one_way(tp, peer, buf, SMALL, &latency));
        PP_TRY(one_way(tp, peer, buf, bytes, &way));
        PP_TRY(copies(tp, peer, buf, bytes, way, &copy));
        v.t[LINK_LATENCY][v.n] = latency;
        v.t[LINK_CALLS][v.n] = copy / (double)bytes;
        v.t[LINK_BYTE][v.n++] = way > latency ? (way - latency) / (double)bytes : 0;
        unsteady = link_settle(&v, low);
        bool again = v.n < VISITS || (unsteady > PP_LINK_STEADY && v.n < VISITS + LINK_AGAIN);
        next = way < LONG_ENOUGH && bytes < MOST ? 2 * bytes : again ? bytes : 0;
        PP_TRY(tp->rank == 0 ? pp_transport_send(tp, peer, &next, sizeof(next))
                             : pp_transport_recv(tp, peer, &next, sizeof(next)));
    }
    *out =
        (struct pp_link_cost){true, low[LINK_LATENCY], low[LINK_BYTE], low[LINK_CALLS], unsteady};
    return 0;
}

static int measure_all(struct pp_transport *tp, char *buf, struct pp_links *l)
{
    for (int k = 0; k < 2; k++) {
        int peer = 1;
        while (peer < tp->size && (l->host[peer] != l->host[0]) != (k == 1))
            peer++;
        if (peer < tp->size && (tp->rank == 0 || tp->rank == peer))
            PP_TRY(measure_one(tp, tp->rank == 0 ? peer : 0, buf, k ? &l->far : &l->near));
    }
    return 0;
}

int pp_links_measure(struct pp_transport *tp, struct pp_links *out)
{
    struct pp_links l = {.n = tp->size, .host = pp_alloc((size_t)tp->size, sizeof(int))};
    PP_OWN_MEMORY char *buf = pp_alloc(MOST, 1);
    int rc = pp_transport_agree(tp, l.host && buf ? 0 : PP_ERESOURCE);
    if (rc == 0)
        rc = pp_transport_allgather(tp, &tp->host, sizeof(tp->host), l.host);
    if (rc == 0 && l.host)
        rc = measure_all(tp, buf, &l);
    PP_TRY_UNDO(rc, pp_free(l.host));
    for (int r = 0; l.host && r < l.n; r++)
        l.beside += l.host[r] == l.host[0];
    *out = l;
    return 0;
}

int pp_links_put(const struct pp_links *l, struct pp_costs *c)
{
    if (l->near.measured) {
        c->linked = true;
        c->latency = l->near.latency;
        c->byte = l->near.byte;
    }
    c->unsteady = fmax(c->unsteady, fmax(l->near.unsteady, l->far.unsteady));
    if (l->far.measured) {
        c->far_latency = l->far.latency;
        c->far_byte = l->far.byte;
        c->far_copy = l->far.copy;
        c->one_wire = true;
        return pp_costs_hosts(c, l->host, l->n);
    }
    return 0;
}
