/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks at a folder that fail: every opendir, readdir, stat, lstat, fstat, open, openat, fopen,
 * realpath, access and fdatasync of a path in it is counted, and one of them fails.
 *
 *     PPCLI_FAULT_FOLDER   the folder, as realpath() says it
 *     PPCLI_FAULT_AT       which call fails, from 1; 0: none
 *     PPCLI_FAULT_ERRNO    the number of the error
 *     PPCLI_FAULT_LOG      a file that gets a line for each call: its number, name and path
 *
 * Linked with -Wl,--wrap, under both names that a C library has for each call.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_long calls;

static void log_call(long number, const char *call, const char *path)
{
    const char *to = getenv("PPCLI_FAULT_LOG");
    char line[PATH_MAX + 64];
    int n = snprintf(line, sizeof(line), "%ld %s %s\n", number, call, path);
    int fd =
        to ? (int)syscall(SYS_openat, AT_FDCWD, to, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)
           : -1;
    if (fd >= 0) {
        (void)!write(fd, line, (size_t)n);
        close(fd);
    }
}

/* Is it this call's turn? errno is set then. */
static bool is_due(const char *call, const char *path)
{
    const char *folder = getenv("PPCLI_FAULT_FOLDER"), *at = getenv("PPCLI_FAULT_AT");
    char full[2 * PATH_MAX] = "";
    if (!folder || !path)
        return false;
    if (path[0] != '/' && getcwd(full, PATH_MAX))
        strcat(full, "/");
    strncat(full, path, PATH_MAX - 1);
    size_t n = strlen(folder);
    if (strncmp(full, folder, n) != 0 || (full[n] != '/' && full[n] != '\0'))
        return false;
    long number = atomic_fetch_add(&calls, 1) + 1;
    log_call(number, call, full);
    if (!at || number != atol(at))
        return false;
    const char *error = getenv("PPCLI_FAULT_ERRNO");
    errno = error ? atoi(error) : EIO;
    return true;
}

static bool is_due_fd(const char *call, int fd)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    if (n < 0)
        return false;
    path[n] = '\0';
    return is_due(call, path);
}

static bool is_due_at(const char *call, int dir, const char *name)
{
    char link[64], path[2 * PATH_MAX];
    if (name[0] == '/' || dir == AT_FDCWD)
        return is_due(call, name);
    snprintf(link, sizeof(link), "/proc/self/fd/%d", dir);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    if (n < 0)
        return false;
    snprintf(path + n, sizeof(path) - (size_t)n, "/%s", name);
    return is_due(call, path);
}

static int mode_of(int flags, va_list args)
{
    return flags & O_CREAT ? va_arg(args, int) : 0;
}

#define DIRENT struct dirent
#define WRAP_BOTH(X) X(, struct stat) X(64, struct stat)
#define WRAP(suffix, type)                                                                         \
    DIRENT *__real_readdir##suffix(DIR *d);                                                        \
    DIRENT *__wrap_readdir##suffix(DIR *d);                                                        \
    DIRENT *__wrap_readdir##suffix(DIR *d)                                                         \
    {                                                                                              \
        return is_due_fd("readdir", dirfd(d)) ? NULL : __real_readdir##suffix(d);                  \
    }                                                                                              \
    int __real_stat##suffix(const char *path, type *st);                                           \
    int __wrap_stat##suffix(const char *path, type *st);                                           \
    int __wrap_stat##suffix(const char *path, type *st)                                            \
    {                                                                                              \
        return is_due("stat", path) ? -1 : __real_stat##suffix(path, st);                          \
    }                                                                                              \
    int __real_lstat##suffix(const char *path, type *st);                                          \
    int __wrap_lstat##suffix(const char *path, type *st);                                          \
    int __wrap_lstat##suffix(const char *path, type *st)                                           \
    {                                                                                              \
        return is_due("lstat", path) ? -1 : __real_lstat##suffix(path, st);                        \
    }                                                                                              \
    int __real_fstat##suffix(int fd, type *st);                                                    \
    int __wrap_fstat##suffix(int fd, type *st);                                                    \
    int __wrap_fstat##suffix(int fd, type *st)                                                     \
    {                                                                                              \
        return is_due_fd("fstat", fd) ? -1 : __real_fstat##suffix(fd, st);                         \
    }                                                                                              \
    int __real_open##suffix(const char *path, int flags, ...);                                     \
    int __wrap_open##suffix(const char *path, int flags, ...);                                     \
    int __wrap_open##suffix(const char *path, int flags, ...)                                      \
    {                                                                                              \
        va_list args;                                                                              \
        va_start(args, flags);                                                                     \
        int mode = mode_of(flags, args);                                                           \
        va_end(args);                                                                              \
        return is_due("open", path) ? -1 : __real_open##suffix(path, flags, mode);                 \
    }                                                                                              \
    int __real_openat##suffix(int dir, const char *path, int flags, ...);                          \
    int __wrap_openat##suffix(int dir, const char *path, int flags, ...);                          \
    int __wrap_openat##suffix(int dir, const char *path, int flags, ...)                           \
    {                                                                                              \
        va_list args;                                                                              \
        va_start(args, flags);                                                                     \
        int mode = mode_of(flags, args);                                                           \
        va_end(args);                                                                              \
        return is_due_at("openat", dir, path) ? -1                                                 \
                                              : __real_openat##suffix(dir, path, flags, mode);     \
    }                                                                                              \
    FILE *__real_fopen##suffix(const char *path, const char *how);                                 \
    FILE *__wrap_fopen##suffix(const char *path, const char *how);                                 \
    FILE *__wrap_fopen##suffix(const char *path, const char *how)                                  \
    {                                                                                              \
        return is_due("fopen", path) ? NULL : __real_fopen##suffix(path, how);                     \
    }
WRAP_BOTH(WRAP)

DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);
DIR *__wrap_opendir(const char *path)
{
    return is_due("opendir", path) ? NULL : __real_opendir(path);
}

char *__real_realpath(const char *path, char *out);
char *__wrap_realpath(const char *path, char *out);
char *__wrap_realpath(const char *path, char *out)
{
    return is_due("realpath", path) ? NULL : __real_realpath(path, out);
}

int __real_access(const char *path, int how);
int __wrap_access(const char *path, int how);
int __wrap_access(const char *path, int how)
{
    return is_due("access", path) ? -1 : __real_access(path, how);
}

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
    return is_due_fd("fdatasync", fd) ? -1 : __real_fdatasync(fd);
}
