/* SPDX-License-Identifier: Apache-2.0 */
/* The helper: what it answers is what this host knows, and what it finds when it connects to others. */
#include "hosts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "ppcli/backend.h"
#include "ppcli/clock.h"
#include "ppcli/machine.h"
#include "ppcli/median.h"
#include "ppcli/thread.h"
#include "ppcli/transport.h"

#define ARGS_MAX 6
#define CONNECT_S 1
#define ALONE_S 60 /* without a question: who asks is gone, and the agent does not know */
#define TRIPS 8
#define BLOCK 65536

struct asked {
    char *args[ARGS_MAX + 1];
    int n;
    int listener;
    char token[HOSTS_TOKEN + 1];
    char answer[2048];
};

/* ---- questions about this host */

/* PATH: the digest of a file, or of the files in a folder by their names. */
static int digest(struct asked *q)
{
    return pp_path_digest(q->args[1], q->answer);
}

/* FOLDER PREFIX: the largest number that follows it in a name there; -1: none. */
static int last(struct asked *q)
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

static int facts(struct asked *q)
{
    struct pp_machine m;
    char program[PP_SHA256_HEX], boot[64] = "", cpu[200] = "";
    PP_TRY(pp_path_digest("/proc/self/exe", program));
    pp_machine_describe(true, &m);
    pp_backend_at(0)->probe(cpu, sizeof(cpu));
    pp_file_value("/proc/sys/kernel/random/boot_id", "", boot, sizeof(boot));
    snprintf(q->answer, sizeof(q->answer), "%s|%s|%s|%s|%d|%d cores, %.1f GiB free, %s, %s",
             program, pp_world_version(), cpu, boot, pp_machine_whole_cores(), m.cores_there,
             (double)m.room_bytes / (1 << 30), pp_world_version(), cpu);
    return 0;
}

/* ---- connections */

static void set_up_socket(int fd)
{
    const struct timeval limit = {.tv_sec = CONNECT_S};
    const int yes = 1, buffer = 1 << 18;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)); /* connect()'s too */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

static bool sends(int fd, const void *data, size_t bytes)
{
    return send(fd, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

static bool receives(int fd, void *data, size_t bytes)
{
    return recv(fd, data, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

/* The side that is called: the token, TRIPS bytes there and back, then how many bytes come until the
 * other stops, and in how many nanoseconds: both from the end of the first read on. */
static void serve(const struct asked *q, int fd)
{
    static char block[BLOCK];
    char c;
    uint64_t first = 0, sum[2] = {0, 1};
    set_up_socket(fd);
    bool fine = receives(fd, block, HOSTS_TOKEN) && memcmp(block, q->token, HOSTS_TOKEN) == 0;
    for (int i = 0; i < TRIPS && fine; i++)
        fine = receives(fd, &c, 1) && sends(fd, &c, 1);
    for (ssize_t n; fine && (n = recv(fd, block, sizeof(block), 0)) > 0;) {
        sum[0] += first ? (uint64_t)n : 0;
        first = first ? first : pp_clock_ns();
        sum[1] = pp_clock_ns() - first + 1;
    }
    if (fine)
        sends(fd, sum, sizeof(sum));
}

static void *serve_all(void *arg)
{
    const struct asked *q = arg;
    int fd;
    while ((fd = accept4(q->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0 || errno == EINTR ||
           errno == ECONNABORTED) {
        if (fd >= 0) {
            serve(q, fd);
            close(fd);
        }
    }
    return NULL;
}

/* FIRST LAST TOKEN: the port of them that it listens on. */
static int listen_here(struct asked *q)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    const int yes = 1;
    pthread_t thread;
    int port = atoi(q->args[1]), last = atoi(q->args[2]);
    snprintf(q->token, sizeof(q->token), "%s", q->args[3]);
    q->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(q->listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    do {
        at.sin_port = htons((uint16_t)port);
    } while (bind(q->listener, (struct sockaddr *)&at, sizeof(at)) != 0 && port++ < last);
    if (port > last || listen(q->listener, 16) != 0 ||
        (errno = pp_thread_start(&thread, serve_all, q)) != 0)
        return pp_fail_errno(PP_ERESOURCE, "no port of %s-%s is free", q->args[1], q->args[2]);
    pthread_detach(thread);
    snprintf(q->answer, sizeof(q->answer), "%d", port);
    return 0;
}

/* NAME PORT TOKEN MS: the network, and the way there in words; with MS also its bandwidth. */
static int probe(struct asked *q)
{
    static const char block[BLOCK];
    struct pp_route r;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(q->args[2]))};
    double trips[TRIPS] = {0};
    uint64_t sum[2] = {0, 1}, limit = strtoull(q->args[4], NULL, 10) * 1000000;
    PP_TRY(pp_route_find(q->args[1], &r));
    inet_pton(AF_INET, r.peer, &to.sin_addr);
    PP_OWN(pp_close_at) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    set_up_socket(fd);
    uint64_t start = pp_clock_ns();
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0) {
        errno = errno == EINPROGRESS ? ETIMEDOUT : errno;
        return pp_fail_errno(PP_ERESOURCE, "no connection to port %s of %s from %s (%s)",
                             q->args[2], r.peer, r.own, r.device);
    }
    double connected = (double)(pp_clock_ns() - start) * 1e-6;
    bool fine = sends(fd, q->args[3], HOSTS_TOKEN);
    for (int i = 0; fine && i < TRIPS; i++) {
        char c = 'c';
        start = pp_clock_ns();
        fine = sends(fd, &c, 1) && receives(fd, &c, 1);
        trips[i] = (double)(pp_clock_ns() - start) * 1e-6;
    }
    start = pp_clock_ns();
    while (fine && pp_clock_ns() - start < limit)
        fine = sends(fd, block, sizeof(block));
    fine = fine && shutdown(fd, SHUT_WR) == 0 && receives(fd, sum, sizeof(sum));
    if (!fine) {
        return pp_fail(PP_ERESOURCE, "the connection to port %s of %s breaks off", q->args[2],
                       r.peer);
    }
    int n = snprintf(q->answer, sizeof(q->answer),
                     "%s|%s by %s, %s: connect %.2f ms, round trip %.3f ms", r.network, r.own,
                     r.device, r.peer, connected, pp_median(trips, TRIPS));
    if (limit > 0)
        snprintf(q->answer + n, sizeof(q->answer) - (size_t)n, ", %.0f MB/s",
                 (double)sum[0] * 1e3 / (double)sum[1]);
    return 0;
}

/* ---- */

static int answer(struct asked *q)
{
    static const struct {
        const char *word;
        int n;
        int (*answer)(struct asked *q);
    } all[] = {{"facts", 1, facts},
               {"digest", 2, digest},
               {"last", 3, last},
               {"listen", 4, listen_here},
               {"probe", 5, probe}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (strcmp(all[i].word, q->args[0]) == 0 && q->n == all[i].n)
            return all[i].answer(q);
    return pp_fail(PP_EUSAGE, "no such question: is it another version of ppcli?");
}

int pp_hosts_answer(void)
{
    static char line[2 * PP_PATH_MAX];
    static struct asked q; /* its thread may outlive this call */
    for (alarm(ALONE_S); fgets(line, sizeof(line), stdin); alarm(ALONE_S)) {
        struct timespec t;
        char *rest = line;
        line[strcspn(line, "\n")] = '\0';
        for (q.n = 0; rest && q.n < ARGS_MAX; q.n++)
            q.args[q.n] = strsep(&rest, "\t");
        int rc = answer(&q);
        clock_gettime(CLOCK_REALTIME, &t);
        printf("%s%lld.%09ld\t%s\n", rc == 0 ? HOSTS_GOOD : HOSTS_BAD, (long long)t.tv_sec,
               t.tv_nsec, rc == 0 ? q.answer : pp_error_get()->text);
        fflush(stdout);
    }
    return 0;
}
