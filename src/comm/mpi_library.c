/* SPDX-License-Identifier: Apache-2.0 */
/* Loads MPI by the library name of its family and major version. */
#include "mpi_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "mpi_file.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define AS_THREADS "or run the ranks as threads (run.transport = threads)"

/* A library of the other family has other handles and may have the same file name. */
#ifdef OPEN_MPI
#define BUILT                                                                                      \
    "Open MPI " TEXT(OMPI_MAJOR_VERSION) "." TEXT(OMPI_MINOR_VERSION) "." TEXT(OMPI_RELEASE_VERSION)
#define PACKAGE "openmpi-bin"
#define IS_OPEN_MPI true
static const char *const others[] = {"libmpich.so.12", "libmpi.so.12", NULL};
#else
#define BUILT "MPICH " MPICH_VERSION
#define PACKAGE "mpich"
#define IS_OPEN_MPI false
static const char *const others[] = {"libmpi.so.40", "libmpi.so.12", NULL};
#endif

/* One per process: the library is loaded once. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
struct mpi_library pp_mpi;
static char problem[512]; /* empty: pp_mpi is complete */
static char version[64];  /* version of the loaded library */

/* Writes the library's version to `out`, as "Open MPI 4.1.4" or "MPICH 4.0.2". Returns whether the
 * library is of the family, Open MPI or MPICH, that this file was compiled with. */
static bool read_version(__typeof__(pp_mpi.Get_library_version) ask, char *out, size_t bytes)
{
    char text[2 * 8192] = "", number[32]; /* twice as much as either family may write */
    int n = 0;
    out[0] = '\0';
    if (!ask || ask(text, &n) != MPI_SUCCESS)
        return false;
    if (sscanf(text, "Open MPI v%31[^, \n]", number) == 1)
        snprintf(out, bytes, "Open MPI %s", number);
    else if (sscanf(text, "MPICH Version: %31s", number) == 1)
        snprintf(out, bytes, "MPICH %s", number);
    else
        snprintf(out, bytes, "%.*s", (int)strcspn(text, ",\n\t"), text);
    return (strncmp(text, "Open MPI", 8) == 0) == IS_OPEN_MPI;
}

/* Finds an installed MPI of the other family and writes its version to `out`; "" if there is
 * none. */
static void find_other(char *out, size_t bytes)
{
    out[0] = '\0';
    for (const char *const *name = others; *name && !out[0]; name++) {
        void *library = dlopen(*name, RTLD_LAZY | RTLD_LOCAL);
        __typeof__(pp_mpi.Get_library_version) ask = NULL;
        if (library)
            *(void **)&ask = dlsym(library, "MPI_Get_library_version");
        if (read_version(ask, out, bytes))
            out[0] = '\0';
        if (library)
            dlclose(library);
    }
}

static void explain_other(const char *other)
{
    snprintf(problem, sizeof(problem),
             "%s is here, but this ppcli was built with " BUILT ": install that (Debian: " PACKAGE
             "), build ppcli with this MPI, " AS_THREADS,
             other);
}

static void explain_absence(const char *reason)
{
    char other[64], why[256];
    snprintf(why, sizeof(why), "%s", reason); /* the next call overwrites the text of dlerror() */
    find_other(other, sizeof(other));
    if (other[0])
        explain_other(other);
    else
        snprintf(problem, sizeof(problem),
                 "MPI cannot be loaded: %s; install it (Debian: " PACKAGE
                 "), name its folder in LD_LIBRARY_PATH, " AS_THREADS,
                 why);
}

/* Loads the MPI library and finds its functions. It is loaded with RTLD_GLOBAL, because plugins of
 * the library search all loaded symbols. */
static void load_mpi(void)
{
    void *library = dlopen(MPI_FILE, RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        explain_absence(dlerror());
        return;
    }
#define MPI_CALL(x) *(void **)&pp_mpi.x = dlsym(library, "MPI_" #x);
#define MPI_GLOBAL(x)
#include "mpi_library.def"
    if (!read_version(pp_mpi.Get_library_version, version, sizeof(version))) {
        explain_other(version[0] ? version : "a " MPI_FILE " without version");
        return;
    }
    const char *lacks = NULL;
#define MPI_CALL(x) lacks = pp_mpi.x ? lacks : "MPI_" #x;
#ifdef OPEN_MPI
#define MPI_GLOBAL(x) lacks = (pp_mpi.x = dlsym(library, #x)) ? lacks : #x;
#else
#define MPI_GLOBAL(x)
#endif
#include "mpi_library.def"
    if (lacks)
        snprintf(problem, sizeof(problem),
                 MPI_FILE " (%s) has no %s; install " BUILT " (Debian: " PACKAGE "), " AS_THREADS,
                 version, lacks);
}

int pp_mpi_load(void)
{
    pthread_once(&once, load_mpi);
    return problem[0] ? pp_fail(PP_ERESOURCE, "%s", problem) : 0;
}

const char *pp_mpi_version(void)
{
    return version[0] && !problem[0] ? version : BUILT;
}

int pp_mpi_probe(char *why, size_t bytes)
{
    pthread_once(&once, load_mpi);
    snprintf(why, bytes, "%s", problem[0] ? problem : version);
    return problem[0] ? PP_ERESOURCE : 0;
}

int pp_mpi_init(int wanted_level, int *out_level)
{
    return MPI_Init_thread(NULL, NULL, wanted_level, out_level);
}

int pp_mpi_finalize(void)
{
    return MPI_Finalize();
}
