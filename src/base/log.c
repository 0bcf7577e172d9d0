/* SPDX-License-Identifier: Apache-2.0 */
/* One record is one write(2), so that lines of several ranks never tear. */
#include "ppcli/log.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "ppcli/text.h"

/* Presentation of the whole process, set by the command before ranks start. */
static _Atomic int level = PP_LOG_INFO;

void pp_log_set_level(enum pp_log_level l)
{
    level = (int)l;
}

enum pp_log_level pp_log_level(void)
{
    return (enum pp_log_level)level;
}

#define READER_MS 1000 /* that a reader of lines is waited for */

/* Lines for each descriptor that were left out since its reader has stood still; 0: it reads. */
static atomic_int left_out[STDERR_FILENO + 1];

bool pp_log_ready(int fd)
{
    char line[96];
    int count = left_out[fd];
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    if (poll(&p, 1, count > 0 ? 0 : READER_MS) == 0) { /* a terminal, a pipe, a socket */
        left_out[fd]++;
        return false;
    }
    if (count > 0 && atomic_compare_exchange_strong(&left_out[fd], &count, 0)) {
        int n = snprintf(line, sizeof(line), "(%d line%s left out: nothing read them)\n", count,
                         count == 1 ? "" : "s");
        (void)!write(fd, line, (size_t)n);
    }
    return true;
}

static atomic_bool in_progress; /* the terminal shows a line of pp_log_progress() */

/* Ends lines at blanks where the terminal would break words. */
static void break_at_blanks(char *line)
{
    struct winsize w;
    int used = 0;
    char *blank = NULL;
    if (!pp_term_live(STDERR_FILENO) || ioctl(STDERR_FILENO, TIOCGWINSZ, &w) != 0 || w.ws_col == 0)
        return;
    for (char *c = line; *c; c++) {
        used += (*c & 0xc0) != 0x80;
        if (used > w.ws_col && blank) {
            *blank = '\n';
            used = (int)(c - blank);
            blank = NULL;
        }
        if (*c == ' ')
            blank = c;
    }
}

static void emit(const char *prefix, const char *fmt, va_list ap, bool stays)
{
    char line[2048];
    bool erase = atomic_exchange(&in_progress, !stays && fmt[0] != '\0');
    int used = snprintf(line, sizeof(line) - 1, "%s%s", erase ? "\r\033[K" : "", prefix);
    vsnprintf(line + used, sizeof(line) - 1 - (size_t)used, fmt, ap);
    size_t n = (size_t)used + strlen(pp_text_plain(line + used));
    if (stays && prefix[0] == '\0') /* an advice of a warning is copied as one line */
        break_at_blanks(line + used);
    if (stays)
        line[n++] = '\n';
    /* A lost log line must never stop a run. */
    if (pp_log_ready(STDERR_FILENO))
        (void)!write(STDERR_FILENO, line, n);
}

void pp_log_progress(const char *fmt, ...)
{
    if (!pp_term_live(STDERR_FILENO))
        return;
    va_list ap;
    va_start(ap, fmt);
    emit("", fmt ? fmt : "", ap, false);
    va_end(ap);
}

void pp_log_info(const char *fmt, ...)
{
    if (pp_log_level() < PP_LOG_INFO)
        return;
    va_list ap;
    va_start(ap, fmt);
    emit("", fmt, ap, true);
    va_end(ap);
}

void pp_log_debug(const char *fmt, ...)
{
    if (pp_log_level() < PP_LOG_DEBUG)
        return;
    va_list ap;
    va_start(ap, fmt);
    emit("ppcli: debug: ", fmt, ap, true);
    va_end(ap);
}

void pp_log_warn(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    emit("ppcli: warning: ", fmt, ap, true);
    va_end(ap);
}

bool pp_term_live(int fd)
{
    const char *term = getenv("TERM");
    if (!isatty(fd) || !term || strcmp(term, "dumb") == 0)
        return false;
    /* Open MPI gives ranks a pty as stdout even when its own stdout is a pipe. */
    return !getenv("OMPI_COMM_WORLD_SIZE") && !getenv("PMIX_RANK") && !getenv("PMI_RANK");
}

bool pp_term_color(int fd)
{
    const char *no = getenv("NO_COLOR");
    return pp_term_live(fd) && !(no && no[0] != '\0');
}
