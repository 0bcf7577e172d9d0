/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lock is a file that its holder has flock()ed; its text names the holder. The text alone proves
 * nothing: a killed process leaves the text, but not the lock.
 */
#include "ppcli/ckpt/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "impl.h"
#include "ppcli/base/base.h"

#define TEXT_MAX 320

static int is_same_file(int fd, const char *path, bool *out)
{
    struct stat a, b;
    if (fstat(fd, &a) != 0)
        return pp_fail_errno(0, "cannot read %s", path);
    PP_TRY(pp_path_stat(path, false, &b));
    *out = b.st_mode != 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    return 0;
}

/* Reads the first line of the lock file, with unprintable characters replaced; "" if there is
 * none. */
static void read_holder(int fd, char out[TEXT_MAX])
{
    ssize_t n = pread(fd, out, TEXT_MAX - 1, 0);
    out[n > 0 ? n : 0] = '\0';
    for (char *p = out; *p; p++) {
        if (*p == '\n') {
            *p = '\0';
            break;
        }
        if (*p < 0x20 || *p == 0x7f)
            *p = '?';
    }
}

static int fail_held(const char *path, int fd)
{
    char holder[TEXT_MAX];
    read_holder(fd, holder);
    return pp_fail(PP_ERESOURCE, "another ppcli uses this run folder: %s (it holds %s)",
                   holder[0] ? holder : "unknown process", path);
}

/* Writes to the lock file which process holds the lock, and remembers the time by the clock of the
 * file system. */
static int write_holder(struct pp_lock *l)
{
    char text[TEXT_MAX], host[128] = "", now[32];
    struct stat st;
    (void)gethostname(host, sizeof(host) - 1);
    int n = snprintf(text, sizeof(text), "process %ld on %s since %s\n", (long)getpid(), host,
                     pp_clock_utc(now, sizeof(now)));
    if (ftruncate(l->fd, 0) != 0 || pwrite(l->fd, text, (size_t)n, 0) != n ||
        fstat(l->fd, &st) != 0)
        return pp_fail_errno(PP_EIO, "cannot write %s", l->path);
    l->since_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    return 0;
}

int pp_lock_take(const char *dir, struct pp_lock *out)
{
    struct pp_lock l = PP_LOCK_NONE;
    PP_TRY(run_dir_check(dir));
    PP_TRY(pp_path_format(l.path, "%s/" PP_LOCK_NAME, dir));
    for (;;) {
        l.fd = open(l.path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (l.fd < 0)
            return pp_fail_errno(0, "cannot write in %s", dir);
        int rc = flock(l.fd, LOCK_EX | LOCK_NB);
        if (rc != 0 && errno == EWOULDBLOCK) {
            rc = fail_held(l.path, l.fd);
            close(l.fd);
            return rc;
        }
        if (rc != 0) {
            pp_log_warn("%s: this file system has no locks (%s); make sure that no other run uses "
                        "this folder",
                        dir, strerror(errno));
        }
        /* Its last holder may have removed the file between our open and our lock. */
        bool same = false;
        PP_TRY_UNDO(is_same_file(l.fd, l.path, &same), close(l.fd));
        if (same)
            break;
        close(l.fd);
    }
    char before[TEXT_MAX];
    read_holder(l.fd, before);
    if (before[0])
        pp_log_debug("%s: left by %s, which has ended", l.path, before);
    int rc = write_holder(&l);
    PP_TRY_UNDO(rc, close(l.fd));
    *out = l;
    return 0;
}

int pp_lock_check(const struct pp_lock *l)
{
    bool same = true;
    PP_TRY(l->fd >= 0 ? is_same_file(l->fd, l->path, &same) : 0);
    return same ? 0
                : pp_fail(PP_EIO,
                          "%s is not this run's any more: its folder was moved or removed, or "
                          "another run has its place",
                          l->path);
}

void pp_lock_release(struct pp_lock *l)
{
    bool same = false;
    if (l->fd < 0)
        return;
    struct pp_error before = *pp_error_get();
    /* Removes the file while it is still locked, so that no process can hold it while another makes
     * a new one. The file of another run stays. */
    if (is_same_file(l->fd, l->path, &same) == 0 && same)
        (void)unlink(l->path);
    (void)pp_error_adopt(&before);
    close(l->fd);
    l->fd = -1;
}
