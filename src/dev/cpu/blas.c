/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads and describes CBLAS. The loaded library need not be the one that was built with, because
 * distributions switch it by a symbolic link; so its properties are asked at run time.
 */
#include "blas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "ppcli/dev/backend.h"
#include "blas_file.h"
#include "gemm.h"

enum {
    SERIAL,
    PTHREADS,
    OPENMP
}; /* results of openblas_get_parallel() */

#define NO_ROOM "the CBLAS needs %zu MiB of address space, and ulimit -v leaves less; raise it"

__typeof__(cblas_sgemm) *blas_sgemm;

/* Global: loaded once per process. Functions that only OpenBLAS has may be NULL. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *library;
static char problem[256]; /* "": it is loaded */
static struct {
    char *(*get_config)(void);
    char *(*get_corename)(void);
    int (*get_parallel)(void);
    int (*get_num_threads)(void);
    void (*set_num_threads)(int);
    void *(*memory_alloc)(int); /* allocates a work buffer */
    void (*memory_free)(void *);
} openblas;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int inside; /* threads that may be in the library at once */
static int kept;   /* buffers that take_buffers() took */

#define MIB (1 << 20)
#define LIBRARY_MIB 64 /* of address space: the library, and its start */
#define BUFFER_MIB 144 /* of address space: OpenBLAS's work buffer for a thread, and its stack */
#define BUFFERS_MAX 32

/* Makes OpenBLAS start one thread; without the variable, which it reads when it is loaded, it
 * starts one for each core. Runs before main(), because the environment must not change while other
 * threads read it. */
__attribute__((constructor)) static void ask_for_one_thread(void)
{
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
}

static bool look_up(const char *name, void *function)
{
    void *p = dlsym(library, name);
    memcpy(function, &p, sizeof(p)); /* ISO C has no cast from an object pointer to a function
                                        pointer */
    return p != NULL;
}

/* Returns whether a limit of the address space (ulimit -v) leaves less than `bytes`. */
static bool lacks_address_space(size_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return false;
    void *room = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room != MAP_FAILED)
        munmap(room, bytes);
    return room == MAP_FAILED;
}

static void load_library(void)
{
    if (BLAS_FILE[0] == '\0') {
        snprintf(problem, sizeof(problem),
                 "this ppcli was built without CBLAS (-Dblas=none): build it with -Dblas=auto");
        return;
    }
    /* if it can be loaded but not started, OpenBLAS ends the program */
    const size_t bytes = (size_t)(LIBRARY_MIB + BUFFER_MIB) * MIB;
    if (lacks_address_space(bytes)) {
        snprintf(problem, sizeof(problem), NO_ROOM, bytes / MIB);
        return;
    }
    library = dlopen(BLAS_FILE, RTLD_NOW | RTLD_LOCAL);
    if (!library || !look_up("cblas_sgemm", &blas_sgemm)) {
        snprintf(problem, sizeof(problem),
                 "the CBLAS cannot be loaded: %s; install it, name its folder in LD_LIBRARY_PATH",
                 library ? BLAS_FILE " has no cblas_sgemm" : dlerror());
        return;
    }
    look_up("openblas_get_config", &openblas.get_config);
    look_up("openblas_get_corename", &openblas.get_corename);
    look_up("openblas_get_parallel", &openblas.get_parallel);
    look_up("openblas_get_num_threads", &openblas.get_num_threads);
    look_up("openblas_set_num_threads", &openblas.set_num_threads);
    look_up("blas_memory_alloc", &openblas.memory_alloc);
    look_up("blas_memory_free", &openblas.memory_free);
}

/* Returns the settings that avoid the BLAS library, for an error message. */
static const char *find_way_out(int threads)
{
    return threads > 1 ? "run.gemm = auto with run.threads = 1" : "run.gemm = fma";
}

/* Makes OpenBLAS allocate the work buffers of n threads now if the address space is limited (ulimit
 * -v): it would later try forever to get one. Checks first that there is enough memory; the library
 * keeps the buffers. */
static int take_buffers(int n, int threads)
{
    struct rlimit limit;
    void *buffers[BUFFERS_MAX];
    if (n <= kept || !openblas.memory_alloc || !openblas.memory_free ||
        getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return 0;
    size_t bytes = (size_t)(n - kept) * BUFFER_MIB * MIB;
    if (n > BUFFERS_MAX || lacks_address_space(bytes))
        return pp_fail(PP_ERESOURCE, NO_ROOM ", or use %s", bytes / MIB, find_way_out(threads));
    for (int i = 0; i < n; i++)
        buffers[i] = openblas.memory_alloc(0);
    for (int i = 0; i < n; i++)
        openblas.memory_free(buffers[i]);
    kept = n;
    return 0;
}

int blas_enter(int threads)
{
    pthread_once(&once, load_library);
    if (problem[0])
        return pp_fail(PP_ERESOURCE, "%s, or use %s", problem, find_way_out(threads));
    pthread_mutex_lock(&lock);
    int rc = take_buffers(inside + threads, threads);
    inside += rc == 0 ? threads : 0;
    pthread_mutex_unlock(&lock);
    return rc;
}

void blas_leave(int threads)
{
    pthread_mutex_lock(&lock);
    inside -= threads;
    pthread_mutex_unlock(&lock);
}

/* Returns whether several threads may call the library at once. They may not call a serial build
 * without USE_LOCKING (Debian's libopenblas0-serial): it gives one work buffer to two callers, and
 * so wrong numbers without an error. An OpenMP build is known to be safe only as long as it starts
 * no threads of its own. MKL and BLIS are safe; unknown libraries are assumed to be safe. */
static bool is_thread_safe(int threads)
{
    if (!openblas.get_parallel || !openblas.get_config)
        return true;
    switch (openblas.get_parallel()) {
    case SERIAL:
        return strstr(openblas.get_config(), "USE_LOCKING") != NULL;
    case OPENMP:
        return threads == 1;
    default:
        return true;
    }
}

bool blas_set_threads(int threads)
{
    /* Another rank of this process may be computing: leave a correct value alone. */
    if (openblas.set_num_threads &&
        !(openblas.get_num_threads && openblas.get_num_threads() == threads))
        openblas.set_num_threads(threads);
    return is_thread_safe(threads);
}

void pp_blas_describe(char *out, size_t bytes)
{
    pthread_once(&once, load_library);
    if (problem[0]) {
        snprintf(out, bytes, "none: %s", problem);
    } else if (openblas.get_config) {
        /* "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ... Haswell MAX_THREADS=64" */
        char name[32] = "OpenBLAS", version[32] = "";
        sscanf(openblas.get_config(), "%31s %31s", name, version);
        snprintf(out, bytes, "%s %s (%s)", name, version,
                 openblas.get_corename ? openblas.get_corename() : "core unknown");
    } else {
        snprintf(out, bytes, "CBLAS of unknown version (%s)", BLAS_FILE);
    }
}
