/* SPDX-License-Identifier: Apache-2.0 */
/* Enough of an MPI library to be taken for one of the family that ppcli was not built with. */
#include <mpi.h>
#include <string.h>

int MPI_Get_library_version(char *text, int *length)
{
#ifdef OPEN_MPI
    strcpy(text, "MPICH Version:\t4.0.2\nMPICH Release date:\tsome day\n");
#else
    strcpy(text, "Open MPI v4.1.4, package: a build, ident: 4.1.4");
#endif
    *length = (int)strlen(text);
    return MPI_SUCCESS;
}
