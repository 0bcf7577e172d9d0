/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the run folder, and never one with results that belong to another run. */
#include "ppcli/ckpt/checkpoint.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "impl.h"
#include "ppcli/base/base.h"

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
        int made = mkdir(dir, 0777);
        PP_TRY(made == 0 ? pp_io_sync_dir(&pp_io_system, "runs") : 0);
        if (made == 0)
            return pp_lock_take(dir, lock);
        if (errno != EEXIST)
            return pp_fail_errno(0, "cannot create run folder %s", dir);
    }
    return pp_fail(PP_EIO, "cannot find a free name for a run folder like %s", dir);
}

/* Sets *out to whether a name may be in a run folder that counts as empty: the lock, or an
 * unfinished file of a run that was killed while it wrote its config or its first checkpoint. */
static int is_leftover(const char *dir, const char *name, bool *out)
{
    static const char config[] = PP_RUN_DIR_CONFIG ".tmp-";
    PP_OWN_MEMORY int64_t *steps = NULL;
    int n = 0;
    *out = strcmp(name, PP_LOCK_NAME) == 0 || strncmp(name, config, sizeof(config) - 1) == 0;
    if (strcmp(name, PP_CKPT_DIR) == 0) {
        PP_TRY(pp_ckpt_list(dir, &steps, &n));
        *out = n == 0;
    }
    return 0;
}

static int is_empty(const char *dir, bool *out)
{
    PP_OWN_MEMORY char **names = NULL;
    PP_TRY(pp_dir_names(dir, &names));
    *out = true;
    for (char **name = names; *name && *out; name++)
        PP_TRY(is_leftover(dir, *name, out));
    return 0;
}

static int remove_file(const char *dir, const char *name)
{
    char path[PP_PATH_MAX];
    PP_TRY(pp_path_format(path, "%s/%s", dir, name));
    return unlink(path) == 0 || errno == ENOENT ? 0 : pp_fail_errno(0, "cannot remove %s", path);
}

/* Removes the files that an earlier run wrote at its end, so that an unfinished run does not look
 * finished. */
static int forget_end(const char *dir)
{
    PP_TRY(remove_file(dir, "summary.json"));
    return remove_file(dir, "timeline.json");
}

/* Removes those files of an earlier run that this one does not replace at once. Otherwise a board
 * would draw the curves of both as one, and a later --resume would find the earlier run's
 * checkpoints. */
static int forget_earlier_run(const char *dir, const struct pp_lock *lock)
{
    char board[PP_PATH_MAX], checkpoints[PP_PATH_MAX];
    PP_OWN_MEMORY char **events = NULL;
    PP_TRY(pp_path_format(checkpoints, "%s/" PP_CKPT_DIR, dir));
    PP_TRY(pp_path_format(board, "%s/tensorboard", dir));
    PP_TRY(pp_dir_names(board, &events));
    PP_TRY(pp_ckpt_drop_newer(&pp_io_system, checkpoints, -1));
    PP_TRY(pp_ckpt_sweep(&pp_io_system, checkpoints, lock->since_ns));
    PP_TRY(forget_end(dir));
    for (char **name = events; *name; name++)
        if (strncmp(*name, "events.out.tfevents.", 20) == 0)
            PP_TRY(remove_file(board, *name));
    return 0;
}

/* Makes and locks the folder that run.dir names. *out_new: it contains nothing of an earlier run. A
 * folder that does is refused without `overwrite`. */
static int use_named_folder(const struct pp_config *cfg, bool overwrite, struct pp_lock *lock,
                            char dir[PP_PATH_MAX], bool *out_new)
{
    PP_TRY(pp_path_format(dir, "%s", cfg->run.dir));
    PP_TRY(run_dir_check(dir));
    PP_TRY(pp_dir_create(dir));
    PP_TRY(pp_lock_take(dir, lock));
    PP_TRY(is_empty(dir, out_new));
    if (*out_new || overwrite)
        return 0;
    return pp_fail(PP_ECONFIG,
                   "run folder %s is not empty: name another with --dir, continue with "
                   "--resume, or add --overwrite",
                   dir);
}

/* Removes the rings of an earlier run, because a ring is never written over, and its report of a
 * hang. */
int pp_run_dir_empty_rings(const char *dir)
{
    char folder[PP_PATH_MAX];
    PP_TRY(remove_file(dir, "hang.txt"));
    PP_TRY(pp_path_format(folder, "%s/" PP_RUN_DIR_ACTIONS, dir));
    PP_TRY(pp_dir_create(folder));
    PP_OWN_MEMORY char **names = NULL;
    PP_TRY(pp_dir_names(folder, &names));
    for (char **name = names; *name; name++) {
        int rank, end = 0;
        if (sscanf(*name, "rank-%d.ring%n", &rank, &end) == 1 && end > 0 && !(*name)[end])
            PP_TRY(remove_file(folder, *name));
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
    bool is_new = true;
    dir[0] = '\0';
    if (cfg->run.dir[0] == '\0')
        return 0;
    if (strcmp(cfg->run.dir, "auto") == 0)
        PP_TRY(make_new(name, lock, dir));
    else
        PP_TRY(use_named_folder(cfg, overwrite, lock, dir, &is_new));
    /* The config comes first: it identifies the folder as a run's, whenever the run is killed. */
    PP_TRY(is_new ? write_config(cfg, dir) : 0);
    return pp_run_dir_empty_rings(dir);
}

int pp_run_dir_begin(const struct pp_config *cfg, const char *dir, bool goes_on,
                     const struct pp_lock *lock)
{
    PP_TRY(goes_on ? forget_end(dir) : forget_earlier_run(dir, lock));
    return write_config(cfg, dir);
}

/* Writes the path of a regular file in a folder to `out`; "" if there is no such file. */
static int find_run_file(const char *dir, const char *name, char out[PP_PATH_MAX])
{
    struct stat st;
    char path[PP_PATH_MAX];
    out[0] = '\0';
    PP_TRY(pp_path_format(path, "%s/%s", dir, name));
    PP_TRY(pp_path_stat(path, true, &st));
    return S_ISREG(st.st_mode) ? pp_path_format(out, "%s", path) : 0;
}

/* ---- finding a run folder */

/* Returns whether a folder's name has the form that pp_run_dir_name() and make_new() give to runs
 * of `name`: the name, the date and time, and perhaps a number. */
static bool is_run_of(const char *folder, const char *name)
{
    static const char form[] = "-dddddddd-dddddd";
    size_t n = strlen(name), i = 0;
    if (strncmp(folder, name, n) != 0)
        return false;
    const char *rest = folder + n;
    for (; form[i] && (form[i] == 'd' ? isdigit((unsigned char)rest[i]) : rest[i] == '-'); i++)
        ;
    if (form[i])
        return false;
    size_t digits = rest[i] == '-' ? strspn(rest + i + 1, "0123456789") : 0;
    return !rest[i] || (digits >= 1 && digits <= 3 && !rest[i + 1 + digits]);
}

int pp_run_dir_newest(const char *name, char out[PP_PATH_MAX])
{
    PP_OWN_MEMORY char **names = NULL;
    out[0] = '\0';
    PP_TRY(pp_dir_names("runs", &names));
    for (char **folder = names; *folder; folder++) {
        PP_OWN_MEMORY int64_t *steps = NULL;
        char path[PP_PATH_MAX];
        int n = 0;
        if (!is_run_of(*folder, name))
            continue;
        PP_TRY(pp_path_format(path, "runs/%s", *folder));
        if (pp_ckpt_path_order(path, out) > 0)
            PP_TRY(pp_ckpt_list(path, &steps, &n));
        if (n > 0)
            memcpy(out, path, sizeof(path));
    }
    return 0;
}

int pp_run_dir_config(const char *path, char out[PP_PATH_MAX])
{
    char dir[PP_PATH_MAX];
    PP_TRY(find_run_file(path, PP_RUN_DIR_CONFIG, out));
    if (out[0])
        return 0;
    PP_TRY(find_run_file(path, "MANIFEST", out));
    if (out[0])
        PP_TRY(find_run_file(path, "config.ini", out));
    if (out[0])
        return 0;
    PP_TRY(pp_run_dir_of(path, dir));
    return dir[0] ? find_run_file(dir, PP_RUN_DIR_CONFIG, out) : 0;
}

const char *pp_ckpt_own_config(const struct pp_ckpt *ck, char out[PP_CKPT_OWN_CONFIG])
{
    char dir[PP_PATH_MAX], path[PP_PATH_MAX] = "";
    out[0] = '\0';
    if (ck->plain && find_run_file(ck->path, "config.json", path) == 0 && path[0])
        snprintf(out, PP_CKPT_OWN_CONFIG, "; its own config is model.from = %s", ck->path);
    if (ck->plain)
        return out;
    if (pp_run_dir_of(ck->path, dir) == 0 && dir[0])
        (void)find_run_file(dir, PP_RUN_DIR_CONFIG, path);
    if (path[0])
        snprintf(out, PP_CKPT_OWN_CONFIG, "; its own config is %s", path);
    else
        snprintf(out, PP_CKPT_OWN_CONFIG, "; its own config is %s/config.ini", ck->path);
    return out;
}

/* Cuts the last name off a path; returns false if only one name is left. */
static bool split_last_name(char *path, const char **out_name)
{
    char *slash = strrchr(path, '/');
    if (!slash || slash == path)
        return false;
    *slash = '\0';
    *out_name = slash + 1;
    return true;
}

int pp_run_dir_of(const char *path, char out[PP_PATH_MAX])
{
    char full[PATH_MAX], inside[PP_PATH_MAX];
    struct stat st;
    const char *name;
    out[0] = '\0';
    PP_TRY(pp_path_stat(path, true, &st));
    if (st.st_mode == 0)
        return 0;
    if (!realpath(path, full))
        return pp_fail_errno(0, "cannot read %s", path);
    PP_TRY(pp_path_format(inside, "%s/" PP_CKPT_DIR, full));
    PP_TRY(pp_path_stat(inside, true, &st));
    bool is_one = S_ISDIR(st.st_mode);
    for (int up = 0; up < 2 && !is_one; up++) {
        if (!split_last_name(full, &name))
            return 0;
        is_one = strcmp(name, PP_CKPT_DIR) == 0;
    }
    return is_one ? pp_path_format(out, "%s", full) : 0;
}

int run_dir_check(const char *dir)
{
    char there[PP_PATH_MAX], full[PATH_MAX], run[PP_PATH_MAX], config[PP_PATH_MAX] = "";
    struct stat st;
    const char *name;
    PP_TRY(pp_path_format(there, "%s", dir));
    PP_TRY(pp_path_stat(there, true, &st));
    while (st.st_mode == 0 && split_last_name(there, &name))
        PP_TRY(pp_path_stat(there, true, &st));
    PP_TRY(pp_run_dir_of(there, run));
    if (run[0])
        PP_TRY(find_run_file(run, PP_RUN_DIR_CONFIG, config));
    if (!config[0] || (realpath(there, full) && strcmp(full, run) == 0))
        return 0;
    return pp_fail(PP_ECONFIG,
                   "run.dir = %s is inside the checkpoints of the run %s: name another folder, or "
                   "the run's own to continue it",
                   dir, run);
}
