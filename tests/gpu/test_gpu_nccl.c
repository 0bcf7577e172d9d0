/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL on a real device: what every transport must do (tests/conform), by one rank, and by two
 * processes that share a device and say that they are different hosts (NCCL_HOSTID): their messages
 * then take the way over sockets. With two devices or more the two take one each.
 *
 *   gpu_nccl               both; skipped (77) where there is no device
 *   gpu_nccl RANK FD       one of the two processes
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../conform/conform.h"
#include "../../src/comm/transport.h"
#include "pair.h"

#define TIMEOUT_NS 60000000000u
#define LIMIT_S 100 /* of the whole test, which is killed then */

static int run_cases(struct pp_transport *tp, struct pp_backend *be)
{
    struct conform c;
    int rc = conform_open(tp, be, &c);
    for (int i = 0; conform_cases[i].name && rc == 0; i++) {
        rc = conform_cases[i].run(&c);
        rc = rc < 0 ? rc : conform_settle(&c);
        if (rc < 0)
            return pp_error_context("%s", conform_cases[i].name);
        rc = pp_transport_barrier(tp);
    }
    if (rc == 0)
        conform_close(&c);
    return rc;
}

/* Every case on this rank. inner: taken over. */
static int run_rank(struct pp_transport *inner, int device)
{
    struct pp_backend_choice choice = {.threads = 1, .device = device};
    PP_OWN(pp_backend_close) struct pp_backend *be = NULL;
    PP_OWN(pp_transport_destroy) struct pp_transport *tp = NULL;
    int rc = pp_backend_resolve("cuda", &choice.ops);
    rc = rc < 0 ? rc : pp_backend_open_choice(&choice, &be);
    if (rc == 0) {
        rc = pp_transport_find("nccl")->open(inner, TIMEOUT_NS, &tp);
        inner = NULL;
    }
    rc = rc < 0 ? rc : run_cases(tp, be);
    if (rc < 0) {
        fprintf(stderr, "rank %d: %s\n", tp ? tp->rank : 0, pp_error_get()->text);
        if (tp)
            pp_transport_abort(tp);
    }
    pp_transport_destroy(&inner);
    return rc;
}

static int alone(void)
{
    PP_OWN(pp_threads_destroy) struct pp_threads *group = NULL;
    struct pp_transport *tp = NULL;
    PP_TRY(pp_threads_create(1, NULL, &group));
    int rc = pp_threads_attach(group, 0, &tp);
    rc = rc < 0 ? rc : run_rank(tp, 0);
    return rc;
}

static int as_rank(int rank, int fd)
{
    struct pp_transport *tp = NULL;
    struct pp_device found[2];
    char why[256];
    int n = 0;
    const struct pp_backend_ops *ops = NULL;
    PP_TRY(pp_backend_resolve("cuda", &ops));
    PP_TRY(ops->devices(found, 2, &n, why, sizeof(why)));
    PP_TRY(pair_open(rank, fd, &tp));
    return run_rank(tp, n > 1 ? rank : 0);
}

/* Both start anew, so that neither has used the device before. */
static pid_t start(const char *self, int rank, int fd, int other)
{
    pid_t child = fork();
    if (child == 0) {
        close(other);
        char number[2][16];
        snprintf(number[0], sizeof(number[0]), "%d", rank);
        snprintf(number[1], sizeof(number[1]), "%d", fd);
        setenv("NCCL_HOSTID", rank == 0 ? "one" : "two", 1);
        setenv("NCCL_SOCKET_IFNAME", "lo", 0);
        setenv("NCCL_IB_DISABLE", "1", 0);
        execl(self, self, number[0], number[1], (char *)NULL);
        _exit(127);
    }
    return child;
}

static int two(const char *self)
{
    int fd[2];
    pid_t child[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) != 0)
        return pp_fail_errno(0, "socketpair");
    for (int r = 0; r < 2; r++)
        child[r] = start(self, r, fd[r], fd[1 - r]);
    close(fd[0]);
    close(fd[1]);
    int rc = 0;
    for (int r = 0; r < 2; r++) {
        int status = 0;
        if (child[r] < 0 || waitpid(child[r], &status, 0) < 0 || status != 0)
            rc = pp_fail(PP_ECHECK, "rank %d of 2 ended with status %d", r, status);
    }
    return rc;
}

static int report(const char *what, int rc)
{
    printf("%s %s\n", rc == 0 ? "ok" : "FAILED", what);
    fflush(stdout);
    return rc;
}

int main(int argc, char **argv)
{
    const struct pp_backend_ops *ops = NULL;
    alarm(LIMIT_S);
    pp_transport_prepare();
    if (argc == 3)
        return as_rank(atoi(argv[1]), atoi(argv[2])) == 0 ? 0 : 1;
    if (pp_backend_resolve("cuda", &ops) < 0) {
        printf("skipped: %s\n", pp_error_get()->text);
        return 77;
    }
    char found[256];
    if (pp_transport_find("nccl")->probe(found, sizeof(found)) < 0) {
        printf("skipped: %s\n", found);
        return 77;
    }
    printf("NCCL %s\n", found);
    int rc = report("one rank", alone());
    rc |= report("two ranks that claim different hosts", two("/proc/self/exe"));
    return rc == 0 ? 0 : 1;
}
