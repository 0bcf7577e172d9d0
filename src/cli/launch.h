/* SPDX-License-Identifier: Apache-2.0 */
/* Starting ppcli again under mpirun. */
#ifndef PPCLI_CLI_LAUNCH_H
#define PPCLI_CLI_LAUNCH_H

#include <stdbool.h>

/* Whether this process reports what all processes of a launch share: true for rank 0 and for a
 * process that no launcher started. */
bool launch_speaks(void);

/* Replace this process by mpirun with `ranks` copies of the same command line. Returns only on
 * failure: PP_ERESOURCE when there is no mpirun or this build has no MPI. */
int launch_mpirun(int ranks);

#endif
