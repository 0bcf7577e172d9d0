/* SPDX-License-Identifier: Apache-2.0 */
/* Listens to the heartbeats of the ranks; see ppcli/cluster/pulse.h. */
#include "beat.h"
#include "pulse.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "ppcli/base/base.h"

#define UNKNOWN (-2)
#define STRANGERS 64            /* connections that have not identified themselves */
#define STRANGER_NS 5000000000u /* time to identify themselves, which a rank does at once */
#define ACCEPTS 1024            /* most connections accepted in a call */

struct line {        /* a connection */
    int fd, rank;    /* rank UNKNOWN: not identified */
    uint64_t age_ns; /* age of a stranger; of a keeper, time since its last heartbeat */
    uint64_t timeout_ns;
    char host[PP_HOST_MAX]; /* of a keeper */
    size_t at;
    struct beat in;
};

struct heard {       /* state of a rank */
    bool came, gone; /* gone: its connection ended while it worked */
    int connected;
    uint64_t silent_ns, last_ns; /* last_ns: time of the last heartbeat, or when it was gone; 0: no
                                    heartbeat yet */
    struct beat last; /* before the first heartbeat: the expected values; empty host: unknown */
};

struct pp_listener {
    int fd, ranks, n_lines;
    bool hurry;
    uint64_t token, last_ns;
    char address[PP_PULSE_ADDRESS], host[PP_HOST_MAX];
    char orphan[PP_HOST_MAX]; /* the first host whose keeper reports that its orted was killed */
    struct line *lines;       /* [n_lines] */
    struct heard *heard;      /* [ranks] */
};

static void list_addresses(struct pp_listener *l, int port)
{
    struct ifaddrs *all = NULL;
    char ip[INET_ADDRSTRLEN];
    size_t used = (size_t)snprintf(l->address, sizeof(l->address),
                                   "%llx:%d:", (unsigned long long)l->token, port);
    if (getifaddrs(&all) != 0)
        all = NULL;
    for (struct ifaddrs *a = all; a && used + 64 < sizeof(l->address); a = a->ifa_next) {
        if (!a->ifa_addr || a->ifa_addr->sa_family != AF_INET || !(a->ifa_flags & IFF_UP) ||
            (a->ifa_flags & IFF_LOOPBACK))
            continue;
        inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)a->ifa_addr)->sin_addr, ip, sizeof(ip));
        used += (size_t)snprintf(l->address + used, sizeof(l->address) - used, "%s,", ip);
    }
    freeifaddrs(all);
    snprintf(l->address + used, sizeof(l->address) - used, "127.0.0.1");
}

static int listen_to_ranks(struct pp_listener *l, int first, int last)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t bytes = sizeof(at);
    bool bound = false;
    l->fd = beat_socket();
    for (int port = first; l->fd >= 0 && !bound && port <= last; port++) {
        at.sin_port = htons((uint16_t)port);
        bound = bind(l->fd, (struct sockaddr *)&at, sizeof(at)) == 0;
    }
    if (!bound || listen(l->fd, SOMAXCONN) != 0 ||
        getsockname(l->fd, (struct sockaddr *)&at, &bytes) != 0 ||
        getrandom(&l->token, sizeof(l->token), 0) != (ssize_t)sizeof(l->token))
        return pp_fail_errno(PP_ERESOURCE, "cannot listen to the ranks");
    list_addresses(l, ntohs(at.sin_port));
    return 0;
}

int pp_listener_open(int ranks, int first, int last, struct pp_listener **out)
{
    struct pp_listener *l;
    PP_ALLOC(l, 1);
    *l = (struct pp_listener){.fd = -1, .ranks = ranks, .last_ns = pp_clock_ns()};
    int n = 2 * ranks + 16 + STRANGERS; /* a host with a keeper also has a rank */
    l->lines = pp_alloc((size_t)n, sizeof(*l->lines));
    l->heard = pp_alloc((size_t)ranks, sizeof(*l->heard));
    l->n_lines = l->lines ? n : 0;
    pp_host_name(l->host);
    for (int i = 0; i < l->n_lines; i++)
        l->lines[i].fd = -1;
    int rc = l->lines && l->heard ? listen_to_ranks(l, first, last) : PP_ERESOURCE;
    if (rc < 0)
        pp_listener_close(&l);
    *out = l;
    return rc;
}

void pp_listener_close(struct pp_listener **listener)
{
    struct pp_listener *l = *listener;
    if (!l)
        return;
    for (int i = 0; i < l->n_lines; i++)
        beat_drop(&l->lines[i].fd);
    beat_drop(&l->fd);
    pp_free(l->lines);
    pp_free(l->heard);
    pp_free(l);
    *listener = NULL;
}

const char *pp_listener_address(const struct pp_listener *l)
{
    return l ? l->address : "";
}

void pp_listener_expect(struct pp_listener *l, int rank, const char *host, double timeout)
{
    struct beat *b = &l->heard[rank].last;
    uint64_t limit = BEAT_COME_NS((uint64_t)(timeout * 1e9));
    *b = (struct beat){.rank = rank, .timeout_ns = limit - BEAT_MARGIN_NS};
    snprintf(b->what, sizeof(b->what), "its start");
    snprintf(b->host, sizeof(b->host), "%s", host);
}

static void hang_up(struct pp_listener *l, struct line *c)
{
    if (c->rank >= 0) {
        struct heard *h = &l->heard[c->rank];
        h->gone = --h->connected == 0 && !h->last.over;
        h->last_ns = h->gone ? pp_clock_ns() : h->last_ns;
    }
    beat_drop(&c->fd);
}

/* Stores a heartbeat of a keeper, which is the process that starts the orted of a host and watches
 * it. */
static void take_keeper(struct pp_listener *l, struct line *c)
{
    struct beat *b = &c->in;
    b->host[PP_HOST_MAX - 1] = '\0';
    memcpy(c->host, b->host, sizeof(c->host));
    c->age_ns = 0;
    c->timeout_ns = b->timeout_ns;
    if (b->what[0] && !l->orphan[0])
        memcpy(l->orphan, c->host, sizeof(l->orphan));
}

/* Stores a complete heartbeat and confirms it. Returns false if it is not valid. */
static bool take_beat(struct pp_listener *l, struct line *c)
{
    const struct beat *b = &c->in;
    const char well = BEAT_WELL;
    if (b->token != l->token || b->rank < PP_PULSE_KEEPER || b->rank >= l->ranks ||
        (c->rank != UNKNOWN && c->rank != b->rank))
        return false;
    bool is_new = c->rank == UNKNOWN;
    c->rank = b->rank;
    c->at = 0;
    (void)!send(c->fd, &well, 1, MSG_NOSIGNAL);
    if (b->rank == PP_PULSE_KEEPER) {
        take_keeper(l, c);
        return true;
    }
    struct heard *h = &l->heard[b->rank];
    h->connected += is_new;
    h->came = true;
    h->gone = false;
    h->silent_ns = 0;
    h->last_ns = pp_clock_ns();
    h->last = *b;
    h->last.host[PP_HOST_MAX - 1] = h->last.what[sizeof(h->last.what) - 1] = '\0';
    return true;
}

static void read_line(struct pp_listener *l, struct line *c)
{
    while (c->fd >= 0) {
        ssize_t n = recv(c->fd, (char *)&c->in + c->at, sizeof(c->in) - c->at, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        c->at += n > 0 ? (size_t)n : 0;
        bool foreign = c->at >= sizeof(c->in.token) && c->in.token != l->token;
        if (n <= 0 || foreign || (c->at == sizeof(c->in) && !take_beat(l, c)))
            hang_up(l, c);
    }
}

/* Returns a free connection. If there is none, or too many connections are from strangers, which
 * have not sent a valid heartbeat yet, it closes the oldest of these and returns it. */
static struct line *find_free_line(struct pp_listener *l)
{
    struct line *unused = NULL, *oldest = NULL;
    int strangers = 0;
    for (int i = 0; i < l->n_lines; i++) {
        struct line *c = &l->lines[i];
        if (c->fd < 0) {
            unused = c;
        } else if (c->rank == UNKNOWN) {
            strangers++;
            oldest = !oldest || c->age_ns > oldest->age_ns ? c : oldest;
        }
    }
    if (unused && strangers < STRANGERS)
        return unused;
    if (oldest)
        hang_up(l, oldest);
    return oldest;
}

/* Reads all connections. It accepts new ones and reads them at once, so that many silent strangers
 * do not delay a rank. */
static void read_lines(struct pp_listener *l, uint64_t dt)
{
    for (int i = 0; i < l->n_lines; i++) {
        struct line *c = &l->lines[i];
        read_line(l, c);
        c->age_ns += dt;
        if (c->fd >= 0 && c->rank == UNKNOWN && c->age_ns > STRANGER_NS)
            hang_up(l, c);
    }
    for (int i = 0, fd; i < ACCEPTS; i++) {
        fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && errno != EINTR && errno != ECONNABORTED)
            return;
        struct line *c = fd >= 0 ? find_free_line(l) : NULL;
        if (c) {
            *c = (struct line){.fd = fd, .rank = UNKNOWN};
            read_line(l, c);
        } else {
            beat_drop(&fd);
        }
    }
}

static void append_rank(char text[PP_PULSE_TEXT], const struct beat *b)
{
    pp_text_add(text, PP_PULSE_TEXT, "rank %d (host %s", b->rank, b->host);
    if (b->pid != 0)
        pp_text_add(text, PP_PULSE_TEXT, ", pid %ld", (long)b->pid);
}

static const char *action_text(const struct beat *b)
{
    return b->what[0] ? b->what : "set-up, before its first action";
}

/* Appends to text which ranks wait, and in which action. */
static void append_waiting(const struct pp_listener *l, char text[PP_PULSE_TEXT])
{
    for (int r = 0; r < l->ranks; r++) {
        const struct beat *b = &l->heard[r].last;
        if (!l->heard[r].came || b->over || !b->waits || l->heard[r].silent_ns > BEAT_MARGIN_NS)
            continue;
        pp_text_add(text, PP_PULSE_TEXT, "; ");
        append_rank(text, b);
        pp_text_add(text, PP_PULSE_TEXT, ") waits in %s, for %.1f s", action_text(b),
                    (double)b->idle_ns * 1e-9);
    }
}

void pp_listener_hurry(struct pp_listener *l)
{
    if (l)
        l->hurry = true;
}

/* Returns whether a keeper (see take_keeper()) is silent, and appends which one to text. Keepers
 * send heartbeats before the ranks of their hosts do. */
static bool is_keeper_silent(const struct pp_listener *l, char text[PP_PULSE_TEXT])
{
    const struct line *silent = NULL;
    bool others = false; /* another keeper is heard */
    for (int i = 0; i < l->n_lines; i++) {
        const struct line *c = &l->lines[i];
        if (c->fd < 0 || c->rank != PP_PULSE_KEEPER)
            continue;
        others |= c->age_ns <= BEAT_MARGIN_NS;
        if (c->age_ns > c->timeout_ns + BEAT_MARGIN_NS)
            silent = c;
    }
    if (!silent)
        return false;
    pp_text_add(text, PP_PULSE_TEXT,
                "orted (host %s) sends no heartbeat for %.1f s, before its ranks have begun; "
                "likely: host %s or %s is down%s",
                silent->host, (double)silent->age_ns * 1e-9, silent->host,
                others ? "the network to it" : l->host, others ? "" : " or cut off");
    return true;
}

bool pp_listener_find_loss(struct pp_listener *l, char text[PP_PULSE_TEXT])
{
    int silent = -1, n_silent = 0, elsewhere = 0, waiting = 0, came = 0;
    bool several = false;
    uint64_t idle_ns = UINT64_MAX, limit = 0;
    text[0] = '\0';
    if (!l)
        return false;
    uint64_t dt = beat_passed(&l->last_ns);
    read_lines(l, dt);
    if (l->orphan[0]) { /* its mpirun may not notice for a minute */
        pp_text_add(text, PP_PULSE_TEXT, "orted (host %s) was killed", l->orphan);
        return true;
    }
    for (int r = 0; r < l->ranks; r++) {
        struct heard *h = &l->heard[r];
        const struct beat *b = &h->last;
        if (!b->host[0] || b->over)
            continue;
        h->silent_ns += dt;
        came += h->came;
        waiting += b->waits;
        several |= l->heard[0].last.host[0] && strcmp(b->host, l->heard[0].last.host) != 0;
        idle_ns = b->idle_ns < idle_ns ? b->idle_ns : idle_ns;
        limit = b->timeout_ns + BEAT_MARGIN_NS;
        n_silent += h->silent_ns > BEAT_MARGIN_NS;
        elsewhere += h->came && h->silent_ns <= BEAT_MARGIN_NS && strcmp(b->host, l->host) != 0;
        bool gone = l->hurry && h->gone;
        if (h->silent_ns > (gone ? BEAT_MARGIN_NS : limit) &&
            (silent < 0 || h->last_ns < l->heard[silent].last_ns))
            silent = r;
    }
    if (silent < 0 && came < l->ranks && is_keeper_silent(l, text))
        return true;
    if (!several || came == 0 || (silent < 0 && (waiting < l->ranks || idle_ns <= limit)))
        return false;
    if (silent < 0) {
        pp_text_add(text, PP_PULSE_TEXT,
                    "all ranks wait for each other; no progress for %.1f s; likely: the network "
                    "between their hosts",
                    (double)idle_ns * 1e-9);
    } else {
        const struct heard *h = &l->heard[silent];
        static const char *const how[][2] = {{"has not come", "it cannot start"},
                                             {"sends no heartbeat", "it is stopped"},
                                             {"is gone", "it was killed"}};
        append_rank(text, &h->last);
        pp_text_add(text, PP_PULSE_TEXT,
                    ") %s for %.1f s, last in %s; likely: ", how[h->came + h->gone][0],
                    (double)h->silent_ns * 1e-9, action_text(&h->last));
        if (elsewhere > 0 || strcmp(h->last.host, l->host) == 0)
            pp_text_add(text, PP_PULSE_TEXT, "%s, or host %s or the network to it is down",
                        how[h->came + h->gone][1], h->last.host);
        else
            pp_text_add(text, PP_PULSE_TEXT, "host %s or %s is down or cut off", h->last.host,
                        l->host);
        if (n_silent > 1)
            pp_text_add(text, PP_PULSE_TEXT, "; so are %d more ranks", n_silent - 1);
    }
    append_waiting(l, text);
    return true;
}

void pp_listener_end(struct pp_listener *l)
{
    const char end = BEAT_END;
    for (int i = 0; l && i < l->n_lines; i++)
        if (l->lines[i].fd >= 0)
            (void)!send(l->lines[i].fd, &end, 1, MSG_NOSIGNAL);
}

int pp_listener_connected(const struct pp_listener *l)
{
    int n = 0;
    for (int i = 0; l && i < l->n_lines; i++)
        n += l->lines[i].fd >= 0 && l->lines[i].rank != UNKNOWN;
    return n;
}

const char *pp_listener_first_lost(const struct pp_listener *l, char text[PP_PULSE_TEXT])
{
    const struct heard *first = NULL, *absent = NULL;
    int n_absent = 0;
    text[0] = '\0';
    if (l && l->orphan[0]) {
        pp_text_add(text, PP_PULSE_TEXT, "orted (host %s)", l->orphan);
        return text;
    }
    for (int r = 0; l && r < l->ranks; r++) {
        const struct heard *h = &l->heard[r];
        bool lost = h->gone || h->silent_ns > 2 * (uint64_t)PP_PULSE_EVERY_NS;
        absent = h->last.host[0] && !h->came ? h : absent;
        n_absent += absent == h;
        if (h->came && !h->last.over && lost && (!first || h->last_ns < first->last_ns))
            first = h;
    }
    first = n_absent == 1 ? absent : first; /* of several absent ranks the first is unknown */
    if (first) {
        append_rank(text, &first->last);
        pp_text_add(text, PP_PULSE_TEXT, ", in %s)", action_text(&first->last));
    }
    return text;
}
