/* SPDX-License-Identifier: Apache-2.0 */
/* Forked before this process has threads: asking the hosts starts programs and allocates memory,
 * and must not keep the parent from answering heartbeats for seconds. */
#include "asker.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

void asker_start(const struct launch_ask *ask, struct asker *out)
{
    int ends[2];
    char byte;
    *out = (struct asker){.fd = -1};
    if (!ask || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[1]);
        if (read(ends[0], &byte, 1) == 1 && ask->host_lost(ask->ctx))
            (void)!write(ends[0], &byte, 1);
        _exit(0);
    }
    close(ends[0]);
    *out = (struct asker){.pid = pid, .fd = ends[1]};
}

void asker_ask(const struct asker *a)
{
    if (a->fd >= 0)
        (void)send(a->fd, "", 1, MSG_NOSIGNAL);
}

bool asker_found_lost(const struct asker *a)
{
    char byte;
    return a->fd >= 0 && recv(a->fd, &byte, 1, MSG_DONTWAIT) == 1;
}

void asker_end(struct asker *a)
{
    if (a->pid > 0 && kill(a->pid, SIGKILL) == 0)
        waitpid(a->pid, NULL, 0);
    if (a->fd >= 0)
        close(a->fd);
    *a = (struct asker){.fd = -1};
}
