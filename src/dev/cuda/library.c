/* SPDX-License-Identifier: Apache-2.0 */
/* Loads cuBLASLt by a file name with its major version, first that of the build. The toolkit's
 * folder is in the run path. Everything used of it is the same in versions 12 and 13. */
#include "cuda_impl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define FILE_NAME "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR)

/* The process loads the library once, when it is first asked for. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct cuda_blas blas;
static char problem[256]; /* empty: blas is complete */

static void load_blas(void)
{
    static const char *const files[] = {FILE_NAME, "libcublasLt.so.13", "libcublasLt.so.12"};
    void *library = NULL;
    for (int i = 0; i < 3 && !library; i++)
        library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(problem, sizeof(problem),
                 FILE_NAME
                 " cannot be loaded; install cuBLAS of CUDA 12 or 13 or name its folder in "
                 "LD_LIBRARY_PATH");
        return;
    }
#define CUDA_BLAS(x)                                                                               \
    *(void **)&blas.x = dlsym(library, "cublasLt" #x);                                             \
    if (!blas.x) {                                                                                 \
        snprintf(problem, sizeof(problem),                                                         \
                 "cuBLASLt has no cublasLt" #x "; install the cuBLAS of CUDA 12 or 13");           \
        return;                                                                                    \
    }
#include "library.def"
}

const struct cuda_blas *cuda_blas_load(char *why, size_t bytes)
{
    pthread_once(&once, load_blas);
    if (problem[0]) {
        snprintf(why, bytes, "%s", problem);
        return NULL;
    }
    return &blas;
}

/* Writes the version of cuBLASLt, such as "13.1.0" for the number 130100. */
void cuda_blas_version(const struct cuda_blas *b, char *out, size_t bytes)
{
    size_t v = b->GetVersion();
    snprintf(out, bytes, "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
}
