/* SPDX-License-Identifier: Apache-2.0 */
/* Writes one record with one write(2), so that lines of several ranks never mix. */
#include "ppcli/base/base.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Settings of the whole process, set by the command before ranks start. */
static _Atomic int level = PP_LOG_INFO;

void pp_log_set_level(enum pp_log_level l)
{
    level = (int)l;
}

enum pp_log_level pp_log_level(void)
{
    return (enum pp_log_level)level;
}

#define READER_MS 1000 /* time that a reader of lines gets */

/* Number of lines left out for each descriptor since its reader stopped reading; 0: it reads. */
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
                         pp_plural(count));
        (void)!write(fd, line, (size_t)n);
    }
    return true;
}

static atomic_int progress_columns; /* columns of the pp_log_progress() line on the terminal */

/* Replaces blanks of the line by line breaks where the terminal would otherwise break a word. */
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

/* Writes characters to `out` that overwrite the line with blanks and return to its start; returns
 * their number. They are no escape codes, because NO_COLOR may forbid those. */
static int print_wiping(char *out, size_t bytes, int columns)
{
    return columns > 0 ? snprintf(out, bytes, "\r%*s\r", columns, "") : 0;
}

static void write_line(const char *line, size_t n)
{
    /* A lost log line must never stop a run. */
    if (pp_log_ready(STDERR_FILENO))
        (void)!write(STDERR_FILENO, line, n);
}

static void write_record(const char *prefix, const char *fmt, va_list ap)
{
    char line[2048];
    int used = print_wiping(line, sizeof(line) / 2, atomic_exchange(&progress_columns, 0));
    used += snprintf(line + used, sizeof(line) - 1 - (size_t)used, "%s", prefix);
    vsnprintf(line + used, sizeof(line) - 1 - (size_t)used, fmt, ap);
    size_t n = (size_t)used + strlen(pp_text_make_plain(line + used));
    if (prefix[0] == '\0') /* keep an advice of a warning on one line, so that it can be copied */
        break_at_blanks(line + used);
    line[n++] = '\n';
    write_line(line, n);
}

/* Returns how many bytes of the text fit into one line of the terminal, with its last column left
 * free. */
static size_t fit_terminal(const char *text)
{
    struct winsize w;
    bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0;
    size_t n = 0;
    for (int columns = known ? w.ws_col : 80; columns > 1 && text[n]; columns--) {
        int length = pp_utf8_length(text + n);
        n += length > 0 ? (size_t)length : 1;
    }
    return n;
}

void pp_log_progress(const char *fmt, ...)
{
    char text[512] = "", line[2048];
    va_list ap;
    if (!pp_term_live(STDERR_FILENO))
        return;
    va_start(ap, fmt);
    if (fmt)
        vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    pp_text_make_plain(text);
    text[fit_terminal(text)] = '\0';
    int columns = pp_text_columns(text), before = atomic_exchange(&progress_columns, columns);
    int n = columns > 0 ? snprintf(line, sizeof(line), "\r%s%*s", text,
                                   before > columns ? before - columns : 0, "")
                        : print_wiping(line, sizeof(line), before);
    if (n > 0)
        write_line(line, (size_t)n);
}

void pp_log_info(const char *fmt, ...)
{
    if (pp_log_level() < PP_LOG_INFO)
        return;
    va_list ap;
    va_start(ap, fmt);
    write_record("", fmt, ap);
    va_end(ap);
}

void pp_log_debug(const char *fmt, ...)
{
    if (pp_log_level() < PP_LOG_DEBUG)
        return;
    va_list ap;
    va_start(ap, fmt);
    write_record("ppcli: debug: ", fmt, ap);
    va_end(ap);
}

void pp_log_warn(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    write_record("ppcli: warning: ", fmt, ap);
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
