/* SPDX-License-Identifier: Apache-2.0 */
/* The data set of the user's own pictures: a folder with a folder for each class. */
#include "images.h"

#include <stdlib.h>
#include <unistd.h>

#include "ppcli/base/base.h"
#include "ppcli/base/files.h"
#include "ops.h"

/* Writes how files become samples, and the names of the classes. */
static int describe_samples(const struct pp_config *cfg, const struct images_footer *f,
                            const char *names, char **out)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (!stream)
        return pp_fail(PP_ERESOURCE, "out of memory for the names of classes");
    struct pp_json j = pp_json_begin(stream, 0);
    pp_json_str(&j, "kind", "images");
    pp_json_array(&j, "classes");
    for (uint32_t i = 0; i < f->n_classes; i++, names += strlen(names) + 1)
        pp_json_str(&j, NULL, names);
    pp_json_end(&j);
    pp_json_array(&j, "size");
    pp_json_uint(&j, NULL, f->h);
    pp_json_uint(&j, NULL, f->w);
    pp_json_uint(&j, NULL, f->c);
    pp_json_end(&j);
    pp_json_int(&j, "resize", cfg->data.resize);
    pp_json_int(&j, "crop", cfg->data.crop);
    pp_json_end(&j);
    PP_TRY(pp_text_close(stream, &text, "the names of classes"));
    text[strcspn(text, "\n")] = '\0';
    *out = pp_strdup(text);
    free(text);
    return *out ? 0 : PP_ERESOURCE;
}

/* Checks that the texts at the end of the cache are whole, and sets the remarks. */
static int take_texts(const struct pp_config *cfg, const struct images_footer *f,
                      const struct pp_mapping *map, enum pp_split split, struct pp_dataset *ds)
{
    const char *at = (const char *)map->at + f->text_at;
    const char *end = (const char *)map->at + map->bytes - sizeof(*f), *names = at;
    for (uint32_t i = 0; i < f->n_classes + f->n_remarks; i++) {
        size_t n = strnlen(at, (size_t)(end - at));
        if (at + n >= end)
            return pp_fail(PP_EFORMAT, "%s: damaged; remove it, and it is made again", map->path);
        if (i >= f->n_classes && split == PP_SPLIT_TRAIN)
            pp_dataset_remark(ds, "%s: %s", ds->origin, at);
        at += n + 1;
    }
    return describe_samples(cfg, f, names, &ds->preprocessing);
}

static int open_images(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                       enum pp_split split, int parts, const struct pp_shape *model_input,
                       int model_classes, struct pp_dataset *ds)
{
    struct images_footer f;
    char path[PP_PATH_MAX];
    bool test = split == PP_SPLIT_TEST;
    int fd;
    PP_TRY(images_cache_open(cfg, &f, &fd, path));
    size_t bytes = f.text_at;
    struct stat st;
    bytes = fstat(fd, &st) == 0 ? (size_t)st.st_size : bytes;
    PP_TRY(pp_mapping_open(path, fd, bytes, false, &ds->map));
    size_t sample = (size_t)f.h * f.w * f.c;
    uint8_t *images = ds->map->at + (test ? f.n_train * sample : 0);
    const uint32_t *labels = (const void *)(ds->map->at + f.labels_at);
    ds->n = (int)(test ? f.n_test : f.n_train);
    ds->shape = pp_shape_image((int)f.h, (int)f.w, (int)f.c);
    ds->classes = (int)f.n_classes;
    ds->scale = 1.0f / 255.0f;
    const char *own = test && cfg->data.test_file[0] ? cfg->data.test_file : cfg->data.train_file;
    PP_TRY(pp_path_format(ds->origin, "%s", own[0] ? own : cfg->data.path));
    PP_TRY(take_texts(cfg, &f, ds->map, split, ds));
    if (parts & PP_DATA_LABELS)
        PP_TRY(pp_dataset_set_labels(ds, labels + (test ? f.n_train : 0)));
    if (parts & PP_DATA_IMAGES) {
        ds->images = images;
        ds->images_crc = f.crc[test];
    }
    return 0;
}

extern const struct pp_dataset_ops dataset_images;

const struct pp_dataset_ops dataset_images = {
    .info = {.name = "images",
             .help = "your own JPEG and PNG pictures: data.path is a folder with a folder for each "
                     "class, or with train and test or val, which hold these",
             .sized = true},
    .keys = PP_KEYS_FILES,
    .open = open_images,
};
