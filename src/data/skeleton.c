/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A template for a data set. Copy this file to NAME.c, name its table dataset_NAME and add
 * PP_DATASET(NAME, NAME) to datasets.def. The template itself is in no table, but is compiled and
 * tested (tests/unit/test_data_sets.c). It reads the files that data.train_file and data.test_file
 * name: the number of samples in 4 bytes, the lowest first; then, for each sample, its label and
 * 8 x 8 grey pixels. cifar.c finds its files in a folder that ppcli download fills.
 *
 *   member       used                                                 required
 *   info         by help, checks and explain, without any file        name and help; else if known
 *   keys         to check which keys must name files                  with files of one's own
 *   shipped,     to look for the folder                               with files in a folder
 *   places
 *   makes        by checks: there are no files, and any shape         no
 *   read         by pp_pair_open(), for files that hold one array     no
 *   open         with parts 0 by checks and explain; then by every    yes
 *                rank, with the parts that its stages need
 *   numbers,     for texts: to make the tokenizer                     no
 *   vocabulary
 *
 * Several threads may call open at the same time, so it has no state outside *ds.
 */
#include <zlib.h>

#include "ppcli/base/base.h"
#include "ops.h"

#define SIDE 8
#define PIXELS ((size_t)SIDE * SIDE)
#define CLASSES 10

/* Reads the number of samples. Refuses a number for which the file is too short, before memory is
 * allocated for it. */
static int read_count(struct pp_source *s, const char *path, int *out)
{
    uint8_t b[4];
    PP_TRY(pp_source_pull(s, b, sizeof(b), "header"));
    uint32_t n = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    if (n < 1 || n > PP_ARRAY_DIM_MAX)
        return pp_fail(PP_EFORMAT, "%s: %u samples, expected 1 to %u", path, n, PP_ARRAY_DIM_MAX);
    *out = (int)n;
    return pp_source_holds(s, sizeof(b) + (uint64_t)n * (1 + PIXELS));
}

/* Reads all samples, and keeps the parts (images, labels) that the rank needs. */
static int read_samples(struct pp_source *s, const char *path, int parts, struct pp_dataset *ds)
{
    uint8_t pixels[PIXELS], label, *labels = NULL;
    if (parts & PP_DATA_IMAGES)
        PP_ALLOC(ds->images, (size_t)ds->n * PIXELS);
    if (parts & PP_DATA_LABELS)
        PP_ALLOC(labels, ds->n);
    ds->targets = labels;
    for (int i = 0; i < ds->n; i++) {
        PP_TRY(pp_source_pull(s, &label, 1, "data"));
        PP_TRY(pp_source_pull(s, ds->images ? ds->images + (size_t)i * PIXELS : pixels, PIXELS,
                              "data"));
        if (label >= CLASSES)
            return pp_fail(PP_EFORMAT, "%s: label %d is %d, expected 0 to %d", path, i, label,
                           CLASSES - 1);
        if (labels)
            labels[i] = label;
    }
    return pp_source_finish(s); /* refuses bytes after the last sample */
}

/* Fills *ds, which is zeroed: always its n, shape, classes, scale and origin, and images and labels
 * if `parts` has them. The caller frees *ds, also after a failure. For a wrong file it returns
 * PP_EFORMAT with a message that begins with the file's path. */
static int open_split(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                      enum pp_split split, int parts, const struct pp_shape *model_input,
                      int model_classes, struct pp_dataset *ds)
{
    const char *path = split == PP_SPLIT_TRAIN ? cfg->data.train_file : cfg->data.test_file;
    PP_OWN(pp_source_close) struct pp_source *s = NULL;
    PP_TRY(pp_source_open(path, PP_SOURCE_INFLATED, &s));
    PP_TRY(read_count(s, path, &ds->n));
    ds->shape = pp_shape_image(SIDE, SIDE, 1);
    ds->classes = CLASSES;
    ds->scale = 1.0f / 255.0f; /* makes a pixel 0 to 1 */
    if (parts)
        PP_TRY(read_samples(s, path, parts, ds));
    if (ds->images) /* a checkpoint remembers these, to notice other data */
        ds->images_crc = (uint32_t)crc32_z(0, ds->images, (size_t)ds->n * PIXELS);
    if (ds->targets)
        ds->labels_crc = (uint32_t)crc32_z(0, ds->targets, (size_t)ds->n);
    pp_keep_samples(ds, pp_samples_max(cfg, split));
    return pp_path_format(ds->origin, "%s", path);
}

extern const struct pp_dataset_ops dataset_skeleton; /* PP_DATASET declares the others */
const struct pp_dataset_ops dataset_skeleton = {
    .info = {.name = "skeleton", /* of data.dataset */
             .help = "a template for a data set",
             .shape = {3, {SIDE, SIDE, 1}},
             .classes = CLASSES},
    .keys = PP_KEYS_TABLES,
    .open = open_split,
};
