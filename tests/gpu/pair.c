/* SPDX-License-Identifier: Apache-2.0 */
/* See pair.h. An abort shuts the socket, which ends the other one's waits. */
#include "pair.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../src/comm/impl.h"
#include "ppcli/base/base.h"

struct pair {
    int fd;
    bool stopped;
};

/* Rank 0 sends first: two that send at once could fill the socket both ways. */
static int exchange(struct pp_transport *tp, const struct pp_exchange *x, int n)
{
    struct pair *p = tp->impl;
    for (int turn = 0; turn < 2; turn++) {
        bool sends = turn == tp->rank;
        size_t bytes = sends ? (x->out ? x->out_bytes : 0) : x->in ? x->in_bytes : 0;
        for (size_t at = 0; at < bytes;) {
            if (!sends && tp->waited_ns)
                *tp->waited_ns = pp_clock_ns();
            ssize_t got = sends ? send(p->fd, (const char *)x->out + at, bytes - at, MSG_NOSIGNAL)
                                : recv(p->fd, (char *)x->in + at, bytes - at, 0);
            if (got <= 0) {
                p->stopped = true;
                return pp_fail(PP_ELOST, "stopped: the other rank is gone");
            }
            at += (size_t)got;
        }
    }
    return 0;
}

static int allgather(struct pp_transport *tp, const void *in, size_t bytes, void *out)
{
    int other = 1 - tp->rank;
    char *theirs = (char *)out + (size_t)other * bytes;
    memmove((char *)out + (size_t)tp->rank * bytes, in, bytes);
    const struct pp_exchange x = {other, in, bytes, theirs, bytes};
    return exchange(tp, &x, 1);
}

static void stop_all(struct pp_transport *tp)
{
    struct pair *p = tp->impl;
    p->stopped = true;
    shutdown(p->fd, SHUT_RDWR);
}

static bool stopped(struct pp_transport *tp)
{
    const struct pair *p = tp->impl;
    return p->stopped;
}

static void destroy(struct pp_transport *tp)
{
    struct pair *p = tp->impl;
    close(p->fd);
}

static const struct pp_transport_ops transport_pair = {
    .name = "pair",
    .help = "two processes and a socket (tests)",
    .caps = {.processes = true},
    .destroy = destroy,
    .allgather = allgather,
    .exchange = exchange,
    .abort = stop_all,
    .stopped = stopped,
};

int pair_open(int rank, int fd, struct pp_transport **out)
{
    struct pair *p = pp_alloc(1, sizeof(*p));
    if (!p)
        return PP_ERESOURCE;
    p->fd = fd;
    int rc = pp_transport_new(&transport_pair, rank, 2, p, out);
    if (rc < 0)
        pp_free(p);
    return rc;
}
