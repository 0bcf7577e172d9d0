/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The story of a run on stderr: one call, one line, one write. Results never go through here (they
 * belong on stdout) and neither do errors (cli/main.c prints the one that ended the run).
 * Control characters in what is logged become '?'. The level is process-wide presentation state,
 * set once by the command before ranks start.
 */
#ifndef PPCLI_LOG_H
#define PPCLI_LOG_H

#include <stdbool.h>

enum pp_log_level {
    PP_LOG_QUIET, /* -q: warnings only */
    PP_LOG_INFO,  /* default */
    PP_LOG_DEBUG, /* -v */
};

void pp_log_set_level(enum pp_log_level level);
enum pp_log_level pp_log_level(void);

void pp_log_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void pp_log_debug(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void pp_log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* "warning: ..." */

/* Shows one line about what takes long in place of the one before, cut to the terminal's width, at any
 * level; NULL removes it, and so does the next message. Only where stderr is pp_term_live(). */
void pp_log_progress(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Whether a line can be written to this descriptor, standard output or error. A reader that stands still must
 * not stop a training, nor keep a signal from ending it: it is waited for once, a second, and what comes
 * while it stands still is counted. When it reads again, one line says how many were left out. */
bool pp_log_ready(int fd);

/* Whether a line may be redrawn on this descriptor: a terminal, TERM not "dumb", and not a rank under
 * mpirun (whose stdout looks like a terminal even when it is not). And whether escape codes may be
 * sent as well: NO_COLOR is empty. */
bool pp_term_live(int fd);
bool pp_term_color(int fd);

#endif
