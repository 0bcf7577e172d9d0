/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CBLAS that is loaded need not be the one that was built with: distributions switch it by a
 * symbolic link. So what it is, is asked at run time.
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
}; /* of openblas_get_parallel() */

#define NO_ROOM "the CBLAS needs %zu MiB of address space, and ulimit -v leaves less; raise it"

__typeof__(cblas_sgemm) *blas_sgemm;

/* Of the process: loaded once, whoever asks. The functions that only OpenBLAS has may be NULL. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *library;
static char problem[256]; /* empty: it is loaded */
static struct {
    char *(*get_config)(void);
    char *(*get_corename)(void);
    int (*get_parallel)(void);
    int (*get_num_threads)(void);
    void (*set_num_threads)(int);
    void *(*memory_alloc)(int); /* a work buffer */
    void (*memory_free)(void *);
} openblas;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int inside; /* threads that may be in it at once */
static int kept;   /* buffers that take_buffers() took */

#define MIB (1 << 20)
#define LIBRARY_MIB 64 /* of address space: the library, and what its start takes */
#define BUFFER_MIB 144 /* of address space: OpenBLAS's work buffer for a thread, and its stack */
#define BUFFERS_MAX 32

/* Before main(), as the environment must not change while other threads read it. OpenBLAS reads
 * this when it is loaded; without it, it starts a thread for each core. */
__attribute__((constructor)) static void ask_for_one_thread(void)
{
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
}

static bool look_up(const char *name, void *function)
{
    void *p = dlsym(library, name);
    memcpy(function, &p, sizeof(p)); /* ISO C casts no object pointer to a function pointer */
    return p != NULL;
}

/* Whether address space is limited (ulimit -v) to less than so much more. */
static bool lacks_room(size_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return false;
    void *room = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room != MAP_FAILED)
        munmap(room, bytes);
    return room == MAP_FAILED;
}

static void load(void)
{
    if (BLAS_FILE[0] == '\0') {
        snprintf(problem, sizeof(problem),
                 "this ppcli was built without CBLAS (-Dblas=none): build it with -Dblas=auto");
        return;
    }
    /* where it can be loaded but not started, OpenBLAS ends the program */
    const size_t bytes = (size_t)(LIBRARY_MIB + BUFFER_MIB) * MIB;
    if (lacks_room(bytes)) {
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

/* What a run does without the library. */
static const char *find_way_out(int threads)
{
    return threads > 1 ? "run.gemm = auto with run.threads = 1" : "run.gemm = fma";
}

/* OpenBLAS tries forever to get a work buffer. So where address space is limited (ulimit -v), it
 * gets those of n threads here, after a look at whether there is room; it keeps them. */
static int take_buffers(int n, int threads)
{
    struct rlimit limit;
    void *buffers[BUFFERS_MAX];
    if (n <= kept || !openblas.memory_alloc || !openblas.memory_free ||
        getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return 0;
    size_t bytes = (size_t)(n - kept) * BUFFER_MIB * MIB;
    if (n > BUFFERS_MAX || lacks_room(bytes))
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
    pthread_once(&once, load);
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

/*
 * A serial build without USE_LOCKING (Debian's libopenblas0-serial) hands the same work buffer to
 * two callers: wrong numbers, silently. An OpenMP build is only known to be safe as long as it
 * starts no threads of its own. Of an unknown library nothing is known; MKL and BLIS are safe.
 */
static bool safe(int threads)
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
    /* Another rank of this process may be computing already: leave a right value alone. */
    if (openblas.set_num_threads &&
        !(openblas.get_num_threads && openblas.get_num_threads() == threads))
        openblas.set_num_threads(threads);
    return safe(threads);
}

void pp_blas_describe(char *out, size_t bytes)
{
    pthread_once(&once, load);
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
