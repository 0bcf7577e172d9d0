/* SPDX-License-Identifier: Apache-2.0 */
/* Making the run directory: never into somebody else's results. */
#include "run_dir.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ppcli/err.h"

static int make_new(const char *name, char dir[PP_PATH_MAX])
{
    char when[32];
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(when, sizeof(when), "%Y%m%d-%H%M%S", &tm);
    PP_TRY(pp_dir_create("runs"));
    for (int n = 1; n < 1000; n++) {
        char tail[16] = "";
        if (n > 1) {
            snprintf(tail, sizeof(tail), "-%d", n);
        }
        PP_TRY(pp_path_format(dir, "runs/%s-%s%s", name, when, tail));
        if (mkdir(dir, 0777) == 0) {
            return 0;
        }
        if (errno != EEXIST) {
            return pp_fail_errno(0, "cannot create run folder %s", dir);
        }
    }
    return pp_fail(PP_EIO, "cannot find a free name for a run folder beside %s", dir);
}

static int is_empty(const char *dir, bool *out)
{
    DIR *d = opendir(dir);
    if (!d) {
        return pp_fail_errno(0, "cannot read run folder %s", dir);
    }
    *out = true;
    for (struct dirent *e; (e = readdir(d));) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            *out = false;
        }
    }
    closedir(d);
    return 0;
}

static int use_named(const struct pp_config *cfg, bool overwrite, char dir[PP_PATH_MAX])
{
    bool empty = false;
    PP_TRY(pp_path_format(dir, "%s", cfg->run.dir));
    PP_TRY(pp_dir_create(dir));
    PP_TRY(is_empty(dir, &empty));
    if (!empty && !overwrite) {
        return pp_fail(PP_ECONFIG,
                       "run folder %s is not empty: name another with --dir, or add --overwrite",
                       dir);
    }
    /* An unfinished run must not be taken for finished because of what stood there before. */
    char summary[PP_PATH_MAX];
    PP_TRY(pp_path_format(summary, "%s/summary.json", dir));
    if (unlink(summary) != 0 && errno != ENOENT) {
        return pp_fail_errno(0, "cannot remove %s", summary);
    }
    return 0;
}

static int write_config(const struct pp_config *cfg, const char *dir)
{
    char path[PP_PATH_MAX];
    struct pp_file_write w;
    PP_TRY(pp_path_format(path, "%s/config.resolved.ini", dir));
    PP_TRY(pp_file_create(path, &w));
    int rc = pp_config_write(cfg, w.f);
    if (rc < 0) {
        pp_file_abandon(&w);
        return rc;
    }
    return pp_file_commit(&w);
}

int run_dir_create(const struct pp_config *cfg, const char *name, bool overwrite,
                   char dir[PP_PATH_MAX])
{
    dir[0] = '\0';
    if (cfg->run.dir[0] == '\0') {
        return 0;
    }
    if (strcmp(cfg->run.dir, "auto") == 0) {
        PP_TRY(make_new(name, dir));
    } else {
        PP_TRY(use_named(cfg, overwrite, dir));
    }
    return write_config(cfg, dir);
}
