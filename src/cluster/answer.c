/* SPDX-License-Identifier: Apache-2.0 */
/* The helper that runs on every host: answers questions about this host, and connects to other
 * hosts. */
#include "hosts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "ppcli/dev/backend.h"
#include "ppcli/base/base.h"
#include "ppcli/base/cores.h"
#include "ppcli/comm/transport.h"
#include "ppcli/measure/measure.h"

#define ARGS_MAX 6
#define CONNECT_S 1
/* for sending a block over a slow link; the question has ANSWER_SECONDS */
#define STREAM_US 1900000
#define PORT_FIRST 32768 /* first port to listen on if any port is allowed */
#define PORT_LAST 60999
/* ends after this time without a question: the asking process is gone, and the agent has not
 * noticed */
#define ALONE_S 60
#define TRIPS 8
#define BLOCK HOSTS_BLOCK

struct asked {
    char *args[ARGS_MAX + 1];
    int n;
    int listeners[HOSTS_PORTS], n_listeners;
    char token[HOSTS_TOKEN + 1];
    char answer[2048];
};

/* ---- questions about this host */

/* Answers "digest PATH" with the digest of a file, or of the files in a folder and their names. */
static int answer_digest(struct asked *q)
{
    return pp_path_digest(q->args[1], q->answer);
}

/* Answers "last FOLDER PREFIX" with the largest number that follows PREFIX in the name of a file of
 * the folder; -1 if no name has one. */
static int answer_last_number(struct asked *q)
{
    PP_OWN(pp_closedir_at) DIR *d = opendir(q->args[1]);
    size_t n = strlen(q->args[2]);
    long long most = -1;
    for (struct dirent *e; d && (e = readdir(d));) {
        char *end = e->d_name;
        long long at =
            strncmp(e->d_name, q->args[2], n) == 0 ? strtoll(e->d_name + n, &end, 10) : 0;
        most = end > e->d_name + n && *end == '\0' && at > most ? at : most;
    }
    snprintf(q->answer, sizeof(q->answer), "%lld", most);
    return 0;
}

static int answer_facts(struct asked *q)
{
    struct pp_machine m;
    char program[PP_SHA256_HEX], boot[64] = "", cpu[200] = "", name[64] = "", addresses[512];
    PP_TRY(pp_path_digest("/proc/self/exe", program));
    pp_machine_describe(true, &m);
    pp_backend_at(0)->probe(cpu, sizeof(cpu));
    hosts_list_addresses(addresses, sizeof(addresses));
    gethostname(name, sizeof(name) - 1);
    pp_file_value("/proc/sys/kernel/random/boot_id", "", boot, sizeof(boot));
    snprintf(q->answer, sizeof(q->answer), "%s|%s|%s|%s|%d|%d|%" PRIu64 "|%s|%s", program,
             pp_world_version(), cpu, boot, pp_machine_whole_cores(), m.cores_there, m.memory_left,
             name, addresses);
    return 0;
}

/* Answers "address NETWORK" with this host's address in the network. */
static int answer_address(struct asked *q)
{
    return pp_network_find(q->args[1], q->answer);
}

/* ---- connections */

static void set_up_socket(int fd)
{
    const struct timeval limit = {.tv_sec = CONNECT_S};
    const int yes = 1, buffer = 1 << 18;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)); /* also limits connect() */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

static bool send_all(int fd, const void *data, size_t bytes)
{
    return send(fd, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

static bool receive_all(int fd, void *data, size_t bytes)
{
    return recv(fd, data, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

/* Sends a byte: with receive_byte() one of the two functions with which pp_link_time() measures
 * round trips over a connection. */
static int send_byte(void *fd)
{
    return send_all(*(const int *)fd, "c", 1) ? 0 : PP_ERESOURCE;
}

static int receive_byte(void *fd)
{
    char c;
    return receive_all(*(const int *)fd, &c, 1) ? 0 : PP_ERESOURCE;
}

static bool measure_trips(int fd, bool leads, double t[TRIPS])
{
    const struct pp_link_end end = {leads, NULL, send_byte, receive_byte, &fd};
    return pp_link_time(&end, 1, TRIPS, t) == 0;
}

/*
 * A connection from another host, served by its own thread, so that a silent peer blocks no other.
 * The peer sends the token, then TRIPS bytes that are sent back, then blocks until it stops. The
 * answer is how many bytes came, and in how many nanoseconds; both count from the end of the first
 * read.
 */
struct call {
    int fd;
    const struct asked *q;
    char block[BLOCK];
};

static void *serve_call(void *arg)
{
    PP_OWN_MEMORY struct call *call = arg;
    const int fd = call->fd;
    double trips[TRIPS];
    uint64_t first = 0, sum[2] = {0, 1};
    set_up_socket(fd);
    bool fine = receive_all(fd, call->block, HOSTS_TOKEN) &&
                memcmp(call->block, call->q->token, HOSTS_TOKEN) == 0 &&
                measure_trips(fd, false, trips);
    ssize_t n = -1;
    while (fine && (n = recv(fd, call->block, BLOCK, 0)) > 0) {
        sum[0] += first ? (uint64_t)n : 0;
        first = first ? first : pp_clock_ns();
        sum[1] = pp_clock_ns() - first + 1;
    }
    if (n == 0) /* everything has arrived */
        send_all(fd, sum, sizeof(sum));
    close(fd);
    return NULL;
}

static void answer_call(const struct asked *q, int fd)
{
    pthread_t thread;
    struct call *call = pp_alloc(1, sizeof(*call));
    if (call) {
        call->fd = fd;
        call->q = q;
    }
    if (call && pp_thread_start(&thread, serve_call, call) == 0) {
        pthread_detach(thread);
        return;
    }
    pp_free(call);
    close(fd);
}

static void *accept_calls(void *arg)
{
    const struct asked *q = arg;
    struct pollfd fds[HOSTS_PORTS];
    for (;;) {
        for (int i = 0; i < q->n_listeners; i++)
            fds[i] = (struct pollfd){.fd = q->listeners[i], .events = POLLIN};
        if (poll(fds, (nfds_t)q->n_listeners, -1) < 0 && errno != EINTR)
            return NULL;
        for (int i = 0; i < q->n_listeners; i++) {
            int fd = fds[i].revents ? accept4(fds[i].fd, NULL, NULL, SOCK_CLOEXEC) : -1;
            if (fd >= 0)
                answer_call(q, fd);
        }
    }
}

/* Listens on a port. Returns the socket, or -1 if the port is in use. */
static int listen_on(int port)
{
    const struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int yes = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(fd, (const struct sockaddr *)&at, sizeof(at)) == 0 && listen(fd, 64) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Listens on at most `most` free ports, spread over the range from `first` to `last`, and adds them
 * to the answer. */
static int listen_some(struct asked *q, int first, int last, int most)
{
    int step = last - first >= most ? (last - first + most) / most : 1, found = 0;
    for (int port = first; port <= last && found<most; port += found> 0 ? step : 1) {
        int fd = listen_on(port);
        if (fd < 0)
            continue;
        q->listeners[q->n_listeners++] = fd;
        pp_text_add(q->answer, sizeof(q->answer), "%s%d", q->answer[0] ? "," : "", port);
        found++;
    }
    return found > 0 ? 0
                     : pp_fail(PP_ERESOURCE, "no port of %d-%d is free; name others in run.ports",
                               first, last);
}

/* Answers "listen FIRST LAST TOKEN" with the ports on which it now listens; FIRST is 0 for any
 * port. It takes ports of both halves of the range, because mpirun uses free ports of the first
 * half and the ranks those of the second. */
static int listen_here(struct asked *q)
{
    pthread_t thread;
    int first = atoi(q->args[1]), last = atoi(q->args[2]);
    int half = first + (last - first + 1) / 2;
    snprintf(q->token, sizeof(q->token), "%s", q->args[3]);
    q->answer[0] = '\0';
    if (first == 0) {
        PP_TRY(listen_some(q, PORT_FIRST, PORT_LAST, 1));
    } else {
        PP_TRY(listen_some(q, first, half - 1, HOSTS_PORTS / 2));
        PP_TRY(listen_some(q, half, last, HOSTS_PORTS / 2));
    }
    if ((errno = pp_thread_start(&thread, accept_calls, q)) != 0)
        return pp_fail_errno(PP_ERESOURCE, "cannot start a thread");
    pthread_detach(thread);
    return 0;
}

/* Checks that this machine can connect to all of the ports. On failure *to has the first port to
 * which it cannot. */
static int try_ports(const struct pp_route *r, const char *ports, struct sockaddr_in *to)
{
    struct pollfd fds[HOSTS_PORTS];
    int port[HOSTS_PORTS] = {0}, n = 0, bad = -1, e = 0;
    const uint64_t end = pp_clock_ns() + (uint64_t)CONNECT_S * 1000000000;
    for (const char *p = ports; *p && n < HOSTS_PORTS; n++) {
        char *rest;
        port[n] = (int)strtol(p, &rest, 10);
        p = rest + (*rest == ',');
        to->sin_port = htons((uint16_t)port[n]);
        fds[n].fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        fds[n].events = POLLOUT;
        int rc = connect(fds[n].fd, (const struct sockaddr *)to, sizeof(*to));
        if (rc != 0 && errno != EINPROGRESS && bad < 0) {
            bad = n;
            e = errno;
        }
    }
    for (int i = 0; i < n && bad < 0; i++) {
        socklen_t bytes = sizeof(e);
        uint64_t now = pp_clock_ns();
        int came = poll(&fds[i], 1, now < end ? (int)((end - now) / 1000000) + 1 : 0);
        e = ETIMEDOUT;
        if (came == 1)
            getsockopt(fds[i].fd, SOL_SOCKET, SO_ERROR, &e, &bytes);
        bad = e != 0 ? i : -1;
    }
    for (int i = 0; i < n; i++)
        close(fds[i].fd);
    to->sin_port = htons((uint16_t)port[bad < 0 ? 0 : bad]);
    errno = e;
    return bad < 0 ? 0
                   : pp_fail_errno(PP_ERESOURCE, "no connection to port %d of %s from %s (%s)",
                                   port[bad], r->peer, r->own, r->device);
}

int hosts_reach(const char *name, const char *ports)
{
    struct pp_route r;
    struct sockaddr_in to = {.sin_family = AF_INET};
    PP_TRY(pp_route_find(name, &r));
    inet_pton(AF_INET, r.peer, &to.sin_addr);
    return try_ports(&r, ports, &to);
}

/* Answers "probe NAME PORTS TOKEN MS" with the route to a host and its speed: network, own address,
 * interface and the host's address; the seconds to connect and of a round trip; and the bytes per
 * second, measured for MS milliseconds. The last is 0 if MS is 0, when only one block is sent, and
 * -1 if no full packet arrives. */
static int probe_way(struct asked *q)
{
    static const char block[BLOCK];
    struct pp_route r;
    struct sockaddr_in to = {.sin_family = AF_INET};
    const struct timeval longer = {.tv_sec = STREAM_US / 1000000, .tv_usec = STREAM_US % 1000000};
    double trips[TRIPS] = {0};
    uint64_t sum[2] = {0, 1}, limit = strtoull(q->args[4], NULL, 10) * 1000000;
    PP_TRY(pp_route_find(q->args[1], &r));
    inet_pton(AF_INET, r.peer, &to.sin_addr);
    PP_TRY(try_ports(&r, q->args[2], &to));
    PP_OWN(pp_close_at) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    set_up_socket(fd);
    uint64_t start = pp_clock_ns();
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0) {
        errno = errno == EINPROGRESS ? ETIMEDOUT : errno;
        return pp_fail_errno(PP_ERESOURCE, "no connection to port %d of %s from %s (%s)",
                             ntohs(to.sin_port), r.peer, r.own, r.device);
    }
    double connected = (double)(pp_clock_ns() - start) * 1e-9;
    bool fine = send_all(fd, q->args[3], HOSTS_TOKEN) && measure_trips(fd, true, trips);
    if (!fine)
        return pp_fail(PP_ERESOURCE, "the connection to port %d of %s breaks off",
                       ntohs(to.sin_port), r.peer);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &longer, sizeof(longer));
    start = pp_clock_ns();
    do
        fine = send_all(fd, block, sizeof(block));
    while (fine && pp_clock_ns() - start < limit);
    fine = fine && shutdown(fd, SHUT_WR) == 0 && receive_all(fd, sum, sizeof(sum));
    snprintf(q->answer, sizeof(q->answer), "%s|%s|%s|%s|%.9f|%.9f|%.0f", r.network, r.own, r.device,
             r.peer, connected, 2 * pp_median(trips, TRIPS),
             !fine       ? -1
             : limit > 0 ? (double)sum[0] * 1e9 / (double)sum[1]
                         : 0);
    return 0;
}

/* ---- questions and answers */

static int answer_question(struct asked *q)
{
    static const struct {
        const char *word;
        int n;
        int (*answer)(struct asked *q);
    } all[] = {{"facts", 1, answer_facts},   {"address", 2, answer_address},
               {"digest", 2, answer_digest}, {"last", 3, answer_last_number},
               {"listen", 4, listen_here},   {"probe", 5, probe_way}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (strcmp(all[i].word, q->args[0]) == 0 && q->n == all[i].n)
            return all[i].answer(q);
    return pp_fail(PP_EUSAGE, "no such question: is it another version of ppcli?");
}

static struct asked question; /* global, because its thread may outlive a call */

int pp_hosts_answer(void)
{
    char line[2 * PP_PATH_MAX];
    for (alarm(ALONE_S); fgets(line, sizeof(line), stdin); alarm(ALONE_S)) {
        struct timespec t;
        char *rest = line;
        line[strcspn(line, "\n")] = '\0';
        for (question.n = 0; rest && question.n < ARGS_MAX; question.n++)
            question.args[question.n] = strsep(&rest, "\t");
        int rc = answer_question(&question);
        clock_gettime(CLOCK_REALTIME, &t);
        printf("%s%lld.%09ld\t%s\n", rc == 0 ? HOSTS_GOOD : HOSTS_BAD, (long long)t.tv_sec,
               t.tv_nsec, rc == 0 ? question.answer : pp_error_get()->text);
        fflush(stdout);
    }
    return 0;
}
