/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mapped files. The handler of SIGBUS finds mappings in a list that only grows, so it reads the
 * list without a lock, in any thread that touched a lost page.
 */
#include "ppcli/base/files.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ppcli/base/base.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for changes to the list */
static struct pp_mapping *mappings;
static struct sigaction before; /* the previous handler, such as that of MPI or of a sanitizer */
static uintptr_t page_bytes;

static struct pp_mapping *find_mapping(uintptr_t address)
{
    struct pp_mapping *m = __atomic_load_n(&mappings, __ATOMIC_ACQUIRE);
    while (m && (address < (uintptr_t)m->at ||
                 address - (uintptr_t)m->at >= __atomic_load_n(&m->bytes, __ATOMIC_ACQUIRE)))
        m = m->next;
    return m;
}

/* Handles SIGBUS: replaces the missing page and all pages of the mapping after it by zeros, because
 * a file that was cut short has none of them. */
static void replace_pages(int number, siginfo_t *info, void *context)
{
    uintptr_t address = (uintptr_t)info->si_addr;
    struct pp_mapping *m = find_mapping(address);
    if (m) {
        uintptr_t page = address & ~(page_bytes - 1), end = (uintptr_t)m->at + m->bytes;
        int access = PROT_READ | (m->writes ? PROT_WRITE : 0);
        __atomic_store_n(&m->lost, true, __ATOMIC_RELEASE);
        if (mmap((void *)page, end - page, access,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED)
            return;
    }
    sigaction(number, &before, NULL); /* not our page: let the access fail again */
}

/* Installs the handler of SIGBUS if it is not the current one: a library may have replaced it. */
static void install_handler(void)
{
    struct sigaction now, ours = {.sa_sigaction = replace_pages, .sa_flags = SA_SIGINFO};
    sigemptyset(&ours.sa_mask);
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    bool here = sigaction(SIGBUS, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) &&
                now.sa_sigaction == replace_pages;
    if (!here && sigaction(SIGBUS, &ours, &now) == 0)
        before = now;
}

/* Returns an entry of the list whose mapping is closed, else a new entry. */
static struct pp_mapping *take_entry(void)
{
    struct pp_mapping *m = mappings;
    while (m && m->bytes > 0)
        m = m->next;
    if (m)
        return m;
    m = pp_alloc(1, sizeof(*m));
    if (m) {
        m->next = mappings;
        __atomic_store_n(&mappings, m, __ATOMIC_RELEASE);
    }
    return m;
}

int pp_mapping_open(const char *path, int fd, size_t bytes, bool writes, struct pp_mapping **out)
{
    struct stat st;
    PP_OWN(pp_close_at) int owned = fd;
    char named[PP_PATH_MAX];
    PP_TRY(pp_path_format(named, "%s", path));
    void *at = fstat(fd, &st) == 0
                   ? mmap(NULL, bytes, PROT_READ | (writes ? PROT_WRITE : 0), MAP_SHARED, fd, 0)
                   : MAP_FAILED;
    if (at == MAP_FAILED)
        return pp_fail_errno(PP_ERESOURCE, "%s: cannot map %zu bytes", path, bytes);
    pthread_mutex_lock(&lock);
    install_handler();
    struct pp_mapping *m = take_entry();
    if (m) {
        m->at = at;
        m->fd = fd;
        m->writes = writes;
        m->lost = false;
        m->modified[0] = st.st_mtim.tv_sec;
        m->modified[1] = st.st_mtim.tv_nsec;
        memcpy(m->path, named, sizeof(named));
        __atomic_store_n(&m->bytes, bytes, __ATOMIC_RELEASE);
        owned = -1;
    }
    pthread_mutex_unlock(&lock);
    PP_TRY_UNDO(m ? 0 : PP_ERESOURCE, munmap(at, bytes));
    *out = m;
    return 0;
}

void pp_mapping_close(struct pp_mapping **mapping)
{
    struct pp_mapping *m = *mapping;
    if (!m)
        return;
    munmap(m->at, m->bytes);
    close(m->fd);
    pthread_mutex_lock(&lock);
    __atomic_store_n(&m->bytes, 0, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    *mapping = NULL;
}

int pp_mapping_check(const struct pp_mapping *m)
{
    struct stat st;
    if (fstat(m->fd, &st) != 0)
        return pp_fail_errno(PP_EIO, "%s: cannot look at the file", m->path);
    if ((uint64_t)st.st_size < m->bytes || (!m->writes && (uint64_t)st.st_size > m->bytes))
        return pp_fail(PP_EFORMAT,
                       "%s: another program changed its size while it was in use, from %zu bytes "
                       "to %lld",
                       m->path, m->bytes, (long long)st.st_size);
    if (!m->writes &&
        (st.st_mtim.tv_sec != m->modified[0] || st.st_mtim.tv_nsec != m->modified[1])) {
        char when[32] = "";
        struct tm t;
        if (localtime_r(&st.st_mtim.tv_sec, &t))
            strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &t);
        return pp_fail(PP_EFORMAT, "%s: another program wrote to it (at %s) while it was in use",
                       m->path, when);
    }
    if (__atomic_load_n(&m->lost, __ATOMIC_ACQUIRE))
        return pp_fail(PP_EIO, "%s: part of the file cannot be read (or was cut off for a while)",
                       m->path);
    return 0;
}
