/* SPDX-License-Identifier: Apache-2.0 */
/* Catches signals, in the only place of ppcli. The notes of a handler are the only state that must
 * be global. */

#include "ppcli/cluster/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"
#include "ppcli/base/cores.h"

static const char *tells; /* printed at the first INT; NULL: nothing */
static int asked_fd = -1; /* the file PP_SUPERVISE_ASKED; -1: not on this host */

/* Returns the signal that the user sent to the parent of mpirun, if that parent made mpirun send
 * this USR1; else returns `number`. */
static int sent_by_user(int number)
{
    int asked = 0, before = errno;
    bool read = asked_fd >= 0 && pread(asked_fd, &asked, sizeof(asked), 0) == sizeof(asked);
    errno = before;
    return read && (asked == SIGTERM || asked == SIGINT || asked == SIGHUP) ? asked : number;
}

/* Ends the process by the signal `number`, which takes effect when the handler returns. Temporary
 * files are removed first. */
static void end_by(int number)
{
    pp_io_remove_temporary();
    signal(number, SIG_DFL);
    raise(number);
}

/* Handles a signal: notes that the user wants a checkpoint or the end of the run. The notes are
 * atomic, because threads of ranks read them. */
static void note_signal(int number)
{
    if (number == SIGUSR2) {
        __atomic_fetch_add(&pp_process_save, 1, __ATOMIC_RELAXED);
        return;
    }
    if (pp_process_stop != 0 && number == SIGINT) {
        end_by(SIGINT); /* the user does not want to wait */
        return;
    }
    if (pp_process_stop == 0) {
        int before = errno;
        if (tells && number == SIGINT)
            (void)!write(STDERR_FILENO, tells, strlen(tells));
        errno = before;
        __atomic_store_n(&pp_process_stop, number == SIGUSR1 ? sent_by_user(number) : number,
                         __ATOMIC_RELAXED);
    }
}

static int open_asked(void)
{
    const char *asked = getenv(PP_SUPERVISE_ASKED);
    char file[64] = "";
    bool is_file =
        asked && readlink(asked, file, sizeof(file) - 1) > 0 && strstr(file, PP_SUPERVISE_FILE);
    return is_file ? open(asked, O_RDWR | O_CLOEXEC | O_NONBLOCK) : -1;
}

bool pp_last_words_first(void)
{
    int fd = open_asked(), said = 0;
    if (fd >= 0 && flock(fd, LOCK_EX) == 0) {
        (void)!pread(fd, &said, sizeof(said), sizeof(int));
        (void)!pwrite(fd, &(int){1}, sizeof(int), sizeof(int));
    }
    close(fd);
    return said == 0;
}

/* Sets the handler of the first n of the signals. A signal that is ignored stays ignored. */
static void handle_signals(void (*handler)(int), int n)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
    struct sigaction act = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigemptyset(&act.sa_mask);
    for (int i = 0; i < n; i++) {
        struct sigaction before;
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &act, NULL);
    }
}

void pp_signals_catch(const char *text)
{
    tells = pp_log_level() >= PP_LOG_INFO ? text : NULL;
    asked_fd = open_asked();
    handle_signals(note_signal, 5);
}

void pp_signals_clean(void)
{
    handle_signals(end_by, 3);
}
