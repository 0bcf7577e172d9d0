/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that runs out, for tests: linked into a test program only.
 *
 *     PPCLI_ALLOC_FAIL=N      the N-th allocation fails, from 1
 *     PPCLI_ALLOC_FAIL=N+     that one and all after it
 *     PPCLI_THREAD_FAIL=N     the same for the N-th thread that ppcli starts, from 1; and N+
 *     PPCLI_ALLOC_NOTE=FILE   gets a line "failed" when one has failed, "N calls, M threads" at the
 *                             end
 *
 * Counted from main() on: malloc, calloc and realloc of ppcli, of the libraries that read its files
 * and of the C library on their behalf, and ppcli's mmap. A maths library that dies without memory
 * is not ppcli's to mend. With a sanitizer, which has an allocator of its own, ppcli's calls alone.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

/* What is counted, and which of them fail. */
struct site {
    atomic_long calls;
    long first; /* 0: none */
    bool and_all_after;
};

static struct site allocations, threads;
static atomic_bool counting;
static const char *note_path;

static void note(const char *text, size_t bytes)
{
    int fd = note_path ? open(note_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) {
        if (write(fd, text, bytes) < 0)
            _exit(125);
        close(fd);
    }
}

static void listen(const char *variable, struct site *site)
{
    const char *when = getenv(variable);
    char *end = NULL;
    site->first = when ? strtol(when, &end, 10) : 0;
    site->and_all_after = end && *end == '+';
}

__attribute__((destructor)) static void finish(void)
{
    char text[64];
    atomic_store(&counting, false);
    int n = snprintf(text, sizeof(text), "%ld calls, %ld threads\n",
                     atomic_load(&allocations.calls), atomic_load(&threads.calls));
    note(text, (size_t)n);
}

int __real_main(int argc, char **argv);
int __wrap_main(int argc, char **argv);

/* What libraries do before main() and after it is theirs, also of those linked into the program. */
int __wrap_main(int argc, char **argv)
{
    note_path = getenv("PPCLI_ALLOC_NOTE");
    listen("PPCLI_ALLOC_FAIL", &allocations);
    listen("PPCLI_THREAD_FAIL", &threads);
    atomic_store(&counting, true);
    int rc = __real_main(argc, argv);
    atomic_store(&counting, false);
    return rc;
}

static bool fails_at(struct site *site)
{
    long nth = atomic_fetch_add(&site->calls, 1) + 1;
    if (site->first == 0 || nth < site->first || (nth > site->first && !site->and_all_after))
        return false;
    if (nth == site->first)
        note("failed\n", 7);
    return true;
}

static bool fails(void)
{
    bool now = fails_at(&allocations);
    if (now)
        errno = ENOMEM;
    return now;
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*main)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*main)(void *),
                          void *arg);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*main)(void *),
                          void *arg)
{
    return fails_at(&threads) ? EAGAIN : __real_pthread_create(thread, attr, main, arg);
}

void *__real_mmap(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset);

void *__wrap_mmap(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset)
{
    return atomic_load(&counting) && fails() ? MAP_FAILED
                                             : __real_mmap(addr, bytes, prot, flags, fd, offset);
}

#ifdef ALLOC_OF_LIBRARIES_TOO

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);

static bool counted(const void *caller)
{
    static const char *const of[] = {"ppcli-alloc", "libc.", "libjansson", "libz.", "libinih"};
    Dl_info where;
    if (!atomic_load(&counting) || !dladdr(caller, &where) || !where.dli_fname)
        return false;
    const char *base = strrchr(where.dli_fname, '/');
    base = base ? base + 1 : where.dli_fname;
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
        if (strncmp(base, of[i], strlen(of[i])) == 0)
            return true;
    return false;
}

void *malloc(size_t bytes)
{
    bool mine = counted(__builtin_return_address(0));
    return mine && fails() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    bool mine = counted(__builtin_return_address(0));
    return mine && fails() ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *p, size_t bytes)
{
    bool mine = counted(__builtin_return_address(0));
    return mine && fails() ? NULL : __libc_realloc(p, bytes);
}

#else

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    return atomic_load(&counting) && fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return atomic_load(&counting) && fails() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *p, size_t bytes)
{
    return atomic_load(&counting) && fails() ? NULL : __real_realloc(p, bytes);
}

#endif
