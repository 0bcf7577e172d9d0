/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists the pictures of a folder of class folders, as torchvision's ImageFolder does: classes are the
 * sorted names of the folders, and their pictures follow by folder and name. Hidden files and folders
 * are skipped.
 */
#include "images.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include "ppcli/base/base.h"
#include "ppcli/base/files.h"
#include "ops.h"

static const char *const test_names[] = {"test", "val", "valid", "validation", "testing"};

/* ---- folders */

static int is_folder(const char *path, bool *out)
{
    struct stat st;
    PP_TRY(pp_path_stat(path, true, &st));
    *out = S_ISDIR(st.st_mode);
    return 0;
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Lists the folders in `root` that are not hidden, sorted; pp_free(*out). */
static int list_folders(const char *root, char ***out, int *out_n)
{
    char path[PP_PATH_MAX];
    PP_OWN_MEMORY char **names = NULL;
    int n = 0;
    PP_TRY(pp_dir_names(root, &names));
    for (int i = 0; names[i]; i++) {
        bool folder = false;
        if (names[i][0] != '.') {
            PP_TRY(pp_path_format(path, "%s/%s", root, names[i]));
            PP_TRY(is_folder(path, &folder));
        }
        if (folder)
            names[n++] = names[i];
    }
    qsort(names, (size_t)n, sizeof(*names), compare_entries);
    *out = names;
    *out_n = n;
    names = NULL;
    return 0;
}

/* Finds the folder of the test set in `path`: the first of its usual names with folders in it. */
static int find_test(const char *path, char out[PP_PATH_MAX])
{
    for (size_t i = 0; i < sizeof(test_names) / sizeof(test_names[0]); i++) {
        PP_OWN_MEMORY char **names = NULL;
        struct stat st;
        int n = 0;
        PP_TRY(pp_path_format(out, "%s/%s", path, test_names[i]));
        PP_TRY(pp_path_stat(out, true, &st));
        if (S_ISDIR(st.st_mode))
            PP_TRY(list_folders(out, &names, &n));
        if (n > 0)
            return 0;
    }
    out[0] = '\0';
    return 0;
}

int images_check_split(const struct pp_config *cfg, const struct images_roots *r)
{
    if (r->test[0] && cfg->data.split > 0)
        return pp_fail(
            PP_ECONFIG,
            "data.split: has no effect, as the test set is the folder %s; remove the key", r->test);
    if (!r->test[0] && cfg->data.split <= 0)
        return pp_fail(PP_ECONFIG,
                       "data.split: %s has no folder test or val with class folders beside it, so "
                       "write data.split = 0.2 to test on a fifth of its pictures",
                       r->train);
    return 0;
}

int images_find_roots(const struct pp_config *cfg, struct images_roots *out)
{
    const char *path = cfg->data.path, *train = cfg->data.train_file, *test = cfg->data.test_file;
    bool found = false;
    *out = (struct images_roots){0};
    if (!path[0] && !train[0])
        return pp_fail(PP_ECONFIG,
                       "data.path: names no folder, but data.dataset = images needs one "
                       "with a folder for each class");
    if (train[0]) {
        PP_TRY(pp_path_format(out->train, "%s", train));
    } else {
        PP_TRY(pp_path_format(out->train, "%s/train", path));
        PP_TRY(is_folder(out->train, &found));
        if (found && !test[0])
            PP_TRY(find_test(path, out->test));
        else if (!found)
            PP_TRY(pp_path_format(out->train, "%s", path));
    }
    if (test[0])
        PP_TRY(pp_path_format(out->test, "%s", test));
    PP_TRY(is_folder(out->train, &found));
    if (!found)
        return pp_fail(PP_ENOINPUT, "%s: no such folder of pictures", out->train);
    PP_TRY(out->test[0] ? is_folder(out->test, &found) : 0);
    if (!found)
        return pp_fail(PP_ENOINPUT, "%s: no such folder of pictures", out->test);
    return 0;
}

static int digest_folder(struct pp_sha256 *s, const char *path)
{
    struct stat st;
    PP_TRY(pp_path_stat(path, true, &st));
    pp_sha256_update(s, path, strlen(path) + 1);
    pp_sha256_update(s, &st.st_mtim.tv_sec, sizeof(st.st_mtim.tv_sec));
    pp_sha256_update(s, &st.st_mtim.tv_nsec, sizeof(st.st_mtim.tv_nsec));
    return 0;
}

int images_folders_digest(const struct images_roots *roots, char out[PP_SHA256_HEX])
{
    const char *const both[] = {roots->train, roots->test};
    uint8_t digest[PP_SHA256_BYTES];
    char path[PP_PATH_MAX];
    struct pp_sha256 s;
    pp_sha256_init(&s);
    for (int i = 0; i < 2 && both[i][0]; i++) {
        PP_OWN_MEMORY char **names = NULL;
        int n = 0;
        PP_TRY(list_folders(both[i], &names, &n));
        PP_TRY(digest_folder(&s, both[i]));
        for (int k = 0; k < n; k++) {
            PP_TRY(pp_path_format(path, "%s/%s", both[i], names[k]));
            PP_TRY(digest_folder(&s, path));
        }
    }
    pp_sha256_final(&s, digest);
    pp_sha256_hex(digest, out);
    return 0;
}

/* ---- files */

static const char *const picture_ends[] = {"jpg", "jpeg", "jpe",  "jfif", "png",
                                           "bmp", "gif",  "tif",  "tiff", "webp",
                                           "ppm", "pgm",  "heic", "avif", NULL};
static const char *const silent[] = {"Thumbs.db", "desktop.ini", NULL};

bool images_may_be_picture(const char *path)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    bool found = !dot;
    for (int i = 0; dot && picture_ends[i]; i++)
        found = found || strcasecmp(dot + 1, picture_ends[i]) == 0;
    return found;
}

static int add_text(struct images_list *l, const char *text, size_t *out)
{
    size_t n = strlen(text) + 1;
    while (l->n_text + n > l->text_capacity) {
        PP_GROW(l->text, 2 * l->text_capacity + 4096);
        l->text_capacity = 2 * l->text_capacity + 4096;
    }
    *out = l->n_text;
    memcpy(l->text + l->n_text, text, n);
    l->n_text += n;
    return 0;
}

/* A class folder that is being listed. */
struct listing {
    struct images_list *list;
    const struct pp_config *cfg;
    const char *root;
    uint32_t label;
    bool test;
};

static int add_file(const struct listing *g, const char *below, const struct stat *st)
{
    struct images_list *l = g->list;
    const char *slash = strrchr(below, '/');
    if (!images_may_be_picture(below)) {
        bool hush = false;
        for (int i = 0; silent[i]; i++)
            hush = hush || strcmp(slash ? slash + 1 : below, silent[i]) == 0;
        if (!hush && l->n_ignored++ == 0)
            PP_TRY(add_text(l, below, &l->ignored));
        return 0;
    }
    PP_RESERVE(l->files, l->n, l->capacity);
    struct images_file f = {
        .label = g->label,
        .test = g->test || (!l->roots.test[0] && pp_split_is_test(g->cfg, below, strlen(below))),
        .bytes = (uint64_t)st->st_size,
        .modified_ns = st->st_mtim.tv_sec * (int64_t)1000000000 + st->st_mtim.tv_nsec};
    PP_TRY(add_text(l, below, &f.path));
    l->files[l->n++] = f;
    return 0;
}

/* The folder that is being listed, and those that it is in. */
struct place {
    dev_t device;
    ino_t file;
    const struct place *up;
};

/* Returns whether a folder is one of those that lead to it, by a link. */
static bool is_loop(const struct place *p, const struct stat *st)
{
    while (p && (p->device != st->st_dev || p->file != st->st_ino))
        p = p->up;
    return p != NULL;
}

/* Lists a folder: `below` is its path below the root. */
static int list_pictures(const struct listing *g, const char *below, const struct place *up)
{
    char path[PP_PATH_MAX], file[PP_PATH_MAX];
    struct stat st;
    PP_OWN_MEMORY char **names = NULL;
    PP_TRY(pp_path_format(path, "%s/%s", g->root, below));
    PP_TRY(pp_path_stat(path, true, &st));
    const struct place here = {st.st_dev, st.st_ino, up};
    if (is_loop(up, &st))
        return 0;
    PP_TRY(pp_dir_names(path, &names));
    int n = 0;
    while (names[n])
        n++;
    qsort(names, (size_t)n, sizeof(*names), compare_entries);
    int folders = 0;
    for (int i = 0; i < n; i++) {
        if (names[i][0] == '.')
            continue;
        PP_TRY(pp_path_format(path, "%s/%s", below, names[i]));
        PP_TRY(pp_path_format(file, "%s/%s", g->root, path));
        if (pp_path_stat(file, true, &st) < 0) { /* a link without a target: opening it says so */
            pp_error_clear();
            st = (struct stat){.st_mode = S_IFREG};
        }
        if (S_ISREG(st.st_mode))
            PP_TRY(add_file(g, path, &st));
        else if (S_ISDIR(st.st_mode))
            names[folders++] = names[i]; /* listed after the files */
    }
    for (int i = 0; i < folders; i++) {
        PP_TRY(pp_path_format(path, "%s/%s", below, names[i]));
        PP_TRY(list_pictures(g, path, &here));
    }
    return 0;
}

/* Refuses a folder without two class folders; `names` are its folders. */
static int refuse_root(const char *root, char *const *names, int n)
{
    PP_OWN_MEMORY char **inner = NULL;
    char path[PP_PATH_MAX];
    int n_inner = 0;
    if (n == 1) {
        PP_TRY(pp_path_format(path, "%s/%s", root, names[0]));
        PP_TRY(list_folders(path, &inner, &n_inner));
        if (n_inner > 1)
            return pp_fail(PP_EFORMAT,
                           "%s: its only folder is '%s', which has %d folders; to read these as "
                           "classes write data.path = %s",
                           root, names[0], n_inner, path);
        return pp_fail(
            PP_EFORMAT,
            "%s: its only class folder is '%s'; with one class there is nothing to learn", root,
            names[0]);
    }
    return pp_fail(PP_EFORMAT,
                   "%s: has no class folders; put the pictures of each class into a folder of its "
                   "own, whose name is the class",
                   root);
}

static int find_class(const struct images_list *l, const char *name)
{
    for (int i = 0; i < l->n_classes; i++)
        if (strcmp(l->text + l->classes[i], name) == 0)
            return i;
    return -1;
}

static int list_root(const struct pp_config *cfg, bool test, struct images_list *l)
{
    const char *root = test ? l->roots.test : l->roots.train;
    PP_OWN_MEMORY char **names = NULL;
    struct stat st;
    int n = 0;
    PP_TRY(pp_path_stat(root, true, &st));
    const struct place here = {st.st_dev, st.st_ino, NULL};
    PP_TRY(list_folders(root, &names, &n));
    if (n < (test ? 1 : 2))
        return refuse_root(root, names, n);
    for (int i = 0; i < n; i++) {
        int before = l->n, label = test ? find_class(l, names[i]) : i;
        if (label < 0)
            return pp_fail(PP_EFORMAT, "%s: has a class '%s', which %s does not have", root,
                           names[i], l->roots.train);
        if (!test) {
            PP_RESERVE(l->classes, l->n_classes, l->classes_capacity);
            PP_TRY(add_text(l, names[i], &l->classes[l->n_classes]));
            l->n_classes++;
        }
        const struct listing g = {l, cfg, root, (uint32_t)label, test};
        PP_TRY(list_pictures(&g, names[i], &here));
        if (l->n == before && !test)
            return pp_fail(PP_EFORMAT,
                           "%s/%s: no picture in this class folder; add some, or remove the folder",
                           root, names[i]);
    }
    return 0;
}

/* ---- order and number */

/* Puts the files of training first; the order within each part stays. */
static int part_files(struct images_list *l)
{
    PP_TAKE(struct images_file, test, l->n + 1);
    int n = 0, train = 0;
    for (int i = 0; i < l->n; i++)
        if (l->files[i].test)
            test[n++] = l->files[i];
        else
            l->files[train++] = l->files[i];
    if (n > 0)
        memcpy(l->files + train, test, (size_t)n * sizeof(*test));
    l->n_train = train;
    return 0;
}

/* Keeps `most` of files[n], evenly spaced, so that all classes remain; returns how many are left.
 * 0 means all. */
static int thin_files(struct images_file *files, int n, int most)
{
    int kept = 0;
    if (most == 0 || most >= n)
        return n;
    for (int i = 0; i < n; i++)
        if ((int64_t)(i + 1) * most / n > (int64_t)i * most / n)
            files[kept++] = files[i];
    return kept;
}

int images_list_make(const struct pp_config *cfg, const struct images_roots *roots,
                     struct images_list *out)
{
    PP_OWN(images_list_fini) struct images_list l = {.roots = *roots};
    PP_TRY(list_root(cfg, false, &l));
    if (roots->test[0])
        PP_TRY(list_root(cfg, true, &l));
    PP_TRY(part_files(&l));
    int train = thin_files(l.files, l.n_train, cfg->data.train_samples);
    int test = thin_files(l.files + l.n_train, l.n - l.n_train, cfg->data.test_samples);
    memmove(l.files + train, l.files + l.n_train, (size_t)test * sizeof(*l.files));
    l.n_train = train;
    l.n = train + test;
    *out = l;
    l = (struct images_list){0};
    return 0;
}

int images_check_parts(const struct images_list *l)
{
    if (l->n_train > 0 && l->n_train < l->n)
        return 0;
    return pp_fail(
        PP_ECONFIG,
        "data.split: puts all %d pictures of %s into the %s set; change the share, or add "
        "pictures",
        l->n, l->roots.train, l->n_train > 0 ? "training" : "test");
}

void images_list_fini(struct images_list *l)
{
    pp_free(l->text);
    pp_free(l->files);
    pp_free(l->classes);
    *l = (struct images_list){0};
}

int images_path(const struct images_list *l, const struct images_file *f, char out[PP_PATH_MAX])
{
    const char *root = f->test && l->roots.test[0] ? l->roots.test : l->roots.train;
    return pp_path_format(out, "%s/%s", root, l->text + f->path);
}
