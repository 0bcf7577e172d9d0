/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the program of run.on_epoch, which reads the record of an epoch. It is a guest: whatever
 * happens to it is a warning, and the run waits for it for a limited time.
 */
#include "parts.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ppcli/base/base.h"
#include "ppcli/base/cores.h"

#define LIMIT_S 30.0
#define STOP_S 2.0 /* limit once a signal asks this process to stop */
#define LOOK_MS 100
#define WORDS_MAX 64

/* Splits `text` at blanks, in place, into words[WORDS_MAX + 1], which ends with NULL. Errors:
 * PP_ECONFIG. */
static int split_words(char *text, const char **words)
{
    int n = 0;
    char *rest = NULL;
    for (char *w = strtok_r(text, " \t", &rest); w; w = strtok_r(NULL, " \t", &rest)) {
        if (n == WORDS_MAX)
            return pp_fail(PP_ECONFIG, "it has more than %d words", WORDS_MAX);
        words[n++] = w;
    }
    words[n] = NULL;
    return 0;
}

/* Opens a file in memory that has the record. */
static int open_record(const char *record, int *out_fd)
{
    size_t bytes = strlen(record);
    PP_OWN(pp_close_at) int fd = memfd_create("epoch", MFD_CLOEXEC);
    if (fd < 0 || write(fd, record, bytes) != (ssize_t)bytes || lseek(fd, 0, SEEK_SET) != 0)
        return pp_fail_errno(PP_EIO, "cannot pass the record");
    *out_fd = fd;
    fd = -1;
    return 0;
}

/* Waits for the program until its time is over; then it and its children are killed. */
static int wait_for_program(pid_t pid, double limit)
{
    PP_OWN(pp_close_at) int life = (int)syscall(SYS_pidfd_open, pid, 0);
    uint64_t start = pp_clock_ns(), stop_ns = 0;
    double seconds = 0;
    int status = 0;
    for (;;) {
        struct pollfd p = {.fd = life, .events = POLLIN};
        if (waitpid(pid, &status, WNOHANG) == pid)
            break;
        seconds = (double)(pp_clock_ns() - start) * 1e-9;
        stop_ns = stop_ns == 0 && pp_process_stop ? pp_clock_ns() : stop_ns;
        bool stop_over = stop_ns > 0 && (double)(pp_clock_ns() - stop_ns) * 1e-9 > STOP_S;
        if (seconds > limit || stop_over) {
            kill(-pid, SIGKILL);
            waitpid(pid, NULL, 0);
            return pp_fail(PP_EIO, "it did not end within %.3g s and was killed", seconds);
        }
        if (life < 0)
            pp_clock_nap(1000000);
        else
            (void)poll(&p, 1, LOOK_MS);
    }
    if (WIFSIGNALED(status))
        return pp_fail(PP_EIO, "it was ended by signal %d", WTERMSIG(status));
    if (WEXITSTATUS(status) != 0)
        return pp_fail(PP_EIO, "it ended with exit code %d", WEXITSTATUS(status));
    return 0;
}

static int run_program(const struct pp_config *cfg, const char *record)
{
    char text[PP_TEXT_MAX];
    const char *words[WORDS_MAX + 1];
    PP_OWN(pp_close_at) int fd = -1;
    double hang = cfg->run.hang_timeout, limit = hang > 0 ? PP_MIN(LIMIT_S, hang / 2) : LIMIT_S;
    sigset_t none;
    pid_t pid;
    sigemptyset(&none);
    memcpy(text, cfg->run.on_epoch, sizeof(text));
    PP_TRY(split_words(text, words));
    if (!words[0])
        return 0;
    PP_TRY(open_record(record, &fd));
    PP_TRY(pp_child_start(words, fd, STDERR_FILENO, STDERR_FILENO, &none, &pid));
    return wait_for_program(pid, limit);
}

void on_epoch_run(const struct pp_config *cfg, int epoch, const char *record)
{
    if (!cfg->run.on_epoch[0] || run_program(cfg, record) == 0)
        return;
    pp_log_warn("run.on_epoch = %s, after epoch %d: %s", cfg->run.on_epoch, epoch,
                pp_error_get()->text);
    pp_error_clear();
}
