/* SPDX-License-Identifier: Apache-2.0 */
/* Whole-or-absent files: temporary name, fsync, rename, fsync of the directory. And reading only
 * what is a file. */
#include "ppcli/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ppcli/err.h"
#include "ppcli/mem.h"

int pp_file_open(const char *path, FILE **out, uint64_t *out_bytes)
{
    int fd = -1;
    PP_TRY(pp_open_regular(path, &fd, out_bytes));
    *out = fdopen(fd, "r");
    if (!*out) {
        int rc = pp_fail_errno(PP_ERESOURCE, "cannot read %s", path);
        close(fd);
        return rc;
    }
    return 0;
}

int pp_file_append(const char *path, int flags, FILE **out)
{
    /* Not waiting is for the opening alone: a pipe that is read may be full for a while. */
    int fd = open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC | O_NOCTTY | flags, 0666);
    if (fd < 0 && errno == ENXIO) {
        return pp_fail(PP_EIO, "cannot create %s: a pipe or device that nobody reads", path);
    }
    FILE *f = fd >= 0 && fcntl(fd, F_SETFL, flags & O_APPEND) == 0 ? fdopen(fd, "w") : NULL;
    if (!f) {
        int rc = pp_fail_errno(0, "cannot create %s", path);
        if (fd >= 0) {
            close(fd);
        }
        return rc;
    }
    *out = f;
    return 0;
}

int pp_fd_read(int fd, const char *path, uint64_t bytes_max, char **out_text, size_t *out_bytes)
{
    char *text = NULL;
    size_t got = 0, room = 0;
    for (;;) {
        if (got + 1 >= room) { /* one for the NUL at the end */
            room = room > 0 ? 2 * room : 16384;
            char *more = pp_realloc(text, room, 1);
            if (!more) {
                pp_free(text);
                return pp_error_context("%s", path);
            }
            text = more;
        }
        ssize_t n = read(fd, text + got, room - got - 1);
        if (n == 0) {
            text[got] = '\0';
            *out_text = text;
            *out_bytes = got;
            return 0;
        }
        got += n > 0 ? (size_t)n : 0;
        if ((n < 0 && errno != EINTR) || got > bytes_max) {
            int rc =
                n < 0 ? pp_fail_errno(PP_EIO, "cannot read %s", path)
                      : pp_fail(PP_EFORMAT, "%s: more than %llu bytes, which is all that is read",
                                path, (unsigned long long)bytes_max);
            pp_free(text);
            return rc;
        }
    }
}

int pp_file_read(const char *path, uint64_t bytes_max, char **out_text, size_t *out_bytes)
{
    int fd = -1;
    uint64_t bytes = 0;
    PP_TRY(pp_open_regular(path, &fd, &bytes));
    int rc = pp_fd_read(fd, path, bytes_max, out_text, out_bytes);
    close(fd);
    return rc;
}

int pp_path_format(char out[PP_PATH_MAX], const char *fmt, ...)
{
    char text[PP_PATH_MAX];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (n < 0 || n >= (int)sizeof(text)) {
        return pp_fail(PP_ECONFIG, "path of %d bytes is too long (at most %d): %.60s...", n,
                       PP_PATH_MAX - 1, text);
    }
    memcpy(out, text, (size_t)n + 1);
    return 0;
}

/* What the name says now would be replaced at the end: only a file ever is. A link may lead
 * anywhere, and renaming over /dev/null takes it from everybody. */
static int check_target(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0 || S_ISREG(st.st_mode)) {
        return 0; /* what else is wrong with it, creating it will tell */
    }
    return pp_fail(PP_EIO, "cannot create %s: there is a %s of that name, which is not replaced",
                   path,
                   S_ISDIR(st.st_mode)    ? "folder"
                   : S_ISLNK(st.st_mode)  ? "symbolic link"
                   : S_ISFIFO(st.st_mode) ? "pipe"
                                          : "device");
}

int pp_file_create(const char *path, struct pp_file_write *out)
{
    struct pp_file_write w = {0};
    PP_TRY(check_target(path));
    PP_TRY(pp_path_format(w.path, "%s", path));
    PP_TRY(pp_path_format(w.temp, "%s.tmp.%ld", path, (long)getpid()));
    /* A leftover of a killed process with the same number must not be followed or kept. */
    (void)unlink(w.temp);
    int fd = open(w.temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) {
        return pp_fail_errno(0, "cannot create %s", path);
    }
    w.f = fdopen(fd, "w");
    if (!w.f) {
        int rc = pp_fail_errno(0, "cannot create %s", path);
        close(fd);
        (void)unlink(w.temp);
        return rc;
    }
    *out = w;
    return 0;
}

static int sync_parent(const char *path)
{
    char dir[PP_PATH_MAX];
    PP_TRY(pp_path_format(dir, "%s", path));
    char *slash = strrchr(dir, '/');
    if (!slash) {
        strcpy(dir, ".");
    } else if (slash == dir) {
        dir[1] = '\0';
    } else {
        *slash = '\0';
    }
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return pp_fail_errno(PP_EIO, "cannot open folder %s", dir);
    }
    int rc = fsync(fd);
    /* Some file systems have no such thing as a folder to flush. */
    if (rc < 0 && errno != EINVAL && errno != ENOTSUP) {
        rc = pp_fail_errno(PP_EIO, "cannot flush folder %s", dir);
    } else {
        rc = 0;
    }
    close(fd);
    return rc;
}

static int finish(struct pp_file_write *w, bool durable)
{
    /* After a failed fsync the pages may be marked clean: the file is lost, never retried. */
    if (fflush(w->f) != 0 || ferror(w->f) || (durable && fsync(fileno(w->f)) != 0)) {
        int rc = pp_fail_errno(PP_EIO, "cannot write %s", w->path);
        pp_file_abandon(w);
        return rc;
    }
    FILE *f = w->f;
    w->f = NULL;
    if (fclose(f) != 0 || rename(w->temp, w->path) != 0) {
        int rc = pp_fail_errno(PP_EIO, "cannot write %s", w->path);
        (void)unlink(w->temp);
        return rc;
    }
    return durable ? sync_parent(w->path) : 0;
}

int pp_file_commit(struct pp_file_write *w)
{
    return finish(w, true);
}

int pp_file_publish(struct pp_file_write *w)
{
    return finish(w, false);
}

void pp_file_abandon(struct pp_file_write *w)
{
    if (w->f) {
        fclose(w->f);
        w->f = NULL;
        (void)unlink(w->temp);
    }
}

int pp_dir_create(const char *path)
{
    char part[PP_PATH_MAX];
    PP_TRY(pp_path_format(part, "%s", path));
    for (char *p = part + 1;; p++) {
        char c = *p;
        if (c != '/' && c != '\0') {
            continue;
        }
        *p = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST) {
            return pp_fail_errno(0, "cannot create folder %s", part);
        }
        *p = c;
        if (c == '\0') {
            break;
        }
    }
    struct stat st;
    if (stat(path, &st) != 0) {
        return pp_fail_errno(0, "cannot create folder %s", path);
    }
    if (!S_ISDIR(st.st_mode)) {
        return pp_fail(PP_EIO, "%s is not a folder", path);
    }
    return 0;
}

static const char *kind_of(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR:
        return "folder";
    case S_IFIFO:
        return "pipe";
    case S_IFSOCK:
        return "socket";
    case S_IFCHR:
    case S_IFBLK:
        return "device";
    default:
        return "special file";
    }
}

int pp_open_regular(const char *path, int *out_fd, uint64_t *out_bytes)
{
    struct stat st;
    /* Looked at before opening too, because opening a device can already do something. */
    if (stat(path, &st) != 0) {
        return pp_fail_errno(0, "cannot read %s", path);
    }
    int fd = -1;
    if (S_ISREG(st.st_mode)) {
        /* O_NONBLOCK: if it became a FIFO meanwhile, opening it must not wait for a writer. */
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (fd < 0 || fstat(fd, &st) != 0) {
            int rc = pp_fail_errno(0, "cannot read %s", path);
            if (fd >= 0) {
                close(fd);
            }
            return rc;
        }
    }
    if (!S_ISREG(st.st_mode)) {
        if (fd >= 0) {
            close(fd);
        }
        return pp_fail(PP_EFORMAT, "%s: is a %s, expected a regular file", path,
                       kind_of(st.st_mode));
    }
    *out_fd = fd;
    *out_bytes = (uint64_t)st.st_size;
    return 0;
}
