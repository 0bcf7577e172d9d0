/* SPDX-License-Identifier: Apache-2.0 */
/* See pair.h. An abort shuts the socket, which ends the other one's waits. */
#include "pair.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../src/comm/impl.h"
#include "ppcli/clock.h"
#include "ppcli/err.h"
#include "ppcli/mem.h"

struct pair {
    int fd;
    bool stopped;
    uint64_t *waited_ns;
};

static int lost(struct pair *p)
{
    p->stopped = true;
    return pp_fail(PP_ELOST, "stopped: the other rank is gone");
}

static int send_(struct pp_transport *tp, int dst, const void *buf, size_t bytes)
{
    struct pair *p = tp->impl;
    for (size_t at = 0; at < bytes;) {
        ssize_t n = send(p->fd, (const char *)buf + at, bytes - at, MSG_NOSIGNAL);
        if (n <= 0) {
            return lost(p);
        }
        at += (size_t)n;
    }
    return 0;
}

static int recv_(struct pp_transport *tp, int src, void *buf, size_t bytes)
{
    struct pair *p = tp->impl;
    for (size_t at = 0; at < bytes;) {
        if (p->waited_ns) {
            *p->waited_ns = pp_clock_ns();
        }
        ssize_t n = recv(p->fd, (char *)buf + at, bytes - at, 0);
        if (n <= 0) {
            return lost(p);
        }
        at += (size_t)n;
    }
    return 0;
}

/* Rank 0 speaks first: two that speak at once could fill the socket both ways. */
static int allgather(struct pp_transport *tp, const void *in, size_t bytes, void *out)
{
    int other = 1 - tp->rank;
    char *theirs = (char *)out + (size_t)other * bytes;
    memmove((char *)out + (size_t)tp->rank * bytes, in, bytes);
    if (tp->rank == 0) {
        PP_TRY(send_(tp, other, out, bytes));
        return recv_(tp, other, theirs, bytes);
    }
    PP_TRY(recv_(tp, other, theirs, bytes));
    return send_(tp, other, (char *)out + bytes, bytes);
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

static void show_waits(struct pp_transport *tp, uint64_t *waited_ns)
{
    struct pair *p = tp->impl;
    p->waited_ns = waited_ns;
}

static void destroy(struct pp_transport *tp)
{
    struct pair *p = tp->impl;
    close(p->fd);
    pp_free(p);
}

static const struct pp_transport_ops transport_pair = {
    .name = "pair",
    .help = "two processes and a socket (tests)",
    .caps = {.processes = true},
    .destroy = destroy,
    .allgather = allgather,
    .send = send_,
    .recv = recv_,
    .abort = stop_all,
    .stopped = stopped,
    .show_waits = show_waits,
};

int pair_open(int rank, int fd, struct pp_transport **out)
{
    struct pair *p = pp_alloc(1, sizeof(*p));
    if (!p) {
        return PP_ERESOURCE;
    }
    p->fd = fd;
    int rc = pp_transport_new(&transport_pair, rank, 2, p, out);
    if (rc < 0) {
        pp_free(p);
    }
    return rc;
}
