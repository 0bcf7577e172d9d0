/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CBLAS that is loaded need not be the one that was linked: distributions switch it by a
 * symbolic link. So everything is asked at run time, and nothing of OpenBLAS is needed to link.
 */
#include "blas.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "ppcli/backend.h"

enum {
    SERIAL,
    PTHREADS,
    OPENMP
}; /* of openblas_get_parallel() */

struct openblas {
    char *(*get_config)(void);
    char *(*get_corename)(void);
    int (*get_parallel)(void);
    int (*get_num_threads)(void);
    void (*set_num_threads)(int);
};

/* ISO C has no cast from an object to a function pointer; POSIX promises that the bits fit. */
static void look_up(const char *name, void *function)
{
    void *p = dlsym(RTLD_DEFAULT, name);
    memcpy(function, &p, sizeof(p));
}

static struct openblas find(void)
{
    struct openblas b;
    look_up("openblas_get_config", &b.get_config);
    look_up("openblas_get_corename", &b.get_corename);
    look_up("openblas_get_parallel", &b.get_parallel);
    look_up("openblas_get_num_threads", &b.get_num_threads);
    look_up("openblas_set_num_threads", &b.set_num_threads);
    return b;
}

/*
 * A serial build without USE_LOCKING (Debian's libopenblas0-serial) hands the same work buffer to
 * two callers: wrong numbers, silently. An OpenMP build is only known to be safe as long as it
 * starts no threads of its own. Of an unknown library nothing is known; MKL and BLIS are safe.
 */
static bool safe(const struct openblas *b, int threads)
{
    if (!b->get_parallel || !b->get_config) {
        return true;
    }
    switch (b->get_parallel()) {
    case SERIAL:
        return strstr(b->get_config(), "USE_LOCKING") != NULL;
    case OPENMP:
        return threads == 1;
    default:
        return true;
    }
}

bool blas_set_threads(int threads)
{
    struct openblas b = find();
    /* Another rank of this process may be computing already: leave a right value alone. */
    if (b.set_num_threads && !(b.get_num_threads && b.get_num_threads() == threads)) {
        b.set_num_threads(threads);
    }
    return safe(&b, threads);
}

void pp_blas_describe(char *out, size_t bytes)
{
    struct openblas b = find();
    if (b.get_config) {
        /* "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ... Haswell MAX_THREADS=64" */
        char name[32] = "OpenBLAS", version[32] = "";
        sscanf(b.get_config(), "%31s %31s", name, version);
        snprintf(out, bytes, "%s %s (%s)", name, version,
                 b.get_corename ? b.get_corename() : "core unknown");
        return;
    }
    Dl_info info;
    void *symbol = dlsym(RTLD_DEFAULT, "cblas_sgemm");
    const char *file = "statically linked";
    if (symbol && dladdr(symbol, &info) && info.dli_fname) {
        const char *slash = strrchr(info.dli_fname, '/');
        file = slash ? slash + 1 : info.dli_fname;
    }
    snprintf(out, bytes, "CBLAS of unknown version (%s)", file);
}
