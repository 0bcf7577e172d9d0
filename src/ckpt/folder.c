/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in a folder of checkpoints, and taking things out of it. A checkpoint is renamed before
 * its files go, so that one under its own name is never half there.
 */
#include "impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ppcli/log.h"
#include "ppcli/mem.h"

/* ---- looking */

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

int folder_steps(const char *dir, int64_t **out, int *out_n)
{
    PP_OWN(pp_closedir_at) DIR *d = opendir(dir);
    PP_OWN_MEMORY int64_t *steps = NULL;
    int n = 0, room = 0;
    if (!d && errno != ENOENT)
        return pp_fail_errno(0, "cannot read folder %s", dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        int64_t step;
        if (!name_is_step(e->d_name, &step))
            continue;
        PP_ROOM(steps, n, room);
        steps[n++] = step;
    }
    if (n > 1)
        qsort(steps, (size_t)n, sizeof(*steps), newest_first);
    *out = steps;
    *out_n = n;
    steps = NULL;
    return 0;
}

/* ---- removing */

int folder_remove(const struct pp_io *io, const char *path)
{
    struct stat st;
    if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
        return pp_io_unlink(io, path);
    PP_OWN(pp_closedir_at) DIR *d = opendir(path);
    if (!d)
        return pp_fail_errno(0, "cannot read folder %s", path);
    for (struct dirent *e; (e = readdir(d));) {
        char file[PP_PATH_MAX];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        PP_TRY(pp_path_format(file, "%s/%s", path, e->d_name));
        PP_TRY(pp_io_unlink(io, file));
    }
    return pp_io_rmdir(io, path);
}

int folder_step_path(const char *dir, int64_t step, char out[PP_PATH_MAX])
{
    char name[NAME_BYTES];
    name_step(name, step);
    return pp_path_format(out, "%s/%s", dir, name);
}

int folder_trash_path(const char *dir, int64_t step, char out[PP_PATH_MAX])
{
    char name[NAME_BYTES];
    name_step(name, step);
    return pp_path_format(out, "%s/.trash-%s-%ld", dir, name, (long)getpid());
}

static int to_trash(const struct pp_io *io, const char *dir, int64_t step)
{
    char from[PP_PATH_MAX], to[PP_PATH_MAX];
    PP_TRY(folder_step_path(dir, step, from));
    PP_TRY(folder_trash_path(dir, step, to));
    struct stat st;
    if (lstat(to, &st) == 0)
        PP_TRY(folder_remove(io, to));
    return pp_io_rename(io, from, to);
}

/* Those of steps[n] go. All are renamed, durably, before the first file of any is removed. */
static int remove_steps(const struct pp_io *io, const char *dir, const int64_t *steps, int n)
{
    for (int i = 0; i < n; i++)
        PP_TRY(to_trash(io, dir, steps[i]));
    PP_TRY(pp_io_sync_dir(io, dir));
    for (int i = 0; i < n; i++) {
        char path[PP_PATH_MAX];
        PP_TRY(folder_trash_path(dir, steps[i], path));
        PP_TRY(folder_remove(io, path));
    }
    return 0;
}

/* keep < 0: all that are newer than `step`; else the others but the newest `keep` of them. */
static int remove_some(const struct pp_io *io, const char *dir, int keep, int64_t step)
{
    PP_OWN_MEMORY int64_t *steps = NULL;
    int n = 0, newer = 0;
    PP_TRY(folder_steps(dir, &steps, &n));
    while (newer < n && steps[newer] > step)
        newer++;
    int first = keep < 0 ? 0 : newer + keep, end = keep < 0 ? newer : n;
    return first < end ? remove_steps(io, dir, steps + first, end - first) : 0;
}

int pp_ckpt_prune(const struct pp_io *io, const char *dir, int keep, int64_t step)
{
    pp_assert(keep >= 1);
    return remove_some(io, dir, keep, step);
}

int pp_ckpt_drop_newer(const struct pp_io *io, const char *dir, int64_t step)
{
    return remove_some(io, dir, -1, step);
}

int pp_ckpt_sweep(const struct pp_io *io, const char *dir, int64_t since_ns)
{
    PP_OWN(pp_closedir_at) DIR *d = opendir(dir);
    if (!d)
        return errno == ENOENT ? 0 : pp_fail_errno(0, "cannot read folder %s", dir);
    for (struct dirent *e; (e = readdir(d));) {
        char path[PP_PATH_MAX];
        struct stat st;
        if (!name_is_leftover(e->d_name))
            continue;
        PP_TRY(pp_path_format(path, "%s/%s", dir, e->d_name));
        /* A link is ours only as trash. */
        if (lstat(path, &st) != 0 ||
            !(S_ISDIR(st.st_mode) || (S_ISLNK(st.st_mode) && e->d_name[0] == '.')))
            continue;
        /* Newer than our lock: of somebody who does not know it. */
        if ((int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec > since_ns)
            continue;
        pp_log_debug("removing %s, which a killed process left", path);
        PP_TRY(folder_remove(io, path));
    }
    return 0;
}
