/* SPDX-License-Identifier: Apache-2.0 */
/* What a data set of datasets.def must provide; callers use the functions of ppcli/dataset.h. */
#ifndef PPCLI_DATA_OPS_H
#define PPCLI_DATA_OPS_H

#include "ppcli/dataset.h"

struct pp_dataset_ops {
    struct pp_dataset_info info;
    const char *const *places; /* further folders to look in, NULL-terminated; NULL: none */

    /* Fill *ds, which is zeroed and has its name. On failure the caller frees what is in it. */
    int (*open)(const struct pp_dataset_ops *self, const struct pp_config *cfg, enum pp_split split,
                int parts, int model_inputs, int model_classes, struct pp_dataset *ds);

    /* As pp_dataset_count(). */
    int (*count)(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                 enum pp_split split, int *out);
};

#endif
