/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the exports of a checkpoint to other formats share. */
#ifndef PPCLI_CKPT_EXPORT_H
#define PPCLI_CKPT_EXPORT_H

#include "impl.h"
#include "safetensors.h"

struct exporter {
    const struct pp_ckpt *ck;
    const struct pp_config *cfg;
    bool gpt;
    bool buffers;             /* include running statistics */
    struct pp_st_item *items; /* [n] sorted by name; read gives floats, or counts */
    int n;
    struct export_source {
        const struct pp_st_file *file; /* NULL: zeros */
        const struct pp_st_tensor *t;
        const struct pp_ckpt *ck;
        char name[PP_ST_NAME_MAX + 1];
    } * sources; /* [n] */
};

void export_fini(struct exporter *e);

/* Returns dimension d of a tensor; 0 if the tensor or the dimension does not exist. Tensors show
 * the sizes that a config leaves to the data or to a rule. */
int64_t export_dim(const struct exporter *e, const char *name, int d);

/* Write the export to `path`, each in one format. */
int export_gguf(struct exporter *e, const struct pp_export *x, const char *path);
int export_onnx(struct exporter *e, const struct pp_export *x, const char *path);
int export_torch(struct exporter *e, const struct pp_export *x, const char *path);

#endif
