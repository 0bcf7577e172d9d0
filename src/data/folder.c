/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the files of a data set: in the folder that data.path names, else the usual one, else those
 * that the data set lists. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "ppcli/base/base.h"
#include "ops.h"

static bool is_absent(const char *path)
{
    struct stat st;
    /* open() reports any other error. */
    return stat(path, &st) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

int pp_folder_file(const char *dir, const char *name, char out[PP_PATH_MAX], bool *out_found)
{
    char plain[PP_PATH_MAX];
    PP_TRY(pp_path_format(out, "%s/%s.gz", dir, name));
    *out_found = true;
    if (!is_absent(out))
        return 0;
    PP_TRY(pp_path_format(plain, "%s/%s", dir, name));
    if (!is_absent(plain))
        return pp_path_format(out, "%s", plain);
    *out_found = false;
    return 0;
}

/* The folders that were searched, for the message. */
struct looked {
    char text[2048];
};

static void note_folder(struct looked *l, const char *dir)
{
    size_t used = strlen(l->text);
    size_t left = sizeof(l->text) - used;
    int n = snprintf(l->text + used, left, "%s%s", used > 0 ? ", " : "", dir);
    if (n < 0 || (size_t)n >= left)
        l->text[used] = '\0'; /* do not show cut names */
}

static int fail_absent(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                       const struct looked *l)
{
    const char *get = self->info.fetch_command;
    const char *path = cfg->data.path;
    char sample[PP_NAME_MAX], hint[128] = "";
    snprintf(sample, sizeof(sample), "%s-sample", self->info.name);
    if (pp_dataset_info(sample))
        snprintf(hint, sizeof(hint), ", or set data.dataset = %s, which needs no download", sample);
    if (!get) {
        return pp_fail(PP_ENOINPUT,
                       "no %s data in %s (it comes with ppcli: install it, or name "
                       "its folder in data.path)",
                       self->info.name, l->text);
    }
    return pp_fail(PP_ENOINPUT, "no %s data in %s; fetch it with: %s%s%s%s", self->info.name,
                   l->text, get, path[0] ? " --dir " : "", path, hint);
}

int pp_folder_find(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                   enum pp_split split, pp_folder_locate *locate, void *ctx)
{
    struct looked l = {""};
    bool found = false;
    if (cfg->data.path[0]) {
        PP_TRY(locate(cfg->data.path, split, ctx, &found));
        note_folder(&l, cfg->data.path);
        return found ? 0 : fail_absent(self, cfg, &l);
    }
    char dir[PP_PATH_MAX];
    int rc = pp_data_dir(self->info.name, dir);
    if (rc == 0) {
        PP_TRY(locate(dir, split, ctx, &found));
        note_folder(&l, dir);
    } else if (!self->places && !self->shipped) {
        return rc;
    }
    char shipped[PP_SHIPPED_MAX][PP_PATH_MAX];
    int n = self->shipped ? pp_shipped_folders(self->shipped, shipped) : 0;
    for (int i = 0; !found && i < n; i++) {
        PP_TRY(locate(shipped[i], split, ctx, &found));
        note_folder(&l, shipped[i]);
    }
    for (int i = 0; !found && self->places && self->places[i]; i++) {
        PP_TRY(locate(self->places[i], split, ctx, &found));
        note_folder(&l, self->places[i]);
    }
    return found ? 0 : fail_absent(self, cfg, &l);
}
