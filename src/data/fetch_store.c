/* SPDX-License-Identifier: Apache-2.0 */
/* The folder that a download fills: its lock, the .part files, and how they get their names. */
#include "fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ppcli/clock.h"
#include "ppcli/err.h"
#include "ppcli/log.h"

#define LOCK_NAME ".ppcli-download.lock"

static bool same_file(int fd, const char *path)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

int pp_store_lock(const char *dir, int *out_lock)
{
    char path[PP_PATH_MAX];
    PP_TRY(pp_dir_create(dir));
    PP_TRY(pp_path_format(path, "%s/%s", dir, LOCK_NAME));
    for (;;) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd < 0) {
            return pp_fail_errno(0, "cannot write in %s", dir);
        }
        if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            close(fd);
            return pp_fail(PP_ERESOURCE, "another download into %s is running (it holds %s)", dir,
                           path);
        }
        /* Its last holder may have removed it between our open and our lock. */
        if (same_file(fd, path)) {
            *out_lock = fd;
            return 0;
        }
        close(fd);
    }
}

void pp_store_unlock(const char *dir, int lock)
{
    char path[PP_PATH_MAX];
    if (lock < 0) {
        return;
    }
    /* Removed while still locked, so that nobody can hold the one while another makes a new one. */
    if (pp_path_format(path, "%s/%s", dir, LOCK_NAME) == 0) {
        (void)unlink(path);
    }
    close(lock);
}

int pp_store_paths(const char *dir, const struct pp_pin *pin, struct pp_store *out)
{
    PP_TRY(pp_path_format(out->gz, "%s/%s.gz", dir, pin->name));
    PP_TRY(pp_path_format(out->plain, "%s/%s", dir, pin->name));
    PP_TRY(pp_path_format(out->part, "%s/%s.gz.part", dir, pin->name));
    return pp_path_format(out->etag, "%s/%s.gz.part.etag", dir, pin->name);
}

uint64_t pp_store_bytes_max(const struct pp_pin *pin)
{
    /* deflate never makes more than this of incompressible bytes; the rest is for the gzip header
     */
    return pin->bytes + pin->bytes / 1000 + 4096;
}

static int write_all(int fd, const uint8_t *p, size_t n, const char *path)
{
    while (n > 0) {
        ssize_t w = write(fd, p, n);
        if (w < 0 && errno == EINTR) {
            continue;
        }
        if (w < 0) {
            return pp_fail_errno(0, "cannot write %s", path);
        }
        p += w;
        n -= (size_t)w;
    }
    return 0;
}

static int copy_bytes(int in, int out, const char *from, const char *to, uint64_t bytes_max)
{
    uint8_t buffer[16384];
    uint64_t total = 0;
    for (;;) {
        ssize_t n = read(in, buffer, sizeof(buffer));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return pp_fail_errno(0, "cannot read %s", from);
        }
        if (n == 0) {
            return 0;
        }
        total += (uint64_t)n;
        if (total > bytes_max) {
            return pp_fail(PP_EFORMAT, "%s: more than %" PRIu64 " bytes", from, bytes_max);
        }
        PP_TRY(write_all(out, buffer, (size_t)n, to));
    }
}

int pp_store_copy(const struct pp_store *st, const char *from, uint64_t bytes_max)
{
    int in, out;
    uint64_t bytes;
    PP_TRY(pp_open_regular(from, &in, &bytes));
    pp_store_discard(st);
    out = open(st->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (out < 0) {
        int rc = pp_fail_errno(0, "cannot create %s", st->part);
        close(in);
        return rc;
    }
    int rc = copy_bytes(in, out, from, st->part, bytes_max);
    close(in);
    close(out); /* pp_store_commit() is what makes it durable, and sees write errors */
    if (rc < 0) {
        pp_store_discard(st);
    }
    return rc;
}

/* fsync of a file or folder. */
static int sync_path(const char *path, int flags)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    if (fd < 0) {
        return pp_fail_errno(0, "cannot open %s", path);
    }
    int rc = 0;
    if (fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP) {
        rc = pp_fail_errno(PP_EIO, "cannot flush %s", path);
    }
    close(fd);
    return rc;
}

int pp_store_commit(const struct pp_store *st, bool gz)
{
    const char *final = gz ? st->gz : st->plain;
    char dir[PP_PATH_MAX];
    PP_TRY(pp_path_format(dir, "%.*s", (int)(strrchr(st->part, '/') - st->part), st->part));
    PP_TRY(sync_path(st->part, O_NOFOLLOW));
    if (rename(st->part, final) != 0) {
        return pp_fail_errno(0, "cannot create %s", final);
    }
    (void)unlink(st->etag);
    if (!gz) {
        /* The reader takes a .gz first. One that is there was found to be damaged. */
        (void)unlink(st->gz);
    }
    return sync_path(dir[0] ? dir : "/", O_DIRECTORY);
}

void pp_store_discard(const struct pp_store *st)
{
    (void)unlink(st->part);
    (void)unlink(st->etag);
}

void pp_progress_begin(struct pp_progress *pg, const char *name)
{
    pg->name = name;
    pg->live = pp_log_level() >= PP_LOG_INFO && pp_term_live(STDERR_FILENO);
    pg->begin_ns = pp_clock_ns();
    pg->shown_ns = 0;
}

static void put_line(const char *text, size_t n)
{
    ssize_t ignored = write(STDERR_FILENO, text, n);
    (void)ignored;
}

void pp_progress_show(struct pp_progress *pg, uint64_t bytes, uint64_t total)
{
    uint64_t now = pp_clock_ns();
    if (!pg->live || (pg->shown_ns != 0 && now - pg->shown_ns < 100000000u)) {
        return;
    }
    pg->shown_ns = now;
    char line[160];
    double mb = (double)bytes * 1e-6, s = (double)(now - pg->begin_ns) * 1e-9;
    int n = snprintf(line, sizeof(line), "\r\033[K%s  %.1f", pg->name, mb);
    if (total > 0) {
        n += snprintf(line + n, sizeof(line) - (size_t)n, " / %.1f MB  %3.0f %%",
                      (double)total * 1e-6, 100.0 * (double)bytes / (double)total);
    } else {
        n += snprintf(line + n, sizeof(line) - (size_t)n, " MB");
    }
    if (s > 0.5) {
        n += snprintf(line + n, sizeof(line) - (size_t)n, "  %.1f MB/s", mb / s);
    }
    put_line(line, (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1);
}

void pp_progress_end(struct pp_progress *pg)
{
    if (pg->live && pg->shown_ns != 0) {
        put_line("\r\033[K", 4);
        pg->shown_ns = 0;
    }
}
