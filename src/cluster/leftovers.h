/* SPDX-License-Identifier: Apache-2.0 */
/* Removes the files that Open MPI leaves on this host when it is killed. */
#ifndef PPCLI_CLUSTER_LEFTOVERS_H
#define PPCLI_CLUSTER_LEFTOVERS_H

#include <sys/types.h>

/* Removes the files that Open MPI 4 has left. `kind` and `number` are in the name of their folder:
 * mpirun names it by its process, orted by the job. */
void leftovers_remove_files(const char *kind, long number);

/* Removes the folder that Open MPI 5 has left, which is named by program and process. */
void leftovers_remove_folder(const char *program, pid_t pid);

#endif
