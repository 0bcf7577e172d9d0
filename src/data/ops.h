/* SPDX-License-Identifier: Apache-2.0 */
/* What a data set of datasets.def must provide; callers use the functions of ppcli/dataset.h. */
#ifndef PPCLI_DATA_OPS_H
#define PPCLI_DATA_OPS_H

#include "ppcli/dataset.h"
#include "array.h"

/* The keys that name a person's own files. */
enum pp_data_keys {
    PP_KEYS_NONE,
    PP_KEYS_PAIRS, /* data.train_images, train_labels, test_images, test_labels */
    PP_KEYS_TABLES /* data.train_file, test_file */
};

struct pp_dataset_ops {
    struct pp_dataset_info info;
    const char *const *places; /* further folders to look in, NULL-terminated; NULL: none */
    enum pp_data_keys keys;
    pp_array_read *read; /* of a file of PP_KEYS_PAIRS */

    /*
     * Fill *ds, which is zeroed and has its name. parts 0: only what the headers tell: n, features,
     * shape, and classes where they are known. model_inputs and model_classes are for data that is
     * made. On failure the caller frees what is in it.
     */
    int (*open)(const struct pp_dataset_ops *self, const struct pp_config *cfg, enum pp_split split,
                int parts, int model_inputs, int model_classes, struct pp_dataset *ds);
};

/* A split in two files: samples and labels. */
struct pp_pair {
    char images[PP_PATH_MAX], labels[PP_PATH_MAX];
    pp_array_read *read;
    int classes; /* 0: one more than the largest label */
};

int pp_pair_open(const struct pp_pair *p, int samples_max, int parts, struct pp_dataset *ds);

/* data.train_samples or test_samples; 0: all. */
int pp_samples_max(const struct pp_config *cfg, enum pp_split split);

/* ds->classes from its labels; PP_EFORMAT when there is one class only. */
int pp_classes_of_labels(struct pp_dataset *ds, const char *path);

#endif
