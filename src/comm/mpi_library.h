/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MPI is loaded when it is first needed: a program that was built with it also runs on machines
 * without it, and ranks that are threads never load it. This header replaces mpi.h: after it
 * MPI_Test(...) calls the loaded function, and MPI_BYTE is a handle of the loaded library. Only the
 * family (Open MPI or MPICH) whose mpi.h was compiled in works.
 */
#ifndef PPCLI_COMM_MPI_LIBRARY_H
#define PPCLI_COMM_MPI_LIBRARY_H

#include <mpi.h>
#include <stddef.h>

struct mpi_library {
#define MPI_CALL(x) __typeof__(&MPI_##x) x;
#ifdef OPEN_MPI
#define MPI_GLOBAL(x) void *x;
#else
#define MPI_GLOBAL(x)
#endif
#include "mpi_library.def"
};

extern struct mpi_library pp_mpi; /* complete after pp_mpi_load() */

#include "mpi_calls.h" /* for each row: #define MPI_Test pp_mpi.Test */
#ifdef OPEN_MPI
#undef OMPI_PREDEFINED_GLOBAL
#define OMPI_PREDEFINED_GLOBAL(type, global) ((type)pp_mpi.global)
#endif

/* Loads MPI once for the process. Initialises nothing. Any thread. Errors: PP_ERESOURCE, with what
 * would work. */
int pp_mpi_load(void);

/* Returns the version of MPI: the transport's hook `version`, see struct pp_transport_ops. */
const char *pp_mpi_version(void);
int pp_mpi_probe(char *why, size_t bytes);

/* Initialise and finalize MPI after pp_mpi_load(); return MPI's code. */
int pp_mpi_init(int wanted_level, int *out_level);
int pp_mpi_finalize(void);

#endif
