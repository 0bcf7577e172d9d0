/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this module share. */
#ifndef PPCLI_NN_NN_H
#define PPCLI_NN_NN_H

#include "ppcli/model.h"

/* How to make one kind of model from [model]. On failure m may be half built. */
struct model_builder {
    const char *name;
    int (*build)(const struct pp_config *cfg, struct pp_model *m);
};

#define PP_LAYER(x) extern const struct pp_layer_ops layer_##x;
#include "layers.def"
#undef PP_LAYER
#define PP_MODEL(x) extern const struct model_builder model_##x;
#include "models.def"
#undef PP_MODEL

/* Layer number `index` of the model: shape, parameter names, initial bounds. */
void layer_linear_define(int index, int in, int out, enum pp_activation act, struct pp_layer *l);

/* Bounds of "Kaiming uniform": gain * sqrt(3 / fan_in), gain by what follows the layer. */
float init_bound(enum pp_activation act, int fan_in);

#endif
