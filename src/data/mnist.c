/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The MNIST family: a folder with four IDX files, images and labels of two splits, gzipped or
 * plain. This file knows their names, where they may lie, and what makes images and labels a pair.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "ppcli/err.h"
#include "ppcli/file.h"
#include "ops.h"

#define CLASSES 10
#define PIXELS (28 * 28)

static bool is_absent(const char *path)
{
    struct stat st;
    /* Any other error is kept for open(), which can say what it is. */
    return stat(path, &st) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

/* dir/<stem>.gz, else dir/<stem>; *out_found false when neither is there (then out is the first).
 */
static int locate(const char *dir, const char *prefix, const char *stem, char out[PP_PATH_MAX],
                  bool *out_found)
{
    char plain[PP_PATH_MAX];
    PP_TRY(pp_path_format(out, "%s/%s-%s.gz", dir, prefix, stem));
    *out_found = true;
    if (!is_absent(out))
        return 0;
    PP_TRY(pp_path_format(plain, "%s/%s-%s", dir, prefix, stem));
    if (!is_absent(plain))
        return pp_path_format(out, "%s", plain);
    *out_found = false;
    return 0;
}

/* The pair of a split in this folder. Half a pair counts as found: what is missing is then named.
 */
static int locate_pair(const char *dir, enum pp_split split, struct pp_pair *p, bool *out_found)
{
    const char *prefix = split == PP_SPLIT_TRAIN ? "train" : "t10k";
    bool images, labels;
    PP_TRY(locate(dir, prefix, "images-idx3-ubyte", p->images, &images));
    PP_TRY(locate(dir, prefix, "labels-idx1-ubyte", p->labels, &labels));
    *out_found = images || labels;
    if (images != labels) {
        return pp_fail(PP_ENOINPUT, "%s is missing (%s is there)", images ? p->labels : p->images,
                       images ? p->images : p->labels);
    }
    return 0;
}

/* Folders that were looked in, for the message. */
struct looked {
    char text[2048];
};

static void note(struct looked *l, const char *dir)
{
    size_t used = strlen(l->text);
    size_t room = sizeof(l->text) - used;
    int n = snprintf(l->text + used, room, "%s%s", used > 0 ? ", " : "", dir);
    if (n < 0 || (size_t)n >= room)
        l->text[used] = '\0'; /* no half names */
}

static int say_absent(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                      const struct looked *l)
{
    const char *get = self->info.fetch_command;
    const char *path = cfg->data.path;
    const char *hint = strcmp(self->info.name, "mnist") == 0
                           ? ", or set data.dataset = mnist-sample, which needs no download"
                           : "";
    if (!get) {
        return pp_fail(PP_ENOINPUT,
                       "no %s data in %s (it comes with ppcli: install it, or name "
                       "its folder in data.path)",
                       self->info.name, l->text);
    }
    return pp_fail(PP_ENOINPUT, "no %s data in %s; fetch it with: %s%s%s%s", self->info.name,
                   l->text, get, path[0] ? " --dir " : "", path, hint);
}

static int find_pair(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                     enum pp_split split, struct pp_pair *p)
{
    struct looked l = {""};
    bool found = false;
    if (cfg->data.path[0]) {
        PP_TRY(locate_pair(cfg->data.path, split, p, &found));
        note(&l, cfg->data.path);
        return found ? 0 : say_absent(self, cfg, &l);
    }
    char dir[PP_PATH_MAX];
    int rc = pp_data_dir(self->info.name, dir);
    if (rc == 0) {
        PP_TRY(locate_pair(dir, split, p, &found));
        note(&l, dir);
    } else if (!self->places) {
        return rc;
    }
    for (int i = 0; !found && self->places && self->places[i]; i++) {
        PP_TRY(locate_pair(self->places[i], split, p, &found));
        note(&l, self->places[i]);
    }
    return found ? 0 : say_absent(self, cfg, &l);
}

static int open_family(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                       enum pp_split split, int parts, int model_inputs, int model_classes,
                       struct pp_dataset *ds)
{
    struct pp_pair p = {.read = pp_idx_read, .classes = CLASSES};
    PP_TRY(find_pair(self, cfg, split, &p));
    PP_TRY(pp_pair_open(&p, pp_samples_max(cfg, split), parts, ds));
    return pp_path_format(ds->origin, "%.*s", (int)(strrchr(p.images, '/') - p.images), p.images);
}

extern const struct pp_dataset_ops dataset_mnist, dataset_mnist_sample, dataset_fashion_mnist;

const struct pp_dataset_ops dataset_mnist = {
    .info = {.name = "mnist",
             .help = "60,000 + 10,000 handwritten digits of 28 x 28 pixels",
             .features = PIXELS,
             .value_bytes = 1,
             .classes = CLASSES,
             .train_n = 60000,
             .test_n = 10000,
             .fetch_command = "ppcli download mnist"},
    .open = open_family,
};

/* The second one lets a freshly built, not installed ppcli train. */
static const char *const sample_places[] = {PP_DATADIR "/data/mnist-sample",
                                            PP_SOURCE_ROOT "/data/mnist-sample", NULL};

const struct pp_dataset_ops dataset_mnist_sample = {
    .info = {.name = "mnist-sample",
             .help = "6,000 + 1,000 digits of MNIST, 600 + 100 of each; comes with ppcli",
             .features = PIXELS,
             .value_bytes = 1,
             .classes = CLASSES,
             .train_n = 6000,
             .test_n = 1000},
    .places = sample_places,
    .open = open_family,
};

/* Where Debian's package dataset-fashion-mnist puts its files. */
static const char *const fashion_places[] = {"/usr/share/datasets/fashion-mnist", NULL};

const struct pp_dataset_ops dataset_fashion_mnist = {
    .info = {.name = "fashion-mnist",
             .help = "60,000 + 10,000 pictures of clothes, same shapes as mnist, harder",
             .features = PIXELS,
             .value_bytes = 1,
             .classes = CLASSES,
             .train_n = 60000,
             .test_n = 10000,
             .fetch_command = "ppcli download fashion-mnist"},
    .places = fashion_places,
    .open = open_family,
};
