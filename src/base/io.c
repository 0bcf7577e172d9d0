/* SPDX-License-Identifier: Apache-2.0 */
/* The table of file operations, its implementation by system calls, and functions that handle their
 * errors. */
#include "ppcli/base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

/* ---- the system */

static int system_create(const struct pp_io *io, const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
}

static ssize_t system_write(const struct pp_io *io, int fd, const void *data, size_t bytes)
{
    return write(fd, data, bytes);
}

static int system_fsync(const struct pp_io *io, int fd)
{
    return fsync(fd);
}

static int system_close(const struct pp_io *io, int fd)
{
    /* Linux releases the descriptor before it can be interrupted. */
    return close(fd) != 0 && errno != EINTR ? -1 : 0;
}

static int system_rename(const struct pp_io *io, const char *from, const char *to)
{
    return rename(from, to);
}

static int system_exchange(const struct pp_io *io, const char *a, const char *b)
{
    return renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
}

static int system_unlink(const struct pp_io *io, const char *path)
{
    return unlink(path);
}

static int system_mkdir(const struct pp_io *io, const char *path)
{
    return mkdir(path, 0777);
}

static int system_rmdir(const struct pp_io *io, const char *path)
{
    return rmdir(path);
}

static int system_sync_dir(const struct pp_io *io, const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int rc = fsync(fd);
    int e = errno;
    close(fd);
    if (rc != 0 && (e == EINVAL || e == ENOTSUP))
        return 0;
    errno = e;
    return rc;
}

static int system_space(const struct pp_io *io, const char *path, uint64_t *out_bytes)
{
    struct statvfs s;
    if (statvfs(path, &s) != 0)
        return -1;
    *out_bytes = (uint64_t)s.f_bavail * s.f_frsize;
    return 0;
}

static const struct pp_io_ops system_ops = {
    .create = system_create,
    .write = system_write,
    .fsync = system_fsync,
    .close = system_close,
    .rename = system_rename,
    .exchange = system_exchange,
    .unlink = system_unlink,
    .mkdir = system_mkdir,
    .rmdir = system_rmdir,
    .sync_dir = system_sync_dir,
    .space = system_space,
};

const struct pp_io pp_io_system = {&system_ops};

/* ---- operations that report errors */

/* Repeats a call that was interrupted by a signal, which has done nothing. */
#define RETRY_INTERRUPTED(rc, call)                                                                \
    do {                                                                                           \
        (rc) = (call);                                                                             \
    } while ((rc) < 0 && errno == EINTR)

int pp_io_mkdir(const struct pp_io *io, const char *path)
{
    int rc;
    RETRY_INTERRUPTED(rc, io->ops->mkdir(io, path));
    if (rc == 0)
        return 0;
    struct stat st;
    if (errno != EEXIST)
        return pp_fail_errno(0, "cannot create folder %s", path);
    if (stat(path, &st) != 0)
        return pp_fail_errno(0, "cannot create folder %s", path);
    return S_ISDIR(st.st_mode) ? 0 : pp_fail(PP_EIO, "%s is not a folder", path);
}

int pp_io_rename(const struct pp_io *io, const char *from, const char *to)
{
    int rc;
    RETRY_INTERRUPTED(rc, io->ops->rename(io, from, to));
    return rc < 0 ? pp_fail_errno(0, "cannot rename %s to %s", from, to) : 0;
}

int pp_io_unlink(const struct pp_io *io, const char *path)
{
    int rc;
    RETRY_INTERRUPTED(rc, io->ops->unlink(io, path));
    return rc < 0 ? pp_fail_errno(0, "cannot remove %s", path) : 0;
}

int pp_io_rmdir(const struct pp_io *io, const char *path)
{
    int rc;
    RETRY_INTERRUPTED(rc, io->ops->rmdir(io, path));
    return rc < 0 ? pp_fail_errno(0, "cannot remove folder %s", path) : 0;
}

int pp_io_sync_dir(const struct pp_io *io, const char *path)
{
    int rc;
    RETRY_INTERRUPTED(rc, io->ops->sync_dir(io, path));
    return rc < 0 ? pp_fail_errno(0, "cannot flush folder %s", path) : 0;
}

/* ---- temporary files, to be removed when this process ends early */

#define ON_THE_WAY_MAX 64 /* further files are not removed */

static struct on_the_way {
    int pid; /* pid of the owner, -1: being written; 0: free */
    char temp[PP_PATH_MAX];
} on_the_way[ON_THE_WAY_MAX];

static void register_temporary(const struct pp_io_file *f)
{
    for (int i = 0; f->io == &pp_io_system && i < ON_THE_WAY_MAX; i++) {
        int none = 0;
        if (__atomic_compare_exchange_n(&on_the_way[i].pid, &none, -1, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
            memcpy(on_the_way[i].temp, f->temp, sizeof(f->temp));
            __atomic_store_n(&on_the_way[i].pid, (int)getpid(), __ATOMIC_RELEASE);
            return;
        }
    }
}

static void unregister_temporary(const struct pp_io_file *f)
{
    for (int i = 0; f->io == &pp_io_system && i < ON_THE_WAY_MAX; i++) {
        struct on_the_way *entry = &on_the_way[i];
        int pid = __atomic_load_n(&entry->pid, __ATOMIC_ACQUIRE);
        if (pid > 0 && strcmp(entry->temp, f->temp) == 0)
            __atomic_store_n(&entry->pid, 0, __ATOMIC_RELEASE);
    }
}

void pp_io_remove_temporary(void)
{
    int before = errno, self = (int)getpid();
    for (int i = 0; i < ON_THE_WAY_MAX; i++)
        if (__atomic_load_n(&on_the_way[i].pid, __ATOMIC_ACQUIRE) == self)
            (void)unlink(on_the_way[i].temp);
    errno = before;
}

/* ---- writing */

int pp_io_create(const struct pp_io *io, const char *path, struct pp_io_file *out)
{
    struct pp_io_file f = {.io = io, .fd = -1};
    PP_TRY(pp_path_format(f.path, "%s", path));
    PP_TRY(pp_path_format(f.temp, "%s.tmp-%ld", path, (long)getpid()));
    RETRY_INTERRUPTED(f.fd, io->ops->create(io, f.temp));
    if (f.fd < 0 && errno == EEXIST) {
        /* It was left over by a killed process with the same pid. */
        PP_TRY(pp_io_unlink(io, f.temp));
        RETRY_INTERRUPTED(f.fd, io->ops->create(io, f.temp));
    }
    if (f.fd < 0)
        return pp_fail_errno(0, "cannot create %s", path);
    pp_sha256_init(&f.sha);
    register_temporary(&f);
    *out = f;
    return 0;
}

int pp_io_write(struct pp_io_file *f, const void *data, size_t bytes)
{
    const char *p = data;
    size_t left = bytes;
    while (left > 0) {
        ssize_t n;
        RETRY_INTERRUPTED(n, f->io->ops->write(f->io, f->fd, p, left));
        if (n <= 0) {
            /* 0 for a positive count: a full device that does not report an error */
            int rc = n < 0 ? pp_fail_errno(0, "cannot write %s", f->path)
                           : pp_fail(PP_EIO, "cannot write %s: the device is full", f->path);
            pp_io_abandon(f);
            return rc;
        }
        p += n;
        left -= (size_t)n;
    }
    pp_sha256_update(&f->sha, data, bytes);
    f->bytes += bytes;
    return 0;
}

/* Closes the file and renames it to its final name, without an fsync. */
static int rename_file(struct pp_io_file *f)
{
    const struct pp_io *io = f->io;
    int rc, fd = f->fd;
    f->fd = -1;
    if (io->ops->close(io, fd) != 0) {
        rc = pp_fail_errno(0, "cannot close %s", f->path);
    } else {
        RETRY_INTERRUPTED(rc, io->ops->rename(io, f->temp, f->path));
        rc = rc < 0 ? pp_fail_errno(0, "cannot rename %s to its final name", f->temp) : 0;
    }
    if (rc < 0)
        (void)io->ops->unlink(io, f->temp);
    unregister_temporary(f);
    return rc;
}

int pp_io_commit(struct pp_io_file *f, uint8_t out_digest[PP_SHA256_BYTES])
{
    int rc;
    RETRY_INTERRUPTED(rc, f->io->ops->fsync(f->io, f->fd));
    PP_TRY_UNDO(rc < 0 ? pp_fail_errno(0, "cannot flush %s", f->path) : 0, pp_io_abandon(f));
    PP_TRY(rename_file(f));
    if (out_digest)
        pp_sha256_final(&f->sha, out_digest);
    return 0;
}

void pp_io_abandon(struct pp_io_file *f)
{
    if (f->io && f->fd >= 0) {
        (void)f->io->ops->close(f->io, f->fd);
        f->fd = -1;
        (void)f->io->ops->unlink(f->io, f->temp);
        unregister_temporary(f);
    }
}

/* ---- as a FILE */

/* Refuses an existing path that is not a regular file, because the rename at the end would replace
 * it: a link or, for instance, /dev/null would be lost. */
static int check_target(const char *path)
{
    struct stat st;
    PP_TRY(pp_path_stat(path, false, &st));
    if (st.st_mode == 0 || S_ISREG(st.st_mode))
        return 0;
    return pp_fail(PP_EIO, "cannot create %s: there is a %s of that name, which is not replaced",
                   path,
                   S_ISDIR(st.st_mode)    ? "folder"
                   : S_ISLNK(st.st_mode)  ? "symbolic link"
                   : S_ISFIFO(st.st_mode) ? "pipe"
                                          : "device");
}

/* Removes temporary files of this path that killed processes of this machine left. They must be an
 * hour old, because the process number in the name may be that of a process on another machine,
 * which writes the same file now. */
static void remove_leftovers(const char *path)
{
    char dir[PP_PATH_MAX];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    PP_OWN(pp_closedir_at) DIR *d = opendir(dir);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        struct stat st;
        char *end = NULL;
        size_t n = strlen(name);
        bool temp = strncmp(e->d_name, name, n) == 0 && strncmp(e->d_name + n, ".tmp-", 5) == 0;
        long pid = temp ? strtol(e->d_name + n + 5, &end, 10) : 0;
        if (pid > 0 && *end == '\0' && kill((pid_t)pid, 0) != 0 && errno == ESRCH &&
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
            st.st_mtime + 3600 < time(NULL))
            (void)unlinkat(dirfd(d), e->d_name, 0);
    }
}

int pp_file_create(const char *path, struct pp_file_write *out)
{
    PP_TRY(check_target(path));
    remove_leftovers(path);
    PP_TRY(pp_io_create(&pp_io_system, path, &out->to));
    PP_OWN(pp_close_at) int fd = dup(out->to.fd);
    out->f = fd >= 0 ? fdopen(fd, "w") : NULL;
    PP_TRY_UNDO(out->f ? 0 : pp_fail_errno(0, "cannot create %s", path), pp_io_abandon(&out->to));
    fd = -1;
    return 0;
}

int pp_file_commit(struct pp_file_write *w)
{
    bool failed = ferror(w->f) != 0;
    errno = 0;
    failed = fclose(w->f) != 0 || failed;
    w->f = NULL;
    struct statvfs disk; /* a stream loses the errno of an earlier write */
    if (failed && errno == 0)
        errno = fstatvfs(w->to.fd, &disk) == 0 && disk.f_bavail == 0 ? ENOSPC : EIO;
    PP_TRY_UNDO(failed ? pp_fail_errno(PP_EIO, "cannot write %s", w->to.path) : 0,
                pp_io_abandon(&w->to));
    PP_TRY(pp_io_commit(&w->to, NULL));
    char dir[PP_PATH_MAX];
    memcpy(dir, w->to.path, sizeof(dir));
    char *slash = strrchr(dir, '/');
    if (slash)
        slash[slash == dir] = '\0';
    return pp_io_sync_dir(w->to.io, slash ? dir : ".");
}

int pp_file_write_text(const char *dir, const char *name, const char *text)
{
    char path[PP_PATH_MAX];
    struct pp_file_write file;
    PP_TRY(pp_path_format(path, "%s/%s", dir, name));
    PP_TRY(pp_file_create(path, &file));
    fputs(text, file.f);
    return pp_file_commit(&file);
}

int pp_file_draw(const char *path, int (*draw)(const void *ctx, FILE *f), const void *ctx)
{
    PP_OWN(pp_file_abandon) struct pp_file_write w = {.f = NULL};
    if (strcmp(path, "-") == 0)
        return draw(ctx, stdout);
    PP_TRY(pp_file_create(path, &w));
    PP_TRY(draw(ctx, w.f));
    return pp_file_commit(&w);
}

void pp_file_abandon(struct pp_file_write *w)
{
    if (w->f) {
        fclose(w->f);
        w->f = NULL;
        pp_io_abandon(&w->to);
    }
}
