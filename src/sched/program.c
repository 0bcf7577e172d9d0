/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a table that a program of the user prints. The program runs once per process, with limits
 * of time and output, and its table is kept for the next plan of the same shape.
 */
#include "csv.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ppcli/base/base.h"
#include "ppcli/sched/plan.h"
#include "ppcli/base/files.h"
#include "ppcli/base/cores.h"

#define OUTPUT_BYTES ((size_t)PP_PROGRAM_BYTES_MAX + 1)

#define LOOK_MS 200 /* interval of checks for a signal, which may come before the wait */

enum {
    WORDS = 8,
    WORD_MAX = 24
};

static struct {
    char *key, *text; /* the command line and what the program printed; owned */
    size_t bytes;
} known;

static double find_time_limit(void)
{
    const char *text = getenv("PPCLI_EXEC_SECONDS");
    double s = text ? strtod(text, NULL) : 0;
    return s > 0 ? s : PP_PROGRAM_SECONDS;
}

static void make_words(const struct pp_program *p, char numbers[3][WORD_MAX],
                       const char *out[WORDS + 1])
{
    const int shape[] = {p->stages, p->chunks > 0 ? p->chunks : 1, p->microbatches};
    int n = 0;
    out[n++] = p->path;
    for (int i = 0; i < 3; i++) {
        snprintf(numbers[i], WORD_MAX, "%d", shape[i]);
        out[n++] = numbers[i];
    }
    for (int i = 0; i < 4; i++)
        out[n++] = p->costs[i] ? p->costs[i] : i < 3 ? "1" : "0";
    out[n] = NULL;
}

/* Joins all arguments of the program, each with a line end, into the key of its table: the table
 * depends on nothing else. The caller owns the text; NULL if there is no memory. */
static char *join_words(const struct pp_program *p)
{
    char numbers[3][WORD_MAX], *key = NULL;
    const char *words[WORDS + 1];
    size_t bytes = 1;
    make_words(p, numbers, words);
    for (int i = 0; words[i]; i++)
        bytes += strlen(words[i]) + 1;
    key = pp_alloc(bytes, 1);
    for (int i = 0; key && words[i]; i++)
        strcat(strcat(key, words[i]), "\n");
    return key;
}

static int fail_start(const char *path, int e)
{
    if (e == EACCES)
        return pp_fail(PP_EPERM, "exec:%s is not executable; use chmod +x %s", path, path);
    if (e == ENOENT && access(path, F_OK) == 0)
        return pp_fail(PP_ENOINPUT, "exec:%s: the program of its #! line does not exist", path);
    errno = e;
    return pp_fail_errno(e == ENOENT ? PP_ENOINPUT : PP_ERESOURCE, "exec:%s", path);
}

struct running {
    const char *path;
    pid_t pid;
    int from; /* its standard output */
    double seconds;
    uint64_t start;
};

static int fail_late(const struct running *r)
{
    return pp_fail(PP_EFORMAT, "exec:%s did not end within %g s and was killed", r->path,
                   r->seconds);
}

/* Returns the milliseconds until the program must have ended; 0 if that time has passed. */
static int find_time_left(const struct running *r)
{
    double left = r->seconds - (double)(pp_clock_ns() - r->start) * 1e-9;
    return left > 0 ? (int)(left * 1e3) + 1 : 0;
}

/* Returns an error if a signal has asked this process to stop. Called often, because the program
 * may run for a minute. */
static int check_stop(const struct running *r)
{
    return pp_process_stop == 0
               ? 0
               : pp_fail(PP_ESTOPPED, "while exec:%s ran; start the same command again", r->path);
}

/* Reads the output of the program to text[OUTPUT_BYTES] until the program closes its output or
 * ends. Waits for its end too, because a child of the program may keep the output open. */
static int read_output(const struct running *r, char *text, size_t *bytes)
{
    PP_OWN(pp_close_at) int life = (int)syscall(SYS_pidfd_open, r->pid, 0);
    for (ssize_t got = 1; got != 0;) {
        struct pollfd p[] = {{.fd = r->from, .events = POLLIN}, {.fd = life, .events = POLLIN}};
        int left = find_time_left(r);
        PP_TRY(check_stop(r));
        if (left == 0)
            return fail_late(r);
        if (poll(p, 2, left < LOOK_MS ? left : LOOK_MS) <= 0)
            continue; /* timeout, or a signal came */
        if (p[0].revents == 0 && poll(p, 1, 0) != 1)
            return 0; /* it has ended, and its output was read completely */
        got = read(r->from, text + *bytes, OUTPUT_BYTES - *bytes);
        if (got < 0 && errno != EINTR)
            return pp_fail_errno(PP_EIO, "exec:%s", r->path);
        *bytes += got > 0 ? (size_t)got : 0;
        if (*bytes == OUTPUT_BYTES)
            return pp_fail(PP_EFORMAT, "exec:%s printed more than %d MiB and was killed", r->path,
                           PP_PROGRAM_BYTES_MAX >> 20);
    }
    return 0;
}

static int wait_for_end(struct running *r)
{
    int status = 0;
    while (waitpid(r->pid, &status, WNOHANG) == 0) {
        PP_TRY(check_stop(r));
        if (find_time_left(r) == 0)
            return fail_late(r);
        pp_clock_nap(1000000);
    }
    r->pid = 0;
    if (WIFSIGNALED(status))
        return pp_fail(PP_EFORMAT, "exec:%s was ended by signal %d (%s)", r->path, WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
    return WEXITSTATUS(status) == 0 ? 0
                                    : pp_fail(PP_EFORMAT, "exec:%s ended with exit code %d",
                                              r->path, WEXITSTATUS(status));
}

/* Kills the program and all processes that it has started. */
static void kill_group(long pid)
{
    kill((pid_t)-pid, SIGKILL);
}

static int run_program(const struct pp_program *p, char *text, size_t *bytes)
{
    char numbers[3][WORD_MAX];
    const char *words[WORDS + 1];
    struct running r = {.path = p->path, .seconds = find_time_limit(), .start = pp_clock_ns()};
    int ends[2], guarded;
    sigset_t empty;
    sigemptyset(&empty);
    PP_TRY(check_stop(&r));
    make_words(p, numbers, words);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return pp_fail_errno(PP_ERESOURCE, "exec:%s", p->path);
    pid_t guard = pp_guard_start(kill_group, &guarded);
    int rc = pp_child_start(words, -1, ends[1], STDERR_FILENO, &empty, &r.pid);
    int e = errno;
    close(ends[1]);
    if (rc == 0)
        (void)!write(guarded, &(long){r.pid}, sizeof(long));
    r.from = ends[0];
    if (rc < 0) {
        rc = fail_start(p->path, e);
    } else {
        rc = read_output(&r, text, bytes);
        rc = rc < 0 ? rc : wait_for_end(&r);
        if (r.pid > 0) { /* the program and its children */
            kill(-r.pid, SIGKILL);
            waitpid(r.pid, NULL, 0);
        }
    }
    pp_guard_end(guard, guarded);
    close(r.from);
    return rc;
}

int pp_program_keep(const struct pp_program *p, const char *text, size_t bytes)
{
    PP_OWN_MEMORY char *key = join_words(p);
    PP_OWN_MEMORY char *copy = pp_alloc(bytes + 1, 1);
    if (!key || !copy)
        return PP_ERESOURCE;
    memcpy(copy, text, bytes);
    pp_free(known.key);
    pp_free(known.text);
    known.key = key;
    known.text = copy;
    known.bytes = bytes;
    key = copy = NULL;
    return 0;
}

int pp_program_print(const struct pp_program *p, const char **out_text, size_t *out_bytes)
{
    PP_OWN_MEMORY char *key = join_words(p);
    PP_TRY(key ? 0 : PP_ERESOURCE);
    if (!known.key || strcmp(known.key, key) != 0) {
        size_t bytes = 0;
        PP_TAKE(char, text, OUTPUT_BYTES);
        PP_TRY(run_program(p, text, &bytes));
        PP_TRY(pp_program_keep(p, text, bytes));
    }
    *out_text = known.text;
    *out_bytes = known.bytes;
    return 0;
}

int pp_plan_read_program(const struct pp_program *p, struct pp_plan **out)
{
    const char *text;
    size_t bytes;
    char name[PP_PROGRAM_NAME_MAX];
    PP_TRY(pp_program_print(p, &text, &bytes));
    snprintf(name, sizeof(name), "exec:%s", p->path);
    if (bytes == 0)
        return pp_fail(PP_EFORMAT, "%s printed no table", name);
    FILE *f = fmemopen((void *)text, bytes, "r"); /* the stream is only read */
    if (!f)
        return pp_fail_errno(PP_ERESOURCE, "%s", name);
    int rc = pp_plan_read_csv(f, name, out);
    fclose(f);
    return rc;
}
