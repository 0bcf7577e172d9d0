/* SPDX-License-Identifier: Apache-2.0 */
#include "ppcli/base/cores.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ppcli/base/base.h"

int pp_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg)
{
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);
    if (rc != 0)
        return rc;
    rc = pthread_attr_setstacksize(&attr, PP_THREAD_STACK);
    if (rc == 0)
        rc = pthread_create(out, &attr, run, arg);
    pthread_attr_destroy(&attr);
    return rc;
}

void pp_thread_pin(int cpu)
{
    cpu_set_t *one = CPU_ALLOC(cpu + 1);
    size_t bytes = CPU_ALLOC_SIZE(cpu + 1);
    if (!one)
        return;
    CPU_ZERO_S(bytes, one);
    CPU_SET_S((unsigned)cpu, bytes, one);
    (void)sched_setaffinity(0, bytes, one);
    CPU_FREE(one);
}

int pp_child_start(const char *const *args, int in, int out, int err, const sigset_t *mask,
                   pid_t *out_pid)
{
    int up[2], e = 0; /* the child sends the errno of a failure through this pipe */
    pid_t parent = getpid();
    if (pipe2(up, O_CLOEXEC) != 0)
        return pp_fail_errno(PP_ERESOURCE, "cannot start %s", args[0]);
    pid_t child = fork();
    if (child == 0) {
        in = in < 0 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : in;
        if (dup2(in, 0) == 0 && dup2(out, 1) == 1 && dup2(err, 2) == 2 && setpgid(0, 0) == 0 &&
            prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent &&
            sigprocmask(SIG_SETMASK, mask, NULL) == 0)
            execvp(args[0], (char *const *)args);
        e = errno;
        (void)!write(up[1], &e, sizeof(e));
        _exit(127);
    }
    e = child < 0 ? errno : 0;
    close(up[1]);
    if (child > 0 && read(up[0], &e, sizeof(e)) == (ssize_t)sizeof(e))
        waitpid(child, NULL, 0);
    close(up[0]);
    *out_pid = child;
    const char *path = getenv("PATH");
    if (e == ENOENT && !strchr(args[0], '/') && (!path || !path[0]))
        return pp_fail(PP_ENOINPUT, "cannot find %s: PATH is empty or not set", args[0]);
    if (e == ENOENT && !strchr(args[0], '/'))
        return pp_fail(PP_ENOINPUT, "cannot find %s in PATH (%.200s)", args[0], path);
    errno = e;
    return e == 0 ? 0
                  : pp_fail_errno(e == ENOENT ? PP_ENOINPUT : PP_ERESOURCE, "cannot start %s",
                                  args[0]);
}

pid_t pp_guard_start(void (*after)(long number), int *out_fd)
{
    int ends[2];
    long number;
    char none;
    sigset_t all;
    *out_fd = -1;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    pid_t guard = fork();
    if (guard == 0) {
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, NULL);
        dup2(ends[0], 0); /* and keep no pipe open that another process reads to its end */
        (void)syscall(SYS_close_range, 1, ~0u, 0);
        (void)prctl(PR_SET_NAME, PP_GUARD_NAME);
        setsid();
        if (read(0, &number, sizeof(number)) == (ssize_t)sizeof(number) && read(0, &none, 1) == 0)
            after(number);
        _exit(0);
    }
    close(ends[0]);
    *out_fd = ends[1];
    return guard;
}

void pp_guard_end(pid_t guard, int fd)
{
    if (guard > 0 && kill(guard, SIGKILL) == 0)
        waitpid(guard, NULL, 0);
    if (fd >= 0)
        close(fd);
}
