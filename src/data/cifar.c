/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CIFAR's binary files: records of a label byte and 3072 bytes of a picture, its red plane first,
 * then green and blue. In memory the three values of a pixel are adjacent. A folder of CIFAR-10
 * holds data_batch_1.bin to data_batch_5.bin, or some of them, and test_batch.bin; one of CIFAR-100,
 * whose records have the label of 20 classes first and then that of 100, train.bin and test.bin. All
 * are plain or gzipped, with any number of records.
 */
#include <string.h>

#include <zlib.h>

#include "ppcli/base/base.h"
#include "ops.h"

#define CLASSES 10
#define CLASSES_100 100
#define PIXELS ((size_t)32 * 32)
#define RECORD (1 + 3 * PIXELS)
#define FILES_MAX 5
#define RECORD_100 (RECORD + 1) /* CIFAR-100 has two labels */

struct batches {
    char path[FILES_MAX][PP_PATH_MAX];
    int n;
    int labels, classes; /* labels of a record, of which the last one counts, and its classes */
};

/* Returns the bytes of a record. */
static size_t record_bytes(const struct batches *b)
{
    return (size_t)b->labels + 3 * PIXELS;
}

static int refuse_100(const char *path)
{
    return pp_fail(
        PP_EFORMAT,
        "%s: CIFAR-100, records of %zu bytes with two labels; use data.dataset = cifar100", path,
        RECORD_100);
}

/* Refuses a folder without binary batches if it has other files: the batches for Python, or those
 * of CIFAR-100. The error names the file. */
static int name_others(const char *dir, enum pp_split split)
{
    bool train = split == PP_SPLIT_TRAIN, found;
    char path[PP_PATH_MAX];
    PP_TRY(pp_folder_file(dir, train ? "data_batch_1" : "test_batch", path, &found));
    if (found) {
        return pp_fail(PP_EFORMAT,
                       "%s: of CIFAR-10's version for Python, a pickle, which is a program and is "
                       "not run; use its binary version, as `ppcli download cifar10` fetches it",
                       path);
    }
    PP_TRY(pp_folder_file(dir, train ? "train.bin" : "test.bin", path, &found));
    return found ? refuse_100(path) : 0;
}

static int locate_batches(const char *dir, enum pp_split split, void *batches, bool *out_found)
{
    struct batches *b = batches;
    if (b->labels == 2) {
        PP_TRY(pp_folder_file(dir, split == PP_SPLIT_TRAIN ? "train.bin" : "test.bin", b->path[0],
                              out_found));
        b->n = *out_found;
        return 0;
    }
    for (int i = 1; i <= FILES_MAX; i++) {
        char name[32];
        bool found = false;
        snprintf(name, sizeof(name), "data_batch_%d.bin", i);
        if (split == PP_SPLIT_TRAIN || i == 1) {
            PP_TRY(pp_folder_file(dir, split == PP_SPLIT_TRAIN ? name : "test_batch.bin",
                                  b->path[b->n], &found));
        }
        b->n += found;
    }
    *out_found = b->n > 0;
    return b->n > 0 ? 0 : name_others(dir, split);
}

/* Grows the memory of `ds`, if needed, so that one more record fits. */
static int grow_dataset(struct pp_dataset *ds, int parts, int *capacity)
{
    if (ds->n < *capacity)
        return 0;
    size_t larger = (size_t)*capacity * 2 + 1000;
    uint8_t *labels = pp_realloc(ds->targets, larger, 1);
    ds->targets = labels ? labels : ds->targets;
    uint8_t *images = parts & PP_DATA_IMAGES ? pp_realloc(ds->images, larger, 3 * PIXELS) : NULL;
    ds->images = images ? images : ds->images;
    if (!labels || (parts & PP_DATA_IMAGES && !images))
        return PP_ERESOURCE;
    *capacity = (int)larger;
    return 0;
}

/* Takes a record whose label is `label`, followed by the picture. */
static void take_record(struct pp_dataset *ds, const uint8_t *label)
{
    ((uint8_t *)ds->targets)[ds->n] = label[0];
    uint8_t *to = ds->images ? ds->images + (size_t)ds->n * 3 * PIXELS : NULL;
    for (size_t p = 0; to && p < PIXELS; p++)
        for (size_t c = 0; c < 3; c++)
            to[3 * p + c] = label[1 + c * PIXELS + p];
    ds->n++;
}

/* Refuses files that are not of this CIFAR: files of another kind, or of the other one. `bytes` were
 * read before. */
static int check_records(struct pp_source *s, const char *path, int labels, uint64_t bytes)
{
    uint8_t piece[4096];
    size_t got = 1;
    PP_TRY(pp_source_foreign(s));
    for (; got > 0; bytes += got)
        PP_TRY(pp_source_read(s, piece, sizeof(piece), &got));
    if (labels == 2 && bytes % RECORD == 0 && bytes % RECORD_100 != 0)
        return pp_fail(PP_EFORMAT, "%s: CIFAR-10, records of %zu bytes; use data.dataset = cifar10",
                       path, RECORD);
    return labels == 1 && bytes > 0 && bytes % RECORD_100 == 0 && bytes % RECORD != 0
               ? refuse_100(path)
               : 0;
}

static int read_records(struct pp_source *s, const struct batches *b, const char *path, int parts,
                        struct pp_dataset *ds, int *capacity)
{
    const size_t bytes = record_bytes(b);
    uint8_t record[RECORD_100];
    const uint8_t *label = &record[b->labels - 1];
    for (int i = 0;; i++) {
        size_t got = 0;
        PP_TRY(pp_source_read(s, record, bytes, &got));
        if (got == 0 && i > 0)
            return 0;
        bool whole = got == bytes && *label < b->classes;
        PP_TRY(whole ? 0 : check_records(s, path, b->labels, (uint64_t)i * bytes + got));
        if (got < bytes) {
            return pp_fail(PP_EFORMAT,
                           "%s: cut short: %d whole records of %zu bytes, then %zu bytes", path, i,
                           bytes, got);
        }
        if (*label >= b->classes) {
            return pp_fail(PP_EFORMAT, "%s: record %d has label %d, expected 0 to %d", path, i,
                           *label, b->classes - 1);
        }
        PP_TRY(grow_dataset(ds, parts, capacity));
        take_record(ds, label);
    }
}

static int read_all(const struct batches *b, int parts, struct pp_dataset *ds)
{
    int capacity = 0;
    for (int i = 0; i < b->n; i++) {
        PP_OWN(pp_source_close) struct pp_source *s = NULL;
        PP_TRY(pp_source_open(b->path[i], PP_SOURCE_INFLATED, &s));
        PP_TRY(read_records(s, b, b->path[i], parts, ds, &capacity));
    }
    return 0;
}

static int open_cifar(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                      enum pp_split split, int parts, const struct pp_shape *model_input,
                      int model_classes, struct pp_dataset *ds)
{
    bool fine = self->info.classes == CLASSES_100;
    struct batches b = {.n = 1, .labels = fine ? 2 : 1, .classes = self->info.classes};
    const char *own = split == PP_SPLIT_TRAIN ? cfg->data.train_file : cfg->data.test_file;
    if (own[0]) {
        PP_TRY(pp_path_format(b.path[0], "%s", own));
    } else {
        b.n = 0;
        PP_TRY(pp_folder_find(self, cfg, split, locate_batches, &b));
    }
    ds->shape = pp_shape_image(32, 32, 3);
    ds->classes = b.classes;
    ds->scale = 1.0f / 255.0f;
    PP_TRY(read_all(&b, parts, ds));
    if (parts & PP_DATA_LABELS) {
        ds->labels_crc = (uint32_t)crc32_z(0, ds->targets, (size_t)ds->n);
    } else {
        pp_free(ds->targets);
        ds->targets = NULL;
    }
    if (ds->images)
        ds->images_crc = (uint32_t)crc32_z(0, ds->images, (size_t)ds->n * 3 * PIXELS);
    pp_keep_samples(ds, pp_samples_max(cfg, split));
    const char *slash = own[0] ? NULL : strrchr(b.path[0], '/');
    return pp_path_format(ds->origin, "%.*s", (int)(slash ? slash - b.path[0] : PP_PATH_MAX),
                          b.path[0]);
}

extern const struct pp_dataset_ops dataset_cifar10, dataset_cifar10_sample, dataset_cifar100;

const struct pp_dataset_ops dataset_cifar10 = {
    .info = {.name = "cifar10",
             .help = "50,000 + 10,000 colour pictures of 32 x 32 pixels, or those of your own "
                     "binary files, as data.train_file and data.test_file name them",
             .shape = {3, {32, 32, 3}},
             .classes = CLASSES,
             .train_n = 50000,
             .test_n = 10000,
             .fetch_command = "ppcli download cifar10"},
    .keys = PP_KEYS_FILES,
    .open = open_cifar,
};

const struct pp_dataset_ops dataset_cifar10_sample = {
    .info = {.name = "cifar10-sample",
             .help = "500 + 100 pictures like those of cifar10, 50 + 10 of each class; comes with "
                     "ppcli",
             .shape = {3, {32, 32, 3}},
             .classes = CLASSES,
             .train_n = 500,
             .test_n = 100},
    .shipped = "data/cifar10-sample",
    .open = open_cifar,
};

const struct pp_dataset_ops dataset_cifar100 = {
    .info = {.name = "cifar100",
             .help = "50,000 + 10,000 colour pictures of 32 x 32 pixels, 100 classes; files as of "
                     "cifar10, with two labels a record, of which the second counts",
             .shape = {3, {32, 32, 3}},
             .classes = CLASSES_100,
             .train_n = 50000,
             .test_n = 10000,
             .fetch_command = "ppcli download cifar100"},
    .keys = PP_KEYS_FILES,
    .open = open_cifar,
};
