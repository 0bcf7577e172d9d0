/* SPDX-License-Identifier: Apache-2.0 */
/* Reads regular files only; folders; paths. */
#include "ppcli/base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "ppcli/base/base.h"

int pp_file_open(const char *path, FILE **out, uint64_t *out_bytes)
{
    PP_OWN(pp_close_at) int fd = -1;
    PP_TRY(pp_open_regular(path, &fd, out_bytes));
    *out = fdopen(fd, "r");
    if (!*out)
        return pp_fail_errno(PP_ERESOURCE, "cannot read %s", path);
    fd = -1;
    return 0;
}

void pp_fclose_at(FILE **f)
{
    if (*f)
        fclose(*f);
}

void pp_closedir_at(DIR **d)
{
    if (*d)
        closedir(*d);
}

void pp_close_at(const int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

int pp_file_append(const char *path, int flags, FILE **out)
{
    /* Only opening must not wait. Writing may: a pipe that is read may be full for a while. */
    PP_OWN(pp_close_at)
    int fd = open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC | O_NOCTTY | flags, 0666);
    if (fd < 0 && errno == ENXIO)
        return pp_fail(PP_EIO, "cannot create %s: a pipe or device without a reader", path);
    FILE *f = fd >= 0 && fcntl(fd, F_SETFL, flags & O_APPEND) == 0 ? fdopen(fd, "w") : NULL;
    if (!f)
        return pp_fail_errno(0, "cannot create %s", path);
    fd = -1;
    *out = f;
    return 0;
}

int pp_fd_read(int fd, const char *path, uint64_t bytes_max, char **out_text, size_t *out_bytes)
{
    PP_OWN_MEMORY char *text = NULL;
    size_t got = 0, capacity = 0;
    for (;;) {
        if (got + 1 >= capacity) { /* one for the NUL at the end */
            capacity = capacity > 0 ? 2 * capacity : 16384;
            char *grown = pp_realloc(text, capacity, 1);
            if (!grown)
                return pp_error_context("%s", path);
            text = grown;
        }
        ssize_t n = read(fd, text + got, capacity - got - 1);
        if (n == 0) {
            text[got] = '\0';
            *out_text = text;
            *out_bytes = got;
            text = NULL;
            return 0;
        }
        got += n > 0 ? (size_t)n : 0;
        if (n < 0 && errno != EINTR)
            return pp_fail_errno(PP_EIO, "cannot read %s", path);
        if (got > bytes_max)
            return pp_fail(PP_EFORMAT, "%s: more than %llu bytes, which is all that is read", path,
                           (unsigned long long)bytes_max);
    }
}

int pp_fd_read_at(int fd, const char *path, uint64_t offset, void *dst, size_t bytes)
{
    char *to = dst;
    while (bytes > 0) {
        ssize_t n = pread(fd, to, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return pp_fail_errno(PP_EIO, "cannot read %s", path);
        if (n == 0)
            return pp_fail(PP_EFORMAT, "%s: the file became shorter while it was being read", path);
        to += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return 0;
}

int pp_file_read(const char *path, uint64_t bytes_max, char **out_text, size_t *out_bytes)
{
    PP_OWN(pp_close_at) int fd = -1;
    uint64_t bytes = 0;
    PP_TRY(pp_open_regular(path, &fd, &bytes));
    return pp_fd_read(fd, path, bytes_max, out_text, out_bytes);
}

void pp_file_value(const char *path, const char *key, char *out, size_t bytes)
{
    char line[512];
    FILE *f = fopen(path, "re");
    out[0] = '\0';
    while (f && out[0] == '\0' && fgets(line, sizeof(line), f)) {
        if (strncmp(line, key, strlen(key)) == 0) {
            const char *value = line + strlen(key);
            value += strspn(value, ": \t");
            snprintf(out, bytes, "%.*s", (int)strcspn(value, "\n"), value);
        }
        if (key[0] == '\0')
            break;
    }
    if (f)
        fclose(f);
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

/* Returns whether errno means that the name does not exist. */
static bool is_absence(int e)
{
    return e == ENOENT || e == ENOTDIR || e == ENAMETOOLONG;
}

int pp_path_stat(const char *path, bool follow, struct stat *out)
{
    char to[PP_PATH_MAX];
    if ((follow ? stat(path, out) : lstat(path, out)) == 0)
        return 0;
    if (!is_absence(errno))
        return pp_fail_errno(0, "cannot read %s", path);
    ssize_t n = follow ? readlink(path, to, sizeof(to) - 1) : -1;
    if (n >= 0) {
        to[n] = '\0';
        return pp_fail(PP_EIO, "%s is a link to %s, which does not exist (is a disk not mounted?)",
                       path, to);
    }
    if (follow && errno == EINVAL) /* the target has appeared meanwhile */
        return pp_path_stat(path, follow, out);
    if (follow && !is_absence(errno))
        return pp_fail_errno(0, "cannot read %s", path);
    memset(out, 0, sizeof(*out));
    return 0;
}

/* Makes an array of pointers to the n names in text[bytes], followed by a copy of the names. */
static char **list_names(const char *text, size_t bytes, size_t n)
{
    char **out = pp_alloc((n + 1) * sizeof(*out) + bytes, 1);
    char *name = out ? (char *)(out + n + 1) : NULL;
    if (bytes > 0 && out)
        memcpy(name, text, bytes);
    for (size_t i = 0; out && i < n; i++, name += strlen(name) + 1)
        out[i] = name;
    return out;
}

int pp_dir_names(const char *path, char ***out)
{
    PP_OWN_MEMORY char *text = NULL;
    size_t n = 0, bytes = 0, capacity = 0;
    struct stat st;
    PP_OWN(pp_closedir_at) DIR *d = opendir(path);
    if (!d && !is_absence(errno))
        return pp_fail_errno(0, "cannot read folder %s", path);
    if (!d) {
        PP_TRY(pp_path_stat(path, true, &st));
        if (S_ISDIR(st.st_mode)) /* the folder has appeared meanwhile */
            return pp_dir_names(path, out);
        if (st.st_mode != 0)
            return pp_fail(PP_EFORMAT, "%s is not a folder", path);
    }
    for (struct dirent *e = NULL; d; n++) {
        do {
            errno = 0;
            e = readdir(d);
        } while (e && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0));
        if (!e && errno != 0)
            return pp_fail_errno(0, "cannot read folder %s", path);
        if (!e)
            break;
        size_t size = strlen(e->d_name) + 1;
        while (bytes + size > capacity) {
            PP_GROW(text, 2 * capacity + 1024);
            capacity = 2 * capacity + 1024;
        }
        memcpy(text + bytes, e->d_name, size);
        bytes += size;
    }
    *out = list_names(text, bytes, n);
    return *out ? 0 : pp_error_context("%s", path);
}

/* Flushes the folder that contains the file `path`, which makes a new name durable. Succeeds
 * without a flush if the folder may be written but not read, because such a folder cannot be
 * flushed. */
static int flush_parent(const char *path)
{
    char above[PP_PATH_MAX];
    PP_TRY(pp_path_format(above, "%s", path));
    char *slash = strrchr(above, '/');
    if (slash)
        slash[slash == above] = '\0';
    int rc = pp_io_sync_dir(&pp_io_system, slash ? above : ".");
    if (rc != PP_EPERM)
        return rc;
    pp_error_clear();
    return 0;
}

int pp_dir_create(const char *path)
{
    char part[PP_PATH_MAX];
    PP_TRY(pp_path_format(part, "%s", path));
    for (char *p = part + 1;; p++) {
        char c = *p;
        if (c != '/' && c != '\0')
            continue;
        *p = '\0';
        int made = mkdir(part, 0777);
        if (made != 0 && errno != EEXIST)
            return pp_fail_errno(0, "cannot create folder %s", part);
        PP_TRY(made == 0 ? flush_parent(part) : 0);
        *p = c;
        if (c == '\0')
            break;
    }
    struct stat st;
    if (stat(path, &st) != 0)
        return pp_fail_errno(0, "cannot create folder %s", path);
    if (!S_ISDIR(st.st_mode))
        return pp_fail(PP_EIO, "%s is not a folder", path);
    return 0;
}

static const char *kind_of_file(mode_t mode)
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
    /* Check before opening too, because opening a device can already have an effect. */
    if (stat(path, &st) != 0)
        return pp_fail_errno(0, "cannot read %s", path);
    PP_OWN(pp_close_at) int fd = -1;
    if (S_ISREG(st.st_mode)) {
        /* O_NONBLOCK: if the file became a FIFO meanwhile, opening must not wait for a writer. */
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (fd < 0 || fstat(fd, &st) != 0)
            return pp_fail_errno(0, "cannot read %s", path);
    }
    if (!S_ISREG(st.st_mode))
        return pp_fail(PP_EFORMAT, "%s: is a %s, expected a regular file", path,
                       kind_of_file(st.st_mode));
    *out_fd = fd;
    *out_bytes = (uint64_t)st.st_size;
    fd = -1;
    return 0;
}
