/* SPDX-License-Identifier: Apache-2.0 */
/* A split in two files, samples and labels, and the data sets of one's own such files. */
#include <math.h>
#include <string.h>

#include <zlib.h>

#include "ppcli/mem.h"
#include "ops.h"

static int check_pair(const struct pp_pair *p, const struct pp_array *images,
                      const struct pp_array *labels)
{
    if (images->n_dims < 2) {
        return pp_fail(PP_EFORMAT,
                       "%s: 1 dimension, expected 2 to 4 (samples, then values or rows, columns, "
                       "channels)",
                       p->images);
    }
    if (labels->n != labels->dims[0]) {
        return pp_fail(PP_EFORMAT, "%s: %d dimensions, expected 1 (labels)", p->labels,
                       labels->n_dims);
    }
    if (images->dims[0] != labels->dims[0]) {
        return pp_fail(PP_EFORMAT, "%s holds %u images, but %s holds %u labels", p->images,
                       images->dims[0], p->labels, labels->dims[0]);
    }
    return 0;
}

/* Give back what lies beyond the first `bytes`; the block stays valid when that fails. */
static void shrink(uint8_t **data, size_t bytes)
{
    uint8_t *smaller = pp_realloc(*data, bytes, 1);
    *data = smaller ? smaller : *data;
}

static int read_images(const struct pp_pair *p, struct pp_array *a, struct pp_dataset *ds)
{
    PP_TRY(p->read(p->images, a, (void **)&ds->images));
    ds->images_crc = (uint32_t)crc32_z(0, ds->images, a->n * pp_element_bytes(ds->element));
    return 0;
}

/* Floats, which come from npy, to the bytes that labels are. */
static int to_bytes(const char *path, uint8_t **data, size_t n)
{
    const float *from = (const float *)(const void *)*data;
    uint8_t *to = *data; /* behind the reader all the time */
    for (size_t i = 0; i < n; i++) {
        float v = from[i];
        if (!(v >= 0 && v <= 255 && v == floorf(v))) {
            return pp_fail(PP_EFORMAT, "%s: label %zu is %g, expected a whole number from 0 to 255",
                           path, i, (double)v);
        }
        to[i] = (uint8_t)v;
    }
    shrink(data, n);
    return 0;
}

void pp_keep_samples(struct pp_dataset *ds, int samples_max)
{
    if (samples_max == 0 || samples_max >= ds->n)
        return;
    ds->n = samples_max;
    size_t sample = pp_shape_floats(&ds->shape) * pp_element_bytes(ds->element);
    if (ds->images)
        shrink(&ds->images, (size_t)ds->n * sample);
}

int pp_classes_of_labels(struct pp_dataset *ds, enum pp_split split, const char *path)
{
    int most = 0;
    for (int i = 0; i < ds->n; i++)
        most = ds->labels[i] > most ? ds->labels[i] : most;
    ds->classes = most + 1;
    return most > 0 || split == PP_SPLIT_TEST
               ? 0
               : pp_fail(PP_EFORMAT,
                         "%s: every label is 0: with one class there is nothing to learn", path);
}

static int read_labels(const struct pp_pair *p, struct pp_array *a, struct pp_dataset *ds)
{
    PP_TRY(p->read(p->labels, a, (void **)&ds->labels));
    if (ds->element != PP_U8)
        PP_TRY(to_bytes(p->labels, &ds->labels, a->n));
    for (size_t i = 0; p->classes > 0 && i < a->n; i++) {
        if (ds->labels[i] >= p->classes) {
            return pp_fail(PP_EFORMAT, "%s: label %zu is %d, expected 0 to %d", p->labels, i,
                           ds->labels[i], p->classes - 1);
        }
    }
    ds->labels_crc = (uint32_t)crc32_z(0, ds->labels, a->n);
    return 0;
}

int pp_pair_open(const struct pp_pair *p, int samples_max, int parts, struct pp_dataset *ds)
{
    struct pp_array images, labels;
    ds->element = p->read == pp_idx_read ? PP_U8 : PP_F32;
    /* Both headers: a rank that reads one file only must refuse what the other rank refuses. */
    PP_TRY(p->read(p->images, &images, NULL));
    PP_TRY(p->read(p->labels, &labels, NULL));
    PP_TRY(check_pair(p, &images, &labels));
    const uint32_t *d = images.dims;
    if (parts & PP_DATA_IMAGES) {
        struct pp_array again;
        PP_TRY(read_images(p, &again, ds));
        images.n = memcmp(again.dims, d, sizeof(again.dims)) == 0 ? images.n : 0;
    }
    if (parts & PP_DATA_LABELS || p->classes == 0)
        PP_TRY(read_labels(p, &labels, ds));
    if (d[0] == 0 || images.n == 0 || labels.n != d[0])
        return pp_fail(PP_EFORMAT, "%s changed while it was read", p->images);
    ds->n = (int)d[0];
    ds->scale = images.pixels ? 1.0f / 255.0f : 1.0f;
    ds->classes = p->classes;
    PP_TRY(p->classes == 0 ? pp_classes_of_labels(ds, p->split, p->labels) : 0);
    ds->shape = images.n_dims == 2 ? pp_shape_flat((int)d[1])
                                   : pp_shape_image((int)d[1], (int)d[2], (int)d[3]);
    pp_keep_samples(ds, samples_max);
    if (!(parts & PP_DATA_LABELS)) {
        pp_free(ds->labels);
        ds->labels = NULL;
        ds->labels_crc = 0;
    }
    return 0;
}

static int open_own(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                    enum pp_split split, int parts, const struct pp_shape *model_input,
                    int model_classes, struct pp_dataset *ds)
{
    bool train = split == PP_SPLIT_TRAIN;
    struct pp_pair p = {.read = self->read, .split = split};
    PP_TRY(pp_path_format(p.images, "%s", train ? cfg->data.train_images : cfg->data.test_images));
    PP_TRY(pp_path_format(p.labels, "%s", train ? cfg->data.train_labels : cfg->data.test_labels));
    PP_TRY(pp_pair_open(&p, pp_samples_max(cfg, split), parts, ds));
    return pp_path_format(ds->origin, "%s", p.images);
}

extern const struct pp_dataset_ops dataset_idx, dataset_npy;

const struct pp_dataset_ops dataset_idx = {
    .info = {.name = "idx", .help = "your own IDX files, as data.train_images and so on name them"},
    .keys = PP_KEYS_PAIRS,
    .read = pp_idx_read,
    .open = open_own,
};

const struct pp_dataset_ops dataset_npy = {
    .info = {.name = "npy",
             .help = "your own NumPy files, named by the same keys",
             .element = PP_F32},
    .keys = PP_KEYS_PAIRS,
    .read = pp_npy_read,
    .open = open_own,
};
