/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The links between the processes of a run, measured where they are: from rank 0 to the first rank
 * beside it and to the first one on another host.
 */
#include "tune.h"

#include <string.h>

#include "ppcli/median.h"

enum {
    ROUNDS = 9, /* of them the lower quartile */
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
    pp_median(t, ROUNDS); /* sorts */
    *out = t[ROUNDS / 4];
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
    pp_median(recv, ROUNDS);
    if (tp->rank == 0)
        pp_median(send, ROUNDS);
    *out = tp->rank == 0 ? (send[ROUNDS / 4] + recv[ROUNDS / 4]) / 2 : 0;
    return 0;
}

/* Rank 0 and peer. Both measure, rank 0's clock counts and says what comes next. */
static int measure_one(struct pp_transport *tp, int peer, char *buf, struct pp_link_cost *out)
{
    struct pp_link_cost l = {.measured = true};
    size_t bytes = LEAST;
    double way;
    PP_TRY(one_way(tp, peer, buf, SMALL, &way)); /* warm */
    PP_TRY(one_way(tp, peer, buf, SMALL, &l.latency));
    for (bool more = true; more;) {
        PP_TRY(one_way(tp, peer, buf, bytes, &way));
        more = way < LONG_ENOUGH && bytes < MOST;
        PP_TRY(tp->rank == 0 ? pp_transport_send(tp, peer, &more, sizeof(more))
                             : pp_transport_recv(tp, peer, &more, sizeof(more)));
        bytes *= more ? 2 : 1;
    }
    PP_TRY(copies(tp, peer, buf, bytes, way, &l.copy));
    l.copy /= (double)bytes;
    l.byte = way > l.latency ? (way - l.latency) / (double)bytes : 0;
    *out = l;
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
    char *buf = pp_alloc(MOST, 1);
    int rc = pp_transport_agree(tp, l.host && buf ? 0 : PP_ERESOURCE);
    if (rc == 0)
        rc = pp_transport_allgather(tp, &tp->host, sizeof(tp->host), l.host);
    if (rc == 0 && l.host)
        rc = measure_all(tp, buf, &l);
    pp_free(buf);
    PP_TRY_UNDO(rc, pp_free(l.host));
    for (int r = 0; l.host && r < l.n; r++)
        l.beside += l.host[r] == l.host[0];
    *out = l;
    return 0;
}

int links_put(const struct pp_links *l, struct pp_costs *c)
{
    if (l->near.measured) {
        c->linked = true;
        c->latency = l->near.latency;
        c->byte = l->near.byte;
    }
    c->cores = l->n; /* this process may be bound to one; the others have theirs */
    if (l->far.measured) {
        c->far_latency = l->far.latency;
        c->far_byte = l->far.byte;
        c->far_copy = l->far.copy;
        c->one_wire = true;
        return pp_costs_hosts(c, l->host, l->n);
    }
    return 0;
}
