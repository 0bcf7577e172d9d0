/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A parent for mpirun, which itself must not get the signals of the user: it answers TERM and INT
 * by giving its ranks one second and forgetting their exit codes, and leaves them alone on the
 * second INT. USR1 it passes on and waits.
 */
#ifndef PPCLI_CLI_SUPERVISE_H
#define PPCLI_CLI_SUPERVISE_H

#include <stdbool.h>

/* In the environment of the ranks: a file of two ints, the number of the signal the user sent (0:
 * none yet), and whether a rank has started. */
#define SUPERVISE_ASKED "PPCLI_ASKED"

/* Whether this process is a rank that supervise() started; tells it so. Local. */
bool supervise_started(void);

/*
 * Run args[0] (NULL-terminated words) and wait for it. TERM, INT, HUP and USR1 become USR1 for it,
 * USR2 stays USR2; a second INT ends it and all it has started. It ends with this process.
 * What it writes to its standard output goes through this process's stdout, so that a failure to
 * write is known here: mpirun forgets it. *out_code: its exit code. Local.
 * Errors: PP_ERESOURCE, also when it ended without having started a rank; PP_ENOINPUT when there is
 * no such program; PP_ESTOPPED when it was told to end before it could listen; PP_ELOST when it or
 * one of its ranks was ended by a signal, or when its ranks are gone and it does not end. A second
 * INT does not return: this process ends by it.
 */
int supervise(const char *const *args, int *out_code);

#endif
