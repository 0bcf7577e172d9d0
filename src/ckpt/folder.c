/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists and removes checkpoints in a folder. A checkpoint is renamed before its files are removed,
 * so that no checkpoint under its own name is ever incomplete.
 */
#include "impl.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ppcli/base/base.h"

/* ---- listing */

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

int folder_steps(const char *dir, int64_t **out, int *out_n)
{
    PP_OWN_MEMORY char **names = NULL;
    PP_OWN_MEMORY int64_t *steps = NULL;
    int n = 0, capacity = 0;
    PP_TRY(pp_dir_names(dir, &names));
    for (char **name = names; *name; name++) {
        int64_t step;
        if (!name_is_step(*name, &step))
            continue;
        PP_RESERVE(steps, n, capacity);
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
    PP_OWN_MEMORY char **names = NULL;
    struct stat st;
    PP_TRY(pp_path_stat(path, false, &st));
    if (st.st_mode == 0)
        return 0;
    if (!S_ISDIR(st.st_mode))
        return pp_io_unlink(io, path);
    PP_TRY(pp_dir_names(path, &names));
    for (char **name = names; *name; name++) {
        char file[PP_PATH_MAX];
        PP_TRY(pp_path_format(file, "%s/%s", path, *name));
        PP_TRY(pp_io_unlink(io, file));
    }
    return pp_io_rmdir(io, path);
}

/* Removes a folder that is already renamed; if that fails, it only warns. */
static void remove_leftover(const struct pp_io *io, const char *path)
{
    if (folder_remove(io, path) < 0) {
        pp_log_warn("%s is left: %s", path, pp_error_get()->text);
        pp_error_clear();
    }
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

static int move_to_trash(const struct pp_io *io, const char *dir, int64_t step)
{
    char from[PP_PATH_MAX], to[PP_PATH_MAX];
    PP_TRY(folder_step_path(dir, step, from));
    PP_TRY(folder_trash_path(dir, step, to));
    PP_TRY(folder_remove(io, to));
    return pp_io_rename(io, from, to);
}

/* Removes the checkpoints of steps[n]. All are renamed, durably, before the first file is
 * removed. */
static int remove_steps(const struct pp_io *io, const char *dir, const int64_t *steps, int n)
{
    for (int i = 0; i < n; i++)
        PP_TRY(move_to_trash(io, dir, steps[i]));
    PP_TRY(pp_io_sync_dir(io, dir));
    for (int i = 0; i < n; i++) {
        char path[PP_PATH_MAX];
        PP_TRY(folder_trash_path(dir, steps[i], path));
        remove_leftover(io, path);
    }
    return 0;
}

/* Returns the step of the checkpoint to which PP_CKPT_BEST points; -1 if there is no such link. */
static int64_t find_best(const char *dir)
{
    char path[PP_PATH_MAX], name[NAME_BYTES];
    int64_t step = -1;
    if (pp_path_format(path, "%s/" PP_CKPT_BEST, dir) < 0) {
        pp_error_clear(); /* then nobody could make the link either */
        return -1;
    }
    ssize_t n = readlink(path, name, sizeof(name) - 1);
    name[n > 0 ? n : 0] = '\0';
    return name_is_step(name, &step) ? step : -1;
}

static int remove_best_link(const struct pp_io *io, const char *dir)
{
    char path[PP_PATH_MAX];
    struct stat st;
    PP_TRY(pp_path_format(path, "%s/" PP_CKPT_BEST, dir));
    PP_TRY(pp_path_stat(path, false, &st));
    return S_ISLNK(st.st_mode) ? pp_io_unlink(io, path) : 0;
}

int pp_ckpt_mark_best(const struct pp_io *io, const char *dir, int64_t step, bool *out_marked)
{
    char name[NAME_BYTES], path[PP_PATH_MAX], temp[PP_PATH_MAX], link[PP_PATH_MAX];
    struct stat st = {0};
    name_step(name, step);
    PP_TRY(pp_path_format(path, "%s/%s", dir, name));
    PP_TRY(step >= 0 ? pp_path_stat(path, true, &st) : 0);
    bool is_there = S_ISDIR(st.st_mode);
    if (out_marked)
        *out_marked = is_there;
    if (!is_there)
        return remove_best_link(io, dir);
    if (find_best(dir) == step)
        return 0;
    /* under a name that pp_ckpt_sweep() removes if this process is killed before the rename */
    PP_TRY(folder_trash_path(dir, step, temp));
    PP_TRY(pp_path_format(link, "%s/" PP_CKPT_BEST, dir));
    PP_TRY(folder_remove(io, temp));
    if (symlink(name, temp) != 0)
        return pp_fail_errno(0, "cannot make the link %s", link);
    PP_TRY(pp_io_rename(io, temp, link));
    return pp_io_sync_dir(io, dir);
}

/* Takes a step out of steps[n]. Returns how many are left. */
static int leave_out_step(int64_t *steps, int n, int64_t step)
{
    int left = 0;
    for (int i = 0; i < n; i++)
        if (steps[i] != step)
            steps[left++] = steps[i];
    return left;
}

/* Reduces steps[*n] to the steps that are folders or links: a file with a step's name belongs to
 * the user and is not removed. */
static int keep_folders(const char *dir, int64_t *steps, int *n)
{
    int left = 0;
    for (int i = 0; i < *n; i++) {
        char path[PP_PATH_MAX];
        struct stat st;
        PP_TRY(folder_step_path(dir, steps[i], path));
        PP_TRY(pp_path_stat(path, false, &st));
        if (S_ISDIR(st.st_mode) || S_ISLNK(st.st_mode))
            steps[left++] = steps[i];
    }
    *n = left;
    return 0;
}

/* Warns about the checkpoints that a run removes because it returns to `step`. Lists as many as fit
 * into a line. */
static void announce_removal(const char *dir, const int64_t *steps, int n, int64_t step)
{
    char text[512] = "", name[NAME_BYTES];
    int shown = n <= 12 ? n : 12;
    for (int i = 0; i < shown; i++) {
        name_step(name, steps[i]);
        pp_text_add(text, sizeof(text), "%s%s", i > 0 ? ", " : "", name);
    }
    if (shown < n)
        pp_text_add(text, sizeof(text), " and %d more", n - shown);
    pp_log_warn("removing what is newer than step %lld in %s: %s", (long long)step, dir, text);
}

/* Removes checkpoints. If keep < 0: all that are newer than `step`. Otherwise: those after step
 * `since` and not newer than `step`, except the newest `keep` and the best one. */
static int remove_checkpoints(const struct pp_io *io, const char *dir, int keep, int64_t since,
                              int64_t step)
{
    PP_OWN_MEMORY int64_t *steps = NULL;
    int n = 0, newer = 0;
    PP_TRY(folder_steps(dir, &steps, &n));
    PP_TRY(keep_folders(dir, steps, &n));
    while (newer < n && steps[newer] > step)
        newer++;
    while (n > newer && steps[n - 1] <= since)
        n--;
    int first = keep < 0 ? 0 : newer + keep, end = keep < 0 ? newer : n;
    if (keep < 0 && step >= 0 && newer > 0)
        announce_removal(dir, steps, newer, step);
    int64_t best = find_best(dir);
    int count = first < end ? end - first : 0;
    if (keep >= 0 && best >= 0)
        count = leave_out_step(steps + first, count, best);
    else if (best > step)
        PP_TRY(remove_best_link(io, dir)); /* its checkpoint goes */
    return count > 0 ? remove_steps(io, dir, steps + first, count) : 0;
}

int pp_ckpt_prune(const struct pp_io *io, const char *dir, int keep, int64_t since, int64_t step)
{
    pp_assert(keep >= 1);
    return remove_checkpoints(io, dir, keep, since, step);
}

int pp_ckpt_drop_newer(const struct pp_io *io, const char *dir, int64_t step)
{
    return remove_checkpoints(io, dir, -1, -1, step);
}

int pp_ckpt_sweep(const struct pp_io *io, const char *dir, int64_t since_ns)
{
    PP_OWN_MEMORY char **names = NULL;
    PP_TRY(pp_dir_names(dir, &names));
    for (char **name = names; *name; name++) {
        char path[PP_PATH_MAX];
        struct stat st;
        if (!name_is_leftover(*name))
            continue;
        PP_TRY(pp_path_format(path, "%s/%s", dir, *name));
        PP_TRY(pp_path_stat(path, false, &st));
        /* A link is ours only as trash. */
        if (!(S_ISDIR(st.st_mode) || (S_ISLNK(st.st_mode) && (*name)[0] == '.')))
            continue;
        /* It is newer than our lock: its process does not know of the lock. */
        if ((int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec > since_ns)
            continue;
        pp_log_debug("removing %s, which a killed process left", path);
        remove_leftover(io, path);
    }
    return 0;
}
