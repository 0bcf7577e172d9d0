/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The MNIST family: a folder with four IDX files, images and labels of two splits, gzipped or
 * plain. This file knows their names and usual folders, and checks that images and labels match.
 */
#include <string.h>

#include "ops.h"

#define CLASSES 10

/* Finds a file such as train-images-idx3-ubyte, or the same name with a dot as in some archives,
 * plain or with .gz. */
static int find_idx_file(const char *dir, enum pp_split split, const char *what, int dims,
                         char out[PP_PATH_MAX], bool *out_found)
{
    *out_found = false;
    for (int dot = 1; dot >= 0 && !*out_found; dot--) {
        char name[48], path[PP_PATH_MAX];
        snprintf(name, sizeof(name), "%s-%s%cidx%d-ubyte",
                 split == PP_SPLIT_TRAIN ? "train" : "t10k", what, "-."[dot], dims);
        PP_TRY(pp_folder_file(dir, name, path, out_found));
        PP_TRY(pp_path_format(out, "%s", path));
    }
    return 0;
}

/* Finds the images and labels of a split in this folder. If one of the two files is missing, the
 * error names it. */
static int locate_pair(const char *dir, enum pp_split split, void *pair, bool *out_found)
{
    struct pp_pair *p = pair;
    bool images, labels;
    PP_TRY(find_idx_file(dir, split, "images", 3, p->images, &images));
    PP_TRY(find_idx_file(dir, split, "labels", 1, p->labels, &labels));
    *out_found = images || labels;
    if (images != labels) {
        return pp_fail(PP_ENOINPUT, "%s is missing (%s exists)", images ? p->labels : p->images,
                       images ? p->images : p->labels);
    }
    return 0;
}

static int open_family(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                       enum pp_split split, int parts, const struct pp_shape *model_input,
                       int model_classes, struct pp_dataset *ds)
{
    struct pp_pair p = {.read = pp_idx_read, .classes = CLASSES};
    PP_TRY(pp_folder_find(self, cfg, split, locate_pair, &p));
    PP_TRY(pp_pair_open(&p, pp_samples_max(cfg, split), parts, ds));
    return pp_path_format(ds->origin, "%.*s", (int)(strrchr(p.images, '/') - p.images), p.images);
}

extern const struct pp_dataset_ops dataset_mnist, dataset_mnist_sample, dataset_fashion_mnist;

const struct pp_dataset_ops dataset_mnist = {
    .info = {.name = "mnist",
             .help = "60,000 + 10,000 handwritten digits of 28 x 28 pixels",
             .shape = {3, {28, 28, 1}},
             .classes = CLASSES,
             .train_n = 60000,
             .test_n = 10000,
             .fetch_command = "ppcli download mnist"},
    .open = open_family,
};

const struct pp_dataset_ops dataset_mnist_sample = {
    .info = {.name = "mnist-sample",
             .help = "6,000 + 1,000 digits of MNIST, 600 + 100 of each; comes with ppcli",
             .shape = {3, {28, 28, 1}},
             .classes = CLASSES,
             .train_n = 6000,
             .test_n = 1000},
    .shipped = "data/mnist-sample",
    .open = open_family,
};

/* The folder of Debian's package dataset-fashion-mnist. */
static const char *const fashion_places[] = {"/usr/share/datasets/fashion-mnist", NULL};

const struct pp_dataset_ops dataset_fashion_mnist = {
    .info = {.name = "fashion-mnist",
             .help = "60,000 + 10,000 pictures of clothes, same shapes as mnist, harder",
             .shape = {3, {28, 28, 1}},
             .classes = CLASSES,
             .train_n = 60000,
             .test_n = 10000,
             .fetch_command = "ppcli download fashion-mnist"},
    .places = fashion_places,
    .open = open_family,
};
