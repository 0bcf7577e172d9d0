/* SPDX-License-Identifier: Apache-2.0 */
/* Making the run directory: never into somebody else's results. */
#include "ppcli/run_dir.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ppcli/checkpoint.h"
#include "ppcli/mem.h"

int pp_run_dir_name(const char *name, char out[PP_PATH_MAX])
{
    char when[32];
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(when, sizeof(when), "%Y%m%d-%H%M%S", &tm);
    return pp_path_format(out, "runs/%s-%s", name, when);
}

static int make_new(const char *name, struct pp_lock *lock, char dir[PP_PATH_MAX])
{
    char first[PP_PATH_MAX], tail[16] = "";
    PP_TRY(pp_run_dir_name(name, first));
    PP_TRY(pp_dir_create("runs"));
    for (int n = 1; n < 1000; n++) {
        if (n > 1)
            snprintf(tail, sizeof(tail), "-%d", n);
        PP_TRY(pp_path_format(dir, "%s%s", first, tail));
        if (mkdir(dir, 0777) == 0)
            return pp_lock_take(dir, lock);
        if (errno != EEXIST)
            return pp_fail_errno(0, "cannot create run folder %s", dir);
    }
    return pp_fail(PP_EIO, "cannot find a free name for a run folder beside %s", dir);
}

/* A run that was killed while it wrote its config, or a first copy of a checkpoint, left that,
 * unfinished; the folder is its own. */
static bool is_nothing(const char *dir, const char *name)
{
    int64_t *steps = NULL;
    int n = -1;
    if (strcmp(name, PP_CKPT_DIR) == 0 && pp_ckpt_list(dir, &steps, &n) < 0)
        pp_error_clear();
    pp_free(steps);
    return n == 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
           strcmp(name, PP_LOCK_NAME) == 0 ||
           strncmp(name, PP_RUN_DIR_CONFIG ".tmp-", strlen(PP_RUN_DIR_CONFIG ".tmp-")) == 0;
}

static int is_empty(const char *dir, bool *out)
{
    PP_OWN(pp_closedir_at) DIR *d = opendir(dir);
    if (!d)
        return pp_fail_errno(0, "cannot read run folder %s", dir);
    *out = true;
    for (struct dirent *e; (e = readdir(d));)
        *out = *out && is_nothing(dir, e->d_name);
    return 0;
}

static int remove_file(const char *dir, const char *name)
{
    char path[PP_PATH_MAX];
    PP_TRY(pp_path_format(path, "%s/%s", dir, name));
    return unlink(path) == 0 || errno == ENOENT ? 0 : pp_fail_errno(0, "cannot remove %s", path);
}

/* An unfinished run must not be taken for finished. */
static int forget_end(const char *dir)
{
    PP_TRY(remove_file(dir, "summary.json"));
    return remove_file(dir, "timeline.json");
}

/* What an earlier run left and this one does not replace at once: a board would draw the curves of
 * both as one, and a later --resume would find the checkpoints of the earlier one. */
static int forget(const char *dir, const struct pp_lock *lock)
{
    char board[PP_PATH_MAX], checkpoints[PP_PATH_MAX];
    PP_TRY(forget_end(dir));
    PP_TRY(pp_path_format(checkpoints, "%s/" PP_CKPT_DIR, dir));
    PP_TRY(pp_ckpt_drop_newer(&pp_io_system, checkpoints, -1));
    PP_TRY(pp_ckpt_sweep(&pp_io_system, checkpoints, lock->since_ns));
    PP_TRY(pp_path_format(board, "%s/tensorboard", dir));
    PP_OWN(pp_closedir_at) DIR *d = opendir(board);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strncmp(e->d_name, "events.out.tfevents.", 20) == 0)
            PP_TRY(remove_file(board, e->d_name));
    return 0;
}

static int use_named(const struct pp_config *cfg, bool overwrite, struct pp_lock *lock,
                     char dir[PP_PATH_MAX])
{
    bool empty = false;
    PP_TRY(pp_path_format(dir, "%s", cfg->run.dir));
    PP_TRY(pp_dir_create(dir));
    PP_TRY(pp_lock_take(dir, lock));
    PP_TRY(is_empty(dir, &empty));
    if (!empty && !overwrite) {
        return pp_fail(PP_ECONFIG,
                       "run folder %s is not empty: name another with --dir, continue with "
                       "--resume, or add --overwrite",
                       dir);
    }
    return forget(dir, lock);
}

/* Rings are made again, never over old ones; and what an earlier run hung in is not news. */
static int empty_actions(const char *dir)
{
    char folder[PP_PATH_MAX];
    PP_TRY(remove_file(dir, "hang.txt"));
    PP_TRY(pp_path_format(folder, "%s/" PP_RUN_DIR_ACTIONS, dir));
    PP_TRY(pp_dir_create(folder));
    PP_OWN(pp_closedir_at) DIR *d = opendir(folder);
    if (!d)
        return pp_fail_errno(0, "cannot read %s", folder);
    for (struct dirent *e; (e = readdir(d));) {
        int rank, end = 0;
        if (sscanf(e->d_name, "rank-%d.ring%n", &rank, &end) == 1 && end > 0 && !e->d_name[end] &&
            unlinkat(dirfd(d), e->d_name, 0) != 0)
            return pp_fail_errno(0, "cannot remove %s/%s", folder, e->d_name);
    }
    return 0;
}

int pp_run_dir_ring(const char *dir, int rank, char out[PP_PATH_MAX])
{
    return pp_path_format(out, "%s/" PP_RUN_DIR_ACTIONS "/rank-%04d.ring", dir, rank);
}

static int write_config(const struct pp_config *cfg, const char *dir)
{
    char path[PP_PATH_MAX];
    PP_OWN(pp_file_abandon) struct pp_file_write w = {.f = NULL};
    PP_TRY(pp_path_format(path, "%s/" PP_RUN_DIR_CONFIG, dir));
    PP_TRY(pp_file_create(path, &w));
    PP_TRY(pp_config_write(cfg, w.f));
    return pp_file_commit(&w);
}

int pp_run_dir_create(const struct pp_config *cfg, const char *name, bool overwrite,
                      struct pp_lock *lock, char dir[PP_PATH_MAX])
{
    dir[0] = '\0';
    if (cfg->run.dir[0] == '\0')
        return 0;
    if (strcmp(cfg->run.dir, "auto") == 0)
        PP_TRY(make_new(name, lock, dir));
    else
        PP_TRY(use_named(cfg, overwrite, lock, dir));
    /* First the config: by it the folder is known as a run's, whenever the run is killed. */
    PP_TRY(write_config(cfg, dir));
    return empty_actions(dir);
}

int pp_run_dir_continue(const struct pp_config *cfg, const char *dir)
{
    PP_TRY(forget_end(dir));
    PP_TRY(empty_actions(dir));
    return write_config(cfg, dir);
}

static bool has_file(const char *dir, const char *name, char out[PP_PATH_MAX])
{
    struct stat st;
    return snprintf(out, PP_PATH_MAX, "%s/%s", dir, name) < PP_PATH_MAX && stat(out, &st) == 0 &&
           S_ISREG(st.st_mode);
}

bool pp_run_dir_is_one(const char *dir)
{
    char path[PP_PATH_MAX];
    return has_file(dir, PP_RUN_DIR_CONFIG, path);
}

/* ---- finding one */

bool pp_run_dir_has_checkpoints(const char *path)
{
    int64_t *steps = NULL;
    int n = 0;
    if (pp_ckpt_list(path, &steps, &n) < 0) {
        pp_error_clear();
        return false;
    }
    pp_free(steps);
    return n > 0;
}

bool pp_run_dir_newest(const char *name, char out[PP_PATH_MAX])
{
    PP_OWN(pp_closedir_at) DIR *d = opendir("runs");
    size_t n = strlen(name);
    out[0] = '\0';
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[PP_PATH_MAX];
        if (strncmp(e->d_name, name, n) != 0 || e->d_name[n] != '-' ||
            strspn(e->d_name + n + 1, "0123456789-") != strlen(e->d_name + n + 1) ||
            snprintf(path, sizeof(path), "runs/%s", e->d_name) >= (int)sizeof(path))
            continue;
        if (pp_ckpt_path_order(path, out) > 0 && pp_run_dir_has_checkpoints(path))
            memcpy(out, path, sizeof(path));
    }
    return out[0] != '\0';
}

bool pp_run_dir_config(const char *path, char out[PP_PATH_MAX])
{
    char dir[PP_PATH_MAX];
    if (has_file(path, PP_RUN_DIR_CONFIG, out))
        return true;
    if (has_file(path, "MANIFEST", out) && has_file(path, "config.ini", out))
        return true;
    return pp_run_dir_of(path, dir) && has_file(dir, PP_RUN_DIR_CONFIG, out);
}

const char *pp_ckpt_own_config(const struct pp_ckpt *ck, char out[PP_CKPT_OWN_CONFIG])
{
    char dir[PP_PATH_MAX], path[PP_PATH_MAX];
    out[0] = '\0';
    if (ck->plain && has_file(ck->path, "config.json", path))
        snprintf(out, PP_CKPT_OWN_CONFIG, "; its own config is model.from = %s", ck->path);
    else if (!ck->plain && pp_run_dir_of(ck->path, dir) && has_file(dir, PP_RUN_DIR_CONFIG, path))
        snprintf(out, PP_CKPT_OWN_CONFIG, "; its own config is %s", path);
    else if (!ck->plain)
        snprintf(out, PP_CKPT_OWN_CONFIG, "; its own config is %s/config.ini", ck->path);
    return out;
}

/* Cut the last name off; false when there is none. */
static bool split_last_name(char *path, const char **out_name)
{
    char *slash = strrchr(path, '/');
    if (!slash || slash == path)
        return false;
    *slash = '\0';
    *out_name = slash + 1;
    return true;
}

bool pp_run_dir_of(const char *path, char out[PP_PATH_MAX])
{
    char full[PATH_MAX];
    struct stat st;
    if (!realpath(path, full) || strlen(full) >= PP_PATH_MAX)
        return false;
    snprintf(out, PP_PATH_MAX, "%s", full);
    char inside[PATH_MAX + sizeof("/" PP_CKPT_DIR)];
    snprintf(inside, sizeof(inside), "%s/" PP_CKPT_DIR, full);
    if (stat(inside, &st) == 0 && S_ISDIR(st.st_mode))
        return true;
    const char *name;
    for (int up = 0; up < 2; up++) {
        if (!split_last_name(out, &name))
            return false;
        if (strcmp(name, PP_CKPT_DIR) == 0)
            return true;
    }
    return false;
}
