/* SPDX-License-Identifier: Apache-2.0 */
/* Counted allocations and the arena. */
#include "ppcli/base/base.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* For tests and the executor's check that a step does not allocate; it decides nothing. Per thread,
 * because another rank may be outside of its step. */
static _Thread_local uint64_t calls;

#define HUGE_PAGE ((size_t)2 << 20)

/* Allocates zeroed memory if `old` is NULL, else resizes `old`. */
static void *allocate_memory(void *old, size_t count, size_t size)
{
    calls++;
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        pp_fail(PP_ERESOURCE, "out of memory: %zu objects of %zu bytes", count, size);
        return NULL;
    }
    void *p = old ? realloc(old, bytes > 0 ? bytes : 1) : calloc(1, bytes > 0 ? bytes : 1);
    if (!p)
        pp_fail(PP_ERESOURCE, "out of memory: %zu bytes", bytes);
    return p;
}

void *pp_alloc(size_t count, size_t size)
{
    return allocate_memory(NULL, count, size);
}

void *pp_realloc(void *old, size_t count, size_t size)
{
    return allocate_memory(old, count, size);
}

char *pp_strdup(const char *s)
{
    size_t bytes = strlen(s) + 1;
    char *p = pp_alloc(bytes, 1);
    if (p)
        memcpy(p, s, bytes);
    return p;
}

void pp_free(void *p)
{
    free(p);
}

void pp_free_at(void *at)
{
    void *p;
    memcpy(&p, at, sizeof(p));
    pp_free(p);
}

uint64_t pp_alloc_count(void)
{
    return calls;
}

int pp_size_mul(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return pp_fail(PP_ECONFIG, "too large: %zu times %zu bytes", a, b);
    *out = r;
    return 0;
}

int pp_size_add(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r))
        return pp_fail(PP_ECONFIG, "too large: %zu plus %zu bytes", a, b);
    *out = r;
    return 0;
}

struct pp_arena pp_arena_dry(void)
{
    return (struct pp_arena){.base = NULL, .bytes = SIZE_MAX, .used = 0};
}

static size_t round_to_pages(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

/* Maps `bytes` of new pages, aligned to the size of a huge page: the kernel uses huge pages only at
 * aligned addresses. */
static void *map_aligned(size_t bytes)
{
    size_t more;
    if (__builtin_add_overflow(bytes, 2 * HUGE_PAGE, &more)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    char *p = mmap(NULL, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return p;
    size_t head = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
    size_t size = round_to_pages(bytes);
    if (head > 0)
        munmap(p, head);
    munmap(p + head + size, more - head - size);
    return p + head;
}

int pp_arena_create(size_t bytes, struct pp_arena *out)
{
    calls++;
    if (bytes == 0)
        bytes = PP_ALIGN;
    bool huge = bytes >= HUGE_PAGE;
    void *p = huge ? map_aligned(bytes)
                   : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return pp_fail_errno(PP_ERESOURCE, "cannot take %zu bytes of memory", bytes);
    if (huge) {
        /* This is advice: a kernel without huge pages is slower, not wrong. */
        (void)madvise(p, bytes, MADV_HUGEPAGE);
    }
#ifdef MADV_POPULATE_WRITE
    /* Populate now instead of page by page in the first step; older kernels ignore it. */
    (void)madvise(p, bytes, MADV_POPULATE_WRITE);
#endif
    out->base = p;
    out->bytes = bytes;
    out->used = 0;
    return 0;
}

void pp_arena_destroy(struct pp_arena *a)
{
    if (a->base)
        munmap(a->base, a->bytes);
    memset(a, 0, sizeof(*a));
}

void *pp_arena_take(struct pp_arena *a, size_t count, size_t size)
{
    size_t bytes;
    pp_assert(!__builtin_mul_overflow(count, size, &bytes));
    pp_assert(bytes <= SIZE_MAX - PP_ALIGN);
    bytes = (bytes + PP_ALIGN - 1) / PP_ALIGN * PP_ALIGN;
    pp_assert(a->used <= a->bytes && bytes <= a->bytes - a->used);
    void *p = a->base ? a->base + a->used : NULL;
    a->used += bytes;
    return p;
}
