/* SPDX-License-Identifier: Apache-2.0 */
/* Removes the files that Open MPI leaves on this host when it is killed. */
#ifndef PPCLI_CLUSTER_LEFTOVERS_H
#define PPCLI_CLUSTER_LEFTOVERS_H

#include <sys/types.h>

/* Version 4. kind, number: of the folder, which mpirun names by its process and orted by the
 * job. */
void leftovers_remove_files(const char *kind, long number);

/* Version 5: the folder is named by program and process. */
void leftovers_remove_folder(const char *program, pid_t pid);

#endif
