/* SPDX-License-Identifier: Apache-2.0 */
/* Signals are taken one by one where this process waits anyway: no handler, no race with the end of
 * the child. What the user sent is left in a word of memory that the ranks can read, because mpirun
 * passes on nothing but that it was USR1. */
#include "supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ppcli/err.h"
#include "ppcli/log.h"
#include "ppcli/thread.h"
#include "ppcli/trace.h"

/* mpirun forgets a USR1 that comes before it has started its ranks: it is asked again. And it may
 * stand still in its own end (4.1.4, of a job that lost a rank): looked at as often. */
#define LOOK_S 1
/* Looks at which mpirun has no rank: before it has started one, and after. */
#define EMPTY_BEFORE 120
#define EMPTY_AFTER 10

static void waited_signals(sigset_t *out)
{
    static const int numbers[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
    sigemptyset(out);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        sigaddset(out, numbers[i]);
}

/* In the child. Returns only when it could not become the program: errno goes up the pipe. */
static void become(const char *const *args, const sigset_t *mask, pid_t parent, int out, int up)
{
    /* A group of its own: what the terminal sends, the parent gets alone. And so no reader of it.
     */
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0)
        dup2(nothing, STDIN_FILENO);
    if (dup2(out, STDOUT_FILENO) >= 0 && setpgid(0, 0) == 0 &&
        prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent) {
        sigprocmask(SIG_SETMASK, mask, NULL);
        execvp(args[0], (char *const *)args);
    }
    int e = errno;
    (void)!write(up, &e, sizeof(e));
}

/* out: its standard output. */
static int start(const char *const *args, const sigset_t *mask, int out, pid_t *child_out)
{
    int up[2], e = 0;
    pid_t parent = getpid();
    if (pipe2(up, O_CLOEXEC) != 0)
        return pp_fail_errno(PP_ERESOURCE, "cannot start %s", args[0]);
    pid_t child = fork();
    if (child == 0) {
        close(up[0]);
        become(args, mask, parent, out, up[1]);
        raise(SIGKILL);
    }
    int fork_errno = errno;
    close(up[1]);
    bool failed = child > 0 && read(up[0], &e, sizeof(e)) == (ssize_t)sizeof(e);
    close(up[0]);
    if (child < 0) {
        errno = fork_errno;
        return pp_fail_errno(PP_ERESOURCE, "cannot start %s", args[0]);
    }
    if (failed) {
        waitpid(child, NULL, 0);
        errno = e;
        return pp_fail_errno(e == ENOENT ? PP_ENOINPUT : PP_ERESOURCE, "cannot start %s", args[0]);
    }
    *child_out = child;
    return 0;
}

/* ---- its standard output */

#define RELAY_SECONDS 5 /* for what is still in the pipe when it has ended */

/* Until nobody can write any more. stdout remembers what failed; a run outlives its reader. */
static void *relay(void *arg)
{
    char block[4096];
    ssize_t n;
    while ((n = read((int)(intptr_t)arg, block, sizeof(block))) > 0 || (n < 0 && errno == EINTR)) {
        if (n > 0) {
            fwrite(block, 1, (size_t)n, stdout);
            fflush(stdout);
        }
    }
    return NULL;
}

static void end_relay(pthread_t thread, int from)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += RELAY_SECONDS;
    if (pthread_timedjoin_np(thread, NULL, &end) != 0)
        pthread_detach(thread); /* something that it left behind holds the pipe */
    else
        close(from);
}

/* ---- its life */

static bool has_ended(pid_t child, int *status)
{
    pid_t p;
    do {
        p = waitpid(child, status, WNOHANG);
    } while (p < 0 && errno == EINTR);
    return p == child;
}

/* The user does not want to wait: everything ends, this process by the signal itself. */
static void end_at_once(pid_t child, const sigset_t *waited)
{
    kill(-child, SIGKILL); /* its ranks die with it */
    waitpid(child, NULL, 0);
    signal(SIGINT, SIG_DFL);
    raise(SIGINT);
    sigprocmask(SIG_UNBLOCK, waited, NULL);
}

/* The file of SUPERVISE_ASKED. */
struct word {
    int asked, started;
};

/* -1 where there is none: the ranks then say SIGUSR1, which is what they got. */
static int make_word(void)
{
    const struct word none = {0};
    int fd = memfd_create("ppcli-asked", MFD_CLOEXEC);
    char path[64];
    snprintf(path, sizeof(path), "/proc/%ld/fd/%d", (long)getpid(), fd);
    if (fd >= 0 &&
        (pwrite(fd, &none, sizeof(none), 0) < 0 || setenv(SUPERVISE_ASKED, path, 1) != 0)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Also where nobody can tell. */
static bool has_started(int fd)
{
    struct word w;
    return fd < 0 || pread(fd, &w, sizeof(w), 0) != sizeof(w) || w.started != 0;
}

bool supervise_started(void)
{
    const char *path = getenv(SUPERVISE_ASKED);
    int yes = 1, fd = path ? open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (fd >= 0) {
        (void)!pwrite(fd, &yes, sizeof(yes), offsetof(struct word, started));
        close(fd);
    }
    return path != NULL;
}

/* The child, and whether it has ranks. */
struct mpirun {
    pid_t pid;
    bool had_ranks, hangs;
    int empty; /* looks in a row */
};

static bool has_ranks(pid_t pid)
{
    char path[64];
    bool any = false;
    long rank;
    snprintf(path, sizeof(path), "/proc/%ld/task/%ld/children", (long)pid, (long)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return true; /* the kernel does not tell */
    while (!any && fscanf(f, "%ld", &rank) == 1)
        any = pp_process_lives(rank);
    fclose(f);
    return any;
}

static void look(struct mpirun *m)
{
    bool has = has_ranks(m->pid);
    m->had_ranks = m->had_ranks || has;
    m->empty = has ? 0 : m->empty + 1;
    if (m->empty > (m->had_ranks ? EMPTY_AFTER : EMPTY_BEFORE)) {
        m->hangs = true;
        kill(-m->pid, SIGKILL);
    }
}

/* mpirun ended without a rank. */
static int no_rank(const struct mpirun *m, int status)
{
    char how[64];
    if (m->hangs)
        snprintf(how, sizeof(how), "was killed after %d s", m->empty * LOOK_S);
    else if (WIFEXITED(status))
        snprintf(how, sizeof(how), "ended with code %d", WEXITSTATUS(status));
    else
        snprintf(how, sizeof(how), "was ended by signal %d", WTERMSIG(status));
    return pp_fail(PP_ERESOURCE,
                   "mpirun %s and has not started a rank; leave out --launch mpirun to run the "
                   "ranks as threads",
                   how);
}

/* How the run went, of which a shell would say `code`. */
static int verdict(const struct mpirun *m, int status, int stop, bool started, int *out_code)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (stop != 0 && (code == 128 + SIGUSR1 || !started))
        return pp_fail(PP_ESTOPPED, "before the ranks were ready; start the same command again");
    if (!started)
        return no_rank(m, status);
    if (m->hangs) {
        return pp_fail(PP_ELOST,
                       "mpirun has no ranks any more and does not end: killed after %d s; train "
                       "continues with --resume",
                       m->empty * LOOK_S);
    }
    if (code > 128 && code < 128 + NSIG) {
        return pp_fail(PP_ELOST, "%s ended by signal %d (%s)%s; train continues with --resume",
                       WIFEXITED(status) ? "a rank was" : "mpirun was", code - 128,
                       strsignal(code - 128),
                       WIFEXITED(status) ? " and the others with it" : " and its ranks with it");
    }
    *out_code = code;
    return 0;
}

int supervise(const char *const *args, int *out_code)
{
    const struct timespec a_while = {.tv_sec = LOOK_S};
    sigset_t waited, before;
    struct mpirun m = {0};
    pthread_t relayer;
    int status = 0, stop = 0, word = make_word(), out[2];
    waited_signals(&waited);
    sigprocmask(SIG_BLOCK, &waited, &before);
    bool piped = pipe2(out, O_CLOEXEC) == 0;
    bool relays =
        piped && (errno = pp_thread_start(&relayer, relay, (void *)(intptr_t)out[0])) == 0;
    int rc = relays ? start(args, &before, out[1], &m.pid)
                    : pp_fail_errno(PP_ERESOURCE, "cannot start %s", args[0]);
    if (piped)
        close(out[1]);
    while (rc == 0 && !has_ended(m.pid, &status)) {
        int got = sigtimedwait(&waited, NULL, &a_while);
        bool asked = got > 0 && got != SIGCHLD && got != SIGUSR2;
        if (got == SIGUSR2) {
            kill(m.pid, SIGUSR2);
        } else if (got == SIGINT && stop != 0) {
            end_at_once(m.pid, &waited);
        } else if (asked && stop == 0) {
            stop = got;
            (void)!pwrite(word, &stop, sizeof(stop), 0);
            pp_log_info("asking the ranks to save and end; interrupt again to end them at once");
            kill(m.pid, SIGUSR1);
        } else if (got < 0 && errno == EAGAIN) {
            if (stop != 0)
                kill(m.pid, SIGUSR1);
            look(&m);
        }
    }
    bool started = has_started(word);
    if (relays)
        end_relay(relayer, out[0]);
    else if (piped)
        close(out[0]);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (word >= 0)
        close(word);
    return rc < 0 ? rc : verdict(&m, status, stop, started, out_code);
}
