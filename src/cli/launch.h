/* SPDX-License-Identifier: Apache-2.0 */
/* Starting ppcli again under mpirun. */
#ifndef PPCLI_CLI_LAUNCH_H
#define PPCLI_CLI_LAUNCH_H

#include <stdbool.h>

/* Whether this process reports what all processes of a launch share: true for rank 0 and for a
 * process that no launcher started. */
bool launch_speaks(void);

/* Whether this process tells what is known before the ranks start: once for a launch. */
bool launch_announces(void);

/* Run mpirun with `ranks` copies of the same command line, pass the user's signals on to it and
 * wait for its end. Returns when all went well, or could not begin: PP_ERESOURCE when there is no
 * mpirun or this build has no MPI; PP_ESTOPPED. What the ranks said and their exit code are this
 * process's, which then ends here. */
int launch_mpirun(int ranks);

#endif
