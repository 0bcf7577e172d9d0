/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of checkpoints share: a small set of tensors, and an io that counts, fails or stops.
 */
#ifndef PPCLI_TESTS_CKPT_FILES_H
#define PPCLI_TESTS_CKPT_FILES_H

#include <errno.h>
#include <fcntl.h>
#include <math.h>

#include "ppcli/base/files.h"
#include "ppcli/ckpt/safetensors.h"
#include "test_data_files.h"

/* What happens at call number `at` (from 1) of a save. */
enum io_fault {
    IO_NONE,
    IO_FAIL,        /* it and no other fails with `error`, without effect */
    IO_STOP_BEFORE, /* the process is gone: from it on nothing has an effect */
    IO_STOP_AFTER,
    IO_SHORT, /* every write takes one byte, every second one is interrupted first */
};

/* Flushing is only recorded: what it is for cannot be seen from here, and it takes its time. */
struct test_io {
    struct pp_io io; /* first: what the operations get points here */
    enum io_fault fault;
    int at, error;
    int calls;
    int fsyncs_after_failure; /* of a descriptor whose fsync had failed */
    int failed_fd;
    char names[4096]; /* "create write ... " of all calls */
};

/* The test owns it, so it may change what it only sees as constant here. */
static inline struct test_io *test_io_of(const struct pp_io *io)
{
    return (struct test_io *)(uintptr_t)io;
}

/* Whether the call is made; else -1 and errno are what it says. */
static inline bool io_goes(const struct pp_io *io, const char *name, bool *out_lost)
{
    struct test_io *t = test_io_of(io);
    int call = ++t->calls;
    size_t used = strlen(t->names);
    if (used + strlen(name) + 2 < sizeof(t->names))
        snprintf(t->names + used, sizeof(t->names) - used, "%s ", name);
    *out_lost = false;
    errno = EIO;
    switch (t->fault) {
    case IO_FAIL:
        errno = t->error;
        return call != t->at;
    case IO_STOP_BEFORE:
        return call < t->at;
    case IO_STOP_AFTER:
        *out_lost = call == t->at;
        return call <= t->at;
    default:
        return true;
    }
}

#define IO_CALL(name, expr)                                                                        \
    bool lost;                                                                                     \
    if (!io_goes(io, name, &lost))                                                                 \
        return -1;                                                                                 \
    int rc = (expr);                                                                               \
    if (lost) {                                                                                    \
        errno = EIO;                                                                               \
        return -1;                                                                                 \
    }                                                                                              \
    return rc

static inline int test_create(const struct pp_io *io, const char *path)
{
    bool lost;
    if (!io_goes(io, "create", &lost))
        return -1;
    int fd = pp_io_system.ops->create(&pp_io_system, path);
    if (lost && fd >= 0) {
        close(fd);
        errno = EIO;
        return -1;
    }
    return fd;
}

static inline ssize_t test_write(const struct pp_io *io, int fd, const void *data, size_t bytes)
{
    struct test_io *t = test_io_of(io);
    if (t->fault == IO_SHORT) {
        if (t->calls++ % 2 == 0) {
            errno = EINTR;
            return -1;
        }
        return write(fd, data, bytes > 0 ? 1 : 0);
    }
    bool lost;
    if (!io_goes(io, "write", &lost))
        return -1;
    ssize_t n = write(fd, data, bytes);
    errno = EIO;
    return lost ? -1 : n;
}

static inline int test_fsync(const struct pp_io *io, int fd)
{
    struct test_io *t = test_io_of(io);
    t->fsyncs_after_failure += fd == t->failed_fd;
    bool lost;
    if (!io_goes(io, "fsync", &lost)) {
        t->failed_fd = fd;
        return -1;
    }
    errno = EIO;
    return lost ? -1 : 0;
}

static inline int test_close(const struct pp_io *io, int fd)
{
    /* As with the real one, the descriptor is gone even when it fails. */
    int real = close(fd);
    test_io_of(io)->failed_fd = -1;
    IO_CALL("close", real);
}

static inline int test_rename(const struct pp_io *io, const char *from, const char *to)
{
    IO_CALL("rename", rename(from, to));
}

static inline int test_exchange(const struct pp_io *io, const char *a, const char *b)
{
    IO_CALL("exchange", pp_io_system.ops->exchange(&pp_io_system, a, b));
}

static inline int test_unlink(const struct pp_io *io, const char *path)
{
    IO_CALL("unlink", unlink(path));
}

static inline int test_mkdir(const struct pp_io *io, const char *path)
{
    IO_CALL("mkdir", mkdir(path, 0777));
}

static inline int test_rmdir(const struct pp_io *io, const char *path)
{
    IO_CALL("rmdir", rmdir(path));
}

static inline int test_sync_dir(const struct pp_io *io, const char *path)
{
    IO_CALL("sync_dir", access(path, F_OK));
}

static inline int test_space(const struct pp_io *io, const char *path, uint64_t *out_bytes)
{
    IO_CALL("space", pp_io_system.ops->space(&pp_io_system, path, out_bytes));
}

static inline struct test_io test_io(enum io_fault fault, int at, int error)
{
    static const struct pp_io_ops ops = {test_create, test_write,    test_fsync,  test_close,
                                         test_rename, test_exchange, test_unlink, test_mkdir,
                                         test_rmdir,  test_sync_dir, test_space};
    return (struct test_io){
        .io = {&ops}, .fault = fault, .at = at, .error = error, .failed_fd = -1};
}

/* How many entries a folder has; *last (NULL: not wanted) the name of one of them. */
static inline int folder_count(const char *dir, char *last, size_t bytes)
{
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            n++;
            if (last)
                snprintf(last, bytes, "%s", e->d_name);
        }
    }
    if (d)
        closedir(d);
    return n;
}

#endif
