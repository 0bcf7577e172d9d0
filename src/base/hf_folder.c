/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recognizes Hugging Face folders that save_pretrained() did not write, and says what to do about
 * them.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "ppcli/base/base.h"
#include "ppcli/base/files.h"

static bool file_exists(const char *dir, const char *name)
{
    char path[PP_PATH_MAX];
    struct stat st;
    return snprintf(path, sizeof(path), "%s/%s", dir, name) < (int)sizeof(path) &&
           stat(path, &st) == 0;
}

/* Finds the name of the revision (a folder of snapshots/) that refs/main names; without refs/main,
 * that of the only revision. Returns whether there is one. */
static bool find_snapshot(const char *dir, char out[256])
{
    char path[PP_PATH_MAX];
    PP_OWN_MEMORY char *text = NULL;
    size_t bytes = 0;
    int n = 0;
    out[0] = '\0';
    if (snprintf(path, sizeof(path), "%s/refs/main", dir) < (int)sizeof(path) &&
        pp_file_read(path, 200, &text, &bytes) == 0) {
        snprintf(out, 256, "%.*s", (int)strcspn(text, "\r\n"), text);
        return out[0] && !strchr(out, '/');
    }
    pp_error_clear();
    snprintf(path, sizeof(path), "%s/snapshots", dir);
    PP_OWN(pp_closedir_at) DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(out, 256, "%.255s", e->d_name);
        n++;
    }
    return n == 1;
}

/* Finds the file of the folder whose name begins and ends with these texts; of several names the
 * alphabetically first. Returns whether there is one. */
static bool find_named_file(const char *dir, const char *begins, const char *ends, char out[256])
{
    PP_OWN(pp_closedir_at) DIR *d = opendir(dir);
    size_t b = strlen(begins), m = strlen(ends);
    out[0] = '\0';
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        if (n >= b + m && strncmp(e->d_name, begins, b) == 0 &&
            strcmp(e->d_name + n - m, ends) == 0 && (!out[0] || strcmp(e->d_name, out) < 0))
            snprintf(out, 256, "%.255s", e->d_name);
    }
    return out[0] != '\0';
}

bool pp_hf_folder_is(const char *dir, char *out, size_t bytes)
{
    static const char *const torch[][2] = {
        {"pytorch_model", ".bin"}, {"", ".bin"}, {"", ".pth"}, {"", ".pt"}};
    char name[256];
    if (file_exists(dir, "snapshots")) {
        if (find_snapshot(dir, name))
            snprintf(out, bytes, "a cache folder of Hugging Face's: name %s/snapshots/%s", dir,
                     name);
        else
            snprintf(out, bytes, "a cache folder of Hugging Face's: name a folder in %s/snapshots",
                     dir);
        return true;
    }
    if (file_exists(dir, "adapter_config.json") || file_exists(dir, "adapter_model.safetensors")) {
        snprintf(out, bytes,
                 "a LoRA adapter, not a whole model: merge it in Python with "
                 "AutoPeftModelForCausalLM.from_pretrained('%s').merge_and_unload()"
                 ".save_pretrained(NEW), and name NEW",
                 dir);
        return true;
    }
    for (int i = 0; i < 4; i++) {
        if (find_named_file(dir, torch[i][0], torch[i][1], name)) {
            snprintf(out, bytes,
                     "it has %s, a Python pickle, and no model.safetensors: write one with these "
                     "two lines of Python, and name NEW: from transformers import "
                     "AutoModelForCausalLM; "
                     "AutoModelForCausalLM.from_pretrained('%s').save_pretrained('NEW')",
                     name, dir);
            return true;
        }
    }
    if (find_named_file(dir, "", ".safetensors", name)) {
        snprintf(out, bytes, "it has no model.safetensors: name its file, %s/%s", dir, name);
        return true;
    }
    return false;
}
