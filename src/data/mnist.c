/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The MNIST family: a folder with four IDX files, images and labels of two splits, gzipped or
 * plain. This file knows their names, where they may lie, and what makes images and labels a pair.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include <zlib.h>

#include "ppcli/err.h"
#include "ppcli/file.h"
#include "ppcli/mem.h"
#include "idx.h"
#include "ops.h"

#define CLASSES 10
#define PIXELS (28 * 28)

struct pair {
    char dir[PP_PATH_MAX];
    char images[PP_PATH_MAX];
    char labels[PP_PATH_MAX];
};

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
    if (!is_absent(out)) {
        return 0;
    }
    PP_TRY(pp_path_format(plain, "%s/%s-%s", dir, prefix, stem));
    if (!is_absent(plain)) {
        return pp_path_format(out, "%s", plain);
    }
    *out_found = false;
    return 0;
}

/* The pair of a split in this folder. Half a pair counts as found: what is missing is then named.
 */
static int locate_pair(const char *dir, enum pp_split split, struct pair *p, bool *out_found)
{
    const char *prefix = split == PP_SPLIT_TRAIN ? "train" : "t10k";
    bool images, labels;
    PP_TRY(pp_path_format(p->dir, "%s", dir));
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
    if (n < 0 || (size_t)n >= room) {
        l->text[used] = '\0'; /* no half names */
    }
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
                     enum pp_split split, struct pair *p)
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

static int check_dims(const char *path, const struct pp_idx *h, int n_dims, const char *what)
{
    if (h->n_dims != n_dims) {
        return pp_fail(PP_EFORMAT, "%s: %d dimensions, expected %d (%s)", path, h->n_dims, n_dims,
                       what);
    }
    return 0;
}

static int check_images(const char *path, const struct pp_idx *h)
{
    return check_dims(path, h, 3, "images, rows, columns");
}

static int check_pair(const struct pair *p, const struct pp_idx *images,
                      const struct pp_idx *labels)
{
    PP_TRY(check_images(p->images, images));
    PP_TRY(check_dims(p->labels, labels, 1, "labels"));
    if (images->dims[0] != labels->dims[0]) {
        return pp_fail(PP_EFORMAT, "%s holds %u images, but %s holds %u labels", p->images,
                       images->dims[0], p->labels, labels->dims[0]);
    }
    return 0;
}

/* Both headers: a rank that reads one file only must refuse what a rank that reads the other one
 * refuses. */
static int read_headers(const struct pair *p, struct pp_idx *images, struct pp_idx *labels)
{
    PP_TRY(pp_idx_read(p->images, images, NULL));
    PP_TRY(pp_idx_read(p->labels, labels, NULL));
    return check_pair(p, images, labels);
}

static int limit(const struct pp_config *cfg, enum pp_split split, uint32_t n)
{
    int most = split == PP_SPLIT_TRAIN ? cfg->data.train_samples : cfg->data.test_samples;
    return most > 0 && (uint32_t)most < n ? most : (int)n;
}

static int check_model(const struct pp_dataset_ops *self, const struct pp_idx *images,
                       int model_inputs, int model_classes)
{
    uint64_t features = (uint64_t)images->dims[1] * images->dims[2];
    if (model_inputs < 0 || (uint64_t)model_inputs != features) {
        return pp_fail(PP_ECONFIG,
                       "model.sizes begins with %d, but an image of %s has %u x %u = %llu bytes",
                       model_inputs, self->info.name, images->dims[1], images->dims[2],
                       (unsigned long long)features);
    }
    if (model_classes < CLASSES) {
        return pp_fail(PP_ECONFIG, "model.sizes ends with %d, but %s has %d classes", model_classes,
                       self->info.name, CLASSES);
    }
    return 0;
}

static uint32_t crc_of(const uint8_t *data, size_t bytes)
{
    return (uint32_t)crc32_z(0, data, bytes);
}

/* Give back what lies beyond the first `bytes`; the block stays valid when that fails. */
static void shrink(uint8_t **data, size_t bytes)
{
    uint8_t *smaller = pp_realloc(*data, bytes, 1);
    if (smaller) {
        *data = smaller;
    }
}

static int read_images(const struct pair *p, struct pp_idx *h, struct pp_dataset *ds)
{
    PP_TRY(pp_idx_read(p->images, h, &ds->images));
    ds->images_crc = crc_of(ds->images, h->bytes);
    return 0;
}

static int read_labels(const struct pair *p, struct pp_idx *h, struct pp_dataset *ds)
{
    PP_TRY(pp_idx_read(p->labels, h, &ds->labels));
    for (size_t i = 0; i < h->bytes; i++) {
        if (ds->labels[i] >= CLASSES) {
            return pp_fail(PP_EFORMAT, "%s: label %zu is %d, expected 0 to %d", p->labels, i,
                           ds->labels[i], CLASSES - 1);
        }
    }
    ds->labels_crc = crc_of(ds->labels, h->bytes);
    return 0;
}

static int open_pair(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                     enum pp_split split, int parts, int model_inputs, int model_classes,
                     struct pp_dataset *ds)
{
    struct pair p;
    struct pp_idx images, labels;
    PP_TRY(find_pair(self, cfg, split, &p));
    PP_TRY(read_headers(&p, &images, &labels));
    PP_TRY(check_model(self, &images, model_inputs, model_classes));
    if (parts & PP_DATA_IMAGES) {
        PP_TRY(read_images(&p, &images, ds));
    }
    if (parts & PP_DATA_LABELS) {
        PP_TRY(read_labels(&p, &labels, ds));
    }
    /* Again, from what was read: a file may have been replaced since its header was looked at. */
    PP_TRY(check_pair(&p, &images, &labels));
    PP_TRY(check_model(self, &images, model_inputs, model_classes));
    ds->n = limit(cfg, split, labels.dims[0]);
    ds->features = model_inputs;
    ds->classes = CLASSES;
    ds->scale = 1.0f / 255.0f;
    if (ds->images && (uint32_t)ds->n < images.dims[0]) {
        shrink(&ds->images, (size_t)ds->n * (size_t)ds->features);
    }
    return pp_path_format(ds->origin, "%s", p.dir);
}

static int count_pair(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                      enum pp_split split, int *out)
{
    struct pair p;
    struct pp_idx images, labels;
    PP_TRY(find_pair(self, cfg, split, &p));
    PP_TRY(read_headers(&p, &images, &labels));
    *out = limit(cfg, split, labels.dims[0]);
    return 0;
}

extern const struct pp_dataset_ops dataset_mnist, dataset_mnist_sample, dataset_fashion_mnist;

const struct pp_dataset_ops dataset_mnist = {
    .info = {.name = "mnist",
             .help = "60,000 + 10,000 handwritten digits of 28 x 28 pixels",
             .features = PIXELS,
             .classes = CLASSES,
             .train_n = 60000,
             .test_n = 10000,
             .fetch_command = "ppcli download mnist"},
    .open = open_pair,
    .count = count_pair,
};

/* The second one lets a freshly built, not installed ppcli train. */
static const char *const sample_places[] = {PP_DATADIR "/data/mnist-sample",
                                            PP_SOURCE_ROOT "/data/mnist-sample", NULL};

const struct pp_dataset_ops dataset_mnist_sample = {
    .info = {.name = "mnist-sample",
             .help = "6,000 + 1,000 digits of MNIST, 600 + 100 of each; comes with ppcli",
             .features = PIXELS,
             .classes = CLASSES,
             .train_n = 6000,
             .test_n = 1000},
    .places = sample_places,
    .open = open_pair,
    .count = count_pair,
};

/* Where Debian's package dataset-fashion-mnist puts its files. */
static const char *const fashion_places[] = {"/usr/share/datasets/fashion-mnist", NULL};

const struct pp_dataset_ops dataset_fashion_mnist = {
    .info = {.name = "fashion-mnist",
             .help = "60,000 + 10,000 pictures of clothes, same shapes as mnist, harder",
             .features = PIXELS,
             .classes = CLASSES,
             .train_n = 60000,
             .test_n = 10000,
             .fetch_command = "ppcli download fashion-mnist"},
    .places = fashion_places,
    .open = open_pair,
    .count = count_pair,
};
