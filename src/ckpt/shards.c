/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder as Hugging Face's save_pretrained() writes it: model.safetensors, or several such files
 * and an index that lists which file has which tensor. Links are followed, because its cache uses
 * them.
 */
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "impl.h"
#include "safetensors.h"
#include "ppcli/base/files.h"
#include "ppcli/base/base.h"

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"
#define SHARD "model-%05d-of-%05d.safetensors"
#define INDEX_BYTES_MAX ((uint64_t)64 << 20)
#define SHARDS_MAX 4096

static bool is_file(const char *dir, const char *name)
{
    char path[PP_PATH_MAX];
    struct stat st;
    return snprintf(path, sizeof(path), "%s/%s", dir, name) < (int)sizeof(path) &&
           stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* Returns how many files the names of shards, such as model-00001-of-00003.safetensors, announce; 0
 * if there are no such names. *found is how many of them exist. */
static int count_shards(const char *dir, int *found)
{
    PP_OWN(pp_closedir_at) DIR *d = opendir(dir);
    int most = 0;
    *found = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        int index = 0, count = 0, end = 0;
        char name[64];
        if (sscanf(e->d_name, "model-%5d-of-%5d.safetensors%n", &index, &count, &end) != 2 ||
            end == 0 || e->d_name[end] || index < 1 || index > count)
            continue;
        snprintf(name, sizeof(name), SHARD, index, count);
        *found += strcmp(name, e->d_name) == 0;
        most = count > most ? count : most;
    }
    return most;
}

bool ckpt_has_shards(const char *dir)
{
    int found;
    return is_file(dir, SINGLE) || is_file(dir, INDEX) || count_shards(dir, &found) > 0;
}

static bool is_open(const struct pp_ckpt *ck, const char *path)
{
    for (int i = 0; i < ck->n_parts; i++)
        if (strcmp(ck->parts[i]->path, path) == 0)
            return true;
    return false;
}

/* Opens a file of the folder as the next part, unless it is open already. */
static int open_part(struct pp_ckpt *ck, const char *name)
{
    char path[PP_PATH_MAX], shown[PP_JSON_SHOWN];
    if (strchr(name, '/') || name[0] == '.' || name[0] == '\0') {
        return pp_fail(PP_EFORMAT,
                       "%s/" INDEX ": '%s' is not the name of a file in the same folder", ck->path,
                       pp_json_shown(name, shown));
    }
    PP_TRY(pp_path_format(path, "%s/%s", ck->path, name));
    if (is_open(ck, path))
        return 0;
    if (ck->n_parts == SHARDS_MAX)
        return pp_fail(PP_EFORMAT, "%s: has more than %d files", ck->path, SHARDS_MAX);
    struct pp_st_file **parts =
        pp_realloc(ck->parts, (size_t)ck->n_parts + 1, sizeof(struct pp_st_file *));
    if (!parts)
        return pp_error_context("%s", ck->path);
    ck->parts = parts;
    PP_TRY(pp_st_open(path, &parts[ck->n_parts]));
    ck->bytes += parts[ck->n_parts++]->bytes;
    return 0;
}

/* Opens the files that the index names, and checks that each has the tensors that the index assigns
 * to it. */
static int open_listed(struct pp_ckpt *ck, const json_t *map)
{
    const char *tensor, *base;
    json_t *file;
    char shown[PP_JSON_SHOWN];
    int part;
    if (!json_is_object(map))
        return pp_fail(PP_EFORMAT, "%s/" INDEX ": has no weight_map", ck->path);
    json_object_foreach((json_t *)map, tensor, file)
    {
        if (!json_is_string(file)) {
            return pp_fail(PP_EFORMAT, "%s/" INDEX ": weight_map: '%s' has no name of a file",
                           ck->path, pp_json_shown(tensor, shown));
        }
        PP_TRY(open_part(ck, json_string_value(file)));
    }
    PP_TRY(ckpt_build_index(ck));
    json_object_foreach((json_t *)map, tensor, file)
    {
        const struct pp_st_tensor *t = ckpt_find(ck, tensor, &part);
        base = t ? strrchr(ck->parts[part]->path, '/') + 1 : "";
        if (strcmp(base, json_string_value(file)) != 0) {
            return pp_fail(PP_EFORMAT, "%s/%s: has no tensor %s, which " INDEX " finds there",
                           ck->path, json_string_value(file), pp_json_shown(tensor, shown));
        }
    }
    return 0;
}

static int open_index(struct pp_ckpt *ck)
{
    static const struct pp_json_limits limits = {4, 1 << 18, 64};
    char label[PP_PATH_MAX];
    PP_OWN_MEMORY char *text = NULL;
    size_t bytes = 0;
    json_auto_t *root = NULL;
    PP_TRY(pp_path_format(label, "%s/" INDEX, ck->path));
    PP_TRY(pp_file_read(label, INDEX_BYTES_MAX, &text, &bytes));
    PP_TRY(pp_json_read(label, text, bytes, &limits, &root));
    return open_listed(ck, json_object_get(root, "weight_map"));
}

/* Opens all shards of a folder without an index: their names tell how many there are. */
static int open_numbered(struct pp_ckpt *ck)
{
    char name[64];
    int found = 0, count = count_shards(ck->path, &found);
    for (int i = 1; i <= count; i++) {
        snprintf(name, sizeof(name), SHARD, i, count);
        if (!is_file(ck->path, name)) {
            return pp_fail(PP_EFORMAT,
                           "%s: %d of %d files are there, %s is not: download it into this folder",
                           ck->path, found, count, name);
        }
        PP_TRY(open_part(ck, name));
    }
    return ckpt_build_index(ck);
}

int ckpt_open_shards(struct pp_ckpt *ck)
{
    if (!is_file(ck->path, SINGLE))
        return is_file(ck->path, INDEX) ? open_index(ck) : open_numbered(ck);
    PP_TRY(open_part(ck, SINGLE));
    return ckpt_build_index(ck);
}
