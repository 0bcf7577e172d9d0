/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the lazy device: one file of the kernel, mapped twice. */
#include "lazy_impl.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ppcli/base/base.h"

#define BYTES ((size_t)4 << 30) /* of addresses; pages come when they are written */
#define PAGE ((size_t)4096)
#define BLOCKS 1024

struct block {
    size_t at, bytes;
};

static struct {
    pthread_mutex_t lock;
    int fd;
    char *shown, *real;
    struct block blocks[BLOCKS]; /* in use, ascending */
    int n;
} mem = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

static int map(void)
{
    mem.fd = memfd_create("lazy", MFD_CLOEXEC);
    if (mem.fd < 0 || ftruncate(mem.fd, (off_t)BYTES) != 0)
        return pp_fail_errno(PP_ERESOURCE, "lazy: no memory");
    mem.shown = mmap(NULL, BYTES, PROT_NONE, MAP_SHARED | MAP_NORESERVE, mem.fd, 0);
    mem.real = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, mem.fd, 0);
    if (mem.shown == MAP_FAILED || mem.real == MAP_FAILED)
        return pp_fail_errno(PP_ERESOURCE, "lazy: no addresses");
    return 0;
}

void *lazy_real(const void *p)
{
    if (!p)
        return NULL;
    size_t at = (size_t)((uintptr_t)p - (uintptr_t)mem.shown);
    if (at >= BYTES)
        pp_assert(!"memory of the device");
    return mem.real + at;
}

void lazy_make_real(void *args, size_t bytes)
{
    for (size_t i = 0; i + sizeof(void *) <= bytes; i += sizeof(void *)) {
        void *p;
        memcpy(&p, (char *)args + i, sizeof(p));
        if ((uintptr_t)p - (uintptr_t)mem.shown < BYTES) {
            p = lazy_real(p);
            memcpy((char *)args + i, &p, sizeof(p));
        }
    }
}

const void *lazy_peek(const void *p)
{
    return lazy_real(p);
}

int lazy_alloc(struct pp_backend *be, size_t bytes, void **out)
{
    PP_TRY(lazy_no_capture(be, "an allocation"));
    size_t need = (bytes + PAGE) / PAGE * PAGE;
    pthread_mutex_lock(&mem.lock);
    int rc = mem.fd < 0 ? map() : 0;
    size_t at = 0;
    int k = 0;
    while (k < mem.n && mem.blocks[k].at - at < need) {
        at = mem.blocks[k].at + mem.blocks[k].bytes;
        k++;
    }
    if (rc == 0 && (mem.n == BLOCKS || BYTES - at < need))
        rc = pp_fail(PP_ERESOURCE, "lazy: out of memory");
    if (rc == 0) {
        memmove(&mem.blocks[k + 1], &mem.blocks[k], (size_t)(mem.n - k) * sizeof(mem.blocks[0]));
        mem.blocks[k] = (struct block){at, need};
        mem.n++;
        *out = mem.shown + at;
    }
    pthread_mutex_unlock(&mem.lock);
    return rc;
}

/* As cudaFree does, it waits for all streams: after an error in a capture nobody knows what is still
 * under way. */
void lazy_free(struct pp_backend *be, void *p, size_t bytes)
{
    pthread_mutex_lock(&lazy_all.lock);
    while (lazy_all.pending > 0 && !lazy_all.hung)
        pthread_cond_wait(&lazy_all.changed, &lazy_all.lock);
    pthread_mutex_unlock(&lazy_all.lock);
    size_t at = (size_t)((char *)p - mem.shown);
    pthread_mutex_lock(&mem.lock);
    int k = 0;
    while (k < mem.n && mem.blocks[k].at != at)
        k++;
    pp_assert(k < mem.n);
    /* What is taken next is zeroed again. */
    (void)fallocate(mem.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
                    (off_t)mem.blocks[k].bytes);
    memmove(&mem.blocks[k], &mem.blocks[k + 1], (size_t)(mem.n - k - 1) * sizeof(mem.blocks[0]));
    mem.n--;
    pthread_mutex_unlock(&mem.lock);
}
