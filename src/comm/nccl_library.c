/* SPDX-License-Identifier: Apache-2.0 */
/* Loads NCCL by the library name of its major version; the toolkit's folder is in the run path. */
#include "nccl_impl.h"

#include <dlfcn.h>
#include <stdio.h>

#include "ppcli/base/base.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define FILE_NAME "libnccl.so." TEXT(NCCL_MAJOR)
#define OLDEST 21800
#define VERSION TEXT(NCCL_MAJOR) "." TEXT(NCCL_MINOR) "." TEXT(NCCL_PATCH)

/* One per process: the library is loaded once. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct nccl_library nccl;
static char problem[256]; /* empty: nccl is complete */
static char version[32];

static void load_nccl(void)
{
    int v = 0;
    void *library = dlopen(FILE_NAME, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(problem, sizeof(problem),
                 FILE_NAME " cannot be loaded: install NCCL " VERSION " or name its folder in "
                           "LD_LIBRARY_PATH, or use run.transport = threads or mpi");
        return;
    }
#define NCCL(x)                                                                                    \
    *(void **)&nccl.x = dlsym(library, "nccl" #x);                                                 \
    if (!nccl.x) {                                                                                 \
        snprintf(problem, sizeof(problem), FILE_NAME " has no nccl" #x "; install NCCL " VERSION); \
        return;                                                                                    \
    }
#include "nccl_library.def"
    /* 22809 is 2.28.9. The configuration of a communicator contains its own size, and an older
     * library uses the part that it knows. */
    if (nccl.GetVersion(&v) != ncclSuccess || v < OLDEST) {
        snprintf(problem, sizeof(problem),
                 FILE_NAME " is NCCL %d.%d.%d, and ppcli needs 2.18 or later: install a newer one, "
                           "or use run.transport = threads or mpi",
                 v / 10000, v / 100 % 100, v % 100);
        return;
    }
    snprintf(version, sizeof(version), "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
}

int pp_nccl_load(const struct nccl_library **out)
{
    pthread_once(&once, load_nccl);
    if (problem[0])
        return pp_fail(PP_ERESOURCE, "%s", problem);
    *out = &nccl;
    return 0;
}

const char *pp_nccl_version(void)
{
    return VERSION;
}

int pp_nccl_probe(char *why, size_t bytes)
{
    pthread_once(&once, load_nccl);
    snprintf(why, bytes, "%s", problem[0] ? problem : version);
    return problem[0] ? PP_ERESOURCE : 0;
}
