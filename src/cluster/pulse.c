/* SPDX-License-Identifier: Apache-2.0 */
/* Sends the heartbeats of a rank; see ppcli/cluster/pulse.h. */
#include "ppcli/cluster/pulse.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ppcli/base/base.h"
#include "beat.h"

#define CONNECT_NS 5000000000u /* until the first answer */
#define REACH_NS 1000000000u   /* until there is a connection */
#define AT_ONCE_MS 50
#define ADDRESSES_MAX 8

uint64_t beat_passed(uint64_t *last_ns)
{
    uint64_t now = pp_clock_ns(), dt = now - *last_ns;
    *last_ns = now;
    return dt < 2 * (uint64_t)PP_PULSE_EVERY_NS ? dt : 2 * (uint64_t)PP_PULSE_EVERY_NS;
}

void beat_drop(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

int beat_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
    if (fd >= 0) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        (void)setsockopt(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof(on));
    }
    return fd;
}

struct pp_pulse {
    struct in_addr addresses[ADDRESSES_MAX];
    int n, next, port, fd;
    bool heard, sure, hurry;
    char first[PP_HOST_MAX]; /* the host of rank 0, if rank 0 listens */
    bool closed;             /* if closed: the last answer was that there is no listener */
    uint64_t last_ns, connecting_ns, silent_ns;
    struct beat out; /* the heartbeat being sent, from byte `at` on */
    size_t at;
    pthread_mutex_t lock;
    struct beat mine; /* protected by the lock */
};

static int parse_address(const char *address, struct pp_pulse *p)
{
    char words[PP_PULSE_ADDRESS], *rest = words, *word;
    unsigned long long token = 0;
    int used = 0;
    if (sscanf(address, "%llx:%d:%511s%n", &token, &p->port, words, &used) != 3 || address[used])
        return pp_fail(PP_EFORMAT, PP_PULSE_ENV ": '%s' is not an address of a listener", address);
    p->mine.token = token;
    while (p->n < ADDRESSES_MAX && (word = strsep(&rest, ",")))
        p->n += inet_pton(AF_INET, word, &p->addresses[p->n]) == 1;
    return p->n > 0 ? 0 : pp_fail(PP_EFORMAT, PP_PULSE_ENV ": '%s' has no IP address", address);
}

/* Connects to the listener, or checks the connection. If it does not work, the next of the
 * listener's addresses is tried. */
static void reach_listener(struct pp_pulse *p, uint64_t dt)
{
    struct sockaddr_in to;
    socklen_t bytes = sizeof(to);
    p->connecting_ns += dt;
    if (p->heard || (p->fd >= 0 && p->connecting_ns < REACH_NS))
        return;
    if (p->connecting_ns < CONNECT_NS && getpeername(p->fd, (struct sockaddr *)&to, &bytes) == 0)
        return;
    beat_drop(&p->fd);
    to = (struct sockaddr_in){.sin_family = AF_INET,
                              .sin_port = htons((uint16_t)p->port),
                              .sin_addr = p->addresses[p->next++ % p->n]};
    p->fd = beat_socket();
    p->connecting_ns = 0;
    p->at = sizeof(p->out);
    if (p->fd >= 0)
        (void)connect(p->fd, (struct sockaddr *)&to, sizeof(to));
}

static void send_beat(struct pp_pulse *p)
{
    if (p->at == sizeof(p->out)) {
        pthread_mutex_lock(&p->lock);
        p->out = p->mine;
        pthread_mutex_unlock(&p->lock);
        p->at = 0;
    }
    ssize_t n = send(p->fd, (char *)&p->out + p->at, sizeof(p->out) - p->at, MSG_NOSIGNAL);
    p->at += n > 0 ? (size_t)n : 0;
}

static void beat_at_once(struct pp_pulse *p)
{
    for (int i = 0; i < p->n; i++) {
        p->connecting_ns = CONNECT_NS;
        reach_listener(p, 0);
        struct pollfd up = {.fd = p->fd, .events = POLLOUT};
        (void)poll(&up, 1, AT_ONCE_MS);
        send_beat(p);
        if (p->at == sizeof(p->out))
            return;
    }
}

int pp_pulse_open(const char *address, int rank, double timeout, const char *first,
                  struct pp_pulse **out)
{
    struct pp_pulse *p;
    PP_ALLOC(p, 1);
    p->fd = -1;
    p->sure = !first;
    snprintf(p->first, sizeof(p->first), "%s", first ? first : "");
    p->at = sizeof(p->out);
    p->last_ns = pp_clock_ns();
    p->mine = (struct beat){.pid = getpid(), .rank = rank, .timeout_ns = (uint64_t)(timeout * 1e9)};
    pp_host_name(p->mine.host);
    pthread_mutex_init(&p->lock, NULL);
    int rc = parse_address(address, p);
    if (rc < 0)
        pp_pulse_close(&p);
    else
        beat_at_once(p);
    *out = p;
    return rc;
}

void pp_pulse_close(struct pp_pulse **pulse)
{
    struct pp_pulse *p = *pulse;
    if (!p)
        return;
    p->mine.over = 1;
    for (int k = 0; k < 2; k++) /* the rest of a heartbeat, and the last one */
        send_beat(p);
    beat_drop(&p->fd);
    pthread_mutex_destroy(&p->lock);
    pp_free(p);
    *pulse = NULL;
}

void pp_pulse_say(struct pp_pulse *p, bool waits, uint64_t idle_ns, const char *what)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->mine.waits = waits;
    p->mine.idle_ns = idle_ns;
    snprintf(p->mine.what, sizeof(p->mine.what), "%s", what);
    pthread_mutex_unlock(&p->lock);
}

void pp_pulse_hurry(struct pp_pulse *p)
{
    if (p)
        p->hurry = true;
}

/* Writes to text that the listener does not answer, and what is likely to be the reason. */
static void describe_lost_listener(const struct pp_pulse *p, char text[PP_PULSE_TEXT])
{
    const char *what = p->mine.what[0] ? p->mine.what : "set-up";
    double seconds = (double)p->silent_ns * 1e-9;
    char address[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &p->addresses[(p->next + p->n - 1) % p->n], address, sizeof(address));
    if (p->first[0]) {
        snprintf(text, PP_PULSE_TEXT,
                 "rank 0 (host %s) %s for %.1f s; likely: it %s, or host %s or the network to it "
                 "is down; rank %d "
                 "(host %s, pid %ld) is in %s",
                 p->first, p->closed ? "is gone" : "sends no heartbeat", seconds,
                 p->closed ? "was killed" : "is stopped", p->first, p->mine.rank, p->mine.host,
                 (long)p->mine.pid, what);
        return;
    }
    snprintf(text, PP_PULSE_TEXT,
             "rank %d (host %s, pid %ld) has received nothing from %s, which watches the run, for "
             "%.1f s, in %s; likely: %s",
             p->mine.rank, p->mine.host, (long)p->mine.pid, address, seconds, what,
             p->closed ? "the process there that watches has ended"
                       : "that host is down, or this one is cut off");
}

enum pp_pulse_news pp_pulse_beat(struct pp_pulse *p, char text[PP_PULSE_TEXT])
{
    char answers[64];
    if (!p)
        return PP_PULSE_WELL;
    uint64_t dt = beat_passed(&p->last_ns);
    reach_listener(p, dt);
    p->silent_ns += p->heard || p->sure ? dt : 0;
    ssize_t n;
    while ((n = recv(p->fd, answers, sizeof(answers), 0)) > 0) {
        p->heard = true;
        p->silent_ns = 0;
        if (memchr(answers, BEAT_END, (size_t)n))
            return PP_PULSE_END;
    }
    bool gone = n == 0 || (errno != EAGAIN && errno != EINTR && errno != ENOTCONN);
    if (gone)
        p->closed = n == 0 || errno == ECONNREFUSED || errno == ECONNRESET || errno == EPIPE;
    if (gone && p->heard && p->mine.rank == PP_PULSE_KEEPER)
        return PP_PULSE_END;
    if (gone)
        p->connecting_ns = CONNECT_NS; /* refused: try the next address */
    send_beat(p);
    uint64_t limit = p->hurry && p->heard && p->closed ? 0 : p->mine.timeout_ns / 8 * 9;
    if (p->silent_ns <= (p->heard ? limit : BEAT_COME_NS(limit)) + BEAT_MARGIN_NS)
        return PP_PULSE_WELL;
    describe_lost_listener(p, text);
    return PP_PULSE_LOST;
}
