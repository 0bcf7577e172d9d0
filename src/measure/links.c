/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the links between the processes of a run: from rank 0 to the next rank of its host, and
 * to the first rank of another host. */
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

struct process_end {
    struct pp_transport *tp;
    int peer;
    char *buf;
    size_t bytes;
};

static int send_to_process(void *ctx)
{
    const struct process_end *e = ctx;
    return pp_transport_send(e->tp, e->peer, e->buf, e->bytes);
}

static int receive_from_process(void *ctx)
{
    const struct process_end *e = ctx;
    return pp_transport_recv(e->tp, e->peer, e->buf, e->bytes);
}

/* Measures the time of the fastest of several messages of `bytes`. */
static int measure_fastest(struct pp_transport *tp, int peer, char *buf, size_t bytes, double *out)
{
    double t[ROUNDS];
    struct process_end side = {tp, peer, buf, bytes};
    const struct pp_link_end end = {tp->rank == 0, NULL, send_to_process, receive_from_process,
                                    &side};
    PP_TRY(pp_link_time(&end, 1, ROUNDS, t));
    pp_sort_doubles(t, ROUNDS);
    *out = t[0];
    return 0;
}

/* Measures the calls alone: *out is the mean of the fastest send that does not wait for the
 * receiver and of the fastest receive that begins after the message has arrived. Only rank 0 gets
 * it. */
static int measure_copies(struct pp_transport *tp, int peer, char *buf, size_t bytes, double way,
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

/* Measures the link between rank 0 and `peer` with larger and larger messages until one takes long
 * enough, and then until several visits agree. Rank 0's clock decides when to stop. */
static int measure_link_to(struct pp_transport *tp, int peer, char *buf, struct pp_link *out)
{
    struct link_visits v = {.n = 0};
    double low[LINK_FIGURES], latency, copy, way, unsteady = 1;
    size_t bytes = 0;
    for (size_t next = LEAST; next > 0;) {
        v.n = next == bytes ? v.n : 0;
        bytes = next;
        PP_TRY(measure_fastest(tp, peer, buf, SMALL, &latency));
        PP_TRY(measure_fastest(tp, peer, buf, bytes, &way));
        PP_TRY(measure_copies(tp, peer, buf, bytes, way, &copy));
        v.t[LINK_LATENCY][v.n] = latency;
        v.t[LINK_CALLS][v.n] = copy / (double)bytes;
        v.t[LINK_BYTE][v.n++] = way > latency ? (way - latency) / (double)bytes : 0;
        unsteady = link_settle(&v, low);
        bool again = v.n < VISITS || (unsteady > PP_LINK_STEADY && v.n < VISITS + LINK_AGAIN);
        next = way < LONG_ENOUGH && bytes < MOST ? 2 * bytes : again ? bytes : 0;
        PP_TRY(tp->rank == 0 ? pp_transport_send(tp, peer, &next, sizeof(next))
                             : pp_transport_recv(tp, peer, &next, sizeof(next)));
    }
    *out = (struct pp_link){low[LINK_LATENCY], low[LINK_BYTE], low[LINK_CALLS], unsteady};
    return 0;
}

static int measure_both_links(struct pp_transport *tp, char *buf, struct pp_links *l)
{
    for (int k = 0; k < 2; k++) {
        int peer = 1;
        while (peer < tp->size && (l->host[peer] != l->host[0]) != (k == 1))
            peer++;
        if (peer < tp->size && (tp->rank == 0 || tp->rank == peer))
            PP_TRY(measure_link_to(tp, tp->rank == 0 ? peer : 0, buf, k ? &l->far : &l->near));
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
        rc = measure_both_links(tp, buf, &l);
    PP_TRY_UNDO(rc, pp_free(l.host));
    for (int r = 0; l.host && r < l.n; r++)
        l.beside += l.host[r] == l.host[0];
    *out = l;
    return 0;
}

int pp_links_put(const struct pp_links *l, struct pp_costs *c)
{
    if (l->near.unsteady > 0) {
        double of_threads = c->near.unsteady;
        c->near = l->near;
        c->near.unsteady = fmax(of_threads, l->near.unsteady);
    }
    if (l->far.unsteady > 0) {
        c->far = l->far;
        c->one_wire = true;
        return pp_costs_hosts(c, l->host, l->n);
    }
    return 0;
}
