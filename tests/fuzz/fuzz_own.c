/* SPDX-License-Identifier: Apache-2.0 */
/* A person's own tables and arrays: what is accepted has finite values and labels in range. */
#include <math.h>

#include "fuzz.h"
#include "ppcli/data/dataset.h"

static struct fuzz_file file = {-1, ""}, labels = {-1, ""};

static void check(const struct pp_dataset *ds)
{
    const float *v = (const float *)(const void *)ds->images;
    pp_assert(ds->n > 0 && ds->features > 0 && ds->element == PP_F32);
    for (size_t i = 0; i < (size_t)ds->n * (size_t)ds->features; i++)
        pp_assert(isfinite(v[i]));
    for (int i = 0; i < ds->n; i++)
        pp_assert((int)pp_dataset_label(ds, i) < ds->classes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct pp_config cfg;
    PP_OWN(pp_dataset_destroy) struct pp_dataset *ds = NULL, *look = NULL;
    bool npy = size > 0 && data[0] == 0x93;
    const char *path = fuzz_file(&file, data, size);
    snprintf(cfg.data.dataset, sizeof(cfg.data.dataset), "%s", npy ? "npy" : "csv");
    snprintf(cfg.data.label, sizeof(cfg.data.label), size % 2 ? "last" : "first");
    snprintf(cfg.data.train_file, PP_PATH_MAX, "%s", path);
    snprintf(cfg.data.train_images, PP_PATH_MAX, "%s", path);
    /* two labels: arrays of two samples are accepted */
    static const char two[] = "\x93NUMPY\1\0\x3d\0{'descr': '|u1', 'fortran_order': False, "
                              "'shape': (2,)}      \0\1";
    snprintf(cfg.data.train_labels, PP_PATH_MAX, "%s", fuzz_file(&labels, two, sizeof(two) - 1));
    int rc = pp_dataset_look(&cfg, PP_SPLIT_TRAIN, &look);
    if (rc == 0) {
        rc = pp_dataset_open(&cfg, PP_SPLIT_TRAIN, PP_DATA_IMAGES | PP_DATA_LABELS, &look->shape,
                             look->classes, &ds);
    }
    if (rc < 0) {
        fuzz_refused(rc);
    } else {
        pp_assert(ds->n == look->n && ds->classes == look->classes);
        check(ds);
    }
    return 0;
}
