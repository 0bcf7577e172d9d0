/* SPDX-License-Identifier: Apache-2.0 */
/* Splits in two files, samples and labels, and the data sets of the user's own such files. */
#include <math.h>
#include <string.h>

#include <zlib.h>

#include "ppcli/base/base.h"
#include "ops.h"

#define CHANNELS_FEW 4 /* a picture usually has no more */

static int check_pair(const struct pp_pair *p, const struct pp_array *images,
                      const struct pp_array *labels)
{
    if (images->n_dims < 2) {
        return pp_fail(PP_EFORMAT,
                       "%s: 1 dimension, expected 2 to 4 (samples, then values or rows, columns, "
                       "channels)",
                       p->images);
    }
    if (labels->n_dims > (p->numbers ? 2 : 1) && labels->n != labels->dims[0]) {
        return pp_fail(PP_EFORMAT, "%s: %d dimensions, expected %s", p->labels, labels->n_dims,
                       p->numbers ? "1 or 2 (samples, then the numbers of each)" : "1 (labels)");
    }
    if (images->dims[0] != labels->dims[0]) {
        return pp_fail(PP_EFORMAT, "%s holds %u images, but %s holds %u labels", p->images,
                       images->dims[0], p->labels, labels->dims[0]);
    }
    return 0;
}

/* Shrinks a block of memory to its first `bytes`; if that fails, the block stays as it is. */
static void shrink_block(uint8_t **data, size_t bytes)
{
    uint8_t *smaller = pp_realloc(*data, bytes, 1);
    *data = smaller ? smaller : *data;
}

/* Returns the checksum that n bytes would have as floats. Checkpoints contain it, because bytes of
 * npy files used to be stored as floats. */
static uint32_t sum_as_floats(const uint8_t *from, size_t n)
{
    float piece[1024];
    uLong crc = 0;
    for (size_t at = 0, k; at < n; at += k) {
        for (k = 0; k < 1024 && at + k < n; k++)
            piece[k] = from[at + k];
        crc = crc32_z(crc, (const uint8_t *)piece, k * sizeof(*piece));
    }
    return (uint32_t)crc;
}

static int read_images(const struct pp_pair *p, struct pp_array *a, struct pp_dataset *ds)
{
    PP_TRY(p->read(p->images, a, (void **)&ds->images));
    ds->images_crc = p->read == pp_npy_read && a->pixels
                         ? sum_as_floats(ds->images, a->n)
                         : (uint32_t)crc32_z(0, ds->images, a->n * pp_element_bytes(ds->element));
    return 0;
}

/* Returns element i of an array that was read. */
static float read_value(const struct pp_array *a, const void *data, size_t i)
{
    return a->pixels ? (float)((const uint8_t *)data)[i] : ((const float *)data)[i];
}

/* Makes the array the numbers to predict: a row for each sample. */
static int take_numbers(const struct pp_array *a, const void *data, struct pp_dataset *ds)
{
    float *numbers;
    PP_ALLOC(numbers, a->n);
    for (size_t i = 0; i < a->n; i++)
        numbers[i] = read_value(a, data, i);
    pp_dataset_set_numbers(ds, ds->targets_each, numbers);
    return 0;
}

#define LABEL_MAX 16777215 /* whole numbers up to here are exact in a float */

/* Makes the array the labels: classes, whole numbers from 0. */
static int take_labels(const struct pp_pair *p, const struct pp_array *a, const void *data,
                       struct pp_dataset *ds)
{
    PP_TAKE(uint32_t, labels, a->n);
    int most = p->classes > 0 ? p->classes - 1 : LABEL_MAX;
    for (size_t i = 0; i < a->n; i++) {
        float v = read_value(a, data, i);
        if (!(v >= 0 && v <= (float)most && v == floorf(v))) {
            return pp_fail(PP_EFORMAT, "%s: label %zu is %g, expected %s0 to %d%s", p->labels, i,
                           (double)v, a->pixels ? "" : "a whole number from ", most,
                           p->classes > 0 || v == floorf(v)
                               ? ""
                               : "; numbers to predict need train.loss = mse, mae, huber or bce");
        }
        labels[i] = (uint32_t)v;
    }
    return pp_dataset_set_labels(ds, labels);
}

void pp_keep_samples(struct pp_dataset *ds, int samples_max)
{
    if (samples_max == 0 || samples_max >= ds->n)
        return;
    ds->n = samples_max;
    size_t sample = pp_shape_floats(&ds->shape) * pp_element_bytes(ds->element);
    if (ds->images)
        shrink_block(&ds->images, (size_t)ds->n * sample);
}

int pp_classes_of_labels(struct pp_dataset *ds, enum pp_split split, const char *path)
{
    int most = 0;
    for (int i = 0; i < ds->n; i++) {
        const int label = (int)pp_dataset_label(ds, (size_t)i);
        most = label > most ? label : most;
    }
    ds->classes = most + 1;
    return most > 0 || split == PP_SPLIT_TEST
               ? 0
               : pp_fail(PP_EFORMAT,
                         "%s: every label is 0: with one class there is nothing to learn", path);
}

/* Reads the targets of all samples; ds->n is set. */
static int read_labels(const struct pp_pair *p, struct pp_array *a, struct pp_dataset *ds)
{
    void *data = NULL;
    PP_TRY(p->read(p->labels, a, &data));
    PP_OWN_MEMORY void *owned = data;
    if (a->dims[0] != (uint32_t)ds->n)
        return pp_fail(PP_EFORMAT, "%s changed while it was read", p->labels);
    return p->numbers ? take_numbers(a, owned, ds) : take_labels(p, a, owned, ds);
}

/* Returns whether an array [n][a][b][c] has its channels first, in a, and not last, in c. Two
 * adjacent sizes that are equal are the height and the width; if all three are equal, a and b are.
 * Otherwise the channels are first only if a is small and c is not. */
static bool is_channels_first(const uint32_t *d)
{
    uint32_t a = d[1], b = d[2], c = d[3];
    return a == b || b == c ? a != b : a <= CHANNELS_FEW && c > CHANNELS_FEW;
}

/* Converts n samples in place from [c][h][w] to [h][w][c]. A value has `each` bytes. */
static int move_channels(const struct pp_shape *s, size_t n, size_t each, uint8_t *data)
{
    size_t pixels = (size_t)s->dims[0] * (size_t)s->dims[1], channels = (size_t)s->dims[2];
    size_t bytes = pixels * channels * each;
    PP_TAKE(uint8_t, from, bytes);
    for (size_t i = 0; i < n; i++, data += bytes) {
        memcpy(from, data, bytes);
        for (size_t p = 0; p < pixels; p++)
            for (size_t c = 0; c < channels; c++)
                memcpy(data + (p * channels + c) * each, from + (c * pixels + p) * each, each);
    }
    return 0;
}

static int shape_samples(const struct pp_pair *p, const struct pp_array *a, struct pp_dataset *ds)
{
    const uint32_t *d = a->dims;
    bool first = a->n_dims == 4 && (p->layout == PP_LAYOUT_CHANNELS_FIRST ||
                                    (p->layout == PP_LAYOUT_AUTO && is_channels_first(d)));
    ds->shape = a->n_dims == 2 ? pp_shape_flat((int)d[1])
                : first        ? pp_shape_image((int)d[2], (int)d[3], (int)d[1])
                               : pp_shape_image((int)d[1], (int)d[2], (int)d[3]);
    if (a->n_dims == 4 && p->layout == PP_LAYOUT_AUTO && (first || d[3] > CHANNELS_FEW)) {
        pp_dataset_remark(ds,
                          "%s: [%u][%u][%u][%u] is read as pictures of %d x %d pixels with %d "
                          "channels; if so, say it with data.layout = %s, else use %s",
                          p->images, d[0], d[1], d[2], d[3], ds->shape.dims[0], ds->shape.dims[1],
                          ds->shape.dims[2], first ? "channels_first" : "channels_last",
                          first ? "channels_last" : "channels_first");
    }
    return first && ds->images && d[1] > 1
               ? move_channels(&ds->shape, d[0], pp_element_bytes(ds->element), ds->images)
               : 0;
}

int pp_pair_open(const struct pp_pair *p, int samples_max, int parts, struct pp_dataset *ds)
{
    struct pp_array images, labels;
    /* Reads both headers: a rank that reads one file only must refuse what another rank refuses. */
    PP_TRY(p->read(p->images, &images, NULL));
    PP_TRY(p->read(p->labels, &labels, NULL));
    PP_TRY(check_pair(p, &images, &labels));
    if (p->classes > 0 && !images.pixels)
        return pp_fail(PP_EFORMAT, "%s: its pixels are not unsigned bytes", p->images);
    ds->element = images.pixels ? PP_U8 : PP_F32;
    const uint32_t *d = images.dims;
    if (parts & PP_DATA_IMAGES) {
        struct pp_array header;
        PP_TRY(read_images(p, &header, ds));
        bool same =
            header.pixels == images.pixels && memcmp(header.dims, d, sizeof(header.dims)) == 0;
        images.n = same ? images.n : 0;
    }
    if (d[0] == 0 || images.n == 0)
        return pp_fail(PP_EFORMAT, "%s changed while it was read", p->images);
    ds->n = (int)d[0];
    ds->scale = images.pixels ? 1.0f / 255.0f : 1.0f;
    ds->classes = p->classes;
    if (p->numbers)
        pp_dataset_set_numbers(ds, (int)(labels.n / d[0]), NULL);
    if (parts & PP_DATA_LABELS || (p->classes == 0 && !p->numbers))
        PP_TRY(read_labels(p, &labels, ds));
    PP_TRY(p->classes == 0 && !p->numbers ? pp_classes_of_labels(ds, p->split, p->labels) : 0);
    PP_TRY(shape_samples(p, &images, ds));
    pp_keep_samples(ds, samples_max);
    if (!(parts & PP_DATA_LABELS) && ds->targets) {
        pp_free(ds->targets);
        ds->targets = NULL;
        ds->labels_crc = 0;
    }
    return 0;
}

static int open_own(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                    enum pp_split split, int parts, const struct pp_shape *model_input,
                    int model_classes, struct pp_dataset *ds)
{
    bool train = split == PP_SPLIT_TRAIN;
    struct pp_pair p = {.read = self->read,
                        .split = split,
                        .layout = cfg->data.layout,
                        .numbers = pp_loss_takes_numbers(cfg->train.loss)};
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
