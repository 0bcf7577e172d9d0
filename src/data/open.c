/* SPDX-License-Identifier: Apache-2.0 */
#include "open.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ppcli/err.h"

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

enum pp_magic pp_magic_of(const uint8_t *b, size_t n)
{
    if (n >= 2 && b[0] == 0x1f && b[1] == 0x8b) {
        return PP_MAGIC_GZIP;
    }
    if (n >= 2 && b[0] == 0 && b[1] == 0) {
        return PP_MAGIC_IDX;
    }
    size_t i = 0;
    while (i < n && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t')) {
        i++;
    }
    return i < n && b[i] == '<' ? PP_MAGIC_MARKUP : PP_MAGIC_OTHER;
}

const char *pp_magic_text(const uint8_t *b, size_t n, char *out, size_t bytes)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < n && i < 4 && used + 4 < bytes; i++) {
        used += (size_t)snprintf(out + used, bytes - used, "%s%02x", i > 0 ? " " : "", b[i]);
    }
    if (pp_magic_of(b, n) == PP_MAGIC_MARKUP) {
        snprintf(out + used, bytes - used, " (a web page?)");
    }
    return out;
}
