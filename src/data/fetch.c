/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which file comes from which source: good files that exist stay, the others come from the
 * first source that has them. If none has, the error lists the reason of each. */
#include "fetch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"
#include "fetch_http.h"
#include "ops.h"

#define PP_FROM(...) __VA_ARGS__
#define PP_DOWNLOAD(name, help, from, ...) {name, help, {from}, {__VA_ARGS__}},
const struct pp_fetch_set pp_fetch_sets[] = {
#include "downloads.def"
    {0},
};

const struct pp_fetch_limits pp_fetch_limits = {
    .connect_s = 10,
    .low_speed_s = 20,
    .retries = 2,
    .retry_first_s = 1,
    .retry_after_max_s = 60,
};

struct fetch {
    const char *folder;         /* copy from this folder; NULL: use the mirrors */
    const char *const *mirrors; /* NULL-terminated */
    bool dead[5];               /* not asked for further files */
    struct pp_fetch_limits limits;
};

static const char archive[] = ".tar.gz"; /* only its .bin files are needed */

/* The path of a file: NAME, or without .gz if it arrives inflated. */
struct target {
    const struct pp_pin *pin;
    const char *dir;
    char path[PP_PATH_MAX], plain[PP_PATH_MAX], part[PP_PATH_MAX];
};

/* Returns the most bytes that the right file can have, compressed or not: deflate adds little to
 * data that it cannot shrink. */
static uint64_t bytes_max(const struct pp_pin *pin)
{
    return pin->bytes + pin->bytes / 1000 + 4096;
}

static int check_digest(struct pp_source *s, const char *path, const struct pp_pin *pin)
{
    uint8_t buffer[16384], digest[PP_SHA256_BYTES];
    char hex[PP_SHA256_HEX], head[64];
    uint64_t bytes = 0;
    struct pp_sha256 sha;
    pp_sha256_init(&sha);
    for (size_t n = 1; n > 0 && bytes <= bytes_max(pin); bytes += n) {
        PP_TRY(pp_source_read(s, buffer, sizeof(buffer), &n));
        pp_sha256_update(&sha, buffer, n);
    }
    pp_sha256_final(&sha, digest);
    return strcmp(pp_sha256_hex(digest, hex), pin->sha256) == 0
               ? 0
               : pp_fail(PP_EFORMAT,
                         "%s: not the right file: sha256 %.16s..., expected %.16s...; begins with "
                         "%s",
                         path, hex, pin->sha256, pp_source_head(s, head, sizeof(head)));
}

int pp_pin_check(const char *path, const struct pp_pin *pin, bool *out_gz)
{
    int rc = PP_EFORMAT;
    *out_gz = true;
    for (int kind = PP_SOURCE_RAW; kind <= PP_SOURCE_INFLATED && rc == PP_EFORMAT && *out_gz;
         kind++) {
        PP_OWN(pp_source_close) struct pp_source *s = NULL;
        PP_TRY(pp_source_open(path, (enum pp_source_kind)kind, &s));
        *out_gz = pp_source_is_gzip(s);
        rc = check_digest(s, path, pin);
    }
    return rc;
}

/* ---- the target folder */

static int name_target(const char *dir, const struct pp_pin *pin, struct target *t)
{
    size_t n = strlen(pin->name);
    bool gz = n > 3 && strcmp(pin->name + n - 3, ".gz") == 0;
    t->pin = pin;
    t->dir = dir;
    PP_TRY(pp_path_format(t->path, "%s/%s", dir, pin->name));
    PP_TRY(pp_path_format(t->plain, "%s/%.*s", dir, (int)(gz ? n - 3 : n), pin->name));
    return pp_path_format(t->part, "%s.part", t->path);
}

static int unpack_archive(const struct target *t)
{
    size_t n = strlen(t->path), tail = strlen(archive);
    bool packed = n > tail && strcmp(t->path + n - tail, archive) == 0;
    return packed ? pp_tar_unpack(access(t->path, F_OK) == 0 ? t->path : t->plain, t->dir, ".bin")
                  : 0;
}

/* Makes the .part file, which has the right content, durable and renames it to its final name. */
static int commit_file(const struct target *t, bool gz)
{
    int fd = open(t->part, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    int rc = fd < 0 || fsync(fd) != 0 ? pp_fail_errno(0, "cannot flush %s", t->part) : 0;
    if (fd >= 0)
        close(fd);
    PP_TRY(rc);
    PP_TRY(pp_io_rename(&pp_io_system, t->part, gz ? t->path : t->plain));
    if (!gz && strcmp(t->path, t->plain) != 0)
        (void)unlink(t->path); /* it would be read first, and is damaged */
    return pp_io_sync_dir(&pp_io_system, t->dir);
}

/* Returns whether a good file exists. A bad file stays until a good one replaces it. */
static bool is_there(const struct target *t)
{
    bool gz;
    int rc = pp_pin_check(t->path, t->pin, &gz);
    rc = rc == PP_ENOINPUT ? pp_pin_check(t->plain, t->pin, &gz) : rc;
    if (rc == 0)
        pp_log_info("%s: already there", t->pin->name);
    else if (rc != PP_ENOINPUT)
        pp_log_warn("%s; it will be replaced", pp_error_get()->text);
    return rc == 0;
}

/* Copies the file at `path` into the .part file. Returns PP_ENOINPUT if it does not exist. */
static int copy_file(const char *path, const struct target *t)
{
    PP_OWN_MEMORY char *data = NULL;
    size_t bytes;
    FILE *f = NULL;
    PP_TRY(pp_file_read(path, bytes_max(t->pin), &data, &bytes));
    (void)unlink(t->part);
    int rc = pp_file_append(t->part, O_TRUNC | O_NOFOLLOW, &f);
    if (rc == 0 && (fwrite(data, 1, bytes, f) < bytes) | (fclose(f) != 0))
        rc = pp_fail_errno(0, "cannot write %s", t->part);
    return rc;
}

/* Finds a file in the folder that has the right digest, whatever its name; returns false if there
 * is none. */
static bool find_by_digest(const char *folder, const struct target *t, char out[PP_PATH_MAX])
{
    PP_OWN(pp_closedir_at) DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        bool gz;
        if (snprintf(out, PP_PATH_MAX, "%s/%s", folder, e->d_name) < PP_PATH_MAX &&
            stat(out, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 &&
            (uint64_t)st.st_size <= bytes_max(t->pin) && pp_pin_check(out, t->pin, &gz) == 0)
            return true;
    }
    return false;
}

/* Returns whether the target is an archive whose batches are already unpacked in the folder; then
 * the archive is not needed. */
static bool has_batches(const char *folder, const struct target *t)
{
    size_t n = strlen(t->pin->name), m = strlen(archive);
    char path[PP_PATH_MAX];
    bool packed = n > m && strcmp(t->pin->name + n - m, archive) == 0;
    for (int gz = 0; packed && gz < 2; gz++)
        if (snprintf(path, sizeof(path), "%s/data_batch_1.bin%s", folder, gz ? ".gz" : "") <
                PP_PATH_MAX &&
            access(path, R_OK) == 0)
            return true;
    return false;
}

static int get_copy(const char *folder, const struct target *t)
{
    bool gz = false;
    char path[PP_PATH_MAX];
    PP_TRY(pp_path_format(path, "%s%s", folder, strrchr(t->path, '/')));
    int rc = copy_file(path, t);
    if (rc == PP_ENOINPUT) {
        PP_TRY(pp_path_format(path, "%s%s", folder, strrchr(t->plain, '/')));
        rc = copy_file(path, t);
    }
    rc = rc == 0 ? pp_pin_check(t->part, t->pin, &gz) : rc;
    struct pp_error why = *pp_error_get();
    if (rc < 0 && find_by_digest(folder, t, path)) {
        pp_log_info("%s: found as %s", t->pin->name, path);
        rc = copy_file(path, t);
        rc = rc == 0 ? pp_pin_check(t->part, t->pin, &gz) : rc;
    } else if (rc == PP_ENOINPUT && has_batches(folder, t)) {
        char word[2 * PP_PATH_MAX];
        rc = pp_fail(PP_ENOINPUT,
                     "%s has no %s, but its unpacked files: use them where they are with "
                     "--set data.path=%s",
                     folder, t->pin->name, pp_text_shell(folder, word, sizeof(word)));
    } else if (rc == PP_ENOINPUT) {
        rc = pp_fail(PP_ENOINPUT, "%s: no file of this folder is %s, whatever its name", folder,
                     t->pin->name);
    } else if (rc < 0) {
        rc = pp_error_adopt(&why);
    }
    PP_TRY_UNDO(rc, unlink(t->part));
    return commit_file(t, gz);
}

static enum pp_http_end get_url(const char *url, const struct target *t,
                                const struct pp_fetch_limits *limits)
{
    bool resumed = true, gz = false;
    while (resumed) {
        enum pp_http_end end = pp_http_get(url, t->part, bytes_max(t->pin), limits, &resumed);
        if (end != PP_HTTP_DONE)
            return end;
        if (pp_pin_check(t->part, t->pin, &gz) == 0)
            return commit_file(t, gz) == 0 ? PP_HTTP_DONE : PP_HTTP_LOCAL;
        (void)unlink(t->part); /* its beginning was of another file: download it completely */
    }
    return PP_HTTP_FAILED;
}

/* Downloads from the first mirror that has the file. */
static int get_download(struct fetch *f, const struct target *t)
{
    char url[PP_PATH_MAX], why[2048] = "";
    bool all_format = true;
    size_t n = strlen(t->part);
    for (int i = 0; f->mirrors[i]; i++) {
        bool slash = f->mirrors[i][strlen(f->mirrors[i]) - 1] == '/';
        PP_TRY(pp_path_format(url, "%s%s%s", f->mirrors[i], slash ? "" : "/", t->pin->name));
        enum pp_http_end end = PP_HTTP_UNREACHABLE;
        if (f->dead[i])
            pp_fail(PP_EIO, "was not reachable");
        else
            end = get_url(url, t, &f->limits);
        const struct pp_error *e = pp_error_get();
        if (end == PP_HTTP_DONE || end == PP_HTTP_LOCAL)
            return end == PP_HTTP_DONE ? 0 : e->code;
        f->dead[i] = end == PP_HTTP_UNREACHABLE;
        all_format = all_format && e->code == PP_EFORMAT;
        pp_text_add(why, sizeof(why), "%s%.400s: %.400s", why[0] ? "; " : "", url,
                    e->text + (strncmp(e->text, t->part, n) == 0 ? n + 2 : 0));
    }
    return pp_fail(all_format ? PP_EFORMAT : PP_EIO,
                   "cannot download %s: %s. To take the files from a folder: --from DIR",
                   t->pin->name, why);
}

static int get_file(struct fetch *f, const struct target *t)
{
    bool gz;
    /* The .part may be complete: an earlier run may have been killed before the rename. */
    int rc = f->folder                                 ? get_copy(f->folder, t)
             : pp_pin_check(t->part, t->pin, &gz) == 0 ? commit_file(t, gz)
                                                       : get_download(f, t);
    if (rc == 0)
        pp_log_info("%s: digest good", t->pin->name);
    return rc;
}

static int check_from(const char *from, struct fetch *f)
{
    static const char *const schemes[] = {"https://", "http://", "file:///"};
    struct stat st;
    for (int i = 0; i < 3; i++)
        if (strncmp(from, schemes[i], strlen(schemes[i])) == 0)
            return 0;
    if (strstr(from, "://")) {
        return pp_fail(PP_ECONFIG,
                       "--from %s: expected https://..., file:///FOLDER, a folder or "
                       "http://... of this machine",
                       from);
    }
    f->folder = from;
    return stat(from, &st) != 0   ? pp_fail_errno(0, "--from %s", from)
           : !S_ISDIR(st.st_mode) ? pp_fail(PP_ENOINPUT, "--from %s: not a folder", from)
                                  : 0;
}

static int get_all(const struct pp_fetch_set *set, struct fetch *f, const char *dir)
{
    PP_OWN(pp_close_at) int lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return pp_fail(PP_ERESOURCE, "another download into %s is running", dir);
    for (const struct pp_pin *pin = set->files; pin->name; pin++) {
        struct target t;
        PP_TRY(name_target(dir, pin, &t));
        if (!is_there(&t))
            PP_TRY(get_file(f, &t));
        PP_TRY(unpack_archive(&t));
    }
    return 0;
}

/* Removes `dir` and its parent folders while they are empty, but not the first `there` characters
 * of the path, which existed before. */
static void remove_empty(const char *dir, size_t there)
{
    char path[PP_PATH_MAX];
    snprintf(path, sizeof(path), "%s", dir);
    while (strlen(path) > there && rmdir(path) == 0) {
        char *slash = strrchr(path, '/');
        path[slash ? slash - path : 0] = '\0';
    }
}

/* Returns the length of the part of the path that exists. */
static size_t measure_existing(const char *dir)
{
    char path[PP_PATH_MAX];
    snprintf(path, sizeof(path), "%s", dir);
    while (path[0] && access(path, F_OK) != 0) {
        char *slash = strrchr(path, '/');
        path[slash ? slash - path : 0] = '\0';
    }
    return strlen(path);
}

int pp_fetch(const struct pp_fetch_set *set, const char *from, const char *dir,
             const struct pp_fetch_limits *limits)
{
    const char *const only[2] = {from, NULL};
    struct fetch f = {.limits = *limits, .mirrors = from ? only : set->mirrors};
    PP_TRY(from ? check_from(from, &f) : 0);
    f.limits.http = limits->http || (from && strncmp(from, "http://", 7) == 0);
    size_t there = measure_existing(dir);
    PP_TRY(pp_dir_create(dir));
    int rc = get_all(set, &f, dir);
    if (rc < 0)
        remove_empty(dir, there);
    return rc;
}

int pp_fetch_there(const struct pp_fetch_set *set, const char *dir, int *out_files)
{
    int n = 0, there = 0;
    for (struct target t; set->files[n].name; n++) {
        there += name_target(dir, &set->files[n], &t) == 0 &&
                 (access(t.path, F_OK) == 0 || access(t.plain, F_OK) == 0);
    }
    *out_files = n;
    return there;
}
